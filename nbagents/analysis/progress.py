"""A progress bar for what takes long, in a notebook and in a terminal."""

from __future__ import annotations

import sys
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
    from tqdm.auto import tqdm

    shown = "ipykernel" in sys.modules or sys.stderr.isatty()
    yield from tqdm(items, what, total, unit=unit, delay=DELAY_SECONDS, disable=not shown, leave=False)
