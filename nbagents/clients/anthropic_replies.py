"""From what Anthropic's Messages API sends, a whole message or the events of a stream, to updates: no network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagents.clients.anthropic_wire import BLOCK_TYPE, CITATIONS, CITED_CHARS, REDACTED
from nbagents.clients.wire_text import read_id
from nbagents.core.content import (
    Content,
    FunctionCall,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
    UsageContent,
)
from nbagents.core.errors import InvalidReplyError
from nbagents.core.folding import parse_arguments
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage

PAUSED = "pause_turn"
"""Why a reply ended that goes on when it is sent back."""

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_REFUSED = "The model's provider stopped this reply."
_HOSTED_KINDS = {"bash_code_execution": "code_interpreter", "text_editor_code_execution": "code_interpreter"}
_HOSTED_KINDS |= {"code_execution": "code_interpreter", "mcp": "mcp"}
"""Kinds of ours for hosted tools that the service calls otherwise."""
_RESULT = "_tool_result"
_HOSTED_CALLS = ("server_tool_use", "mcp_tool_use")
_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


@dataclass(slots=True, eq=False)
class _OpenBlock:
    """A block of which more may come."""

    start: Mapping[str, Any]
    text: int = 0  # characters
    signature: str = ""
    citations: list[Any] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class MessageReader:
    """Reads one reply, whole or in events. What it does not know it ignores.

    In a stream the finish reason counts when the last event has come, so that a stream that is cut before it is no
    whole reply.

    Attributes:
        error: the error that the server sent instead of a reply or within it.
        seen: events that belong to a reply.
        finish_reason: why the reply ended; None until the server has ended it.
        ended: the last event has come.
        core: what every reply has.
    """

    core = "a message"

    def __init__(self) -> None:
        self.error: Any = None
        self.seen = 0
        self.finish_reason: str | None = None
        self.ended = False
        self._reason: str | None = None
        self._refusal: str | None = None
        self._counts: dict[str, int] = {}
        self._response_id: str | None = None
        self._model: str | None = None
        self._open: dict[Any, _OpenBlock] = {}
        self._hosted: dict[str, str] = {}

    def read_chunk(self, chunk: Any) -> ChatResponseUpdate | None:
        """Return the increment that an event is; None if it holds nothing.

        Raises:
            InvalidReplyError: it looks like one and is none.
        """
        if not isinstance(chunk, dict):
            return None
        kind = chunk.get("type")
        try:
            if kind == "content_block_delta":
                contents = self._delta(chunk)
            elif kind == "content_block_start":
                contents = self._start(chunk)
            elif kind == "content_block_stop":
                contents = self._stop(chunk.get("index"))
            elif kind == "message_start":
                contents = self._message_start(chunk["message"])
            elif kind == "message_delta":
                contents = self._message_delta(chunk)
            elif kind == "message_stop":
                return self._end(chunk)
            else:
                self.error = chunk.get("error") or (chunk if kind == "error" else None)
                return None
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise _unreadable("event", chunk) from error
        self.seen += 1
        return self._update(contents, chunk) if contents else None

    def read_end(self) -> ChatResponseUpdate | None:
        """Return the last increment of a stream that `[DONE]` ended, as that of some servers; None if it is cut."""
        return None if self.ended or self._reason is None else self._end({})

    def read_reply(self, body: Any) -> ChatResponseUpdate | None:
        """Return the whole reply as one update; None if `body` is no message.

        Raises:
            InvalidReplyError: it looks like one and is none.
        """
        if not isinstance(body, dict) or not isinstance(body.get("content"), list):
            if isinstance(body, dict):
                self.error = body.get("error") or (body if body.get("type") == "error" else None)
            return None
        try:
            contents = self._message_start(body, whole=True)
            for place, block in enumerate(body["content"]):
                event = {"index": place, "content_block": block}
                contents += self._start(event, whole=True)
                contents += self._stop(place)
            called = any(isinstance(content, FunctionCall) for content in contents)
            # A plain reply is whole, so a server that names no reason has finished.
            self._take_reason(body, "tool_use" if called else "end_turn")
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise _unreadable("reply", body) from error
        self.seen += 1
        contents += self._refusals()
        self.finish_reason = self._reason
        self.ended = True
        update = self._update(contents, body)
        update.finish_reason = self._reason
        return update

    def _end(self, chunk: Any) -> ChatResponseUpdate | None:
        self.seen += 1
        self.ended = True
        if self._reason is None:
            return None
        self.finish_reason = self._reason
        unended = [content for index in list(self._open) for content in self._stop(index)]
        update = self._update([*unended, *self._refusals()], chunk)
        update.finish_reason = self._reason
        return update

    def _update(self, contents: list[Content], raw: Any) -> ChatResponseUpdate:
        return ChatResponseUpdate(contents, "assistant", response_id=self._response_id, model=self._model, raw=raw)

    def _message_start(self, message: Mapping[str, Any], *, whole: bool = False) -> list[Content]:
        self._response_id = read_id(message.get("id"))
        self._model = read_id(message.get("model"))
        # What a stream begins with is no count of the output yet.
        return self._usage(message.get("usage"), _COUNTS if whole else _COUNTS[:-1])

    def _message_delta(self, chunk: Mapping[str, Any]) -> list[Content]:
        self._take_reason(chunk.get("delta") or {})
        return self._usage(chunk.get("usage"), _COUNTS)

    def _take_reason(self, source: Mapping[str, Any], default: str | None = None) -> None:
        said = source.get("stop_reason") or default
        if not said:
            return
        self._reason = _FINISH_REASONS.get(said, str(said))
        if said == "refusal":
            details = source.get("stop_details") or {}
            told = details.get("explanation")
            self._refusal = told if told and isinstance(told, str) else _REFUSED

    def _refusals(self) -> list[Content]:
        return [RefusalContent(self._refusal)] if self._refusal else []

    def _usage(self, counts: Any, names: tuple[str, ...]) -> list[Content]:
        """The counts so far: events repeat some of them, as running totals."""
        if not isinstance(counts, dict):
            return []
        details = counts.get("output_tokens_details")
        known = {name: counts.get(name) for name in names}
        known["thinking_tokens"] = details.get("thinking_tokens") if isinstance(details, dict) else None
        new = {name: count for name, count in known.items() if _is_count(count)}
        self._counts |= new  # type: ignore[arg-type]
        return [UsageContent(read_usage(self._counts))] if new else []

    def _start(self, chunk: Mapping[str, Any], *, whole: bool = False) -> list[Content]:
        index, block = chunk.get("index"), chunk["content_block"]
        unended = [one for one, opened in self._open.items() if opened.signature or opened.citations or one == index]
        before = [content for one in unended for content in self._stop(one)]
        return [*before, *self._begin(index, block, whole=whole)]

    def _begin(self, index: Any, block: Mapping[str, Any], *, whole: bool) -> list[Content]:
        opened = self._open[index] = _OpenBlock(block)
        kind = block.get("type")
        if kind == "text":
            opened.citations += block.get("citations") or ()
            return self._text(opened, block.get("text"))
        if kind == "thinking":
            opened.signature = _exact(block.get("signature"))
            return _thoughts(block.get("thinking"))
        if kind == "redacted_thinking":
            return [ReasoningContent("", encrypted=_exact(block["data"]), extra={REDACTED: True})]
        if kind == "tool_use":
            return [_call(block, index, whole=whole)]
        if kind in _HOSTED_CALLS:
            made = _hosted_call(block, None)
            self._hosted[made.id] = made.kind
            return [] if whole else [made]
        if str(kind).endswith(_RESULT):
            return [_hosted_result(block, self._hosted)]
        return []

    def _delta(self, chunk: Mapping[str, Any]) -> list[Content]:
        index, delta = chunk.get("index"), chunk["delta"]
        kind = delta.get("type")
        opened = self._open.get(index)
        if opened is None:
            opened = self._open[index] = _OpenBlock({})  # a server that begins no blocks
        if kind == "text_delta":
            return self._text(opened, delta.get("text"))
        if kind == "thinking_delta":
            return _thoughts(delta.get("thinking"))
        if kind == "input_json_delta":
            piece = _exact(delta.get("partial_json"))
            if opened.start.get("type") in _HOSTED_CALLS:
                opened.arguments.append(piece)
                return []
            return [FunctionCall(None, "", piece, index=index)] if piece else []
        if kind == "signature_delta":
            opened.signature += _exact(delta.get("signature"))
        elif kind == "citations_delta":
            opened.citations.append(delta["citation"])
        return []

    def _stop(self, index: Any) -> list[Content]:
        """What is known of a block only when it ends."""
        opened = self._open.pop(index, None)
        if opened is None:
            return []
        if opened.signature:
            return [ReasoningContent("", encrypted=opened.signature)]
        if opened.citations:
            return [TextContent("", extra={CITATIONS: opened.citations, CITED_CHARS: opened.text})]
        if opened.start.get("type") in _HOSTED_CALLS:
            streamed = parse_arguments("".join(opened.arguments))
            return [_hosted_call(opened.start, streamed or opened.start.get("input") or {})]
        return []

    def _text(self, opened: _OpenBlock, text: Any) -> list[Content]:
        if not text or not isinstance(text, str):
            return []
        opened.text += len(text)
        return [TextContent(text)]


def read_usage(counts: Mapping[str, int]) -> Usage:
    """Return the service's counts in our way: its `input_tokens` are without those of the cache, ours with them."""
    sent = counts.get("input_tokens")
    cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
    return Usage(
        None if sent is None else sent + (cached or 0) + (written or 0),
        counts.get("output_tokens"),
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=counts.get("thinking_tokens"),
    )


