"""Records what a chat client answers and replays it: the same notebook runs again without a key."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, get_args

from nbagents.clients.recording import (
    Exchange,
    Recording,
    difference,
    normal_request,
    request_key,
    update_from_dict,
    update_to_dict,
)
from nbagents.core import BaseChatClient, ChatRequest, ChatResponse, ChatResponseUpdate, SupportsChatGetResponse
from nbagents.core.clients import generate_from
from nbagents.core.errors import ConfigurationError, ReplayMissError
from nbagents.core.hosted import HostedTool, can_send

RecordingMode = Literal["auto", "record", "replay"]


class RecordedChatClient(BaseChatClient):
    """Replays the replies of a file, and records those that it asks another client for.

    Requests are the same if model, messages, options and tools are; our ids, times, `metadata`, `user` and whether the
    reply streams do not count. The same request made several times gets its replies in the order in which they were
    recorded; a new client begins at the first again. Only complete replies are recorded, secrets never.

    Modes:
        `auto`: replay what the file holds; ask `client` for the rest and record it.
        `record`: always ask, and record; the first reply to a request replaces those that the file holds for it.
        `replay`: never ask. After the last reply to a request comes the first again, so a cell can be run twice.

    Args:
        path: a JSON Lines file, one exchange in each line; it can be edited.
        client: the client to record; without one, `auto` only replays.
        mode: see above.

    Raises:
        ConfigurationError: an unknown mode, no client to record, or no file to replay.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "hello.jsonl")
        >>> RecordedChatClient(path, ScriptedChatClient(["Hi."])).as_agent().run_sync("Hello").text
        'Hi.'
        >>> RecordedChatClient(path, mode="replay").as_agent().run_sync("Hello").text
        'Hi.'
    """

    provider = "recorded"

    def __init__(
        self,
        path: str | Path,
        client: BaseChatClient | SupportsChatGetResponse | None = None,
        mode: RecordingMode = "auto",
    ) -> None:
        if mode not in get_args(RecordingMode):
            raise ConfigurationError(f"mode is one of {', '.join(get_args(RecordingMode))}, not {mode!r}.")
        if mode == "record" and client is None:
            raise ConfigurationError("mode='record' needs a client to record.", hint="Pass it as client=.")
        self.path = Path(path).expanduser()
        if (client is None or mode == "replay") and not self.path.is_file():
            raise ConfigurationError(
                f"There is no recording {self.path}.", hint="Pass client= to make it: what that answers is recorded."
            )
        self.mode = mode
        self.client = None if mode == "replay" else client
        self._recording = Recording(self.path)
        self._replies: defaultdict[str, list[Exchange]] = defaultdict(list)
        for exchange in self._recording.exchanges():
            self._replies[exchange.key].append(exchange)
        self._given: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._asked_model: str | None = getattr(client, "model", None)
        self._take_traits_of(client)

    def __repr__(self) -> str:
        return f"RecordedChatClient({str(self.path)!r}, {self.client!r}, mode={self.mode!r})"

    def can_send(self, tool: HostedTool) -> bool:
        """Whether the recorded client can; without it, what it did is only told again."""
        return self.client is None or can_send(self.client, tool)

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the recorded reply, or that of the client, which is recorded."""
        asked = normal_request(request, request.options.get("model") or self._asked_model)
        exchange = self._next_reply(asked)
        if exchange is not None:
            for update in _replayed(exchange, stream=request.stream):
                yield update
            return
        if self.client is None:
            raise self._miss(asked)
        client = self.client
        source = client.generate(request) if isinstance(client, BaseChatClient) else generate_from(client, request)
        updates: list[dict[str, Any]] = []
        finished = False
        async with aclosing(source) as given:
            async for update in given:
                updates.append(update_to_dict(update))
                finished = finished or update.finish_reason is not None
                yield update
        if finished:
            self._record(Exchange(asked, updates, asked.get("model"), getattr(client, "provider", None)))

    def _take_traits_of(self, client: BaseChatClient | SupportsChatGetResponse | None) -> None:
        """Look like the recorded client to the run and to the tables."""
        if client is None:
            first = next((exchanges[0] for exchanges in self._replies.values()), None)
            self.model = first.model if first else None
            self.provider = (first.provider if first else None) or self.provider
            recorded = [one for exchanges in self._replies.values() for one in exchanges]
            at_service = any(update.get("conversation_id") for one in recorded for update in one.updates)
            self.stores_by_default = self.supports_service_sessions = at_service
            return
        self.model = self._asked_model
        self.provider = getattr(client, "provider", self.provider)
        self.streaming = getattr(client, "streaming", None)
        self.stores_by_default = getattr(client, "stores_by_default", False)
        self.supports_service_sessions = getattr(client, "supports_service_sessions", False)
        self.supports_tools = getattr(client, "supports_tools", True)
        self.max_retries = getattr(client, "max_retries", 0)

    def _next_reply(self, asked: Mapping[str, Any]) -> Exchange | None:
        """Return the recorded reply whose turn it is."""
        if self.mode == "record":
            return None
        with self._lock:
            for key in self._keys(asked):
                replies = self._replies.get(key, [])
                given = self._given[key]
                if replies and (given < len(replies) or self.client is None):
                    self._given[key] += 1
                    return replies[given % len(replies)]
        return None

    def _keys(self, asked: Mapping[str, Any]) -> list[str]:
        """Return the keys of `asked`: without a model, those of the request to each recorded model."""
        if "model" in asked:
            return [request_key(asked)]
        models = {exchange.request.get("model"): None for replies in self._replies.values() for exchange in replies}
        return [request_key({**asked, "model": model} if model else asked) for model in models]

    def _record(self, exchange: Exchange) -> None:
        with self._lock:
            first = not self._given[exchange.key]
            if self.mode == "record" and first:
                self._recording.remove(exchange.key)
                self._replies[exchange.key].clear()
            self._recording.add(exchange)
            self._replies[exchange.key].append(exchange)
            self._given[exchange.key] += 1

    def _miss(self, asked: Mapping[str, Any]) -> ReplayMissError:
        recorded = [replies[0].request for replies in self._replies.values() if replies]
        diff = difference(asked, recorded)
        nearest = f"The nearest one that is recorded differs:\n{diff}\n" if diff else "It is empty."
        return ReplayMissError(
            f"The recording {self.path} holds no reply to this request. {nearest}",
            hint="To record it, pass client= and mode='auto'.",
        )


def _replayed(exchange: Exchange, *, stream: bool) -> list[ChatResponseUpdate]:
    """Return the updates of a recorded reply: as they were, or for a plain reply whole messages."""
    updates = [update_from_dict(record) for record in exchange.updates]
    if stream:
        return updates
    whole = ChatResponse.from_updates(updates).to_updates()
    for update in whole:
        update.replayed = True
    return whole
