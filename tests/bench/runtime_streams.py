"""What a chunk of the runtime costs beside an update of its agent, and with many streams at once."""

from __future__ import annotations

import asyncio

from tests.bench.compare import Row, compare

TOKENS = 1_000
AT_ONCE = 100


async def runtime_streams() -> list[Row]:
    """Per chunk: against `Agent.run(stream=True)`, and a hundred streams at once against one after the other."""
    from nbagents import Agent, ScriptedChatClient
    from nbagents.runtime import RunRequest, Runtime

    words = [f"tok{i:04d} " for i in range(TOKENS)]
    request = RunRequest(agent_id="agent", input_text="q")

    def agent() -> Agent:
        return Agent(ScriptedChatClient([words] * AT_ONCE))

    async def updates() -> None:
        assert len([update async for update in agent().run("q", stream=True) if update.text]) == TOKENS

    async def one(runtime: Runtime) -> None:
        n = 0
        async for chunk in runtime.run_stream(request=request):
            n += chunk.kind == "llm.delta"
        assert n == TOKENS

    async def chunks() -> None:
        stream = Runtime(agents=[agent()]).run_stream(request=request)
        assert len([chunk async for chunk in stream if chunk.kind == "llm.delta"]) == TOKENS

    async def one_by_one() -> None:
        runtime = Runtime(agents=[agent()])
        for _ in range(AT_ONCE):
            await one(runtime)

    async def at_once() -> None:
        runtime = Runtime(agents=[agent()])
        await asyncio.gather(*(one(runtime) for _ in range(AT_ONCE)))

    many = TOKENS * AT_ONCE
    return [
        await compare("runtime chunk", "Agent.run(stream=True)", "<= 2.00", updates, chunks, 10, TOKENS),
        await compare("100 runtime streams", "one at a time", "<= 1.25", one_by_one, at_once, 1, many, rounds=3),
    ]
