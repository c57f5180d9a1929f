"""The chunks of a run: numbered as they are made, and the last ones kept for who lost its place in the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from nbagents.core import NBAgentsError
from nbagents.loop.hosts import resolve
from nbagents.runtime.chunks import RunStreamChunk, made_chunk
from nbagents.runtime.payloads import Payload, RunStreamChunkKind
from nbagents.runtime.results import RunResult

KEPT_CHUNKS = 1_000
KEPT_RUNS = 32
"""Runs that have ended and whose last chunks are still there."""

_DELTA = RunStreamChunkKind.LLM_DELTA  # most chunks are deltas, and a delta is flat
_Kept = tuple[int, RunStreamChunkKind, int, Payload]
"""Sequence, kind, time and payload; the chunk is made anew, as thousands of models would be work for the collector."""


def _copied(value: Any) -> Any:
    """Return JSON that its reader may change: what is kept stays as it was."""
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


class RecentChunks:
    """The chunks of one run, the last of them kept. Who follows neither slows nor ends the run.

    Each side writes, then looks at what the other wrote: so nothing is missed, and the run takes no lock per chunk.

    Args:
        run_id: the run.
        session_id: its session.
        agent_id: its agent.
        most: how many chunks are kept.
    """

    def __init__(self, run_id: str, session_id: str, agent_id: str, most: int = KEPT_CHUNKS) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.agent_id = agent_id
        self.sequence = 0
        self._ended = False
        self._result: RunResult | None = None
        self._kept: deque[_Kept] = deque(maxlen=most)
        self._waiting: list[asyncio.Future[None]] = []

    def next_chunk(
        self, kind: RunStreamChunkKind, payload: Payload, timestamp: float, result: RunResult | None = None
    ) -> RunStreamChunk:
        """Make the next chunk, keep it, and wake those who follow."""
        kept = (self.sequence + 1, kind, int(timestamp * 1000), payload)
        if result is not None:
            self._result = result
        self._kept.append(kept)
        self.sequence += 1
        self._ended = result is not None
        if self._waiting:
            self._wake()
        return self._chunk(kept)

    def from_sequence(self, sequence: int) -> list[RunStreamChunk]:
        """Return the chunks from this one on, as far as there are.

        Raises:
            NBAgentsError: the first of them is not kept any more.
        """
        kept = list(self._kept)  # one step for other threads
        first = kept[0][0] if kept else sequence
        if sequence < first:
            raise NBAgentsError(
                f"The chunks {sequence} to {first - 1} of the run {self.run_id!r} are not kept any more.",
                code="chunks_lost",
                hint=f"Go on after {first - 1}; the whole run is in the run log.",
            )
        return [self._chunk(one) for one in kept[sequence - first :]]

    async def follow(self, after: int) -> AsyncGenerator[RunStreamChunk, None]:
        """Yield the chunks after this sequence number: those that are kept, then each as it comes, to the last.

        Raises:
            NBAgentsError: the reader was slower than the run, and chunks between are not kept any more.
        """
        wanted = after + 1
        while True:
            await self._until(wanted)
            chunks = self.from_sequence(wanted)
            for chunk in chunks:
                yield chunk
                wanted = chunk.sequence + 1
            if not chunks or chunks[-1].result is not None:
                return

    def _chunk(self, kept: _Kept) -> RunStreamChunk:
        sequence, kind, timestamp_ms, payload = kept
        return made_chunk(
            kind=kind,
            run_id=self.run_id,
            session_id=self.session_id,
            agent_id=self.agent_id,
            sequence=sequence,
            timestamp_ms=timestamp_ms,
            payload=payload.copy() if kind is _DELTA else _copied(payload),
            result=self._result if kind is RunStreamChunkKind.RUN_FINISHED else None,
        )

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            with suppress(RuntimeError):  # who waited is gone, and its loop is closed
                future.get_loop().call_soon_threadsafe(resolve, future)

    async def _until(self, sequence: int) -> None:
        """Wait until this chunk is there, or the run has ended before it."""
        while self._is_missing(sequence):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                if self._is_missing(sequence):
                    await future
            finally:
                with suppress(ValueError):  # it was woken
                    self._waiting.remove(future)

    def _is_missing(self, sequence: int) -> bool:
        return self.sequence < sequence and not self._ended
