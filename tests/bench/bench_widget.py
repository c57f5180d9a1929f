"""What the widget costs a browser: `pytest -s tests/bench/bench_widget.py`. Bytes are asserted, times are printed."""

from __future__ import annotations

import pytest

from tests.support.lab import LabPage

SETUP = """
import asyncio, time
from nbagents import Agent, BaseChatClient, Chat, ChatResponseUpdate
from nbagents.core.content import TextContent

class Paced(BaseChatClient):
    "Streams `pieces` at `rate` a second."
    model = "paced"
    provider = "bench"
    def __init__(self, pieces, rate):
        self.pieces, self.rate = pieces, rate
    async def generate(self, request):
        begun = time.monotonic()
        for n, piece in enumerate(self.pieces):
            ahead = n / self.rate - (time.monotonic() - begun)
            if ahead > 0.002:
                await asyncio.sleep(ahead)
            yield ChatResponseUpdate((TextContent(piece),), role="assistant")
        yield ChatResponseUpdate(finish_reason="stop")

WORDS = "The quick brown fox jumps over the lazy dog while seven wizards quietly judge my vow of black quartz ".split()
def prose(n):
    pieces = []
    while len(pieces) < n:
        k = len(pieces)
        pieces += [f"**bold {k}** ", *(WORDS[(k + i) % len(WORDS)] + " " for i in range(60)), f"`code_{k}`.\\n\\n"]
        if k % 5 == 0:
            pieces += [f"- item {i} of a list\\n" for i in range(8)] + ["\\n"]
        if k % 7 == 0:
            pieces += ["```python\\n", *(f"value_{i} = {i} * 2\\n" for i in range(12)), "```\\n\\n"]
    return pieces[:n]
def fence(characters):
    line = "value = [n * n for n in range(10)]  # a line of code\\n"
    return ["```text\\n", *[line[:26], line[26:]] * (characters // len(line))]
"""
RUN = """
import ipywidgets
chat = Chat(Agent(Paced({pieces}, rate={rate})))
{shown}
"""
WIDGET = "ipywidgets.VBox([chat])  # the widget alone"
CHAT = "chat  # and the copy of the transcript that is stored beside it"
GO = """
cpu = time.process_time(); begun = time.monotonic()
text = chat.send("Go").result().text
print(len(text), round(time.process_time() - cpu, 2), round(time.monotonic() - begun, 1))
"""


def stream(lab_page: LabPage, what: str, pieces: str, rate: int, shown: str = WIDGET) -> tuple[int, int]:
    """Stream into a chat that is looked at; print and return characters and bytes."""
    lab_page.open([SETUP, RUN.format(pieces=pieces, rate=rate, shown=shown), GO]).run_cell(0).run_cell(1)
    lab_page.output(1).get_by_role("textbox").wait_for()
    with lab_page.measure() as traffic:
        lab_page.run_cell(2, timeout=150)
        lab_page.page.wait_for_function("() => document.querySelector('.nbagents-log').ariaBusy === 'false'")
    characters, cpu, seconds = lab_page.output(2).inner_text().split()
    longest = max(traffic.long_tasks, default=0)
    sent = traffic.bytes_received
    print(f"\n{what}: {characters} characters in {seconds} s, {sent / 1e6:.3f} MB, kernel {cpu} s CPU, ", end="")
    print(f"longest freeze {longest:.0f} ms, {len(traffic.long_tasks)} tasks over 50 ms")
    return int(characters), sent


@pytest.mark.timeout(300)
def test_twenty_thousand_tokens_at_a_thousand_a_second(lab_page: LabPage) -> None:
    _, sent = stream(lab_page, "20,000 tokens", "prose(20_000)", 1000)
    assert sent <= 700_000
    stream(lab_page, "20,000 tokens, stored beside", "prose(20_000)", 1000, CHAT)


@pytest.mark.timeout(300)
def test_an_open_fence_costs_linear_traffic(lab_page: LabPage) -> None:
    half, half_sent = stream(lab_page, "open fence", "fence(20_000)", 200)
    whole, sent = stream(lab_page, "open fence", "fence(40_000)", 200)
    assert sent / half_sent < 1.2 * whole / half
