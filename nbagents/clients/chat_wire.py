"""From messages, tools and options to the body of a Chat Completions request: pure functions, nothing is sent here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagents.clients.call_ids import CallIds
from nbagents.clients.wire_text import argument_text, clean_text, function_name
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    DataContent,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool
from nbagents.core.messages import Message
from nbagents.core.names import VALID_NAME
from nbagents.core.outputs import output_format
from nbagents.core.tools import ToolDefinition

WIRE_KEY = "chat"
"""Where a message keeps its wire form: it is converted once, not once per request."""

_REASONING_MODEL = re.compile(r"(?:o\d|gpt-[5-9])", re.I)
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def wire_messages(messages: Sequence[Message], *, replay_reasoning: bool = False) -> list[dict[str, Any]]:
    """Return `messages` as a Chat Completions server takes them.

    The author is named where there are several. With `replay_reasoning` the reasoning of the current turn goes back
    with its calls: some providers refuse the results without it.
    """
    ids = CallIds()
    sent: list[dict[str, Any]] = []
    turn_begins = _last_user_message(messages) if replay_reasoning else len(messages)
    named = len({m.author_name for m in messages if m.role == "assistant"}) > 1
    for place, message in enumerate(messages):
        entries = message.wire.get(WIRE_KEY)
        if entries is None:
            entries = message.wire[WIRE_KEY] = list(_entries(message))
        if message.role == "tool":
            entries = [{**entry, "tool_call_id": id} for entry, id in zip(entries, ids.answer(message), strict=True)]
        elif message.role == "assistant" and entries:
            entry = _with_ids(entries[0], ids.open(message)) if "tool_calls" in entries[0] else entries[0]
            if place > turn_begins and "tool_calls" in entry and (reasoning := _reasoning(message)):
                entry = {**entry, "reasoning_content": reasoning}
            if named and message.author_name and VALID_NAME.match(message.author_name):
                entry = {**entry, "name": message.author_name}
            entries = [entry]
        sent.extend(entries)
    return sent


def wire_tools(tools: Sequence[ToolDefinition | HostedTool]) -> list[dict[str, Any]]:
    """Return `tools` as a Chat Completions server takes them.

    `strict` is sent where the tool says True: not every compatible server knows the word, and False is what it means
    to leave it out. A hosted tool, for a server whose client class has a method for it, stands in its own words.
    """
    return [
        {"type": tool.type, **tool.options} if isinstance(tool, HostedTool) else _wire_function(tool) for tool in tools
    ]


def _wire_function(tool: ToolDefinition) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": {**function, "strict": True} if tool.strict else function}


def wire_options(options: Mapping[str, Any], *, model: str, host: str) -> dict[str, Any]:
    """Return `options` under the names of the endpoint: those of Chat Completions, with one exception.

    `max_tokens` is the name that all compatible servers know; OpenAI has replaced it by `max_completion_tokens` and its
    reasoning models refuse it. So it is renamed for api.openai.com, and for reasoning models on Azure.
    """
    sent = dict(options)
    asked = output_format(sent.get("response_format"))
    if asked is not None:
        sent["response_format"] = asked.to_option()
    if "max_tokens" in sent and _renames_max_tokens(host, model):
        sent["max_completion_tokens"] = sent.pop("max_tokens")
    return sent


def _entries(message: Message) -> Iterator[dict[str, Any]]:
    """The wire form of one message: none for approvals, several for several results."""
    if message.role == "tool":
        for result in message.results:
            yield {"role": "tool", "tool_call_id": result.call_id or result.id, "content": clean_text(result.result)}
    elif message.role == "assistant":
        yield from _assistant_entry(message)
    elif message.role == "user":
        yield from _user_entry(message)
    else:
        yield {"role": message.role, "content": clean_text(message.text)}


def _with_ids(entry: dict[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    calls = [
        call if call["id"] == chosen else {**call, "id": chosen}
        for call, chosen in zip(entry["tool_calls"], ids, strict=True)
    ]
    return {**entry, "tool_calls": calls}


def _assistant_entry(message: Message) -> Iterator[dict[str, Any]]:
    if message.contents and all(isinstance(c, ApprovalRequest | ApprovalResponse) for c in message.contents):
        return
    # Never null: some servers refuse that, some a missing key; the empty text is accepted everywhere.
    said = "".join(c.text for c in message.contents if isinstance(c, TextContent | RefusalContent))
    entry: dict[str, Any] = {"role": "assistant", "content": clean_text(said)}
    if calls := message.calls:
        entry["tool_calls"] = [
            {
                "id": call.call_id or call.id,
                "type": "function",
                "function": {"name": function_name(call.name), "arguments": argument_text(call)},
            }
            for call in calls
        ]
    yield entry


def _user_entry(message: Message) -> Iterator[dict[str, Any]]:
    parts = [_part(c) for c in message.contents if isinstance(c, TextContent | DataContent)]
    if not parts and message.contents:
        return
    plain = all(part["type"] == "text" for part in parts)
    entry: dict[str, Any] = {"role": "user", "content": clean_text(message.text) if plain else parts}
    if message.author_name and VALID_NAME.match(message.author_name):
        entry["name"] = message.author_name
    yield entry


def _part(content: TextContent | DataContent) -> dict[str, Any]:
    if isinstance(content, TextContent):
        return {"type": "text", "text": clean_text(content.text)}
    kind = content.media_type.lower()
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    if content.uri.startswith("data:"):
        if kind in _AUDIO_FORMATS:
            sound = content.uri.partition(",")[2]
            return {"type": "input_audio", "input_audio": {"data": sound, "format": _AUDIO_FORMATS[kind]}}
        name = content.name or f"file.{kind.rpartition('/')[2] or 'bin'}"
        return {"type": "file", "file": {"filename": name, "file_data": content.uri}}
    raise ConfigurationError(
        f"Chat Completions takes no {content.media_type!r} by its address.",
        hint="Pass its bytes as a data: URI; images also go by their address.",
    )


def _reasoning(message: Message) -> str:
    return clean_text("".join(c.text for c in message.contents if isinstance(c, ReasoningContent)))


def _last_user_message(messages: Sequence[Message]) -> int:
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), -1)


def _renames_max_tokens(host: str, model: str) -> bool:
    name = host.partition(":")[0]
    if name == "api.openai.com" or name.endswith(".api.openai.com"):
        return True
    return name.endswith((".azure.com", ".azure.us", ".azure.cn")) and bool(_REASONING_MODEL.match(model))
