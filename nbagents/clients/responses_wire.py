"""From messages, tools and options to the body of a Responses request: pure functions, nothing is sent here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagents.clients.call_ids import CallIds
from nbagents.clients.responses_tools import approval_items, hosted_item
from nbagents.clients.wire_text import argument_text, clean_text, function_name
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    Content,
    DataContent,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool
from nbagents.core.messages import Message
from nbagents.core.outputs import output_format
from nbagents.core.tools import ToolDefinition

WIRE_KEY = "responses"
"""Where a message keeps its wire form: it is converted once, not once per request."""

FILE_SCHEME = "openai-file:"
"""How the address of a file begins that OpenAI holds: its id follows."""
_SAME_NAME = ("temperature", "top_p", "parallel_tool_calls", "metadata", "user")
_NOT_THERE = ("stop", "seed", "logit_bias", "frequency_penalty", "presence_penalty")
_SERVICES = ("api.openai.com", ".azure.com", ".azure.us", ".azure.cn")
"""How the hosts end where what Responses does not have is refused."""
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_KEPT_OF_TEXT = "phase"
"""What the service says of a message and wants to be given back with it."""


def wire_input(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return `messages` as the items of a request.

    Ids of calls are the provider's while they are there and unique in the conversation, else ours; a result carries the
    id of its call. Reasoning goes out where it is encrypted and something follows that it led to: the service refuses
    it alone. The names of authors have no place there.
    """
    ids = CallIds()
    sent: list[dict[str, Any]] = []
    asked = False
    for message in messages:
        entries = message.wire.get(WIRE_KEY)
        if entries is None:
            entries = message.wire[WIRE_KEY] = list(_entries(message))
        if message.role == "tool":
            entries = _with_ids(entries, "function_call_output", ids.answer(message))
        elif message.role == "assistant":
            kinds = {entry["type"] for entry in entries}
            if "function_call" in kinds:
                entries = _with_ids(entries, "function_call", ids.open(message))
            asked = asked or "mcp_approval_request" in kinds
        sent.extend(entries)
    return _with_answered(sent) if asked else sent


