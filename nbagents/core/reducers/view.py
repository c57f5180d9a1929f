"""What of a conversation a request brings: a reducer at work, for a run and for a thread."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nbagents.core.budget import RunBudget
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.reducers.base import Ask, Client, Reducer, ReductionContext, checked
from nbagents.core.reducers.cutting import mark_of
from nbagents.core.reducers.mending import mended
from nbagents.core.sessions import REDUCTION_KEY, AgentSession
from nbagents.core.tokens import TokenCounter
from nbagents.core.toolset import offered

if TYPE_CHECKING:
    from nbagents.core.run import RunContext
    from nbagents.core.usage import Usage

STAMP = "nbagents.reduction"
"""Where a stored message says what its session's reducer keeps, for who opens the history with another session."""
_ESTIMATE = TokenCounter()
_FEW_TOKENS = 50  # of so short a request the service's own marks are a large part
_SMALLEST_SCALE, _LARGEST_SCALE = 0.5, 4.0  # beyond that the report is wrong, not the estimate
_KEPT_REDUCERS = 8
_SUMMARIZER_BUDGET = RunBudget(max_steps=1)  # it has no tools: one that calls some all the same is to close


class RunReduction:
    """The reducer of one run: what the next request brings, and what the usage says of the estimate.

    Args:
        reducer: what chooses.
    """

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        self.view: Sequence[Message] = ()
        self._scratch: dict[str, Any] = {}
        self._to_stamp: dict[str, Any] | None = None
        self._estimated = 0
        self._tools: tuple[int, dict[int, int]] = (0, {})

    @classmethod
    def of(cls, run: RunContext, reducer: Reducer) -> RunReduction | None:
        """Return the reduction of `run`; None, with a warning, where the service stores the conversation."""
        if run.thread.stores_locally:
            return cls(reducer)
        run.warnings.append(
            f"{reducer.name} does nothing here: the service stores the conversation and brings all of it to the model. "
            "To keep it on this side pass options={'store': False}."
        )
        return None

    async def reduce(self, run: RunContext) -> list[RunEvent]:
        """Choose what the next request brings; return an event where that is another choice than before."""
        transcript, session, key = run.transcript, run.session, self.reducer.key
        kept = _kept(session, key, transcript)
        state, before = kept["state"], kept.get("choice", [])
        ask = _asking(run.agent.client, run)
        context = ReductionContext(
            state, _scale(session), partial(self._fixed, run), ask, run.note_failure, self._scratch
        )
        chosen = await _chosen(self.reducer, transcript, context)
        self.view = list(transcript) if chosen is None else chosen
        kept["choice"] = choice = _places(state) or ["less"] * (len(self.view) < len(transcript))
        _keep(session, key, kept)
        self._estimated = _ESTIMATE.messages(self.view) + self._fixed(run, _ESTIMATE)
        if choice == before:
            return []
        self._to_stamp = {key: state} if _has_summary(state) else None
        payload = {
            "reducer": self.reducer.name,
            "messages_before": len(transcript),
            "messages_after": len(self.view),
            "tokens_before": _ESTIMATE.messages(transcript),
            "tokens_after": _ESTIMATE.messages(self.view),
        }
        return [run.event("history.reduced", payload)]

    def learn(self, session: AgentSession, usage: Usage | None) -> None:
        """Correct the estimate by what the service has counted; a single odd report moves it little."""
        reported = usage.input_tokens if usage is not None else None
        if not reported or self._estimated < _FEW_TOKENS:
            return
        old = _scale(session)
        seen = min(max(reported / self._estimated, old / 2, _SMALLEST_SCALE), old * 2, _LARGEST_SCALE)
        session.state[REDUCTION_KEY] = {**_of_session(session), "scale": round((old + seen) / 2, 4)}

    def stamped(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return what is to be stored, with what a summary needs to be found again with the history alone."""
        place = next((place for place, message in enumerate(messages) if message.role == "assistant"), None)
        if self._to_stamp is None or place is None:
            return messages
        stamp, self._to_stamp = deepcopy(self._to_stamp), None
        message = replace(messages[place], extra={**(messages[place].extra or {}), STAMP: stamp})
        return [*messages[:place], message, *messages[place + 1 :]]

    def with_provided(self, provided: Sequence[Message], new: Sequence[Message]) -> list[Message]:
        """Return the view with messages of context providers in it, before those that are `new` in this run."""
        if not provided:
            return list(self.view)
        view, own = self.view, set(map(id, new))
        asked = {mark_of(message) for message in new if message.role == "user"}  # the reducer may have made copies
        found = (place for place, one in enumerate(view) if id(one) in own or mark_of(one) in asked)
        place = next(found, len(view))
        while place < len(view) and view[place].role == "tool":
            place -= 1
        return [*view[:place], *provided, *view[place:]]

    def _fixed(self, run: RunContext, counter: TokenCounter) -> int:
        number, known = self._tools
        if number != len(run.tools):
            number, known = len(run.tools), {}
        if id(counter) not in known:
            system = counter.message(run.system) if run.system is not None else 0
            known[id(counter)] = system + counter.tools(offered(run.tools.values()))
        self._tools = number, known
        return known[id(counter)] + counter.messages(run.provided)


async def reduced(
    messages: Sequence[Message], reducer: Reducer, session: AgentSession, client: Client
) -> list[Message] | None:
    """Reduce a conversation outside of a run; return what requests will bring, or None where nothing changed."""
    kept = _kept(session, reducer.key, messages)
    state = kept["state"]
    before = _places(state)
    context = ReductionContext(state, _scale(session), lambda counter: 0, _asking(client, None), _warn)
    view = await _chosen(reducer, messages, context)
    _keep(session, reducer.key, kept)
    after = _places(state)
    return None if (after and after == before) or view == list(messages) else view


async def _chosen(reducer: Reducer, messages: Sequence[Message], context: ReductionContext) -> list[Message] | None:
    """Return what `reducer` leaves of `messages`, as a service takes it; None for all."""
    found = checked(await reducer.reduce(list(messages), context), reducer.name)
    return None if found is None else mended(found, messages)


def _kept(session: AgentSession, key: str, messages: Sequence[Message]) -> dict[str, Any]:
    """Return a copy of what a reducer keeps with the session; of what stored messages say where that is nothing."""
    found = _reducers_of(session).get(key)
    if isinstance(found, dict) and isinstance(found.get("state"), dict):
        return deepcopy(found)
    stamps = (message.extra[STAMP] for message in reversed(messages) if message.extra and STAMP in message.extra)
    states = (stamp[key] for stamp in stamps if isinstance(stamp, dict) and isinstance(stamp.get(key), dict))
    return {"state": deepcopy(next(states, {}))}


def _keep(session: AgentSession, key: str, kept: dict[str, Any]) -> None:
    """Keep it, and forget a reducer that has not been here for long."""
    others = {name: value for name, value in _reducers_of(session).items() if name != key}
    last = list(others.items())[-(_KEPT_REDUCERS - 1) :]
    session.state[REDUCTION_KEY] = {**_of_session(session), "reducers": {**dict(last), key: kept}}


def _of_session(session: AgentSession) -> dict[str, Any]:
    """What is kept with a session, which may have come from anywhere."""
    found = session.state.get(REDUCTION_KEY)
    return found if isinstance(found, dict) else {}


def _reducers_of(session: AgentSession) -> dict[str, Any]:
    found = _of_session(session).get("reducers")
    return found if isinstance(found, dict) else {}


def _scale(session: AgentSession) -> float:
    scale = _of_session(session).get("scale")
    return scale if isinstance(scale, int | float) and _SMALLEST_SCALE <= scale <= _LARGEST_SCALE else 1.0


def _places(state: Mapping[str, Any]) -> list[Any]:
    """What tells one choice from another, of each reducer in a chain."""
    own = [state["cut"], state.get("mark")] if "cut" in state else []
    return [*own, *(place for inner in state.values() if isinstance(inner, dict) for place in _places(inner))]


def _has_summary(state: Mapping[str, Any]) -> bool:
    return "summaries" in state or any(_has_summary(inner) for inner in state.values() if isinstance(inner, dict))


def _asking(client: Client, run: RunContext | None) -> Ask:
    """Return what puts a text to a model: in a run of its own, which is a child of `run`."""

    async def ask(text: str, instructions: str, chosen: Client | None) -> str:
        from nbagents.core.agent import Agent
        from nbagents.core.run import current_run

        token = current_run.set(run)
        try:
            summarizer = Agent(chosen or client, instructions, name="summarizer")
            response = await summarizer.run(text, budget=_SUMMARIZER_BUDGET)
        finally:
            current_run.reset(token)
        return response.text

    return ask


def _warn(source: str, error: Exception) -> None:
    warnings.warn(f"{source} failed: {error}", stacklevel=2)
