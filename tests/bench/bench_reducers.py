"""What a reducer costs on a long history, beside a run that brings all of it: `python -m tests.bench.bench_reducers`.

CPU milliseconds of one scripted run: the first on the history, which counts and cuts, and those after it.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from nbagents import (
    Agent,
    AgentSession,
    Message,
    ScriptedChatClient,
    SlidingWindowReducer,
    SummarizationReducer,
    TokenBudgetReducer,
    ToolResultReducer,
    TruncationReducer,
)
from nbagents.core.content import FunctionCall, FunctionResult

SIZES = (1_000, 2_000, 4_000)
REPEATS = 20


def history(size: int) -> list[Message]:
    """Turns of four messages: a question, a call, its result, an answer."""
    messages: list[Message] = []
    for turn in range(size // 4):
        call = FunctionCall(f"c{turn}", "look", {"x": turn})
        messages += [
            Message("user", f"Question {turn} " + "word " * 60),
            Message("assistant", ["Looking.", call], "agent", f"call{turn}"),
            Message("tool", [FunctionResult(call.call_id, "look", "found " * 80)]),
            Message("assistant", f"Answer {turn} " + "word " * 60, "agent", f"answer{turn}"),
        ]
    return messages


def cpu_ms(agent: Agent, session: AgentSession) -> float:
    started = time.process_time()
    agent.run_sync("And now?", session=session)
    return (time.process_time() - started) * 1e3


def measure(reducer: Any, size: int) -> tuple[float, float]:
    session = AgentSession(state={"messages": history(size)})
    agent = Agent(ScriptedChatClient(["Fine."] * (REPEATS + 1)), reducer=reducer)
    return cpu_ms(agent, session), statistics.median(cpu_ms(agent, session) for _ in range(REPEATS))


def main() -> None:
    reducers: list[Any] = [
        None,
        TruncationReducer(100),
        SlidingWindowReducer(20),
        TokenBudgetReducer(8_000),
        ToolResultReducer(2_000),
        SummarizationReducer(max_tokens=8_000, client=ScriptedChatClient(["A summary."] * 1_000)),
    ]
    print("first run, later runs (ms) on a history of " + ", ".join(f"{size:,}" for size in SIZES) + " messages")
    for reducer in reducers:
        figures = [measure(reducer, size) for size in SIZES]
        print(f"{reducer!r:62}", *(f"{first:8.1f} {later:6.2f}" for first, later in figures))


if __name__ == "__main__":
    main()
