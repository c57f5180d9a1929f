"""Shorthand for what a server with OpenAI's Responses API sends and takes: items, events, a service that remembers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from tests.support.raw_server import Refuse

TOP_LEVEL = {
    *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "stream"),
    *("store", "include", "previous_response_id", "conversation", "max_output_tokens", "temperature", "top_p", "user"),
    *("metadata", "truncation", "service_tier", "background", "stop", "seed"),  # the last two: of compatible servers
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Event = bytes
Item = dict[str, Any]


def event(kind: str, **fields: Any) -> Event:
    """Build one event, as the bytes that are sent."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


# --- items


def text_part(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations)}


def said(*parts: str | dict[str, Any], id: str = "msg_1", **more: Any) -> Item:
    """Build a message; a text is a part without annotations."""
    content = [text_part(part) if isinstance(part, str) else part for part in parts]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content, **more}


def refused(text: str, id: str = "msg_1") -> Item:
    return said({"type": "refusal", "refusal": text}, id=id)


def called(call_id: str, name: str, arguments: Any, id: str = "fc_1", **more: Any) -> Item:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    fields = {"call_id": call_id, "name": name, "arguments": text, "status": "completed"}
    return {"type": "function_call", "id": id, **fields, **more}


def thought(*summary: str, id: str = "rs_1", encrypted: str | None = None, content: Sequence[str] = ()) -> Item:
    item: Item = {"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": one} for one in summary]}
    if content:
        item["content"] = [{"type": "reasoning_text", "text": one} for one in content]
    return {**item, **({"encrypted_content": encrypted} if encrypted else {})}


# --- responses and their events


def usage(input_tokens: int = 10, output_tokens: int = 5, **more: Any) -> dict[str, Any]:
    counts = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return {**counts, "total_tokens": input_tokens + output_tokens, **more}


def response(*items: Item, id: str = "resp_1", status: str = "completed", **more: Any) -> dict[str, Any]:
    """Build a whole response."""
    facts = {"id": id, "object": "response", "created_at": 1_760_000_000, "model": "test-model", "status": status}
    return {**facts, "output": list(items), "error": None, "incomplete_details": None, "usage": usage(), **more}


def opening(id: str = "resp_1") -> list[Event]:
    begun = {**response(id=id, status="in_progress"), "usage": None}
    return [event("response.created", response=begun), event("response.in_progress", response=begun)]


def ending(whole: Mapping[str, Any]) -> Event:
    return event(f"response.{whole['status']}", response=whole)


def stream(whole: Mapping[str, Any]) -> list[Event]:
    """Build the events that say a whole response, texts word by word."""
    items = [one for place, item in enumerate(whole["output"]) for one in item_events(place, item)]
    return [*opening(whole["id"]), *items, ending(whole)]


def item_events(place: int, item: Item) -> list[Event]:
    """Build the events of one item."""
    at = {"item_id": item["id"], "output_index": place}
    begun = {**item, "status": "in_progress"}
    inner: list[Event] = []
    if item["type"] == "message":
        begun["content"] = []
        inner = [one for number, part in enumerate(item["content"]) for one in _part_events(at, number, part)]
    elif item["type"] == "function_call":
        begun["arguments"] = ""
        text = item["arguments"]
        pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
        inner = [event("response.function_call_arguments.delta", delta=piece, **at) for piece in pieces]
        inner.append(event("response.function_call_arguments.done", arguments=text, **at))
    elif item["type"] == "reasoning":
        begun = {"type": "reasoning", "id": item["id"], "summary": []}
        inner = [one for number, part in enumerate(item["summary"]) for one in _summary_events(at, number, part)]
        for number, part in enumerate(item.get("content", ())):
            where = {**at, "content_index": number}
            inner += [event("response.reasoning_text.delta", delta=word, **where) for word in words_of(part["text"])]
            inner.append(event("response.reasoning_text.done", text=part["text"], **where))
    return [
        event("response.output_item.added", output_index=place, item=begun),
        *inner,
        event("response.output_item.done", output_index=place, item=item),
    ]


def _part_events(at: dict[str, Any], number: int, part: dict[str, Any]) -> list[Event]:
    where = {**at, "content_index": number}
    kind, field = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    text = part[field]
    cited = [
        event("response.output_text.annotation.added", annotation=one, annotation_index=place, **where)
        for place, one in enumerate(part.get("annotations", ()))
    ]
    return [
        event("response.content_part.added", part={**part, field: ""}, **where),
        *(event(f"response.{kind}.delta", delta=word, **where) for word in words_of(text)),
        *cited,
        event(f"response.{kind}.done", **{field: text}, **where),
        event("response.content_part.done", part=part, **where),
    ]


def _summary_events(at: dict[str, Any], number: int, part: dict[str, Any]) -> list[Event]:
    where = {**at, "summary_index": number}
    return [
        event("response.reasoning_summary_part.added", part={**part, "text": ""}, **where),
        *(event("response.reasoning_summary_text.delta", delta=word, **where) for word in words_of(part["text"])),
        event("response.reasoning_summary_text.done", text=part["text"], **where),
        event("response.reasoning_summary_part.done", part=part, **where),
    ]


def words_of(text: str) -> list[str]:
    words = text.split(" ")
    return [*(f"{word} " for word in words[:-1]), *words[-1:]] if text else []


# --- the service


