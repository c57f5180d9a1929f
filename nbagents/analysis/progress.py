"""A progress bar for what takes long, in a notebook and in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
DELAY_SECONDS = 1.0
"""What is done by then shows no bar."""


def progress(items: Iterable[T], what: str, *, total: int | None = None, unit: str = "runs") -> Iterator[T]:
    """Yield `items`, and show how many there were so far; nothing where nobody looks, such as in a log file.

    Args:
        items: what to go through.
        what: what is done with them.
        total: how many there are, if known.
        unit: what they are.
    """
    if not ("ipykernel" in sys.modules or sys.stderr.isatty()):
        yield from items
        return
    left, done = iter(items), 0
    deadline = time.monotonic() + DELAY_SECONDS
    for item in left:
        yield item
        done += 1
        if time.monotonic() >= deadline:
            break
    else:
        return
    from tqdm.auto import tqdm  # in a notebook it makes widgets, also where it shows none

    yield from tqdm(left, what, total, initial=done, unit=unit, leave=False)
