"""Functions around runs, model requests and tool calls; the same in both modes."""

import asyncio
from dataclasses import replace

import pytest

from nbagents import (
    Agent,
    ChatContext,
    ChatResponse,
    FunctionContext,
    Message,
    RunContext,
    ScriptedChatClient,
    StopRun,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.errors import ConfigurationError, NBAgentsError, ServerError
from tests.core.test_loop import assert_balanced


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agent_with(*middleware, script=None, tools=(add,)):
    return Agent(ScriptedChatClient(script or ["one two"]), tools=list(tools), middleware=middleware)


async def test_middleware_goes_around_from_the_outside_in_agent_before_run(ask):
    order = []

    def named(name):
        async def middleware(context: RunContext, call_next):
            order.append(f"{name} before")
            await call_next()
            order.append(f"{name} after {context.text}")

        return middleware

    await ask(agent_with(named("a"), named("b")), "q", middleware=[named("c")])
    assert order == ["a before", "b before", "c before", "c after one two", "b after one two", "a after one two"]


async def test_pieces_stream_through_middleware_that_waits():
    async def middleware(context: RunContext, call_next):
        await asyncio.sleep(0.001)
        await call_next()
        await asyncio.sleep(0.001)

    async def around_the_model(context: ChatContext, call_next):
        await asyncio.sleep(0.001)
        await call_next()

    agent = agent_with(middleware, around_the_model)
    assert [u.text async for u in agent.run("q", stream=True) if u.text] == ["one ", "two"]


async def test_run_middleware_replaces_the_answer_also_in_the_session(ask):
    async def shout(context: RunContext, call_next):
        await call_next()
        context.answer(context.text.upper())

    agent = agent_with(shout, script=[[tool_call("add", a=1, b=2)], "three", "ok"])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert response.text == "THREE"
    stored = await agent.thread(session).get_messages()
    assert [m.text for m in stored if m.role != "tool"] == ["q", "", "THREE"]
    assert_balanced(stored)


async def test_run_middleware_answers_without_asking_the_model(ask):
    async def cached(context: RunContext, call_next):
        context.answer("from the cache")

    agent = agent_with(cached)
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (response.text, response.stop_reason, agent.client.requests) == ("from the cache", "completed", [])
    assert [m.text for m in await agent.thread(session).get_messages()] == ["q", "from the cache"]


async def test_run_middleware_that_does_nothing_gives_a_response_all_the_same(ask):
    async def nothing(context: RunContext, call_next):
        pass

    response = await ask(agent_with(nothing), "q")
    assert (response.text, response.messages, response.stop_reason) == ("", [], "completed")


async def test_middleware_that_fails_fails_the_run(ask):
    async def broken(context: RunContext, call_next):
        raise ValueError("not today")

    agent = agent_with(broken)
    with pytest.raises(NBAgentsError, match="not today"):
        await ask(agent, "q")
    assert agent.client.requests == []


async def test_middleware_sees_the_error_of_what_it_goes_around_and_may_answer_it(ask):
    async def comfort(context: RunContext, call_next):
        try:
            await call_next()
        except ServerError:
            context.answer("The model is away.")

    response = await ask(agent_with(comfort, script=[ServerError("down")]), "q")
    assert (response.text, response.stop_reason) == ("The model is away.", "completed")


async def test_chat_middleware_changes_the_request_and_the_reply(ask):
    async def polite(context: ChatContext, call_next):
        request = context.request
        context.request = replace(request, messages=[*request.messages, Message("user", "please")])
        await call_next()
        context.response = ChatResponse([Message("assistant", context.response.text.upper())])

    agent = agent_with(polite)
    response = await ask(agent, "q")
    assert response.text == "ONE TWO"
    assert [m.text for m in agent.client.requests[0].messages] == ["q", "please"]
    assert response.usage.output_tokens


async def test_chat_middleware_answers_instead_of_the_model(ask):
    async def canned(context: ChatContext, call_next):
        if not any(m.role == "tool" for m in context.request.messages):
            context.response = ChatResponse([Message("assistant", [tool_call("add", a=1, b=2)])])
        else:
            await call_next()

    agent = agent_with(canned, script=["three"])
    response = await ask(agent, "q")
    assert (response.text, response.messages[1].results[0].result, len(agent.client.requests)) == ("three", "3", 1)


async def test_chat_middleware_sees_each_update_as_it_passes():
    async def mask(context: ChatContext, call_next):
        def hide(update):
            return None if "two" in update.text else update

        context.on_update = hide
        await call_next()

    stream = agent_with(mask, script=["one two three"]).run("q", stream=True)
    assert [u.text async for u in stream if u.text] == ["one ", "three"]
    assert (await stream.get_final_response()).text == "one three"


async def test_function_middleware_changes_arguments_and_result(ask):
    async def double(context: FunctionContext, call_next):
        context.arguments["a"] *= 10
        await call_next()
        context.result += 0.5

    response = await ask(agent_with(double, script=[[tool_call("add", a=1, b=2)], "ok"]), "q")
    assert response.messages[1].results[0].result == "12.5"
    assert response.messages[0].calls[0].arguments == {"a": 1, "b": 2}


async def test_function_middleware_that_fails_keeps_the_tool_from_running(ask):
    ran = []

    async def guard(context: FunctionContext, call_next):
        raise PermissionError("not this one")

    note = tool(name="note")(lambda: ran.append(1))
    response = await ask(agent_with(guard, script=[[tool_call("note")], "ok"], tools=[note]), "q")
    assert "PermissionError: not this one" in response.messages[1].results[0].result
    assert (ran, response.text) == ([], "ok")


@pytest.mark.parametrize("where", ["function", "chat", "tool"])
async def test_stop_run_ends_the_run_with_its_reply_and_a_balanced_session(ask, where):
    async def stop_call(context: FunctionContext, call_next):
        raise StopRun("enough")

    async def stop_request(context: ChatContext, call_next):
        if len(context.request.messages) > 1:
            raise StopRun("enough")
        await call_next()

    @tool(name="add")
    def stopping(a: int, b: int) -> int:
        if where == "tool":
            raise StopRun("enough")
        return a + b

    middleware = {"function": [stop_call], "chat": [stop_request], "tool": []}[where]
    agent = agent_with(*middleware, script=[[tool_call("add", a=1, b=2)], "ok", "ok"], tools=[stopping])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (response.text, response.stop_reason) == ("enough", "completed")
    assert run_log().get(response.run_id).events[-1].payload["error"] is None
    assert_balanced(await agent.thread(session).get_messages())


async def test_leaving_a_stream_lets_middleware_clean_up():
    cleaned = []

    async def careful(context: RunContext, call_next):
        try:
            await call_next()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async with agent_with(careful).run("q", stream=True) as stream:
        async for _ in stream:
            break
    assert cleaned == [True]


async def test_cancelling_a_run_reaches_middleware_as_a_cancellation():
    seen = []

    async def watching(context: RunContext, call_next):
        try:
            await call_next()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    agent = Agent(ScriptedChatClient(["one two three"], delay=5), middleware=[watching])
    task = asyncio.create_task(agent.run("q"))
    while not agent.client.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_calling_next_twice_is_an_error(ask):
    async def twice(context: RunContext, call_next):
        await call_next()
        await call_next()

    with pytest.raises(ConfigurationError, match="twice"):
        await ask(agent_with(twice), "q")


@pytest.mark.parametrize("wrong", [3, lambda context, call_next: None])
def test_what_is_no_middleware_is_an_error_where_it_is_given(wrong):
    with pytest.raises(ConfigurationError, match="no middleware"):
        agent_with(wrong)


def test_middleware_must_say_what_it_goes_around():
    async def vague(context, call_next):
        await call_next()

    with pytest.raises(ConfigurationError, match="Annotate its first parameter"):
        agent_with(vague)


async def test_an_object_can_be_middleware(ask):
    class Counter:
        def __init__(self):
            self.n = 0

        async def __call__(self, context: RunContext, call_next):
            self.n += 1
            await call_next()

    counter = Counter()
    await ask(agent_with(counter), "q")
    assert counter.n == 1
