"""A server that answers chat completions from a cache, so that its own work does not show: `python server.py`."""

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
    parts = [b"".join(events[i : i + 50]) for i in range(0, len(events), 50)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + body + b"0\r\n\r\n"


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
    body = json.dumps(reply).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


class Connection(asyncio.Protocol):
    """Reads requests and writes the reply that their model name (`text-N`) asks for."""

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
        request = json.loads(body)
        tokens = int(request["model"].rpartition("-")[2])
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write(stream_body(tokens) if request.get("stream") else plain_body(tokens))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends with the bench


if __name__ == "__main__":
    asyncio.run(main())
