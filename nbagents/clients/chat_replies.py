"""From what a Chat Completions server sends, a whole reply or the chunks of a stream, to updates: pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from nbagents.clients.wire_text import read_id
from nbagents.core.content import (
    Content,
    FunctionCall,
    ReasoningContent,
    RefusalContent,
    TextContent,
    UsageContent,
)
from nbagents.core.errors import InvalidReplyError
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage

_NOTHING_KNOWN = (None,) * 8
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_FINISH_REASONS = {
    **{word: word for word in ("stop", "length", "tool_calls", "content_filter")},
    "complete": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",
    "tool_use": "tool_calls",
}
"""Words of other providers and of older servers, in lower case, for those of Chat Completions."""


class ReplyReader:
    """Reads one reply, whole or in chunks. What it does not know it ignores.

    Attributes:
        error: the `error` object that the server sent instead of a reply or within it.
        seen: chunks that belong to a reply.
        finish_reason: why the reply ended; None until the server has said so.
        ended: False: usage may follow the reason.
        core: what every reply has.
        reasons: the reply has `reasoning_content`, which some providers want back with the results of its calls.
    """

    core = "a choice"

    def __init__(self) -> None:
        self.error: Any = None
        self.seen = 0
        self.finish_reason: str | None = None
        self.ended = False
        self.reasons = False
        self._said = False
        self._response_id: str | None = None
        self._model: str | None = None

    def read_chunk(self, chunk: Any) -> ChatResponseUpdate | None:
        """Return the increment that `chunk` is; None if it holds nothing.

        Raises:
            InvalidReplyError: it is no chunk of a chat completion.
        """
        if not isinstance(chunk, dict):
            return None
        contents: list[Content] = []
        finish_reason = None
        try:
            choice = _first_choice(chunk)
            if choice is not None:
                delta = choice.get("delta")
                if delta:
                    text = delta.get("content")
                    if len(delta) > 1 or not isinstance(text, str):
                        contents = list(self._contents(delta))
                    elif text:
                        contents = [TextContent(text)]
                else:
                    contents = list(self._undivided(choice))
                if choice.get("finish_reason"):
                    finish_reason = self._finish(choice)
            elif reported := _reported_error(chunk):
                self.error = reported
        except (AttributeError, TypeError) as error:
            raise _unreadable("chunk", chunk) from error
        return self._update(chunk, contents, finish_reason)

    def read_end(self) -> ChatResponseUpdate | None:
        """Return the last increment of a stream that `[DONE]` ended and no reason; None if it is cut or complete."""
        if self.finish_reason is not None or not self._said:
            return None
        return self._update({}, [], "stop")

    def read_reply(self, body: Any) -> ChatResponseUpdate | None:
        """Return the whole reply as one update; None if `body` is no chat completion.

        Raises:
            InvalidReplyError: it looks like one and is none.
        """
        choice = _first_choice(body) if isinstance(body, dict) else None
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, dict):
            self.error = _reported_error(body) if isinstance(body, dict) else None
            return None
        try:
            contents = list(self._contents(message, whole=True))
        except (AttributeError, TypeError) as error:
            raise _unreadable("reply", body) from error
        called = any(isinstance(content, FunctionCall) for content in contents)
        # A plain reply is whole, so a server that names no reason has finished.
        return self._update(body, contents, self._finish(choice) or ("tool_calls" if called else "stop"))

    def _update(
        self, source: dict[str, Any], contents: list[Content], finish_reason: str | None
    ) -> ChatResponseUpdate | None:
        self.seen += 1
        new = contents or finish_reason
        if contents:
            self._said = True
        if source.get("usage") and (usage := read_usage(source["usage"])) is not None:
            new = contents = [*contents, UsageContent(usage)]
        if finish_reason:
            self.finish_reason = finish_reason
        if self._response_id is None:  # some gateways give each chunk an id of its own: the first one counts
            self._response_id = read_id(source.get("id"))
        if self._model is None and (model := read_id(source.get("model"))):
            new = self._model = model
        if source.get("error"):
            self.error = source["error"]
        if not new:
            return None
        return ChatResponseUpdate(
            contents,
            "assistant",
            response_id=self._response_id,
            model=self._model,
            finish_reason=self.finish_reason,
            raw=source,
        )

    def _finish(self, choice: Mapping[str, Any]) -> str | None:
        """Why the reply ended, in the words of Chat Completions where there is one."""
        said = str(choice.get("finish_reason") or "null")
        if said == "error":
            self.error = choice.get("error") or "The model ended its reply with an error."
        return None if said == "null" else _FINISH_REASONS.get(said.lower(), said)

    def _undivided(self, choice: Mapping[str, Any]) -> Iterator[Content]:
        """The content of a choice that is a whole message or, as before there was chat, a text."""
        message = choice.get("message")
        if isinstance(message, dict) and not self._said:  # later it would be the whole reply once more
            yield from self._contents(message, whole=True)
        elif isinstance(text := choice.get("text"), str) and text:
            yield TextContent(text)

    def _contents(self, message: Mapping[str, Any], *, whole: bool = False) -> Iterator[Content]:
        """The content of a delta or of a whole message: reasoning first, then text, then calls."""
        for name in _REASONING_FIELDS:
            thought = message.get(name)
            if thought and isinstance(thought, str):
                self.reasons = self.reasons or name == "reasoning_content"
                yield ReasoningContent(thought)
                break
        text = message.get("content")
        if isinstance(text, str):
            if text:
                yield TextContent(text)
        elif isinstance(text, list | dict):
            yield from _parts(text if isinstance(text, list) else [text])
        refusal = message.get("refusal")
        if refusal and isinstance(refusal, str):
            yield RefusalContent(refusal)
        calls = message.get("tool_calls") or ()
        for place, entry in enumerate([calls] if isinstance(calls, dict) else calls):
            if entry is not None and entry.get("type") in (None, "", "function"):
                yield _call(entry, place if whole else entry.get("index"))
        if legacy := message.get("function_call"):
            yield _call({"function": legacy}, 0)


def read_usage(counts: Any) -> Usage | None:
    """Return the counts that a server reports; None if it reports none."""
    if not isinstance(counts, dict):
        return None
    of_prompt, of_reply = _details(counts, "prompt_tokens_details"), _details(counts, "completion_tokens_details")
    cached = _count(of_prompt.get("cached_tokens"))
    known = (
        _count(counts.get("prompt_tokens")),
        _count(counts.get("completion_tokens")),
        _count(counts.get("total_tokens")),
        _count(counts.get("prompt_cache_hit_tokens")) if cached is None else cached,
        _count(of_prompt.get("cache_write_tokens")),
        _count(of_reply.get("reasoning_tokens")),
        _count(of_prompt.get("audio_tokens")),
        _count(of_reply.get("audio_tokens")),
    )
    return None if known == _NOTHING_KNOWN else Usage(*known)


def _details(counts: dict[str, Any], name: str) -> dict[str, Any]:
    details = counts.get(name)
    return details if isinstance(details, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _reported_error(body: dict[str, Any]) -> Any:
    """What a body without a choice reports as an error, in one of the forms that servers have for it."""
    if error := body.get("error"):
        return error
    is_one = "error" in (body.get("object"), body.get("type")) or ("detail" in body and "choices" not in body)
    return body if is_one else None


def _first_choice(source: dict[str, Any]) -> dict[str, Any] | None:
    """The choice of index 0: others are alternatives that nobody asked for."""
    choices = source.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and not choice.get("index"):
            return choice
    return None


def _call(entry: Mapping[str, Any], index: Any) -> FunctionCall:
    function = entry.get("function") or entry
    call_id, name, arguments = entry.get("id"), function.get("name"), function.get("arguments")
    if not (arguments is None or isinstance(arguments, str | dict)):
        arguments = json.dumps(arguments)  # no object: kept as text, for the answer to the model
    place = index if isinstance(index, int) else None
    return FunctionCall(read_id(call_id), str(name).strip() if name else "", arguments, index=place)


def _parts(parts: list[Any]) -> Iterator[Content]:
    """Content in parts, as some providers send text and thinking."""
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else "text"
        said = part.get(kind if kind in ("refusal", "thinking") else "text") if isinstance(part, dict) else part
        if kind == "thinking":
            pieces = [p.get("text") if isinstance(p, dict) else p for p in said] if isinstance(said, list) else [said]
            if text := "".join(piece for piece in pieces if isinstance(piece, str)):
                yield ReasoningContent(text)
        elif not said or not isinstance(said, str):
            continue
        elif kind in ("text", "output_text"):
            yield TextContent(said)
        elif kind == "refusal":
            yield RefusalContent(said)


def _unreadable(what: str, source: Any) -> InvalidReplyError:
    return InvalidReplyError(
        f"The server sent a {what} that is none of a chat completion: {str(source)[:200]}",
        hint="Check base_url: it must lead to an OpenAI-compatible API.",
        status=200,
    )
