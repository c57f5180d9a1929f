"""Clients of Anthropic's Messages API, and endpoints of the contract with it: the same three servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from nbagents import AnthropicChatClient
from tests.clients.endpoints import Ability, Say, Turn, words_of
from tests.clients.served_endpoints import OnAIMock, OnLLMock, OnRawServer, OnServer
from tests.support import anthropic_events as wire
from tests.support.raw_server import RawServer, Refuse

MODEL = "claude-sonnet-4-6"


def client_on(server: RawServer, **settings: Any) -> AnthropicChatClient:
    return AnthropicChatClient("m", **{"base_url": server.base_url, "max_retries": 0, **settings})


class _OnServer(OnServer):
    """An AnthropicChatClient on such a server."""

    below = ""

    def client(self, *script: Turn, **settings: Any) -> Any:
        base_url = self._play(script)
        self.port = int(base_url.partition("127.0.0.1:")[2].partition("/")[0])
        address = f"{base_url.removesuffix('/v1')}{self.below}"
        return AnthropicChatClient(MODEL, base_url=address, api_key="k", **{"max_retries": 0, **settings})


class AnthropicOnRawServer(_OnServer, OnRawServer):
    """The server of the tests, which plays everything."""

    def _play(self, script: tuple[Turn, ...]) -> str:
        server = RawServer()
        self._servers.append(server)
        for turn in script:
            if isinstance(turn, Say) and turn.slow:
                opening = wire.text(0, turn.text.split(" ")[0] + " ")[:2]
                server.reply(wire.start(), *opening, end="stall")
            elif isinstance(turn, Say):
                server.reply_with(lambda body, turn=turn: _wire(turn, body))
            elif turn.status:
                body = wire.error("api_error", f"Played {turn.status}")
                server.reply_json(body, turn.status, headers={"retry-after": "0.01"})
            elif turn.page:
                server.reply_raw(turn.page)
            else:
                server.reply(wire.start(), *wire.text(0, turn.text)[:2], end="cut")
        return server.base_url

    def asked(self) -> dict[str, Any]:
        return wire.as_chat(super().asked())


def _wire(turn: Say, body: Mapping[str, Any]) -> Any:
    """The events or the body that say `turn`."""
    if reason := wire.refusal(dict(body)):
        raise Refuse(reason)
    ending = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}[turn.ending]
    more = {"stop_details": {"type": "refusal", "explanation": turn.refusal}} if turn.refusal else {}
    ending = "refusal" if turn.refusal else ending
    if not body.get("stream"):
        thoughts = [{"type": "thinking", "thinking": turn.reasoning, "signature": "s1"}] if turn.reasoning else []
        texts = [{"type": "text", "text": turn.text}] if turn.text else []
        calls = [
            {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": arguments}
            for place, (name, arguments) in enumerate(turn.calls)
        ]
        return wire.message(*thoughts, *texts, *calls, reason=ending, **more)
    blocks = []
    if turn.reasoning:
        blocks.append(wire.thinking(0, turn.reasoning, signature="s1"))
    if turn.text:
        blocks.append(wire.text(len(blocks), *words_of(turn.text)))
    for place, (name, arguments) in enumerate(turn.calls):
        blocks.append(wire.call(len(blocks), f"toolu_{place}", name, *json.dumps(arguments).partition(":")))
    return [wire.start(), wire.event("ping"), *(one for events in blocks for one in events), *wire.end(ending, **more)]


class AnthropicOnLLMock(_OnServer, OnLLMock):
    """The server that also judges the client."""

    below = "/anthropic"

    def _behaviors(self, turn: Turn) -> Iterator[dict[str, Any]]:
        for behavior in super()._behaviors(turn):
            # The start of the message, the start of the block and a ping come before the text.
            yield {**behavior, "after_chunks": 4} if behavior["type"] == "stream_fault" else behavior

    def asked(self) -> dict[str, Any]:
        return wire.as_chat(super().asked())


class AnthropicOnAIMock(_OnServer, OnAIMock):
    """The server whose fixtures are chosen by how far the conversation has come."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        **OnAIMock.cannot,
        "request": "aimock keeps only some of the options",
    }

    def _response(self, turn: Say) -> dict[str, Any]:
        return {**super()._response(turn), "usage": {"input_tokens": 10, "output_tokens": 5}}