class Service:
    """What a strict service remembers: the items up to each response that it stores."""

    def __init__(self) -> None:
        self._stored: dict[str, list[Item]] = {}
        self._numbers = count(1)

    def answer(self, *items: Item, status: str = "completed", **more: Any) -> Callable[[dict[str, Any]], Any]:
        """Return what `RawServer.reply_with` takes: the response with these items, streamed or whole, as asked."""

        def decide(body: dict[str, Any]) -> Any:
            if why := self.refusal(body):
                raise Refuse(why)
            stored = body.get("store", True)
            whole = response(*items, id=f"resp_{next(self._numbers)}", status=status, store=stored, **more)
            if stored:
                self._stored[whole["id"]] = [*self.conversation(body), *items]
            return stream(whole) if body.get("stream") else whole

        return decide

    def conversation(self, body: Mapping[str, Any]) -> list[Item]:
        """The items that a request goes on from, and those that it brings."""
        return [*self._stored.get(body.get("previous_response_id") or "", ()), *body["input"]]

    def refusal(self, body: dict[str, Any]) -> str | None:
        """Return why this request would be answered with 400, or None where it is fine."""
        known = body.get("previous_response_id")
        if known is not None and known not in self._stored:
            return f"previous_response_not_found: {known}"
        return next(faults(body, self._stored.get(known or "", [])), None)

    def as_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a request, with what it goes on from, by the names of Chat Completions."""
        asked = {**body, "max_tokens": body.get("max_output_tokens")}
        system = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        items = [item for item in self.conversation(body) if item["type"] == "message"]
        turns = [{"role": item["role"], "content": _text(item["content"])} for item in items]
        return {**asked, "messages": [*system, *turns]}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def faults(body: dict[str, Any], before: list[Item]) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "the body holds a lone surrogate"
    yield from (f"Unknown parameter: {name!r}" for name in body if name not in TOP_LEVEL)
    if not body.get("input") and not before:
        yield "input is empty"
    if not isinstance(body.get("stream", True), bool) or not isinstance(body.get("store", True), bool):
        yield "stream and store are booleans"
    yield from _tool_faults(body)
    yield from _item_faults(body, before)


def _tool_faults(body: dict[str, Any]) -> Iterator[str]:
    tools = body.get("tools") or []
    if "tools" in body and not tools:
        yield "tools is empty"
    yield from (f"{key} without tools" for key in ("tool_choice", "parallel_tool_calls") if key in body and not tools)
    for tool in (one for one in tools if one["type"] == "function"):
        if set(tool) != {"type", "name", "description", "parameters", "strict"} or not NAME.fullmatch(tool["name"]):
            yield f"invalid function {tool}"
        schema = tool["parameters"]
        if tool["strict"] and (
            schema.get("additionalProperties") is not False or set(schema["required"]) != set(schema["properties"])
        ):
            yield f"Invalid schema for function {tool['name']!r}: it is not strict"
    format = (body.get("text") or {}).get("format")
    if format is not None and format["type"] == "json_schema" and not {"name", "schema"} <= format.keys():
        yield "text.format: name and schema are required"


def _item_faults(body: dict[str, Any], before: list[Item]) -> Iterator[str]:
    waiting: list[Any] = [item["call_id"] for item in before if item["type"] == "function_call"]
    answered = {item["call_id"] for item in before if item["type"] == "function_call_output"}
    waiting = [call_id for call_id in waiting if call_id not in answered]
    seen: set[str] = set()
    items: list[Item] = body["input"]
    for place, item in enumerate(items):
        where = f"input[{place}]"
        if item["type"] == "function_call_output":
            if item["call_id"] not in waiting:
                yield f"{where}: No tool call found for function call output with call_id {item['call_id']}."
            else:
                waiting.remove(item["call_id"])
        elif item["type"] == "message" and item["role"] == "user" and waiting:
            yield f"No tool output found for function call {waiting[0]}."
        elif item["type"] == "function_call":
            waiting.append(item["call_id"])
            yield from _call_faults(where, item, seen)
        elif item["type"] == "reasoning":
            yield from _thought_faults(where, body, items[place + 1 :])
        if item["type"] == "message":
            yield from _message_faults(where, item)
    if waiting:
        yield f"No tool output found for function call {waiting[0]}."


def _call_faults(where: str, item: Item, seen: set[str]) -> Iterator[str]:
    if not item["call_id"] or item["call_id"] in seen:
        yield f"{where}: call_id {item['call_id']!r} is missing or used twice"
    seen.add(item["call_id"])
    if not NAME.fullmatch(item["name"]):
        yield f"{where}: name {item['name']!r} is not allowed"
    try:
        json.loads(item["arguments"])
    except (TypeError, ValueError):
        yield f"{where}: arguments {item['arguments']!r} are not JSON text"


def _thought_faults(where: str, body: dict[str, Any], after: list[Item]) -> Iterator[str]:
    if not isinstance(item := body["input"][int(where[6:-1])].get("encrypted_content"), str) or not item:
        yield f"{where}: an item that is not stored has no encrypted_content"
    following = next((one for one in after if one["type"] != "reasoning"), None)
    if following is None or following.get("role") == "user" or following["type"] == "function_call_output":
        yield f"{where}: reasoning was provided without its required following item"


def _message_faults(where: str, item: Item) -> Iterator[str]:
    content, role = item["content"], item["role"]
    allowed = {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"}
    if role == "user":
        allowed.add("input_audio")
    if not isinstance(content, str) and not {part["type"] for part in content} <= allowed:
        yield f"{where}: content {content!r} does not fit the role {role!r}"
