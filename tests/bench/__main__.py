"""What nbagents costs beside the plain `openai` client: `python -m tests.bench`.

Each figure is the CPU time of this process (or of a fresh one, for imports), as the median of rounds in which floor and
nbagents take turns. Machines are shared and noisy: read the ratios, not the times.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from tests.bench.compare import ROUNDS, Row, compare
from tests.bench.over_http import over_http
from tests.bench.runtime_streams import runtime_streams


def import_cpu(line: str) -> float:
    """CPU seconds of a fresh interpreter that runs `line`, less those of one that runs nothing."""
    code = f"import time\nstarted = time.process_time()\n{line}\nprint(time.process_time() - started)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def imports() -> Row:
    ours = "from nbagents import Agent, tool, OpenAIChatClient"
    rounds = [(import_cpu("import openai"), import_cpu(ours)) for _ in range(ROUNDS)]
    medians = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Row("import", "import openai", "<= 0.35", *medians)


class Slotted:
    __slots__ = ("a", "b", "c")

    def __init__(self, a: int, b: str, c: object) -> None:
        self.a, self.b, self.c = a, b, c


async def in_process() -> list[Row]:
    """Against a bare async generator that is consumed, and a coroutine that appends ten slotted objects."""
    from nbagents import Agent, ScriptedChatClient

    words = [f"tok{i:04d} " for i in range(5_000)]
    text = "".join(words[:50])

    async def source() -> AsyncGenerator[str, None]:
        for word in words:
            yield word

    async def floor_stream() -> None:
        assert len([word async for word in source()]) == len(words)

    async def floor_run() -> None:
        kept: list[Slotted] = []
        for i in range(10):
            kept.append(Slotted(i, "x", None))

    async def our_stream() -> None:
        stream = Agent(ScriptedChatClient([words])).run("q", stream=True)
        assert len([update async for update in stream if update.text]) == len(words)

    async def our_run() -> None:
        assert (await Agent(ScriptedChatClient([text])).run("q")).text == text

    return [
        await compare(
            "scripted chunk", "bare async generator", "<= 8 us quiet", floor_stream, our_stream, 2, len(words)
        ),
        await compare("scripted run", "ten slotted objects", "<= 140 us quiet", floor_run, our_run, 300),
    ]


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, median of {ROUNDS} rounds, CPU us")
        print(f"{'':28} {'floor':26} {'floor':>10} {'nbagents':>10}   ratio  target")
        print(imports(), flush=True)
        for rows in (over_http(port), in_process(), runtime_streams()):
            for row in asyncio.run(rows):
                print(row, flush=True)
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
