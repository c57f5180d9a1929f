"""What a run gives, tells and stores is the same in both modes, and the same to everybody who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseChatClient,
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    FunctionContext,
    Message,
    NBAgentsError,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    StopRun,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.balance import balanced
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import ServerError


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no")


@tool
def leave() -> str:
    """End the run."""
    raise StopRun("That is enough.")


@tool(approval="always")
def remove(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"


TOOLS = [add, broken, leave, remove]


class Pieces(BaseChatClient):
    """Gives the same pieces in both modes, then an error or the end."""

    def __init__(self, *replies):
        self.replies = list(replies)

    async def generate(self, request):
        for piece in self.replies.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield (
                piece
                if isinstance(piece, ChatResponseUpdate)
                else ChatResponseUpdate((TextContent(piece) if isinstance(piece, str) else piece,))
            )
        yield ChatResponseUpdate(finish_reason="stop")


@dataclass
class Scenario:
    """An agent and what is said to it, turn by turn; a turn may be made of the response before it.

    `rewritten`: what was seen of a reply is not what counts in the end, so the updates do not fold to the response.
    """

    agent: Agent
    turns: list[Any] = field(default_factory=lambda: ["q"])
    settings: dict[str, Any] = field(default_factory=dict)
    rewritten: bool = False


def scripted(*replies, turns=("q",), rewritten=False, tools=TOOLS, middleware=(), **settings):
    agent = Agent(ScriptedChatClient(list(replies)), "Be brief.", name="ann", tools=tools, middleware=middleware)
    return Scenario(agent, list(turns), settings, rewritten)


def approve(response):
    return [request.approve() for request in response.approvals]


def deny(response):
    return [request.deny("keep it") for request in response.approvals]


def child(*replies):
    return Agent(ScriptedChatClient(list(replies)), "Cook.", name="cook", tools=TOOLS)


async def cached(context: RunContext, call_next):
    context.answer("from the cache")


async def shout(context: RunContext, call_next):
    await call_next()
    context.answer([Message("assistant", context.text.upper()), Message("assistant", "!")])


async def comfort(context: RunContext, call_next):
    try:
        await call_next()
    except NBAgentsError:
        context.answer("Never mind.")


async def stop(context: ChatContext, call_next):
    raise StopRun("No.")


async def other(context: ChatContext, call_next):
    await call_next()
    context.response = ChatResponse([Message("assistant", "a"), Message("assistant", "b")])


async def mask(context: ChatContext, call_next):
    def hide(update):
        return replace(
            update, contents=[TextContent("x") if isinstance(c, TextContent) else c for c in update.contents]
        )

    context.on_update = hide
    await call_next()


async def skip(context: FunctionContext, call_next):
    context.result = "skipped"


def two_messages():
    first = ChatResponseUpdate((TextContent("one"),), starts_message=True)
    second = ChatResponseUpdate((TextContent("two"),), starts_message=True, extra={"mood": "calm"})
    return Scenario(Agent(Pieces([first, second]), name="ann"))


def breaks_off(*before, **settings):
    client = Pieces(*before, ["par", "tial", FunctionCall("c", "add", '{"a"'), ServerError("down")], ["ok"])
    agent = Agent(client, name="ann", tools=TOOLS, middleware=settings.pop("middleware", ()))
    return Scenario(agent, ["q", "go on"], settings, rewritten=True)


A_CALL = tool_call("add", a=1, b=2)
REMOVE = ["Sure. ", A_CALL, tool_call("remove", path="a"), tool_call("remove", path="b")]
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "text": lambda: scripted("one two", "three", turns=("q", "and?")),
    "nothing said": lambda: scripted([]),
    "nothing asked": lambda: Scenario(Agent(ScriptedChatClient([])), [None]),
    "two messages": two_messages,
    "reasoning": lambda: scripted([ReasoningContent("hm "), "a", "b", A_CALL, "c"], "3"),
    "tools": lambda: scripted(["Let me ", "see. ", A_CALL], [A_CALL, tool_call("broken"), tool_call("ad")], "3"),
    "the same call twice": lambda: scripted([A_CALL, A_CALL], [A_CALL, "a", A_CALL], "3"),
    "arguments that are no JSON": lambda: scripted([FunctionCall("c", "add", "a = 1")], "ok"),
    "a refusal": lambda: scripted([RefusalContent("I cannot")]),
    "steps": lambda: scripted([A_CALL], [A_CALL], "That is all.", budget=RunBudget(max_steps=2)),
    "steps and no end": lambda: scripted([A_CALL], [A_CALL], [A_CALL], budget=RunBudget(max_steps=2)),
    "calls": lambda: scripted(
        ["Sure. ", A_CALL], [A_CALL], "ok", turns=("q", "and?"), budget=RunBudget(max_tool_calls=1)
    ),
    "tokens": lambda: scripted([A_CALL], "no", "no", turns=("q", "and?"), budget=RunBudget(max_tokens=1)),
    "errors in a row": lambda: scripted([tool_call("broken")] * 2, "ok", budget=RunBudget(max_consecutive_errors=0)),
    "a value": lambda: scripted("[1, 2]", options={"response_format": list[int]}),
    "a value at the second try": lambda: scripted(
        "no", "[1, 2]", "3", turns=("q", "and?"), options={"response_format": list[int]}, rewritten=True
    ),
    "no value": lambda: scripted("no", "never", options={"response_format": list[int]}, rewritten=True),
    "an error": lambda: scripted(ServerError("down"), "ok", turns=("q", "again")),
    "an error after tools": lambda: scripted([A_CALL], ServerError("down"), "ok", turns=("q", "again")),
    "a break": breaks_off,
    "a break after tools": lambda: breaks_off([A_CALL]),
    "a run that a tool ends": lambda: scripted(["So ", A_CALL, tool_call("leave")], "ok", turns=("q", "and?")),
    "approved": lambda: scripted(REMOVE, "Done.", "ok", turns=("q", approve, "and?")),
    "denied": lambda: scripted(REMOVE, "Done.", turns=("q", deny)),
    "half approved": lambda: scripted(REMOVE, "Done.", turns=("q", lambda r: approve(r)[1:], approve)),
    "not answered": lambda: scripted(REMOVE, "Done.", turns=("q", "never mind")),
    "a child": lambda: scripted([tool_call("cook", messages="soup?")], "done", tools=[child("with ", "salt")]),
    "a child that waits": lambda: scripted(
        [tool_call("cook", messages="soup?"), A_CALL],
        "done",
        turns=("q", approve),
        tools=[child(["So ", tool_call("remove", path="a")], "It is gone."), add],
    ),
    "an answer instead": lambda: scripted(middleware=[cached], turns=("q", "and?")),
    "an answer after": lambda: scripted(["Let me see. ", A_CALL], "three", middleware=[shout], rewritten=True),
    "an answer for an error": lambda: scripted([A_CALL], ServerError("down"), middleware=[comfort]),
    "an answer for a break": lambda: breaks_off(middleware=[comfort]),
    "an answer while calls wait": lambda: scripted(
        REMOVE, "Done.", turns=("q", approve), middleware=[shout], rewritten=True
    ),
    "a request that is stopped": lambda: scripted(middleware=[stop]),
    "another reply": lambda: scripted("one two", middleware=[other], rewritten=True),
    "a masked reply": lambda: scripted(["one", A_CALL], ["three"], middleware=[mask]),
    "a call that is skipped": lambda: scripted([A_CALL], "ok", middleware=[skip]),
}


@dataclass
class Heard:
    """What came of one turn, for everybody who listens."""

    response: AgentResponse
    told: list[Message]
    error: str | None = None
    updates: list[Any] | None = None


async def plain(agent, inputs, told, **settings):
    return Heard(await agent.run(inputs, on_message=told.append, **settings), told)


async def plain_with_async_listener(agent, inputs, told, **settings):
    async def listen(message):
        await asyncio.sleep(0)
        told.append(message)

    return Heard(await agent.run(inputs, on_message=listen, **settings), told)


async def streamed(agent, inputs, told, **settings):
    stream = agent.run(inputs, stream=True, on_message=told.append, **settings)
    updates = []
    try:
        async for update in stream:
            updates.append(update)
    finally:
        heard = Heard(AgentResponse(), told, updates=updates)
    heard.response = await stream.get_final_response()
    return heard


async def streamed_as_messages(agent, inputs, told, **settings):
    stream = agent.run(inputs, stream=True, **settings)
    async for message in stream.messages():
        told.append(message)
    return Heard(await stream.get_final_response(), told)


WAYS = [plain, plain_with_async_listener, streamed, streamed_as_messages]


async def play(scenario, way):
    """Go through the turns; return what was heard in each and what is stored in the end."""
    session = scenario.agent.create_session("trip")
    heard: list[Heard] = []
    for turn in scenario.turns:
        inputs = turn(heard[-1].response) if callable(turn) else turn
        told: list[Message] = []
        try:
            heard.append(await way(scenario.agent, inputs, told, session=session, **scenario.settings))
        except NBAgentsError as error:
            heard.append(Heard(error.response, told, f"{type(error).__name__}: {error}"))
        session = AgentSession.from_dict(session.to_dict())
    return heard, await scenario.agent.thread(session).get_messages()


def comparable(messages):
    """`messages` without what is new in each run: times, and ids but for who has the same."""
    ids: dict[str, str] = {}

    def named(content):
        if isinstance(content, FunctionCall | FunctionResult):
            return replace(content, id=ids.setdefault(content.id, f"call {len(ids)}"), call_id=None)
        if hasattr(content, "call"):
            return replace(content, id=ids.setdefault(content.id, f"call {len(ids)}"), call=named(content.call))
        return content

    return [
        (m.role, m.author_name, m.agent_id, m.interrupted, m.extra, tuple(named(c) for c in m.contents))
        for m in messages
    ]


def facts(heard):
    response = heard.response
    return (
        comparable(response.messages),
        response.text,
        response.value,
        response.stop_reason,
        response.finish_reason,
        response.warnings,
        heard.error,
        [event.name for event in run_log().get(response.run_id).events],
    )


def assert_told_once(heard):
    """`on_message`, `stream.messages()` and `response.messages` agree: the same messages, once, in order."""
    assert [id(message) for message in heard.told] == [id(message) for message in heard.response.messages]


def assert_answered(stored):
    """Each call is answered once, and what a service is sent next has the answers right after the calls."""
    assert sorted(call.id for m in stored for call in m.calls) == sorted(r.id for m in stored for r in m.results)
    waiting = set()
    for message in balanced(stored):
        assert not waiting or message.role == "tool"
        waiting = (waiting | {call.id for call in message.calls}) - {result.id for result in message.results}
    assert not waiting


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_is_the_same_in_every_way(name):
    outcomes = []
    for way in WAYS:
        heard, stored = await play(SCENARIOS[name](), way)
        for turn in heard:
            assert_told_once(turn)
        assert_answered(stored)
        assert all(m.run_id and m.agent_id and m.created_at for m in stored)
        assert all(m.author_name for m in stored if m.role != "user")
        outcomes.append(([facts(turn) for turn in heard], comparable(stored)))
    assert outcomes.count(outcomes[0]) == len(WAYS), outcomes


def in_call_order(messages):
    """Neighbouring results in one order: those of calls that run at once are told of as they come."""
    grouped = groupby(messages, key=lambda message: message[0])
    return [m for role, group in grouped for m in (sorted(group, key=str) if role == "tool" else group)]


@pytest.mark.parametrize("name", [name for name, make in SCENARIOS.items() if not make().rewritten])
async def test_the_updates_of_a_scenario_fold_to_its_response(name):
    for turn in (await play(SCENARIOS[name](), streamed))[0]:
        if turn.updates is None:
            continue  # it failed: its response came with the error
        folded = AgentResponse.from_updates(turn.updates)
        messages = [m for m in turn.response.messages if m.contents != (TextContent(""),)]
        assert in_call_order(comparable(folded.messages)) == in_call_order(comparable(messages))
        assert {m.message_id for m in folded.messages} == {m.message_id for m in messages}
        assert (folded.run_id, folded.agent_id) == (turn.response.run_id, turn.response.agent_id)
        assert (folded.stop_reason, folded.text) == (turn.response.stop_reason, turn.response.text)
        assert all(update.author_name and update.agent_id for update in turn.updates)


pieces = st.one_of(
    st.sampled_from(["a ", "\n\n", "", "b"]),
    st.sampled_from([A_CALL, tool_call("broken"), tool_call("remove", path="a"), tool_call("ad"), tool_call("leave")]),
    st.just(ReasoningContent("hm ")),
    st.just(RefusalContent("no")),
    st.just(ChatResponseUpdate((TextContent("new "),), starts_message=True)),
    st.builds(ServerError, st.just("down")),
)
middleware = st.lists(st.sampled_from([cached, shout, comfort, stop, other, mask, skip]), max_size=2)
turns = st.lists(st.sampled_from(["q", approve, deny]), max_size=2).map(lambda later: ["q", *later])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(pieces, max_size=4), min_size=6, max_size=6), middleware, turns)
async def test_any_script_is_the_same_in_every_way(replies, middleware, turns):
    outcomes = []
    for way in WAYS:
        agent = Agent(
            Pieces(*replies), "Be brief.", name="ann", tools=TOOLS, middleware=middleware, budget=RunBudget(max_steps=3)
        )
        heard, stored = await play(Scenario(agent, turns), way)
        for turn in heard:
            assert_told_once(turn)
        assert_answered(stored)
        outcomes.append(([facts(turn) for turn in heard], comparable(stored)))
    assert outcomes.count(outcomes[0]) == len(WAYS)
