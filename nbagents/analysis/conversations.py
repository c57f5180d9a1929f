"""What no run knows alone: turns and places of messages in a conversation, and the ends of calls that waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import accumulate
from typing import NamedTuple

from nbagents.analysis.blocks import blocks_of
from nbagents.analysis.columns import MESSAGES, TOOL_CALLS
from nbagents.analysis.facts import CallFacts, RunFacts, open_one
from nbagents.analysis.frames import Block, Column, read_block
from nbagents.core.events import RunEvent

RunBlock = tuple[str, Block]
"""The id of a run, and its rows."""


def _place(columns: Sequence[Column], name: str) -> int:
    return [column.name for column in columns].index(name)


_MESSAGE_ID, _TURN, _INDEX = (_place(MESSAGES, name) for name in ("message_id", "turn", "index"))
_CALL_ID = _place(TOOL_CALLS, "tool_call_id")


def placed_messages(runs: Iterable[RunFacts]) -> Iterator[RunBlock]:
    """Yield the messages of each run, with their turns and places in the sessions and unique ids.

    Args:
        runs: oldest first.
    """
    turns: defaultdict[str, int] = defaultdict(int)
    places: defaultdict[str, int] = defaultdict(int)
    ids = _Ids()
    for run, block in blocks_of("messages_df", runs, lambda run: run.messages):
        session = run.session_id
        first, *turn = accumulate(block[_TURN], initial=turns[session])
        turns[session] = turn[-1] if turn else first
        values = list(block)
        values[_MESSAGE_ID] = ids.unique(block[_MESSAGE_ID])
        values[_TURN] = [number or None for number in turn]
        values[_INDEX] = range(places[session], places[session] + len(turn))
        places[session] += len(turn)
        yield run.run_id, values


def called_tools(runs: Iterable[RunFacts]) -> Iterator[RunBlock]:
    """Yield the calls that models made in each run, with what became of them, in whichever run, and unique ids.

    Args:
        runs: oldest first.
    """
    blocks = blocks_of("tool_calls_df", runs, lambda run: run.calls)
    parts = [(run.run_id, block, _Calls(run.calls, run.strays)) for run, block in blocks]
    later = _settled_later([made for _, _, made in parts])
    ids = _Ids()
    for place, (run_id, block, _) in enumerate(parts):
        values = list(read_block(TOOL_CALLS, later[place]) if place in later else block)
        values[_CALL_ID] = ids.unique(values[_CALL_ID])
        yield run_id, values


def settled_calls(runs: Iterable[RunFacts]) -> list[CallFacts]:
    """Return the calls that models made in `runs`, in order, with what became of them, in whichever of the runs."""
    parts = [_Calls(run.calls, run.strays) for run in runs]
    later = _settled_later(parts)
    return [call for place, part in enumerate(parts) for call in later.get(place, part.made)]


class _Calls(NamedTuple):
    """The calls that a model made in one run, and what this run tells of calls of earlier ones."""

    made: list[CallFacts]
    strays: list[RunEvent]


def _settled_later(parts: Sequence[_Calls]) -> dict[int, list[CallFacts]]:
    """Return the calls of those runs of which a later one tells something, with that, by the places of the runs."""
    if not any(part.strays for part in parts):
        return {}
    settled: dict[int, list[CallFacts]] = {}
    made_in: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, part in enumerate(parts):
        for number, call in enumerate(part.made):
            made_in[call.call.id].append((place, number))
        for event in part.strays:
            found = made_in.get(event.payload["id"], ())
            same = [settled.get(run, parts[run].made)[number] for run, number in found]
            if not same:
                continue
            before = open_one(same)
            run, number = found[same.index(before)]
            call = copy(before)  # that of the run itself stays as it is
            call.take(event)
            settled.setdefault(run, list(parts[run].made))[number] = call
    return settled


class _Ids:
    """Ids that were given so far."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def unique(self, ids: Sequence[str]) -> Sequence[str]:
        """Return `ids`; one that was given before has #2, #3, ... appended."""
        new = dict.fromkeys(ids, 1)
        if len(new) == len(ids) and self._given.keys().isdisjoint(new):
            self._given |= new
            return ids
        return [self._one(own) for own in ids]

    def _one(self, own: str) -> str:
        times = self._given.get(own, 0) + 1
        while (shown := own if times == 1 else f"{own}#{times}") in self._given:
            times += 1
        self._given[shown] = 1
        self._given[own] = times
        return shown
