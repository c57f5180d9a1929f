"""From what a Responses server sends, a whole response or the events of a stream, to updates: pure functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import groupby, takewhile
from typing import Any

from nbagents.clients.responses_items import Json, OutputItem
from nbagents.clients.wire_text import read_id
from nbagents.core.content import Content, RefusalContent, TextContent, UsageContent
from nbagents.core.errors import InvalidReplyError
from nbagents.core.ids import new_id
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage

_UNDER_WAY = ("queued", "in_progress")
_INCOMPLETE = {"max_output_tokens": "length", "max_tokens": "length", None: "length"}
_BAD_REQUEST = ("invalid_", "image_", "unsupported_", "empty_image", "failed_to_download", "bio_policy")
"""How the codes of responses begin that failed by what was asked."""


class ResponseReader:
    """Reads one response, whole or in events. What it does not know it ignores.

    A response is one message, and another one for each message of the service after the first, unless calls stand
    before it: they and what comes with them stay together. What an event forgets, the item's end or the response's end
    makes up for: each piece is told once.

    Args:
        conversation_id: the conversation at the service that the request names.
        stored: the service keeps the response, so that one can go on from it.

    Attributes:
        error: the error that the server reported.
        seen: events that belong to a response.
        finish_reason: why the response ended; None until the server has said so.
        ended: the terminal event has come.
        core: what every response has.
    """

    core = "an output"

    def __init__(self, *, conversation_id: str | None = None, stored: bool = False) -> None:
        self.error: Any = None
        self.seen = 0
        self.finish_reason: str | None = None
        self.ended = False
        self._asked_for = conversation_id
        self._stored = stored
        self._response_id: str | None = None
        self._model: str | None = None
        self._items: list[OutputItem] = []
        self._last: dict[tuple[str, Any, Any], OutputItem] = {}
        self._newest: OutputItem | None = None
        self._message_id = new_id("msg")
        self._left: deque[ChatResponseUpdate] = deque()

    def read_chunk(self, event: Any) -> ChatResponseUpdate | None:
        """Return the increment that `event` is; None if it holds nothing.

        Raises:
            InvalidReplyError: it is no event of a response.
        """
        if not isinstance(event, dict):
            return None
        kind = event.get("type")
        try:
            if kind == "response.output_text.delta":
                item = self.item_of(event, "message")
                contents = item.say(TextContent, event.get("content_index", 0), event["delta"])
            elif kind in _TERMINAL:
                self.seen += 1
                return self._end(event["response"], _TERMINAL[kind], event, is_over=kind == "response.completed")
            elif (read := _READERS.get(kind)) is not None:
                item, contents = read(self, event)
            elif kind is None and isinstance(event.get("output"), list):  # the whole response in an event of its own
                self.seen += 1
                return self._end(event, "completed", event)
            else:
                self._take_facts(kind, event)
                return None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unreadable("event", event) from error
        self.seen += 1
        return self._update(item.message_id, contents, event) if contents else None

    def read_end(self) -> ChatResponseUpdate | None:
        """Return the next increment of those that the end of the response has brought; None if there is none left."""
        return self._left.popleft() if self._left else None

    def read_reply(self, body: Any) -> ChatResponseUpdate | None:
        """Return the first increment of a whole response, `read_end` the rest; None if `body` is no response.

        Raises:
            InvalidReplyError: it looks like one and is none.
        """
        if not isinstance(body, dict) or not isinstance(body.get("output"), list):
            self.error = _reported_error(body) if isinstance(body, dict) else None
            return None
        try:
            return self._end(body, "completed", body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unreadable("response", body) from error

    def _take_facts(self, kind: Any, event: Json) -> None:
        """Take what an event without content tells of the response as a whole."""
        response = event.get("response")
        if isinstance(response, dict):
            self.seen += 1
            self._note(response)
        elif kind == "error" or (kind is None and event.get("error")):
            self.error = event.get("error") or event

    def _note(self, response: Json) -> None:
        self._response_id = self._response_id or read_id(response.get("id"))
        self._model = self._model or read_id(response.get("model"))

    def _update(self, message_id: str, contents: list[Content], raw: Any) -> ChatResponseUpdate:
        return ChatResponseUpdate(
            contents,
            "assistant",
            message_id=message_id,
            response_id=self._response_id,
            model=self._model,
            raw=raw,
        )

    # --- items

    def item_of(self, event: Json, kind: str) -> OutputItem:
        """Return the item that an event belongs to; one that was never announced is opened."""
        newest, item_id, place = self._newest, event.get("item_id"), event.get("output_index")
        if newest is not None and newest.kind == kind and newest.id == item_id and newest.place == place:
            return newest
        found = self._find(item_id, place, kind)
        if found is None:
            found = self._open({"type": kind, "id": item_id}, place)
        self._newest = found
        return found

    def read_added(self, event: Json) -> tuple[OutputItem, list[Content]]:
        """Open an item; the same one may be announced twice."""
        raw, place = event["item"], event.get("output_index")
        item = self._find(raw.get("id"), place, raw["type"])
        if item is None or item.closed or (raw.get("id"), place) != (item.id, item.place):
            item = self._open(raw, place)
        self._newest = item
        return item, item.announce(raw)

    def read_done(self, event: Json) -> tuple[OutputItem, list[Content]]:
        """Close an item."""
        raw, place = event["item"], event.get("output_index")
        item = self._find(raw.get("id"), place, raw["type"]) or self._open(raw, place)
        return item, item.close(raw)

    def _find(self, item_id: Any, place: Any, kind: str) -> OutputItem | None:
        """The item of this id at this place; where a server gets one of the two wrong, the other counts.

        Where it names neither, it is the newest of its kind.
        """
        if item_id is None:
            return self._last.get((kind, None, place))
        keys = ((kind, item_id, place), (kind, item_id, None), (kind, None, place))
        return next((self._last[key] for key in keys[: 2 if place is None else 3] if key in self._last), None)

    def _open(self, raw: Json, place: Any) -> OutputItem:
        """Open an item; a message, or the thought before one, begins a new message of ours where text stands."""
        if raw["type"] in ("message", "reasoning"):
            here = list(takewhile(lambda item: item.message_id == self._message_id, reversed(self._items)))
            called = any(item.kind == "function_call" for item in here)
            speaks = any(item.kind == "message" and (item.has_text or not item.closed) for item in here)
            if speaks and not called:
                self._message_id = new_id("msg")
        number = len(self._items)
        item = OutputItem(raw, self._message_id, number, place if isinstance(place, int) else number)
        self._items.append(item)
        for id in (item.id, None):
            for at in (item.place, None):
                self._last[item.kind, id, at] = item
        return item

    # --- the end

    def _end(self, response: Json, status: str, raw: Any, *, is_over: bool = False) -> ChatResponseUpdate | None:
        """Take the whole response; return the first of the increments that it adds, and leave the others.

        Its own status counts, unless it `is_over`, so complete, and the server has not written that down.
        """
        self.ended = True
        self._note(response)
        if not (is_over and response.get("status") in _UNDER_WAY):
            status = response.get("status") or status
        usage = read_usage(response.get("usage"))
        counted: list[Content] = [UsageContent(usage)] if usage is not None else []
        if status not in ("completed", "incomplete"):
            self.error = _failure(response, status)
            return self._update(self._message_id, counted, raw) if counted else None
        added: list[tuple[str, Content]] = []
        for place, output in enumerate(response.get("output") or ()):
            item = self._find(output.get("id"), place, output["type"]) or self._open(output, place)
            added += [(item.message_id, content) for content in item.close(output)]
        groups = [(key, [content for _, content in group]) for key, group in groupby(added, lambda pair: pair[0])]
        if not groups:
            groups = [(self._message_id, [])]
        updates = [self._update(message_id, contents, raw) for message_id, contents in groups]
        updates[-1].contents = [*updates[-1].contents, *counted]
        updates[-1].finish_reason = self.finish_reason = self._finish_reason(response, status)
        updates[-1].conversation_id = self._conversation_id(response)
        self._left.extend(updates[1:])
        return updates[0]

    def _finish_reason(self, response: Json, status: str) -> str:
        if status == "incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason")
            return _INCOMPLETE.get(reason, str(reason))
        return "tool_calls" if any(item.kind == "function_call" for item in self._items) else "stop"

    def _conversation_id(self, response: Json) -> str | None:
        """What one goes on with: the conversation, else this response if the service keeps it."""
        if not self._stored or response.get("store") is False:
            return None
        conversation = response.get("conversation")
        named = conversation.get("id") if isinstance(conversation, Mapping) else conversation
        return read_id(named) or self._asked_for or self._response_id


def read_usage(counts: Any) -> Usage | None:
    """Return the counts that a server reports; None if it reports none, or zeros in the place of what it ignores."""
    if not isinstance(counts, dict):
        return None
    of_input, of_output = counts.get("input_tokens_details"), counts.get("output_tokens_details")
    known = (
        _count(counts, "input_tokens"),
        _count(counts, "output_tokens"),
        _count(counts, "total_tokens"),
        _count(of_input, "cached_tokens"),
        _count(of_input, "cache_write_tokens"),
        _count(of_output, "reasoning_tokens"),
        _count(of_input, "audio_tokens"),
        _count(of_output, "audio_tokens"),
    )
    return Usage(*known) if any(known) else None


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _failure(response: Json, status: str) -> Any:
    """What a response that failed, was cancelled or goes on elsewhere reports, in the form of an error."""
    reported = response.get("error")
    if isinstance(reported, Mapping):
        code = str(reported.get("code") or "")
        return {**reported, "type": "invalid_request_error"} if code.startswith(_BAD_REQUEST) else dict(reported)
    if status == "cancelled":
        return {"code": "cancelled", "message": "The response was cancelled at the service."}
    if status in _UNDER_WAY:
        return {"code": "unfinished", "message": f"The service answers in the background: the response is {status!r}."}
    return reported or {"message": f"The response ended as {status!r}."}


def _reported_error(body: Json) -> Any:
    """What a body without an output reports as an error, in one of the forms that servers have for it."""
    if error := body.get("error"):
        return error
    is_one = "error" in (body.get("object"), body.get("type")) or ("detail" in body and "output" not in body)
    return body if is_one else None


def _unreadable(what: str, source: Any) -> InvalidReplyError:
    return InvalidReplyError(
        f"The server sent a {what} that is none of the Responses API: {str(source)[:200]}",
        hint="Check base_url: it must lead to an API that has /responses.",
        status=200,
    )


def _part(event: Json) -> Any:
    return event.get("content_index", 0)


def _thought_part(event: Json) -> tuple[str, Any]:
    return ("summary", event["summary_index"]) if "summary_index" in event else ("text", event.get("content_index", 0))


def _of(kind: str, take: Callable[[OutputItem, Json], list[Content]]) -> _Read:
    """Make the reader of an event that belongs to an item of a kind."""

    def read(reader: ResponseReader, event: Json) -> tuple[OutputItem, list[Content]]:
        item = reader.item_of(event, kind)
        return item, take(item, event)

    return read


def _read_part_done(reader: ResponseReader, event: Json) -> tuple[OutputItem, list[Content]]:
    part = event["part"]
    if part.get("type") == "reasoning_text":
        item = reader.item_of(event, "reasoning")
        return item, item.think_rest(_thought_part(event), part.get("text"))
    item = reader.item_of(event, "message")
    return item, item.close_part(_part(event), part)


_Read = Callable[[ResponseReader, Json], tuple[OutputItem, list[Content]]]
_TERMINAL = {f"response.{status}": status for status in ("completed", "incomplete", "failed", "cancelled")}
_READERS: dict[Any, _Read] = {
    "response.output_item.added": ResponseReader.read_added,
    "response.output_item.done": ResponseReader.read_done,
    "response.content_part.done": _read_part_done,
    "response.output_text.done": _of("message", lambda i, e: i.say_rest(TextContent, _part(e), e.get("text"))),
    "response.output_text.annotation.added": _of("message", lambda i, e: i.cite(_part(e), e["annotation"])),
    "response.refusal.delta": _of("message", lambda i, e: i.say(RefusalContent, _part(e), e["delta"])),
    "response.refusal.done": _of("message", lambda i, e: i.say_rest(RefusalContent, _part(e), e.get("refusal"))),
    "response.function_call_arguments.delta": _of("function_call", lambda i, e: i.argue(e["delta"])),
    "response.function_call_arguments.done": _of("function_call", lambda i, e: i.argue_rest(e.get("arguments"))),
    "response.reasoning_summary_text.delta": _of("reasoning", lambda i, e: i.think(_thought_part(e), e["delta"])),
    "response.reasoning_summary_text.done": _of(
        "reasoning", lambda i, e: i.think_rest(_thought_part(e), e.get("text"))
    ),
    "response.reasoning_text.delta": _of("reasoning", lambda i, e: i.think(_thought_part(e), e["delta"])),
    "response.reasoning_text.done": _of("reasoning", lambda i, e: i.think_rest(_thought_part(e), e["text"])),
}
