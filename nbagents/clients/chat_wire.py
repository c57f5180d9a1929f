"""From messages, tools and options to the body of a Chat Completions request: pure functions, nothing is sent here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    DataContent,
    FunctionCall,
    FunctionResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.folding import parse_arguments
from nbagents.core.hosted import HostedTool
from nbagents.core.messages import Message
from nbagents.core.names import VALID_NAME, safe_name
from nbagents.core.outputs import output_format
from nbagents.core.tools import ToolDefinition

WIRE_KEY = "chat"
"""Where a message keeps its wire form: it is converted once, not once per request."""

_REASONING_MODEL = re.compile(r"(?:o\d|gpt-[5-9])", re.I)
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def wire_messages(messages: Sequence[Message], *, replay_reasoning: bool = False) -> list[dict[str, Any]]:
    """Return `messages` as a Chat Completions server takes them.

    Ids of calls are the provider's while they are there and unique in the conversation, else ours; a result carries the
    id of its call. The author is named where there are several. With `replay_reasoning` the reasoning of the current
    turn goes back with its calls: some providers refuse the results without it.
    """
    ids = _CallIds()
    sent: list[dict[str, Any]] = []
    turn_begins = _last_user_message(messages) if replay_reasoning else len(messages)
    named = len({m.author_name for m in messages if m.role == "assistant"}) > 1
    for place, message in enumerate(messages):
        entries = message.wire.get(WIRE_KEY)
        if entries is None:
            entries = message.wire[WIRE_KEY] = list(_entries(message))
        if message.role == "tool":
            entries = ids.answer(message, entries)
        elif message.role == "assistant" and entries:
            entry = ids.open(message, entries[0]) if "tool_calls" in entries[0] else entries[0]
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


class _CallIds:
    """The ids of calls in one request: unique, and the same in a call and its result."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._by_own_id: dict[str, str] = {}
        self._waiting: list[tuple[str | None, str]] = []

    def open(self, message: Message, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the assistant's `entry` with an id for each call that no earlier call has."""
        self._waiting = []
        calls = []
        for call, wire in zip(message.calls, entry["tool_calls"], strict=True):
            chosen = self._free(call)
            self._taken.add(chosen)
            self._waiting.append((call.call_id, chosen))
            if call.id:
                self._by_own_id[call.id] = chosen
            calls.append(wire if wire["id"] == chosen else {**wire, "id": chosen})
        return {**entry, "tool_calls": calls}

    def answer(self, message: Message, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the results' `entries` with the ids of their calls."""
        return [
            {**entry, "tool_call_id": self._id_of(result)}
            for result, entry in zip(message.results, entries, strict=True)
        ]

    def _free(self, call: FunctionCall) -> str:
        for wanted in (call.call_id, call.id):
            if wanted and wanted not in self._taken:
                return wanted
        base = call.id or call.call_id or "call"
        number = 2
        while f"{base}_{number}" in self._taken:
            number += 1
        return f"{base}_{number}"

    def _id_of(self, result: FunctionResult) -> str:
        known = self._by_own_id.get(result.id)
        if known is None:  # a message made by hand: the provider's id, among the calls that still wait
            known = next((chosen for call_id, chosen in self._waiting if call_id == result.call_id), None)
        self._waiting = [(call_id, chosen) for call_id, chosen in self._waiting if chosen != known]
        return known or result.call_id or result.id


def _entries(message: Message) -> Iterator[dict[str, Any]]:
    """The wire form of one message: none for approvals, several for several results."""
    if message.role == "tool":
        for result in message.results:
            yield {"role": "tool", "tool_call_id": result.call_id or result.id, "content": _clean(result.result)}
    elif message.role == "assistant":
        yield from _assistant_entry(message)
    elif message.role == "user":
        yield from _user_entry(message)
    else:
        yield {"role": message.role, "content": _clean(message.text)}


def _assistant_entry(message: Message) -> Iterator[dict[str, Any]]:
    if message.contents and all(isinstance(c, ApprovalRequest | ApprovalResponse) for c in message.contents):
        return
    # Never null: some servers refuse that, some a missing key; the empty text is accepted everywhere.
    said = "".join(c.text for c in message.contents if isinstance(c, TextContent | RefusalContent))
    entry: dict[str, Any] = {"role": "assistant", "content": _clean(said)}
    if calls := message.calls:
        entry["tool_calls"] = [
            {
                "id": call.call_id or call.id,
                "type": "function",
                "function": {"name": _function_name(call.name), "arguments": _argument_text(call)},
            }
            for call in calls
        ]
    yield entry


def _user_entry(message: Message) -> Iterator[dict[str, Any]]:
    parts = [_part(c) for c in message.contents if isinstance(c, TextContent | DataContent)]
    if not parts and message.contents:
        return
    plain = all(part["type"] == "text" for part in parts)
    entry: dict[str, Any] = {"role": "user", "content": _clean(message.text) if plain else parts}
    if message.author_name and VALID_NAME.match(message.author_name):
        entry["name"] = message.author_name
    yield entry


def _part(content: TextContent | DataContent) -> dict[str, Any]:
    if isinstance(content, TextContent):
        return {"type": "text", "text": _clean(content.text)}
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


def _argument_text(call: FunctionCall) -> str:
    """The arguments as JSON text that every server parses; what is no object goes out as `{}`."""
    if isinstance(call.arguments, dict):
        try:
            text = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError:  # NaN and infinity are no JSON, though Python reads them
            return "{}"
        return _clean(text)
    if call.invalid or not call.arguments or parse_arguments(call.arguments) is None:
        return "{}"
    return _clean(call.arguments) if call.arguments.strip() else "{}"


def _function_name(name: str) -> str:
    return name if VALID_NAME.match(name) else safe_name(name, fallback="tool")


def _reasoning(message: Message) -> str:
    return _clean("".join(c.text for c in message.contents if isinstance(c, ReasoningContent)))


def _last_user_message(messages: Sequence[Message]) -> int:
    return next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), -1)


def _clean(text: str) -> str:
    """Put U+FFFD where a half of a surrogate pair stands alone: it cannot be sent, and would block the session."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _renames_max_tokens(host: str, model: str) -> bool:
    name = host.partition(":")[0]
    if name == "api.openai.com" or name.endswith(".api.openai.com"):
        return True
    return name.endswith((".azure.com", ".azure.us", ".azure.cn")) and bool(_REASONING_MODEL.match(model))
