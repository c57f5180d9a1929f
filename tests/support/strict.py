"""The strict server's judgement: what a picky Chat Completions endpoint refuses in a request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ROLES = {"system", "developer", "user", "assistant", "tool"}


def refusal(body: dict[str, Any]) -> str | None:
    """Return why this request would be answered with 400, or None where it is fine."""
    return next(_faults(body), None)


def _faults(body: dict[str, Any]) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "the body holds a lone surrogate"
    if not body.get("messages"):
        yield "messages is empty"
    yield from _tool_faults(body)
    yield from _history_faults(body.get("messages") or [])


def _tool_faults(body: dict[str, Any]) -> Iterator[str]:
    names = [tool["function"]["name"] for tool in body.get("tools") or []]
    yield from (f"tool name {name!r} is not allowed" for name in names if not NAME.fullmatch(name))
    if len(set(names)) < len(names):
        yield "two tools share a name"
    if "tools" in body and not names:
        yield "tools is empty"
    yield from (f"{key} without tools" for key in ("tool_choice", "parallel_tool_calls") if key in body and not names)


def _history_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    waiting: list[Any] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        where, role = f"messages[{place}]", message.get("role")
        if role not in ROLES:
            yield f"{where}: unknown role {role!r}"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"{where}: no open tool call {message.get('tool_call_id')!r} before this tool message"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{where}: tool calls {waiting} have no tool message directly after them"
        yield from _content_faults(where, message)
        for call in _calls(message):
            waiting.append(call.get("id"))
            yield from _call_faults(where, call, seen)
        if message.get("tool_calls") == []:
            yield f"{where}: tool_calls is empty"
    if waiting:
        yield f"the history ends with unanswered tool calls {waiting}"


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls") or [] if message.get("role") == "assistant" else []


def _content_faults(where: str, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    parts = message.get("role") == "user" and isinstance(content, list) and content
    if not isinstance(content, str) and not parts:
        yield f"{where}: content must be a string, not {content!r}"


def _call_faults(where: str, call: dict[str, Any], seen: set[str]) -> Iterator[str]:
    function = call.get("function") or {}
    if not isinstance(call.get("id"), str) or not call["id"] or call["id"] in seen:
        yield f"{where}: tool call id {call.get('id')!r} is missing or used twice"
    seen.add(call.get("id") or "")
    if call.get("type") != "function":
        yield f"{where}: tool call type must be 'function'"
    if not NAME.fullmatch(function.get("name") or ""):
        yield f"{where}: function name {function.get('name')!r} is not allowed"
    try:
        json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError):
        yield f"{where}: arguments {function.get('arguments')!r} are not JSON text"
