"""A chat client whose service stores conversations, as strict as OpenAI's, for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from nbagents import BaseChatClient, ChatRequest, ChatResponseUpdate, Message, ScriptedChatClient
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.errors import BadRequestError
from nbagents.core.folding import UpdateFolder
from tests.support.strict import refusal


class StoringClient(BaseChatClient):
    """Answers by script, and keeps each conversation under an id.

    Args:
        replies: those of `ScriptedChatClient`; the request that a function gets has the whole conversation.
        ids: `rolling` (each reply has an id of its own, and one can go on after any of them), `fixed` (that of the
            conversation), or `none` (the service forgets to say it).
        early: the first update has the id; else the last one.
        by_default: the service stores where a request does not say.

    Attributes:
        requests: what came in.
        conversations: the messages that are stored, by id.
    """

    provider = "storing"
    supports_service_sessions = True

    def __init__(
        self, replies: Iterable[Any], *, ids: str = "rolling", early: bool = True, by_default: bool = True
    ) -> None:
        self.script = ScriptedChatClient(replies)
        self.model = "storing"
        self.ids = ids
        self.early = early
        self.stores_by_default = by_default
        self.requests: list[ChatRequest] = []
        self.conversations: dict[str, list[Message]] = {}

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        self.requests.append(request)
        stores = request.options.get("store", self.stores_by_default or request.conversation_id is not None)
        whole = [*self._before(request), *(m for m in request.messages if m.role != "system")]
        why = refusal({"messages": wire_messages([*(m for m in request.messages if m.role == "system"), *whole])})
        if why:
            raise BadRequestError(why, status=400)
        own_id = request.conversation_id if self.ids == "fixed" else None
        own_id = own_id or f"conv_{len(self.requests)}"
        told = own_id if stores and self.ids != "none" else None
        folder = UpdateFolder()
        async with aclosing(self.script.generate(replace(request, messages=whole))) as updates:
            async for update in updates:
                folder.add(update)
                if self.early or update.finish_reason:
                    update.conversation_id = told
                if stores:
                    self.conversations[own_id] = [*whole, *folder.messages()]
                yield update
                await asyncio.sleep(0)

    def _before(self, request: ChatRequest) -> list[Message]:
        if request.conversation_id is None:
            return []
        if request.conversation_id not in self.conversations:
            raise BadRequestError(f"There is no conversation {request.conversation_id!r}.", status=400)
        return self.conversations[request.conversation_id]

    def sent(self, number: int = -1) -> list[tuple[str, str]]:
        """Role and text of what request `number` brought."""
        return [(m.role, m.text or "".join(r.result for r in m.results)) for m in self.requests[number].messages]
