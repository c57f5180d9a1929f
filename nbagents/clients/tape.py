"""A tape: answers requests from a recording, and records the replies that it has to ask for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from nbagents.clients.exchanges import (
    Exchange,
    Recording,
    difference,
    normal_request,
    update_from_dict,
    update_to_dict,
)
from nbagents.core import BaseChatClient, ChatRequest, ChatResponse, ChatResponseUpdate, SupportsChatGetResponse
from nbagents.core.clients import direct_reply, stand_in
from nbagents.core.errors import ConfigurationError, ReplayMissError

RecordingMode = Literal["auto", "record", "replay"]
AnyChatClient = BaseChatClient | SupportsChatGetResponse


class Tape:
    """The file of a recording, and how far it has been replayed. Any number of clients, runs and threads share it.

    Args:
        path: a JSON Lines file, one exchange in each line; it can be edited.
        mode: `auto`, `record` or `replay`, as for `RecordedChatClient`.
        timing: let the pieces of a replayed stream come as slowly as they were recorded.

    Attributes:
        recorded: exchanges that were recorded through it.
        replayed: replies that it has given from the file.

    Raises:
        ConfigurationError: an unknown mode, or a file that is no recording.
    """

    def __init__(self, path: str | Path, mode: RecordingMode = "auto", *, timing: bool = False) -> None:
        if mode not in get_args(RecordingMode):
            raise ConfigurationError(f"mode is one of {', '.join(get_args(RecordingMode))}, not {mode!r}.")
        self.path = Path(path).expanduser()
        if mode == "replay" and not self.path.is_file():
            raise ConfigurationError(f"There is no recording {self.path}.", hint="Make it with mode='auto'.")
        self.mode = mode
        self.timing = timing
        self.recorded = 0
        self.replayed = 0
        self._recording = Recording(self.path)
        self._replies: defaultdict[str, list[Exchange]] = defaultdict(list)
        for exchange in self._recording.exchanges():
            self._replies[exchange.key].append(exchange)
        self._given: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        counts = f"{self.recorded} recorded, {self.replayed} replayed"
        return f"<recording {str(self.path)!r}, mode={self.mode!r}: {counts}>"

    def exchanges(self) -> list[Exchange]:
        """What it holds now."""
        with self._lock:
            return [exchange for exchanges in self._replies.values() for exchange in exchanges]

    async def answer(
        self, client: AnyChatClient | None, request: ChatRequest
    ) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the recorded reply to `request`, or that of `client`, which is recorded.

        Raises:
            ReplayMissError: there is none, and nobody to ask.
        """
        asked = normal_request(request, request.options.get("model") or getattr(client, "model", None))
        if self.mode == "replay":
            client = None
        exchange = self._next_reply(asked, may_ask=client is not None)
        if exchange is not None:
            async with aclosing(self._replay(exchange, stream=request.stream)) as updates:
                async for update in updates:
                    yield update
            return
        if client is None:
            raise self._miss(asked)
        records: list[dict[str, Any]] = []
        finished = False
        began = time.perf_counter()
        async with aclosing(direct_reply(client, request)) as given:
            async for update in given:
                records.append({**update_to_dict(update), "at": round(time.perf_counter() - began, 3)})
                finished = finished or update.finish_reason is not None
                yield update
        if finished:
            self._record(Exchange(asked, records, asked.get("model"), getattr(client, "provider", None)))

    async def _replay(self, exchange: Exchange, *, stream: bool) -> AsyncGenerator[ChatResponseUpdate, None]:
        """The updates of a recorded reply: as they were, or for a plain reply whole messages."""
        began = time.perf_counter()
        times = [record.get("at", 0.0) for record in exchange.updates]
        updates = [update_from_dict(record) for record in exchange.updates]
        if not stream:
            updates = ChatResponse.from_updates(updates).to_updates()
            times = [max(times, default=0.0)] * len(updates)
        for update, at in zip(updates, times, strict=True):
            update.replayed = True
            if self.timing and (wait := began + at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            yield update

    def _next_reply(self, asked: Mapping[str, Any], *, may_ask: bool) -> Exchange | None:
        """Return the recorded reply whose turn it is."""
        if self.mode == "record":
            return None
        with self._lock:
            for key in self._keys(asked):
                replies = self._replies.get(key, [])
                given = self._given[key]
                if replies and (given < len(replies) or not may_ask):
                    self._given[key] += 1
                    self.replayed += 1
                    return replies[given % len(replies)]
        return None

    def _keys(self, asked: Mapping[str, Any]) -> list[str]:
        """Return the keys of `asked`: without a model, those of the request to each recorded model."""
        if "model" in asked:
            return [Exchange(dict(asked), []).key]
        models = {exchange.request.get("model"): None for replies in self._replies.values() for exchange in replies}
        return [Exchange({**asked, "model": model} if model else dict(asked), []).key for model in models]

    def _record(self, exchange: Exchange) -> None:
        with self._lock:
            replies, first = self._replies[exchange.key], not self._given[exchange.key]
            if self.mode == "record" and first and replies:
                self._recording.remove(exchange.key)
                replies.clear()
            self._recording.add(exchange)
            replies.append(exchange)
            self._given[exchange.key] += 1
            self.recorded += 1

    def _miss(self, asked: Mapping[str, Any]) -> ReplayMissError:
        recorded = [replies[0].request for replies in self._replies.values() if replies]
        diff = difference(asked, recorded)
        nearest = f"The nearest one that is recorded differs:\n{diff}\n" if diff else "It is empty."
        return ReplayMissError(
            f"The recording {self.path} holds no reply to this request. {nearest}",
            hint="To record it, use mode='auto' with a client that can answer.",
        )


@contextmanager
def recording(path: str | Path, mode: RecordingMode = "auto", *, timing: bool = False) -> Iterator[Tape]:
    """Record and replay every model request that is made inside, whichever client or agent makes it.

    With a file that holds all replies the clients are not asked: no key, no cost, the same answers. It counts for what
    is begun inside: a run of `agent.start()` is recorded to its end, a click in a widget is not.

    Args:
        path: a JSON Lines file, made when there is something to record.
        mode: `auto` replays what the file holds and records the rest; `record` always asks; `replay` never does.
        timing: let the pieces of a replayed stream come as slowly as they were recorded.

    Returns:
        The `Tape`, with the counts `recorded` and `replayed`.

    Raises:
        ConfigurationError: an unknown mode, no file to replay, or a file that is no recording.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "hello.jsonl")
        >>> with recording(path):
        ...     Agent(ScriptedChatClient(["Hi."])).run_sync("Hello").text
        'Hi.'
        >>> with recording(path, "replay") as tape:
        ...     Agent(ScriptedChatClient([])).run_sync("Hello").text, tape.replayed
        ('Hi.', 1)
    """
    tape = Tape(path, mode, timing=timing)
    before = stand_in.get()
    stand_in.set(tape.answer)
    try:
        yield tape
    finally:
        stand_in.set(before)
