"""The sessions of a runtime, by their id: those that were used last, in memory."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict

from nbagents.core import AgentSession
from nbagents.runtime.events import EventBus, RuntimeEvent

MAX_SESSIONS = 1_000


class Sessions:
    """Sessions by id, bounded: the one that was not used for the longest time is forgotten, unless a run has it.

    Args:
        bus: is told of each session that is forgotten.
        most: how many there may be.
    """

    def __init__(self, bus: EventBus, most: int) -> None:
        self._sessions: OrderedDict[str, AgentSession] = OrderedDict()
        self._in_use: Counter[str] = Counter()
        self._bus = bus
        self._most = most
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, session_id: str | None) -> AgentSession:
        """Return the session of this id, a new one if there is none; without an id, one with an id of its own."""
        with self._lock:
            session = self._sessions.get(session_id) if session_id is not None else None
            if session is None:
                session = AgentSession(session_id)
                self._sessions[session.session_id] = session
            self._sessions.move_to_end(session.session_id)
            left = self._trim(session.session_id)
        for one in left:
            self._tell(one, "unused")
        return session

    def put(self, session: AgentSession) -> bool:
        """Remember a session that comes from elsewhere, unless there is one of its id; tell whether that is so."""
        with self._lock:
            if session.session_id in self._sessions:
                return False
            self._sessions[session.session_id] = session
            left = self._trim(session.session_id)
        for one in left:
            self._tell(one, "unused")
        return True

    def begin(self, session: AgentSession) -> None:
        """A run has this session; each `begin` needs its `end`."""
        with self._lock:
            self._in_use[session.session_id] += 1

    def end(self, session: AgentSession) -> None:
        """A run has ended."""
        with self._lock:
            self._in_use[session.session_id] -= 1
            if not self._in_use[session.session_id]:
                del self._in_use[session.session_id]

    def close(self, session_id: str) -> bool:
        """Forget a session; tell whether there was one. A run that has it goes on."""
        with self._lock:
            known = self._sessions.pop(session_id, None) is not None
        if known:
            self._tell(session_id, "closed")
        return known

    def clear(self) -> None:
        """Forget all of them."""
        for session_id in list(self._sessions):
            self.close(session_id)

    def _tell(self, session_id: str, why: str) -> None:
        self._bus.publish(RuntimeEvent("session.closed", time.time(), {"why": why}, session_id=session_id))

    def _trim(self, kept: str) -> list[str]:
        left: list[str] = []
        while len(self._sessions) > self._most:
            idle = next((one for one in self._sessions if one not in self._in_use and one != kept), None)
            if idle is None:
                break
            del self._sessions[idle]
            left.append(idle)
        return left
