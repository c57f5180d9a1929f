"""A server that answers both of OpenAI's APIs from a cache, so that its own work does not show: `python server.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache


@cache
def stream_body(tokens: int) -> bytes:
    """A streamed reply of `tokens` tokens, 50 events to an HTTP chunk."""
    base = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}

    def event(**fields: object) -> bytes:
        return b"data: " + json.dumps(base | fields).encode() + b"\n\n"

    def choice(delta: dict[str, object], finish: str | None = None) -> list[dict[str, object]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    events = [event(choices=choice({"role": "assistant", "content": ""}))]
    events += [event(choices=choice({"content": f"tok{i % 10_000:04d} "})) for i in range(tokens)]
    events += [event(choices=choice({}, "stop")), event(choices=[], usage=usage), b"data: [DONE]\n\n"]
    return _streamed(events)


@cache
def plain_body(tokens: int) -> bytes:
    """A plain reply of `tokens` tokens."""
    message = {"role": "assistant", "content": "".join(f"tok{i:04d} " for i in range(tokens)), "refusal": None}
    reply = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens},
    }
    return _whole(reply)


def _streamed(events: list[bytes]) -> bytes:
    parts = [b"".join(events[i : i + 50]) for i in range(0, len(events), 50)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + body + b"0\r\n\r\n"


def _whole(reply: dict[str, object]) -> bytes:
    body = json.dumps(reply).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


@cache
def call_body() -> bytes:
    """A plain reply that calls `add`."""
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    facts = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench"}
    return _whole({**facts, "choices": [choice], "usage": usage})


def _response(*items: dict[str, object], tokens: int, status: str = "completed") -> dict[str, object]:
    counts = {"input_tokens": 10, "output_tokens": tokens, "total_tokens": 10 + tokens}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    facts = {"id": "resp_bench", "object": "response", "created_at": 1, "model": "bench", "status": status}
    rest = {"error": None, "incomplete_details": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**facts, **rest, "output": list(items), "usage": {**counts, **details}}


def _message(text: str) -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


@cache
def response_body(tokens: int) -> bytes:
    """A whole response of `tokens` tokens."""
    return _whole(_response(_message("".join(f"tok{i:04d} " for i in range(tokens))), tokens=tokens))


@cache
def response_call_body() -> bytes:
    """A whole response that calls `add`."""
    call = {"id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a":1,"b":2}', "status": "completed"}
    return _whole(_response({"type": "function_call", **call}, tokens=5))


@cache
def response_stream_body(tokens: int) -> bytes:
    """A streamed response of `tokens` tokens."""
    numbers = iter(range(tokens + 20))

    def event(kind: str, **fields: object) -> bytes:
        value = {"type": kind, "sequence_number": next(numbers), **fields}
        return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()

    words = [f"tok{i % 10_000:04d} " for i in range(tokens)]
    message = _message("".join(words))
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    begun = _response(tokens=0, status="in_progress")
    events = [
        event("response.created", response=begun),
        event("response.output_item.added", output_index=0, item={**message, "content": []}),
        event("response.content_part.added", part=part, **at),
        *(event("response.output_text.delta", delta=word, **at) for word in words),
        event("response.output_text.done", text="".join(words), **at),
        event("response.content_part.done", part={**part, "text": "".join(words)}, **at),
        event("response.output_item.done", output_index=0, item=message),
        event("response.completed", response=_response(message, tokens=tokens)),
    ]
    return _streamed(events)


def reply_to(path: bytes, request: dict[str, object]) -> bytes:
    """Choose the reply by the model's name: `text-N` says N tokens, `calls-N` calls a function before."""
    kind, _, number = str(request["model"]).partition("-")
    tokens, streamed = int(number), bool(request.get("stream"))
    newest = list(request.get("input") or request.get("messages") or ())[-1]  # type: ignore[call-overload]
    calls = kind == "calls" and "tool" not in newest.get("role", "") and newest.get("type") != "function_call_output"
    if path.endswith(b"/responses"):
        plain = response_call_body() if calls else response_body(tokens)
        return response_stream_body(tokens) if streamed else plain
    plain = call_body() if calls else plain_body(tokens)
    return stream_body(tokens) if streamed else plain


class Connection(asyncio.Protocol):
    """Reads requests and writes the reply that path and model name ask for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(body) < length:
            return
        self.received = b""
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write(reply_to(head.split(b" ", 2)[1], json.loads(body)))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends with the bench


if __name__ == "__main__":
    asyncio.run(main())
