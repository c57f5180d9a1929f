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
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 7
BRIEF = "You are a helpful assistant."
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


async def compare(name: str, floor: str, target: str, base: Work, ours: Work, times: int, units: int = 1) -> Row:
    """Let the two take turns and return the medians."""
    await cpu_of(base, max(times // 5, 1)), await cpu_of(ours, max(times // 5, 1))
    rounds = [(await cpu_of(base, times, units), await cpu_of(ours, times, units)) for _ in range(ROUNDS)]
    return Row(name, floor, target, *(statistics.median(column) for column in zip(*rounds, strict=True)))


def import_cpu(line: str) -> float:
    """CPU seconds of a fresh interpreter that runs `line`, less those of one that runs nothing."""
    code = f"import time\nstarted = time.process_time()\n{line}\nprint(time.process_time() - started)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def imports() -> Row:
    ours = "from nbagents import Agent, tool, OpenAIChatClient"
    rounds = [(import_cpu("import openai"), import_cpu(ours)) for _ in range(ROUNDS)]
    medians = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Row("import", "import openai", "<= 0.35", *medians)


async def over_http(port: int) -> list[Row]:
    from openai import AsyncOpenAI

    from nbagents import Agent, OpenAIChatClient

    tokens = 2_000
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="bench", max_retries=0) as client:
        asked = [{"role": "system", "content": BRIEF}, {"role": "user", "content": "Tell me something."}]

        async def floor_stream() -> None:
            stream = await client.chat.completions.create(model=f"text-{tokens}", messages=asked, stream=True)
            assert len([chunk async for chunk in stream if chunk.choices]) >= tokens

        async def floor_call() -> None:
            reply = await client.chat.completions.create(model="text-50", messages=asked)
            assert reply.choices[0].message.content

        streaming = Agent(OpenAIChatClient(f"text-{tokens}", client=client), BRIEF)
        calling = Agent(OpenAIChatClient("text-50", client=client), BRIEF)

        async def our_stream() -> None:
            updates = [update async for update in streaming.run("Tell me something.", stream=True) if update.text]
            assert len(updates) == tokens

        async def our_call() -> None:
            assert (await calling.run("Tell me something.")).text

        return [
            await compare("streamed chunk", "typed openai call", "<= 0.25", floor_stream, our_stream, 2, tokens),
            await compare("plain call", "typed openai call", "<= 0.80", floor_call, our_call, 60),
        ]


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
        for row in [imports(), *asyncio.run(over_http(port)), *asyncio.run(in_process())]:
            print(row, flush=True)
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
