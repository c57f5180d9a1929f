"""Shorthand for what a Chat Completions server sends: chunks of a stream and whole replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

DONE = "data: [DONE]\n\n"
ABSENT: Any = object()


def delta(content: Any = ABSENT, *, choice: int = 0, **more: Any) -> dict[str, Any]:
    """Build a chunk whose delta holds this content and what else is named, such as `role` or `refusal`."""
    fields = more if content is ABSENT else {"content": content, **more}
    return {"choices": [{"index": choice, "delta": fields, "finish_reason": None}]}


def call(index: Any = 0, id: Any = ABSENT, name: Any = ABSENT, args: Any = ABSENT) -> dict[str, Any]:
    """Build a chunk with one entry of `delta.tool_calls`; what is not given is absent, None is null."""
    function = {"name": name, "arguments": args}
    entry = {
        "index": ABSENT if index is None else index,
        "id": id,
        "type": ABSENT if id is ABSENT else "function",
        "function": {key: value for key, value in function.items() if value is not ABSENT},
    }
    return delta(tool_calls=[{key: value for key, value in entry.items() if value is not ABSENT}])


def finish(reason: str = "stop", *, choice: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": choice, "delta": {}, "finish_reason": reason}]}


def usage(input_tokens: int = 10, output_tokens: int = 5, **more: Any) -> dict[str, Any]:
    """Build the last chunk of a stream with `include_usage`: no choices, only the usage."""
    counts = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
    return {"choices": [], "usage": {**counts, "total_tokens": input_tokens + output_tokens, **more}}


def message(
    content: str | None = None,
    calls: Sequence[tuple[str, str, Any]] = (),
    *,
    finish_reason: str | None = None,
    tokens: tuple[int, int] = (10, 5),
    **more: Any,
) -> dict[str, Any]:
    """Build the body of a plain reply; a call is (id, name, arguments as text or as an object)."""
    tool_calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": argument_text(arguments)}}
        for id, name, arguments in calls
    ]
    fields = {
        "role": "assistant",
        "content": content,
        **more,
        **({"tool_calls": tool_calls} if calls else {}),
    }
    reason = finish_reason or ("tool_calls" if calls else "stop")
    choice = {"index": 0, "message": fields, "finish_reason": reason}
    return {"object": "chat.completion", "choices": [choice], "usage": usage(*tokens)["usage"]}


def sse(chunk: object) -> bytes:
    """Write one chunk as the bytes of a server-sent event; text and bytes are left as they are."""
    if isinstance(chunk, dict):
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
    assert isinstance(chunk, str | bytes), chunk
    return chunk.encode() if isinstance(chunk, str) else chunk


def argument_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def error_body(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "invalid_requesterror_body", "param": None, "code": None}}
