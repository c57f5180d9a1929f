"""A Chat Completions server that plays exactly the bytes a test asks for and records what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pytest

from tests.support import strict
from tests.support.chunks import DONE, argument_text, call, delta, error_body, finish, message, sse, usage

End = Literal["clean", "cut", "reset", "stall"]
Chunk = dict[str, Any] | str | bytes | threading.Event


class Refuse(Exception):
    """Raise it in the function of `reply_with`: the server answers 400 with this text."""


class _Exchange:
    """One request and the connection that its reply goes to."""

    def __init__(self, body: dict[str, Any], number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.body = body
        self._number = number
        self._reader = reader
        self._writer = writer

    @property
    def gone(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def complete(self, chunk: Chunk) -> Chunk:
        """Turn a bare delta into a chunk and add the fields that every chunk of a provider has."""
        if not isinstance(chunk, dict) or "error" in chunk:
            return chunk
        if "choices" not in chunk:
            chunk = delta(**chunk)
        common = {
            "id": f"chatcmpl-{self._number}",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
        }
        return {**common, "model": self.body.get("model"), **chunk}

    async def head(self, status: int, content_type: str, headers: Mapping[str, str] | None, length: int | None) -> None:
        body = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        await self.write(f"HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\n{body}\r\n{more}\r\n".encode())

    async def whole(
        self,
        data: bytes,
        status: int = 200,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        await self.head(status, content_type, headers, len(data))
        await self.write(data)

    async def json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        if isinstance(body, dict) and "choices" in body:
            body = {
                "id": f"chatcmpl-{self._number}",
                "model": self.body.get("model"),
                "created": 1_760_000_000,
                **body,
            }
        await self.whole(json.dumps(body).encode(), status, headers=headers)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def piece(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait in small steps, and stop at once when the client hangs up."""
        while not condition():
            if self.gone:
                raise ConnectionResetError("the client hung up")
            await asyncio.sleep(0.002)

    def reset(self) -> None:
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


_Reply = Callable[[_Exchange], Awaitable[None]]