def without_lost_answers(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `items` without answers to questions of the service that are not among them, or had their answer before.

    Such an answer is refused, where the service has nothing else to go on from.
    """
    waiting: set[Any] = set()
    kept: list[dict[str, Any]] = []
    for item in items:
        if item["type"] == "mcp_approval_request":
            waiting.add(item["id"])
        elif item["type"] == "mcp_approval_response":
            if item["approval_request_id"] not in waiting:
                continue
            waiting.discard(item["approval_request_id"])
        kept.append(item)
    return kept


def wire_tools(tools: Sequence[ToolDefinition | HostedTool]) -> list[dict[str, Any]]:
    """Return `tools` as the service takes them: strict wherever that can be, which is its own default."""
    return [
        {"type": tool.type, **tool.options} if isinstance(tool, HostedTool) else _wire_function(tool.strict_form)
        for tool in tools
    ]


def wire_options(options: Mapping[str, Any], *, host: str, reasoning_summary: str | None = None) -> dict[str, Any]:
    """Return `options`, which have their Chat Completions names, as the service takes them; without `store`.

    `stop`, `seed`, `logit_bias` and the penalties, which Responses does not have, are sent as they are to servers other
    than OpenAI's and Azure's.

    Raises:
        ConfigurationError: one that the service does not have.
    """
    own = host.partition(":")[0].endswith(_SERVICES)
    for name in _NOT_THERE:
        if own and name in options:
            raise ConfigurationError(
                f"OpenAI's Responses API has no option {name!r}.",
                hint=f"Leave it out, pass {name}=UNSET for one run, or use OpenAIChatClient.",
            )
    sent = {name: options[name] for name in (*_SAME_NAME, *_NOT_THERE) if name in options}
    if "max_tokens" in options:
        sent["max_output_tokens"] = options["max_tokens"]
    if "tool_choice" in options:
        sent["tool_choice"] = _tool_choice(options["tool_choice"])
    asked = output_format(options.get("response_format"))
    if asked is not None:
        sent["text"] = {"format": _text_format(asked.to_option())}
    effort = options.get("reasoning_effort")
    reasoning = {"effort": effort, "summary": reasoning_summary}
    if thought := {name: value for name, value in reasoning.items() if value is not None}:
        sent["reasoning"] = thought
    return sent


def _with_ids(entries: list[dict[str, Any]], kind: str, ids: list[str]) -> list[dict[str, Any]]:
    """Return `entries` with these ids for those of a kind, in order."""
    found = iter(ids)
    return [
        entry if entry["type"] != kind or (chosen := next(found)) == entry["call_id"] else {**entry, "call_id": chosen}
        for entry in entries
    ]


def _with_answered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `entries` without what the service asked a person and nobody answered: the conversation went on."""
    answered = {entry["approval_request_id"] for entry in entries if entry["type"] == "mcp_approval_response"}
    return [entry for entry in entries if entry["type"] != "mcp_approval_request" or entry["id"] in answered]


def _entries(message: Message) -> Iterator[dict[str, Any]]:
    """The wire form of one message: none for approvals, several for several results."""
    if message.role == "tool":
        for result in message.results:
            yield {
                "type": "function_call_output",
                "call_id": result.call_id or result.id,
                "output": _output(result),
            }
    elif message.role == "assistant":
        yield from _assistant_entries(message)
    elif message.role == "user":
        for content in message.contents:
            if isinstance(content, ApprovalResponse):
                yield from approval_items(content)
        yield from _user_entry(message)
    else:
        yield {"type": "message", "role": message.role, "content": clean_text(message.text)}


def _assistant_entries(message: Message) -> Iterator[dict[str, Any]]:
    results = {content.id: content for content in message.contents if isinstance(content, HostedToolResult)}
    thoughts: list[dict[str, Any]] = []
    for content in _joined(message.contents):
        entries: list[dict[str, Any]] = []
        if isinstance(content, ReasoningContent):
            if content.id and content.encrypted and not message.interrupted:
                thoughts.append(_thought(content))
        elif isinstance(content, TextContent | RefusalContent):
            entries = [_said(content)] if content.text else []
        elif isinstance(content, FunctionCall):
            entries = [_called(content)]
        elif isinstance(content, ApprovalRequest):
            entries = list(approval_items(content))
        elif isinstance(content, HostedToolCall) and not message.interrupted:
            entries = list(hosted_item(content, results.get(content.id)))
        if entries:
            yield from thoughts
            yield from entries
            thoughts = []


def _joined(contents: Sequence[Content]) -> Iterator[Content]:
    """The contents, with text and refusals that follow each other in one: text joins one way."""
    waiting: TextContent | None = None
    for content in contents:
        if not isinstance(content, TextContent | RefusalContent):
            if waiting is not None:
                yield waiting
                waiting = None
            yield content
        elif waiting is None:
            waiting = TextContent(content.text, extra=content.extra)
        else:
            waiting = TextContent(waiting.text + content.text, extra=waiting.extra or content.extra)
    if waiting is not None:
        yield waiting


def _thought(content: ReasoningContent) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": clean_text(content.text)}] if content.text else []
    secret = clean_text(content.encrypted or "")
    return {"type": "reasoning", "id": content.id, "summary": summary, "encrypted_content": secret}


def _said(content: TextContent | RefusalContent) -> dict[str, Any]:
    entry = {"type": "message", "role": "assistant", "content": clean_text(content.text)}
    phase = (content.extra or {}).get(_KEPT_OF_TEXT)
    return {**entry, _KEPT_OF_TEXT: clean_text(phase)} if isinstance(phase, str) else entry


def _called(call: FunctionCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.call_id or call.id,
        "name": function_name(call.name),
        "arguments": argument_text(call),
    }


def _user_entry(message: Message) -> Iterator[dict[str, Any]]:
    parts = [_part(content) for content in message.contents if isinstance(content, TextContent | DataContent)]
    if not parts and message.contents:
        return
    plain = all(part["type"] == "input_text" for part in parts)
    yield {"type": "message", "role": "user", "content": clean_text(message.text) if plain else parts}


def _output(result: FunctionResult) -> str | list[dict[str, Any]]:
    text = clean_text(result.result)
    shown = [item for item in result.items if not item.media_type.startswith("audio/")]
    return [{"type": "input_text", "text": text}, *map(_part, shown)] if shown else text


def _part(content: TextContent | DataContent) -> dict[str, Any]:
    if isinstance(content, TextContent):
        return {"type": "input_text", "text": clean_text(content.text)}
    kind = content.media_type.lower()
    if content.uri.startswith(FILE_SCHEME):
        held = {"file_id": content.uri.removeprefix(FILE_SCHEME)}
        return (
            {"type": "input_image", **held, "detail": "auto"}
            if kind.startswith("image/")
            else {"type": "input_file", **held}
        )
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": content.uri, "detail": "auto"}
    if not content.uri.startswith("data:"):
        return {"type": "input_file", "file_url": content.uri}
    if kind in _AUDIO_FORMATS:
        sound = content.uri.partition(",")[2]
        return {"type": "input_audio", "input_audio": {"data": sound, "format": _AUDIO_FORMATS[kind]}}
    name = clean_text(content.name or "") or f"file.{kind.rpartition('/')[2] or 'bin'}"
    return {"type": "input_file", "filename": name, "file_data": content.uri}


def _wire_function(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }


def _tool_choice(choice: Any) -> Any:
    """A choice in its Chat Completions form, or one that Responses alone has, as Responses takes it."""
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(function := choice.get("function"), Mapping):
        return {"type": "function", "name": function.get("name")}
    if isinstance(allowed := choice.get("allowed_tools"), Mapping):
        return {"type": "allowed_tools", **allowed, "tools": [_tool_choice(one) for one in allowed.get("tools", ())]}
    return dict(choice)


def _text_format(option: Mapping[str, Any]) -> dict[str, Any]:
    schema = option.get("json_schema")
    return {"type": option["type"], **schema} if isinstance(schema, Mapping) else dict(option)
