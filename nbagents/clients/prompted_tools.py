"""Tools for models that have none: the reply is held to a JSON schema that is a union of the tools and the answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from nbagents.clients.json_answer import AnswerDecoder
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate, Message
from nbagents.core.content import Content, FunctionCall, FunctionResult, TextContent
from nbagents.core.errors import ConfigurationError, InvalidReplyError
from nbagents.core.options import TOOL_OPTIONS
from nbagents.core.tools import ToolDefinition

_DESCRIPTION_SHOWN = 100
_TOOL_NAME = re.compile(r'\{\s*"tool"\s*:\s*"([^"]*)"')


async def generate_with_prompted_tools(
    client: BaseChatClient, request: ChatRequest, *, tool_rounds: int | None = None
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield the reply of `client` to a request with tools; text streams as it would without them.

    The model makes at most one call in a reply. Earlier calls and results are given to it as text.

    Args:
        client: its server must honour `response_format` with a JSON schema.
        request: its tools and tool options are replaced by the schema.
        tool_rounds: after so many results in a row the model must answer; None for no limit.

    Raises:
        ConfigurationError: `tool_choice` names a tool that there is not.
        InvalidReplyError: `tool_choice` asks for a call and the model made none.
    """
    options = {name: value for name, value in request.options.items() if name not in TOOL_OPTIONS}
    messages = as_plain_messages(request.messages)
    if not request.functions or request.options.get("tool_choice") == "none":
        plain = replace(request, messages=messages, options=options, tools=())
        async with aclosing(client.generate(plain)) as updates:
            async for update in updates:
                yield update
        return
    tools, required = _offered(request, tool_rounds)
    asked = options.get("response_format")
    options["response_format"] = reply_format(tools, required=required, answer=_schema_of(asked))
    plain = replace(request, messages=_instructed(messages, request.functions), options=options, tools=())
    reading = _Reading([tool.name for tool in tools], required=required, call_number=1 + _calls_in(request.messages))
    async with aclosing(client.generate(plain)) as updates:
        async for update in updates:
            yield reading.take(update)


