"""How two ways to do the same are compared: CPU time of this process, in turns, the median of rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

ROUNDS = 7
Work = Callable[[], Awaitable[object]]


@dataclass
class Row:
    name: str
    floor: str
    target: str
    floor_s: float
    ours_s: float

    def __str__(self) -> str:
        ratio = self.ours_s / self.floor_s
        times = f"{self.floor_s * 1e6:10.1f} {self.ours_s * 1e6:10.1f}"
        return f"{self.name:28} {self.floor:26} {times} {ratio:7.2f}x  {self.target}"


async def cpu_of(work: Work, times: int, units: int = 1) -> float:
    started = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - started) / times / units


async def compare(
    name: str, floor: str, target: str, base: Work, ours: Work, times: int, units: int = 1, *, rounds: int = ROUNDS
) -> Row:
    """Let the two take turns and return the medians."""
    if times > 1:
        await cpu_of(base, max(times // 5, 1)), await cpu_of(ours, max(times // 5, 1))
    figures = [(await cpu_of(base, times, units), await cpu_of(ours, times, units)) for _ in range(rounds)]
    return Row(name, floor, target, *(statistics.median(column) for column in zip(*figures, strict=True)))
