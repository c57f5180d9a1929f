"""A server with OpenAI's Responses and Conversations that remembers, as strict as OpenAI's, over real HTTP."""

from __future__ import annotations

import json
import re
import select
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support import responses_events as wire
from tests.support.responses_events import Item

Reply = str | list[Item] | Callable[[dict[str, Any]], Any]
"""A text, items, or a function of the request that returns one of these."""


class Refused(Exception):
    """The server answers with this status."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


class ResponsesServer:
    """Stores conversations and responses, refuses what OpenAI refuses, and counts what it was asked.

    Attributes:
        replies: what the model says next, one for each response; the last one for ever.
        conversations: the items of each.
        responses: each stored response, with the items that it was asked with and those before.
        asked: method, path and body of each request.
        page: items in a page at most.
        lists_all: the input items of a response are also those of the responses before it.
        faults: statuses to answer with, by `POST /conversations/*/items` and the like; each is used up, 0 is none.
        stalls: streams stop after the first word until the client hangs up.
    """

    def __init__(self) -> None:
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.http.daemon_threads = True
        self.http.served = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=lambda: self.http.serve_forever(0.02), name="responses-server")
        self._thread.start()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.replies: list[Reply] = []
        self.conversations: dict[str, list[Item]] = {}
        self.responses: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.page = 100
        self.lists_all = True
        self.faults: dict[str, list[int]] = {}
        self.stalls = False
        self.hung_up = threading.Event()
        self._busy: set[str] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def count(self, method: str | None = None, path: str = "") -> int:
        """How often it was asked so; `path` is how a path begins."""
        return sum(1 for m, p, _ in self.asked if (method is None or m == method) and p.startswith(path))

    def sent(self, number: int = -1) -> list[tuple[str, str]]:
        """Kind and text of the items that request `number` for a response brought."""
        bodies = [body for method, path, body in self.asked if (method, path) == ("POST", "/responses")]
        return [_short(item) for item in bodies[number]["input"]]

    def stored(self, conversation_id: str) -> list[tuple[str, str]]:
        """Kind and text of the items of a conversation, or of all up to a response."""
        if conversation_id in self.conversations:
            return [_short(item) for item in self.conversations[conversation_id]]
        kept = self.responses[conversation_id]
        return [_short(item) for item in [*kept["before"], *kept["input"], *kept["response"]["output"]]]

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()

    # --- what it answers

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        with self._lock:
            self.asked.append((method, path, body))
            for pattern, statuses in self.faults.items():
                meant = re.fullmatch(pattern.replace("*", "[^/]+"), f"{method} {path}")
                if meant and statuses and (status := statuses.pop(0)):
                    raise Refused(status, "Played.")
            parts = [unquote(part) for part in path.strip("/").split("/")]
            route = f"{method} {'/'.join(part if place % 2 == 0 else '*' for place, part in enumerate(parts))}"
            if route not in _ROUTES:
                raise Refused(404, f"Unknown request URL: {method} {path}")
            return _ROUTES[route](self, parts, query, body)

    def create(self, parts: list[str], query: Any, body: Any) -> Any:
        id = f"conv_{next(self._numbers)}"
        self.conversations[id] = self._as_stored(body.get("items") or [])
        return {"id": id, "object": "conversation", "created_at": 1_760_000_000, "metadata": {}}

    def list_items(self, parts: list[str], query: dict[str, list[str]], body: Any) -> Any:
        return self._listed(self._conversation(parts[1]), query)

    def add_items(self, parts: list[str], query: Any, body: Any) -> Any:
        stored, items = self._conversation(parts[1]), body["items"]
        if not items or len(items) > 20:
            raise Refused(400, f"Expected 1 to 20 items, got {len(items)}.")
        added = self._as_stored(items)
        stored += added
        return {"object": "list", "data": added, "has_more": False}

    def delete_item(self, parts: list[str], query: Any, body: Any) -> Any:
        stored = self._conversation(parts[1])
        stored[:] = [item for item in stored if item["id"] != parts[3]]
        return {"id": parts[1], "object": "conversation"}

    def delete_conversation(self, parts: list[str], query: Any, body: Any) -> Any:
        self._conversation(parts[1])
        del self.conversations[parts[1]]
        return {"id": parts[1], "object": "conversation.deleted", "deleted": True}

    def retrieve(self, parts: list[str], query: dict[str, list[str]], body: Any) -> Any:
        response = self._response(parts[1])["response"]
        return {**response, "output": [_shown(item, query) for item in response["output"]]}

    def list_input(self, parts: list[str], query: dict[str, list[str]], body: Any) -> Any:
        kept = self._response(parts[1])
        return self._listed([*(kept["before"] if self.lists_all else ()), *kept["input"]], query)

    def delete_response(self, parts: list[str], query: Any, body: Any) -> None:
        self._response(parts[1])
        del self.responses[parts[1]]

    def respond(self, parts: list[str], query: Any, body: dict[str, Any]) -> Any:
        conversation, previous = body.get("conversation"), body.get("previous_response_id")
        if conversation and previous:
            raise Refused(400, "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.")
        before: list[Item] = []
        if conversation:
            before = self._conversation(conversation)
            if conversation in self._busy:
                raise Refused(409, "Another process is operating on this conversation.", "conversation_locked")
        elif previous:
            if previous not in self.responses:
                message = f"Previous response with id '{previous}' not found."
                raise Refused(400, message, "previous_response_not_found")
            kept = self.responses[previous]
            before = [*kept["before"], *kept["input"], *kept["response"]["output"]]
        if why := next(wire.faults(body, before), None):
            raise Refused(400, why)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        while callable(reply):
            reply = reply(body)
        output = self._as_output(reply)
        more = {"conversation": {"id": conversation}} if conversation else {"previous_response_id": previous}
        whole = wire.response(*output, id=f"resp_{next(self._numbers)}", store=body.get("store", True), **more)

        def keep() -> None:
            given = self._as_stored(body["input"])
            if conversation and conversation in self.conversations:
                self.conversations[conversation] += [*given, *output]
            if whole["store"]:
                self.responses[whole["id"]] = {"before": list(before), "input": given, "response": whole}

        if not body.get("stream"):
            keep()
            return whole
        return self._stream(whole, keep, conversation)

    def _stream(self, whole: dict[str, Any], keep: Callable[[], None], conversation: str | None) -> Iterator[bytes]:
        if conversation:
            self._busy.add(conversation)
        try:
            *events, end = wire.stream(whole)
            for event in events:
                yield event
                if self.stalls and b".delta" in event:
                    yield b""
            with self._lock:
                keep()
            yield end
        finally:
            if conversation:
                self._busy.discard(conversation)

    # --- what it keeps

    def _conversation(self, id: str) -> list[Item]:
        if id not in self.conversations:
            raise Refused(404, f"Conversation with id '{id}' not found.")
        return self.conversations[id]

    def _response(self, id: str) -> dict[str, Any]:
        if id not in self.responses:
            raise Refused(404, f"Response with id '{id}' not found.")
        return self.responses[id]

    def _as_stored(self, items: list[Item]) -> list[Item]:
        return [self._with_id(_in_parts(item)) for item in items]

    def _as_output(self, reply: Any) -> list[Item]:
        items = [wire.said(reply)] if isinstance(reply, str) else reply
        return [{**item, "id": f"{item['id'].partition('_')[0]}_{next(self._numbers)}"} for item in items]

    def _with_id(self, item: Item) -> Item:
        return {"id": f"{item['type'][:3]}_{next(self._numbers)}", "status": "completed", **item}

    def _listed(self, items: list[Item], query: dict[str, list[str]]) -> dict[str, Any]:
        limit = int(query.get("limit", ["20"])[0])
        if not 1 <= limit <= 100:
            raise Refused(400, f"Invalid limit {limit}.")
        ordered = items if query.get("order", ["desc"])[0] == "asc" else items[::-1]
        after = query.get("after", [None])[0]
        begin = next((place for place, item in enumerate(ordered, 1) if item["id"] == after), 0)
        page = [_shown(item, query) for item in ordered[begin : begin + min(limit, self.page)]]
        more = begin + len(page) < len(ordered)
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
        return {"object": "list", "data": page, "has_more": more, **ends}


_ROUTES: dict[str, Callable[..., Any]] = {
    "POST conversations": ResponsesServer.create,
    "DELETE conversations/*": ResponsesServer.delete_conversation,
    "GET conversations/*/items": ResponsesServer.list_items,
    "POST conversations/*/items": ResponsesServer.add_items,
    "DELETE conversations/*/items/*": ResponsesServer.delete_item,
    "POST responses": ResponsesServer.respond,
    "GET responses/*": ResponsesServer.retrieve,
    "GET responses/*/input_items": ResponsesServer.list_input,
    "DELETE responses/*": ResponsesServer.delete_response,
}


def _in_parts(item: Item) -> Item:
    if item["type"] != "message" or not isinstance(item["content"], str):
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {**item, "content": [{"type": kind, "text": item["content"]}]}


def _shown(item: Item, query: dict[str, list[str]]) -> Item:
    asked = "reasoning.encrypted_content" in query.get("include[]", [])
    return item if asked else {name: value for name, value in item.items() if name != "encrypted_content"}


def _short(item: Item) -> tuple[str, str]:
    if item["type"] == "message":
        content = item["content"]
        return item["role"], content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    said = item.get("output") or item.get("name") or ""
    return item["type"], said if isinstance(said, str) else said[0]["text"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self) -> None:
        server: ResponsesServer = self.server.served  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"null")
        url = urlsplit(self.path)
        try:
            answer = server.answer(self.command, url.path.removeprefix("/v1"), parse_qs(url.query), body)
        except Refused as refused:
            self._whole(refused.status, refused.body)
            return
        if isinstance(answer, Iterator):
            self._chunks(answer)
        else:
            self._whole(200, answer)

    do_GET = do_POST = do_DELETE = do

    def _whole(self, status: int, answer: Any) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        if data:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chunks(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                if not event:
                    self._wait_for_hang_up()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True
            events.close()  # type: ignore[attr-defined]  # a generator
            self.server.served.hung_up.set()  # type: ignore[attr-defined]

    def _wait_for_hang_up(self) -> None:
        self.wfile.flush()
        ready, _, _ = select.select([self.connection], [], [], 30)
        assert ready, "the client did not hang up"
        raise ConnectionResetError

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="session")
def _responses_server() -> Iterator[ResponsesServer]:
    server = ResponsesServer()
    yield server
    server.close()


@pytest.fixture
def responses_server(_responses_server: ResponsesServer) -> ResponsesServer:
    """One server per session, empty for each test."""
    _responses_server.reset()
    return _responses_server