def reply_format(
    tools: Sequence[ToolDefinition], *, required: bool, answer: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the option `response_format` that lets the model call one of `tools` or, unless `required`, answer.

    Args:
        tools: each becomes `{"tool": its name, "arguments": its parameters}`.
        required: leave `{"answer": ...}` out.
        answer: the schema of the answer; a string by default.
    """
    definitions: dict[str, Any] = {}
    branches = []
    for tool in tools:
        definitions[f"tool_{tool.name}"] = _moved(tool.parameters, f"#/$defs/tool_{tool.name}")
        arguments = {"$ref": f"#/$defs/tool_{tool.name}"}
        branches.append(_closed_object({"tool": {"const": tool.name}, "arguments": arguments}))
    if not required:
        definitions["answer"] = _moved(answer or {"type": "string"}, "#/$defs/answer")
        branches.append(_closed_object({"answer": {"$ref": "#/$defs/answer"}}))
    schema = {"$defs": definitions, "anyOf": branches}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def tools_text(tools: Sequence[ToolDefinition]) -> str:
    """Return what the model is told about `tools`: short, since a small model reads slowly."""
    lines = [f"- {tool.name}({_signature(tool)}): {_one_line(tool.description)}" for tool in tools]
    return "\n".join(
        [
            "Reply in JSON.",
            'To use a tool: {"tool": "NAME", "arguments": {...}}',
            'To answer: {"answer": "..."}',
            "Tools:",
            *lines,
        ]
    )


def as_plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` with calls and results as text: a call in the form in which the model makes it."""
    return [message if not (message.calls or message.results) else _as_text(message) for message in messages]


class _Reading:
    """Reads one reply: gives its answer as text, or its call."""

    def __init__(self, names: Sequence[str], *, required: bool, call_number: int) -> None:
        self._names = names
        self._required = required
        self._call_id = f"call_{call_number}"
        self._decoder = AnswerDecoder()

    def take(self, update: ChatResponseUpdate) -> ChatResponseUpdate:
        """Return `update` with the text that it means; the last one has the call."""
        text = self._decoder.feed(update.text)
        contents: list[Content] = [c for c in update.contents if not isinstance(c, TextContent)]
        if text:
            contents.insert(0, TextContent(text))
        if update.finish_reason is None:
            return replace(update, contents=contents)
        ending = self._ending(update.finish_reason)
        called = isinstance(ending, FunctionCall)
        if self._required and not called:
            raise InvalidReplyError(
                f"tool_choice asks for a call and the model made none (finish_reason {update.finish_reason!r}).",
                hint="Raise max_tokens if the reply was cut; else use a larger model.",
                body_text=self._decoder.raw,
            )
        if ending is not None:
            contents.append(ending)
        reason = "tool_calls" if called and update.finish_reason == "stop" else update.finish_reason
        return replace(update, contents=contents, finish_reason=reason)

    def _ending(self, finish_reason: str) -> Content | None:
        """Return what an object turns out to be at its end; None for a text that has been given out already."""
        if self._decoder.kind != "object":
            return None
        raw = self._decoder.raw
        name = _TOOL_NAME.match(raw.lstrip())
        try:
            reply = json.loads(raw)
        except (ValueError, RecursionError):
            if name is None:
                return None if finish_reason == "length" else TextContent(raw)
            return FunctionCall(self._call_id, name[1], raw.partition('"arguments"')[2].lstrip(" \n:"), invalid=True)
        if name is not None and name[1] in self._names and isinstance(reply.get("arguments"), dict):
            return FunctionCall(self._call_id, name[1], reply["arguments"])
        answer = reply.get("answer", reply)
        return TextContent(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _offered(request: ChatRequest, tool_rounds: int | None) -> tuple[Sequence[ToolDefinition], bool]:
    """Return the tools that the model may call now, and whether it must."""
    choice, tools = request.options.get("tool_choice"), request.functions
    if isinstance(choice, Mapping):
        name = choice.get("function", {}).get("name")
        named = [tool for tool in tools if tool.name == name]
        if not named:
            raise ConfigurationError(f"tool_choice names {name!r}, which is no tool of this request.")
        return named, True
    if choice == "required":
        return tools, True
    rounds = 0
    for message in reversed(request.messages):
        if message.role == "user":
            break
        rounds += message.role == "assistant" and bool(message.calls)
    return ((), False) if tool_rounds is not None and rounds >= tool_rounds else (tools, False)


def _instructed(messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> list[Message]:
    first, rest = (messages[0].text, messages[1:]) if messages and messages[0].role == "system" else ("", messages)
    return [Message("system", f"{first}\n\n{tools_text(tools)}".lstrip()), *rest]


def _as_text(message: Message) -> Message:
    texts = [_shown(content) for content in message.contents]
    role = "user" if message.role == "tool" else message.role
    return Message(role, "\n".join(text for text in texts if text), message.author_name)


def _shown(content: Content) -> str:
    if isinstance(content, TextContent):
        return content.text
    if isinstance(content, FunctionCall):
        return json.dumps({"tool": content.name, "arguments": content.arguments or {}}, ensure_ascii=False)
    if isinstance(content, FunctionResult):
        return f"Result of {content.name}: {content.result}"
    return ""


def _calls_in(messages: Sequence[Message]) -> int:
    return sum(len(message.calls) for message in messages)


def _schema_of(response_format: Any) -> Mapping[str, Any] | None:
    """Return the schema of an answer that is itself to be JSON."""
    if not isinstance(response_format, Mapping):
        return None
    if response_format.get("type") == "json_object":
        return {"type": "object"}
    schema: Mapping[str, Any] | None = response_format.get("json_schema", {}).get("schema")
    return schema


def _moved(schema: Any, place: str) -> Any:
    """Return `schema` with its references led from the root to `place`, where it now stands."""
    if isinstance(schema, Mapping):
        return {
            key: place + value[1:] if key == "$ref" and isinstance(value, str) else _moved(value, place)
            for key, value in schema.items()
        }
    return [_moved(item, place) for item in schema] if isinstance(schema, list) else schema


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _signature(tool: ToolDefinition) -> str:
    properties = tool.parameters.get("properties", {})
    return ", ".join(f"{name}: {schema.get('type', 'any')}" for name, schema in properties.items())


def _one_line(description: str) -> str:
    line = description.strip().partition("\n")[0]
    return line if len(line) <= _DESCRIPTION_SHOWN else f"{line[:_DESCRIPTION_SHOWN]}…"
