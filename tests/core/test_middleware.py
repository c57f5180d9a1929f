"""Functions around runs, model requests and tool calls; the same in both modes."""

import asyncio
from dataclasses import replace

import pytest

from nbagents import (
    Agent,
    AgentResponse,
    ChatContext,
    ChatResponse,
    ContextProvider,
    FunctionContext,
    Message,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    StopRun,
    TextContent,
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


@pytest.mark.parametrize("around", [RunContext, ChatContext, FunctionContext])
async def test_middleware_that_gives_nothing_fails_closed(ask, around):
    """A guard that forgets to answer lets nothing through, and never gives None."""

    async def nothing(context, call_next):
        pass

    nothing.__annotations__["context"] = around
    agent = agent_with(nothing, script=[[tool_call("add", a=1, b=2)], "ok"])
    session = agent.create_session()
    if around is FunctionContext:
        response = await ask(agent, "q", session=session)
        assert "gave no result" in response.messages[1].results[0].error
        return
    with pytest.raises(ConfigurationError, match=r"'nothing' neither awaited call_next\(\) nor gave an answer"):
        await ask(agent, "q", session=session)
    assert (agent.client.requests, await agent.thread(session).get_messages()) == ([], [])


@pytest.mark.parametrize("around", [RunContext, ChatContext])
async def test_an_error_that_middleware_swallows_without_an_answer_goes_on(ask, around):
    async def mute(context, call_next):
        try:
            await call_next()
        except Exception:
            return

    mute.__annotations__["context"] = around
    with pytest.raises(ServerError, match="down"):
        await ask(agent_with(mute, script=[["so ", ServerError("down")]]), "q")


async def test_a_cancellation_that_middleware_swallows_goes_on():
    async def mute(context: RunContext, call_next):
        try:
            await call_next()
        except asyncio.CancelledError:
            return

    agent = Agent(ScriptedChatClient(["one two three"], delay=5), middleware=[mute])
    task = asyncio.create_task(agent.run("q"))
    while not agent.client.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run_log().runs()[-1].events[-1].payload["stop_reason"] == "cancelled"


async def test_function_middleware_may_give_none_as_the_result(ask):
    async def skip(context: FunctionContext, call_next):
        context.result = None

    response = await ask(agent_with(skip, script=[[tool_call("add", a=1, b=2)], "ok"]), "q")
    assert (response.messages[1].results[0].error, response.text) == (None, "ok")


async def test_an_answer_for_an_error_in_the_middle_of_calls_leaves_a_balanced_session(ask):
    async def comfort(context: RunContext, call_next):
        try:
            await call_next()
        except NBAgentsError:
            context.answer("That took too long.")

    @tool
    async def slow() -> str:
        await asyncio.sleep(30)

    agent = agent_with(
        comfort, script=[["Sure. ", tool_call("slow"), tool_call("add", a=1, b=2)], "ok"], tools=[slow, add]
    )
    session = agent.create_session()
    response = await ask(agent, "q", session=session, budget=RunBudget(max_duration_ms=100))
    assert [m.role for m in response.messages] == ["assistant", "tool", "tool", "assistant"]
    assert (response.messages[-1].text, response.stop_reason) == ("That took too long.", "completed")
    stored = await agent.thread(session).get_messages()
    assert_balanced(stored)
    assert stored[1:] == response.messages


async def test_an_answer_in_the_place_of_the_model_takes_the_question_once(ask):
    """Also where the budget was used up after the question had been taken."""

    async def comfort(context: RunContext, call_next):
        try:
            await call_next()
        except NBAgentsError:
            context.answer("No money.", value=7)

    agent = agent_with(comfort)
    session = agent.create_session()
    response = await ask(agent, "q", session=session, budget=RunBudget(max_tokens=0))
    assert (response.text, response.value, agent.client.requests) == ("No money.", 7, [])
    assert [m.text for m in await agent.thread(session).get_messages()] == ["q", "No money."]


async def test_while_calls_wait_there_is_no_answer_to_replace(ask):
    async def shout(context: RunContext, call_next):
        await call_next()
        context.answer(context.text.upper())

    guarded = tool(name="add", approval="always")(lambda a, b: a + b)
    agent = agent_with(shout, script=[["Sure. ", tool_call("add", a=1, b=2)], "three"], tools=[guarded])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (response.stop_reason, response.text, len(response.approvals)) == ("approval_required", "Sure. ", 1)
    assert "Calls wait" in response.warnings[0]
    response = await ask(agent, response.approvals[0].approve(), session=session)
    assert response.text == "THREE"
    assert [m.text for m in await agent.thread(session).get_messages() if m.role != "tool"] == ["q", "Sure. ", "THREE"]


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


async def test_each_chat_middleware_has_its_own_update_hook_and_the_outer_sees_what_the_inner_gives(ask):
    """Also a response that the inner one has put in the place of the model's."""

    def rewriting(name, replacement=None):
        async def middleware(context: ChatContext, call_next):
            async def note(update):
                await asyncio.sleep(0)
                return replace(update, contents=[TextContent(f"{update.text}<{name}>")]) if update.text else update

            context.on_update = note
            await call_next()
            seen.append((name, context.response.text))
            if replacement:
                context.response = ChatResponse([Message("assistant", replacement)])

        return middleware

    seen = []
    response = await ask(agent_with(rewriting("outer"), rewriting("inner"), script=[[TextContent("one")]]), "q")
    assert response.text == "one<inner><outer>"
    assert seen == [("inner", "one<inner>"), ("outer", "one<inner><outer>")]
    agent = agent_with(rewriting("outer"), rewriting("inner", "new"), script=[[TextContent("one")]])
    session = agent.create_session()
    assert (await ask(agent, "q", session=session)).text == "new<outer>"
    assert [m.text for m in await agent.thread(session).get_messages()] == ["q", "new<outer>"]


async def test_an_update_that_a_hook_drops_still_ends_the_reply(ask):
    async def mute(context: ChatContext, call_next):
        context.on_update = lambda update: None
        await call_next()

    response = await ask(agent_with(mute), "q")
    assert (response.text, response.stop_reason) == ("", "completed")
    assert response.usage.output_tokens


async def test_what_middleware_answers_is_streamed_too():
    async def cached(context: RunContext, call_next):
        context.answer("from the cache")

    async def stop(context: ChatContext, call_next):
        raise StopRun("enough")

    for middleware, text in ((cached, "from the cache"), (stop, "enough")):
        stream = agent_with(middleware).run("q", stream=True)
        updates = [update async for update in stream]
        response = await stream.get_final_response()
        assert AgentResponse.from_updates(updates).text == response.text == text
        assert all(update.author_name for update in updates)


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


def test_middleware_that_takes_other_than_two_arguments_is_an_error_by_name():
    async def alone(context: RunContext):
        """Lacks one."""

    async def many(context: RunContext, call_next, more):
        """Has one too many."""

    async def several(context: RunContext, *rest):
        """Takes them."""

    for wrong, takes in ((alone, "'alone' takes context"), (many, "'many' takes context, call_next, more")):
        with pytest.raises(ConfigurationError, match=f"{takes}.*two arguments"):
            agent_with(wrong)
    agent_with(several)


async def test_one_middleware_stands_for_a_list_of_one(ask):
    seen = []

    async def mw(context: RunContext, call_next):
        seen.append(context.run_id)
        await call_next()

    class Gives(ContextProvider):
        async def before_run(self, context):
            self.add(context, middleware=around)

    async def around(context: ChatContext, call_next):
        seen.append("chat")
        await call_next()

    agent = Agent(ScriptedChatClient(["ok"]), middleware=mw, context_providers=Gives())
    response = await ask(agent, "q", middleware=mw)
    assert seen == [response.run_id, response.run_id, "chat"]


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
