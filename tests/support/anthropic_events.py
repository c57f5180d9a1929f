"""Shorthand for what a server with Anthropic's Messages API sends and takes: events, messages, a judge of requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

TOP_LEVEL = {
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "metadata", "stop_sequences", "stream"),
    *("temperature", "top_p", "top_k", "thinking", "output_config", "cache_control", "container", "service_tier"),
}
BLOCK_ID = re.compile(r"[A-Za-z0-9_-]+")
Event = bytes


def event(kind: str, **fields: Any) -> Event:
    """Build one event, as the bytes that are sent."""
    text = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {text}\n\n".encode()


def start(id: str = "msg_1", model: str = "test-model", **usage: int) -> Event:
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    fields = {"id": id, "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
    return event("message_start", message={**fields, "usage": counts})


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[Event]:
    """Build the events of one block."""
    return [
        event("content_block_start", index=index, content_block=opening),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text(index: int, *pieces: str, citations: Sequence[Any] = ()) -> list[Event]:
    cited = [{"type": "citations_delta", "citation": citation} for citation in citations]
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": p} for p in pieces), *cited)


def thinking(index: int, *pieces: str, signature: str = "") -> list[Event]:
    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = [{"type": "signature_delta", "signature": signature}] if signature else []
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *thoughts, *signed)


def call(index: int, id: str, name: str, *pieces: str, kind: str = "tool_use") -> list[Event]:
    fragments = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, {"type": kind, "id": id, "name": name, "input": {}}, *fragments)


def end(reason: str | None = "end_turn", *, stop: bool = True, **more: Any) -> list[Event]:
    """Build the end of a message: its reason, its usage and, unless `stop` is False, the last event."""
    usage = {"output_tokens": 5, **more.pop("usage", {})}
    last = event("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **more}, usage=usage)
    return [last, event("message_stop")] if stop else [last]


def stream(*blocks: list[Event], reason: str = "end_turn") -> list[Event]:
    """Build a whole stream of these blocks."""
    return [start(), *(one for events in blocks for one in events), *end(reason)]


def message(*blocks: dict[str, Any], reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    """Build the body of a plain reply."""
    usage = {"input_tokens": 10, "output_tokens": 5, **more.pop("usage", {})}
    fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model"}
    return {**fields, "content": list(blocks), "stop_reason": reason, "stop_sequence": None, "usage": usage, **more}


def error(kind: str, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}


def as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request by the names of Chat Completions."""
    asked = {**body, "stop": body.get("stop_sequences"), "user": body.get("metadata", {}).get("user_id")}
    system = [{"role": "system", "content": _texts(body["system"])}] if body.get("system") else []
    turns = [{"role": turn["role"], "content": _texts(turn["content"])} for turn in body["messages"]]
    return {**asked, "messages": [*system, *turns]}


def _texts(blocks: Any) -> str:
    return blocks if isinstance(blocks, str) else "".join(block.get("text", "") for block in blocks)


def refusal(body: dict[str, Any]) -> str | None:
    """Return why the service would answer this request with 400, or None where it is fine."""
    return next(_faults(body), None)


def _faults(body: dict[str, Any]) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "the body holds a lone surrogate"
    yield from (f"{name}: extra inputs are not permitted" for name in body if name not in {*TOP_LEVEL, "seed"})
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: field required"
    budget = body.get("thinking", {}).get("budget_tokens")
    if budget is not None and not 1024 <= budget < body["max_tokens"]:
        yield "max_tokens must be greater than thinking.budget_tokens"
    names = [tool["name"] for tool in body.get("tools", ())]
    if len(set(names)) < len(names):
        yield "tools: names must be unique"
    if "tool_choice" in body and not names:
        yield "tool_choice: only with tools"
    if body.get("system") == []:
        yield "system: empty"
    for found in body.get("system", ()):
        yield from _block_faults("system", found)
    yield from _turn_faults(body["messages"])


def _turn_faults(turns: list[dict[str, Any]]) -> Iterator[str]:
    if not turns or turns[0]["role"] != "user":
        yield "messages: the first message must use the user role"
    waiting: list[str] = []
    seen: set[str] = set()
    for place, turn in enumerate(turns):
        where, blocks = f"messages.{place}", turn["content"]
        if turn["role"] not in ("user", "assistant"):
            yield f"{where}: unexpected role {turn['role']!r}"
        if place and turn["role"] == turns[place - 1]["role"]:
            yield f"{where}: roles must alternate"
        if not blocks:
            yield f"{where}: content must be non-empty"
        answered = [found["tool_use_id"] for found in blocks if found["type"] == "tool_result"]
        kinds = [found["type"] == "tool_result" for found in blocks]
        if sorted(answered) != sorted(waiting):
            yield f"{where}: tool_use ids {waiting} without tool_result blocks immediately after, there are {answered}"
        if kinds != sorted(kinds, reverse=True):
            yield f"{where}: tool_result blocks must come first"
        waiting = [found["id"] for found in blocks if found["type"] == "tool_use"]
        yield from (f"{where}: tool_use ids must be unique" for id in waiting if id in seen)
        seen.update(waiting)
        for found in blocks:
            yield from _block_faults(where, found)
    if waiting:
        yield f"tool_use ids {waiting} without tool_result blocks"


def _block_faults(where: str, found: dict[str, Any]) -> Iterator[str]:
    kind = found["type"]
    if kind == "text" and not found["text"].strip():
        yield f"{where}: text content blocks must contain non-whitespace text"
    if kind == "tool_use" and not isinstance(found["input"], dict):
        yield f"{where}: tool_use.input: should be a valid dictionary"
    if kind in ("tool_use", "server_tool_use") and not BLOCK_ID.fullmatch(found["id"]):
        yield f"{where}: {kind}.id: string should match pattern"
    if kind == "thinking" and not found.get("signature"):
        yield f"{where}: thinking.signature: field required"
    if kind == "tool_result" and found.get("is_error") and not found["content"]:
        yield f"{where}: content cannot be empty if is_error is true"
