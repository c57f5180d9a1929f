"""What the tests of Responses share: agents on a server that remembers, and single replies in both modes."""

from __future__ import annotations

from typing import Any

from nbagents import Agent, ChatResponse, OpenAIResponsesClient, tool
from nbagents.core.content import Content
from tests.clients.asking import Mode
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import response, said

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "owls"}}


@tool
def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


class Service:
    """A server with the Responses API that remembers and judges; each `say` is one reply."""

    def __init__(self, server: RawServer) -> None:
        self.server = server
        self.service = wire.Service()

    def say(self, *items: wire.Item | str, **more: Any) -> Service:
        made = [said(item) if isinstance(item, str) else item for item in items]
        self.server.reply_with(self.service.answer(*made, **more))
        return self

    def client(self, **settings: Any) -> OpenAIResponsesClient:
        return OpenAIResponsesClient("test-model", **{"base_url": self.server.base_url, "max_retries": 0, **settings})

    def agent(self, *tools: Any, client: Any = None, **settings: Any) -> Agent:
        return Agent(self.client(**(client or {})), tools=list(tools), **settings)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.server.requests

    def brought(self, number: int = -1) -> list[tuple[str, Any]]:
        """Kind and content of what a request brought."""
        items = self.requests[number]["input"]
        return [(i.get("role") or i["type"], i.get("content", i.get("output", i.get("name")))) for i in items]


async def reply(server: RawServer, *events: Any, mode: Mode = "streamed", **more: Any) -> ChatResponse:
    """What a client makes of one reply: events, or with `mode` plain the whole response that stands there."""
    if mode == "plain":
        server.reply_json(*events)
    else:
        server.reply(*events, **{"done": False, **more})
    client = OpenAIResponsesClient("test-model", base_url=server.base_url, max_retries=0)
    if mode == "plain":
        return await client.get_response("Hi")
    return await client.get_response("Hi", stream=True).get_final_response()


async def either(server: RawServer, mode: Mode, *items: wire.Item, **more: Any) -> ChatResponse:
    """What a client makes of a response with these items, in one of the modes."""
    whole = response(*items, **more)
    return await reply(server, whole, mode="plain") if mode == "plain" else await reply(server, *wire.stream(whole))


def contents(answer: ChatResponse) -> list[Content]:
    return [content for message in answer.messages for content in message.contents]
