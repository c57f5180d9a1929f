"""What runs over HTTP cost beside the typed calls of the `openai` client, on both of its APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI

from nbagents import Agent, OpenAIChatClient, OpenAIResponsesClient, tool
from tests.bench.compare import Row, compare

BRIEF = "You are a helpful assistant."
PROMPT = "Tell me something."
TOKENS = 2_000
TURNS = 200
Json = dict[str, Any]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def over_http(port: int) -> list[Row]:
    """Chat Completions, then Responses."""
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="bench", max_retries=0) as client:
        return [*await _chat(client), *await _responses(client)]


async def _chat(client: AsyncOpenAI) -> list[Row]:
    create = client.chat.completions.create
    asked: list[Any] = [{"role": "system", "content": BRIEF}, {"role": "user", "content": PROMPT}]
    function = {"name": "add", "description": "Add two numbers.", "parameters": add.definition.parameters}
    offered: list[Any] = [{"type": "function", "function": function}]

    async def floor_stream() -> None:
        stream = await create(model=f"text-{TOKENS}", messages=asked, stream=True)
        assert len([chunk async for chunk in stream if chunk.choices]) >= TOKENS

    async def floor_call() -> None:
        reply = await create(model="text-50", messages=asked)
        assert reply.choices[0].message.content

    async def floor_round() -> None:
        first = (await create(model="calls-50", messages=asked, tools=offered)).choices[0].message
        assert first.tool_calls
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "3"}
        answer = await create(model="calls-50", messages=[*asked, first, result], tools=offered)  # type: ignore[list-item]
        assert answer.choices[0].message.content

    async def floor_turns() -> None:
        messages: list[Any] = [asked[0]]
        for _ in range(TURNS):
            messages.append(asked[1])
            messages.append((await create(model="text-50", messages=messages)).choices[0].message)

    return await _rows(
        "", lambda model: OpenAIChatClient(model, client=client), floor_stream, floor_call, floor_round, floor_turns
    )


async def _responses(client: AsyncOpenAI) -> list[Row]:
    create = client.responses.create
    asked: list[Any] = [{"role": "user", "content": PROMPT}]
    fields = {"description": "Add two numbers.", "parameters": add.definition.strict_form.parameters}
    offered: list[Any] = [{"type": "function", "name": "add", "strict": True, **fields}]

    async def floor_stream() -> None:
        stream = await create(model=f"text-{TOKENS}", input=asked, instructions=BRIEF, store=False, stream=True)
        assert len([e async for e in stream if e.type == "response.output_text.delta"]) == TOKENS

    async def floor_call() -> None:
        assert (await create(model="text-50", input=asked, instructions=BRIEF, store=False)).output_text

    async def floor_round() -> None:
        model, given = "calls-50", {"instructions": BRIEF, "store": False, "tools": offered}
        call: Any = (await create(model=model, input=asked, **given)).output[0]  # type: ignore[call-overload]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        answer = await create(model=model, input=[*asked, call, result], **given)  # type: ignore[call-overload]
        assert answer.output_text

    async def floor_turns() -> None:
        items: list[Any] = []
        for _ in range(TURNS):
            items += asked
            items += (await create(model="text-50", input=items, instructions=BRIEF, store=False)).output

    def ours(model: str) -> OpenAIResponsesClient:
        return OpenAIResponsesClient(model, client=client, stores_by_default=False)

    return await _rows("Responses: ", ours, floor_stream, floor_call, floor_round, floor_turns)


async def _rows(
    api: str,
    client: Callable[[str], Any],
    floor_stream: Callable[[], Awaitable[None]],
    floor_call: Callable[[], Awaitable[None]],
    floor_round: Callable[[], Awaitable[None]],
    floor_turns: Callable[[], Awaitable[None]],
) -> list[Row]:
    streaming, calling = Agent(client(f"text-{TOKENS}"), BRIEF), Agent(client("text-50"), BRIEF)
    rounds = Agent(client("calls-50"), BRIEF, tools=[add])

    async def our_stream() -> None:
        updates = [update async for update in streaming.run(PROMPT, stream=True) if update.text]
        assert len(updates) == TOKENS

    async def our_call() -> None:
        assert (await calling.run(PROMPT)).text

    async def our_round() -> None:
        assert len((await rounds.run(PROMPT)).messages) == 3

    async def our_turns() -> None:
        session = calling.create_session()
        for _ in range(TURNS):
            assert (await calling.run(PROMPT, session=session)).text

    typed = "typed openai call"
    return [
        await compare(f"{api}streamed chunk", typed, "<= 0.25", floor_stream, our_stream, 2, TOKENS),
        await compare(f"{api}plain call", typed, "<= 0.80", floor_call, our_call, 60),
        await compare(f"{api}tool round", "two typed calls", "<= 0.80", floor_round, our_round, 30),
        await compare(f"{api}{TURNS} turns", f"{TURNS} typed calls", "<= 0.15", floor_turns, our_turns, 1, rounds=1),
    ]