async def _stream(
    exchange: _Exchange,
    chunks: Sequence[Chunk],
    *,
    end: End = "clean",
    split: int | None = None,
    delay: float = 0.0,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    await exchange.head(status, "text/event-stream", headers, None)
    for chunk in chunks:
        if isinstance(chunk, threading.Event):
            await exchange.until(chunk.is_set)
            continue
        due = time.monotonic() + delay
        await exchange.until(lambda due=due: time.monotonic() >= due)  # type: ignore[misc]
        data = sse(exchange.complete(chunk))
        for start in range(0, len(data), split or len(data)):
            await exchange.piece(data[start : start + (split or len(data))])
    if end == "clean":
        await exchange.write(b"0\r\n\r\n")
    elif end == "cut":
        exchange._writer.close()
    elif end == "reset":
        exchange.reset()
    else:
        await exchange.until(lambda: False)


class RawServer:
    """See `tests.support` for the whole interface. Everything but `close` may be used while it serves."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.models = ["test-model"]
        self.connections = 0
        self.open_connections = 0
        self.hang_ups = 0
        self.strict = False
        self._replies: list[_Reply] = []
        self._served = itertools.count()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="raw-server", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def reply(
        self,
        *chunks: Chunk,
        done: bool = True,
        end: End = "clean",
        split: int | None = None,
        delay: float = 0.0,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> RawServer:
        sent = [*chunks, DONE] if done and end == "clean" else list(chunks)
        return self._add(
            lambda exchange: _stream(exchange, sent, end=end, split=split, delay=delay, status=status, headers=headers)
        )

    def reply_json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> RawServer:
        return self._add(lambda exchange: exchange.json(body, status, headers))

    def reply_raw(
        self,
        data: bytes | str,
        status: int = 200,
        content_type: str = "text/html",
        headers: Mapping[str, str] | None = None,
    ) -> RawServer:
        return self._add(lambda exchange: exchange.whole(sse(data), status, content_type, headers))

    def reply_text(self, text: str, finish_reason: str = "stop", tokens: tuple[int, int] = (10, 5)) -> RawServer:
        words = text.split(" ")
        pieces = [delta(word if place == len(words) - 1 else word + " ") for place, word in enumerate(words)]
        plain = message(text, finish_reason=finish_reason, tokens=tokens)
        return self._reply_either([delta("", role="assistant"), *pieces, finish(finish_reason)], plain, tokens)

    def reply_calls(
        self, *calls: tuple[str, str, Any], content: str | None = None, tokens: tuple[int, int] = (10, 5)
    ) -> RawServer:
        opening = delta(content, role="assistant")
        entries = [call(place, id, name, argument_text(arguments)) for place, (id, name, arguments) in enumerate(calls)]
        return self._reply_either(
            [opening, *entries, finish("tool_calls")], message(content, calls, tokens=tokens), tokens
        )

    def reply_with(self, decide: Callable[[dict[str, Any]], Any]) -> RawServer:
        async def play(exchange: _Exchange) -> None:
            try:
                answer = decide(exchange.body)
            except Refuse as refused:
                await exchange.json(error_body(str(refused)), 400)
                return
            if isinstance(answer, list):
                await _stream(exchange, [*answer, DONE])
            elif isinstance(answer, bytes):
                await exchange.whole(answer, content_type="text/html")
            else:
                await exchange.json(answer)

        return self._add(play)

    def wait_until(self, condition: Callable[[], object], timeout: float = 5.0) -> None:
        """Wait for something that the server's thread brings about, such as `hang_ups == 1`."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s"
            time.sleep(0.005)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _add(self, reply: _Reply) -> RawServer:
        self._replies.append(reply)
        return self

    def _reply_either(self, chunks: list[Chunk], plain: dict[str, Any], tokens: tuple[int, int]) -> RawServer:
        async def play(exchange: _Exchange) -> None:
            if not exchange.body.get("stream"):
                await exchange.json(plain)
                return
            counted = (exchange.body.get("stream_options") or {}).get("include_usage")
            await _stream(exchange, [*chunks, *([usage(*tokens)] if counted else []), DONE])

        return self._add(play)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        async with server:
            self._started.set()
            await self._stop.wait()
            handlers = asyncio.all_tasks() - {asyncio.current_task()}
            for handler in handlers:
                handler.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        self.open_connections += 1
        try:
            async for path, headers, body in _requests(reader):
                await self._answer(path, headers, body, reader, writer)
        finally:
            self.open_connections -= 1
            writer.transport.abort()

    async def _answer(
        self,
        path: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.paths.append(path)
        request = json.loads(body) if body else {}
        exchange = _Exchange(request, len(self.paths), reader, writer)
        try:
            if not body:
                await exchange.json({"object": "list", "data": [{"id": id, "object": "model"} for id in self.models]})
                return
            self.headers.append(headers)
            self.requests.append(request)
            reason = strict.refusal(request) if self.strict else None
            if reason:
                await exchange.json(error_body(reason), 400)
            elif not self._replies:
                await exchange.json(error_body("the test gave this server nothing to reply"), 500)
            else:
                await self._replies[min(next(self._served), len(self._replies) - 1)](exchange)
        except ConnectionError:
            self.hang_ups += 1
            writer.close()


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, dict[str, str], bytes]]:
    """Read the requests of one connection until the client closes it."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = (line.partition(":") for line in head[1:] if line)
            headers = {name.strip().lower(): value.strip() for name, _, value in fields}
            yield (
                head[0].split(" ")[1],
                headers,
                await reader.readexactly(int(headers.get("content-length", 0))),
            )


@pytest.fixture
def raw_server() -> Iterator[RawServer]:
    server = RawServer()
    yield server
    server.close()
