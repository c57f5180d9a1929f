"""The rows that a run has in a table, column by column: read once, and kept with the run when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from nbagents.analysis.columns import TABLES
from nbagents.analysis.facts import RunFacts
from nbagents.analysis.frames import Block, read_block
from nbagents.core.prices import known_prices
from nbagents.core.secrets import known_secrets

RUNS_READ_TOGETHER = 16
"""The texts of so many runs are searched for secrets at once, which takes less time than one by one."""


def blocks_of(
    table: str, runs: Iterable[RunFacts], rows_of: Callable[[RunFacts], Sequence[Any]]
) -> Iterator[tuple[RunFacts, Block]]:
    """Yield each of `runs` with its block of a table.

    That of a run that has ended stays in its record, until there is a note to it, or more secrets or prices are known.

    Args:
        table: the name of the table.
        runs: the runs; not read far ahead.
        rows_of: gives the rows of a run.
    """
    columns, _ = TABLES[table]
    known = (known_secrets(), known_prices())
    left = iter(runs)
    while some := list(islice(left, RUNS_READ_TOGETHER)):
        kept = [run.record.views.get(table, _NONE) if run.record.views is not None else _NONE for run in some]
        new = [run for run, view in zip(some, kept, strict=True) if view[0] != (len(run.events), *known)]
        rows = [rows_of(run) for run in new]
        read = _cut(read_block(columns, list(chain.from_iterable(rows))), map(len, rows))
        made = {id(run): block for run, block in zip(new, read, strict=True)}
        for run, (_, block) in zip(some, kept, strict=True):
            if (own := made.get(id(run))) is None:
                yield run, block
                continue
            if run.end is not None:
                run.record.keep(table, ((len(run.events), *known), own))
            yield run, own


_NONE: tuple[tuple[int, ...], Block] = ((), ())


def _cut(block: Block, lengths: Iterable[int]) -> Iterator[Block]:
    """Cut a block of the rows of several runs into theirs."""
    begin = 0
    for length in lengths:
        end = begin + length
        yield tuple([tuple(values[begin:end]) for values in block])
        begin = end