def _id(value: Any) -> str:
    if (id := read_id(value)) is None:
        raise TypeError(f"an id is none: {value!r}")
    return id


def _thoughts(text: Any) -> list[Content]:
    return [ReasoningContent(text)] if text and isinstance(text, str) else []


def _exact(text: Any) -> str:
    """A text of which every character counts; nothing where there is none."""
    if not isinstance(text, str | None):
        raise TypeError(f"a piece of text is no text: {text!r}")
    return text or ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _call(block: Mapping[str, Any], index: Any, *, whole: bool) -> FunctionCall:
    given = block.get("input")
    if not isinstance(given, dict | str | None):
        given = json.dumps(given)  # no object: kept as text, for the answer to the model
    if not whole and not given:
        given = None  # a place holder: the arguments follow, or there are none
    call_id = read_id(block.get("id"))
    caller = block.get("caller")
    extra = {"caller": caller} if isinstance(caller, dict) and caller.get("type") != "direct" else None
    return FunctionCall(call_id, str(block.get("name") or "").strip(), given, index=index, extra=extra)


def _hosted_call(block: Mapping[str, Any], arguments: Any) -> HostedToolCall:
    kind, name = block["type"], str(block.get("name") or "")
    extra: dict[str, Any] = {BLOCK_TYPE: kind}
    if block.get("caller"):
        extra["caller"] = block["caller"]
    ours = "mcp" if kind == "mcp_tool_use" else _HOSTED_KINDS.get(name, name)
    return HostedToolCall(ours, _id(block["id"]), arguments, name, read_id(block.get("server_name")), extra=extra)


def _hosted_result(block: Mapping[str, Any], kinds: Mapping[str, str]) -> HostedToolResult:
    kind, id = block["type"], _id(block["tool_use_id"])
    of = kind.removesuffix(_RESULT)
    more = {name: value for name, value in block.items() if name not in ("type", "tool_use_id", "content")}
    result = block.get("content")
    error = result.get("error_code") if isinstance(result, dict) else None
    if block.get("is_error"):
        error = error or "The tool failed."
    return HostedToolResult(
        kinds.get(id) or _HOSTED_KINDS.get(of, of),  # the call may stand in an earlier reply
        id,
        result,
        error=str(error) if error else None,
        extra={BLOCK_TYPE: kind, **more},
    )


def _unreadable(what: str, source: Any) -> InvalidReplyError:
    return InvalidReplyError(
        f"The server sent an {what} that is none of a message: {str(source)[:200]}",
        hint="Check base_url: it must lead to an API like Anthropic's.",
        status=200,
    )
