"""However a run ends: the session can be used, the log has its end, nothing is left running."""

import asyncio
import gc
import threading
import traceback
from contextlib import suppress

import pytest

from nbagents import Agent, AgentSession, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.errors import ModelError, NBAgentsError, ReentrantRunError, RunCancelledError
from tests.core.test_loop import assert_balanced


def last_run():
    return run_log().runs()[-1]


class Waiter:
    """A tool that says when it has begun and waits until it is let go."""

    def __init__(self):
        self.began = asyncio.Event()
        self.cleaned = False
        self.finished = False

    def tools(self):
        @tool
        async def slow() -> str:
            """Wait."""
            self.began.set()
            try:
                await asyncio.sleep(30)
            finally:
                self.cleaned = True
            self.finished = True
            return "late"

        @tool
        def fast() -> str:
            """Answer at once."""
            return "real"

        return [slow, fast]


@pytest.mark.parametrize("stream", [False, True])
async def test_cancel_during_a_tool_leaves_a_session_the_next_turn_can_use(stream):
    """C53: what finished keeps its result, what did not is answered as interrupted."""
    waiter = Waiter()
    client = ScriptedChatClient([["Sure. ", tool_call("fast"), tool_call("slow")], "ok"])
    agent = Agent(client, tools=waiter.tools())
    session = agent.create_session()
    reply = agent.run("q", session=session, stream=stream)
    task = asyncio.create_task(reply.get_final_response() if stream else reply)
    await waiter.began.wait()
    while not last_run().named("tool.succeeded"):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (waiter.cleaned, waiter.finished) == (True, False)
    assert last_run().events[-1].payload["stop_reason"] == "cancelled"
    assert last_run().events[-1].payload["output_text"] == "Sure. "
    assert (await agent.run("continue", session=session)).text == "ok"
    assert_balanced(client.requests[-1].messages)
    results = [r for m in client.requests[-1].messages for r in m.results]
    assert [(r.result == "real", r.interrupted) for r in results] == [(True, False), (False, True)]


async def test_cancel_while_arguments_stream_drops_the_unfinished_call():
    """C53"""
    from nbagents.core.content import FunctionCall

    client = ScriptedChatClient([["So ", FunctionCall("c", "f", '{"a": '), "never"], "ok"], delay=0.001)
    agent = Agent(client)
    session = agent.create_session()
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if any(isinstance(c, FunctionCall) for c in update.contents):
                break
    assert (await agent.run("continue", session=session)).text == "ok"
    sent = client.requests[-1].messages
    assert [(m.role, m.text, m.interrupted) for m in sent] == [
        ("user", "q", False),
        ("assistant", "So ", True),
        ("user", "continue", False),
    ]


async def test_breaking_out_of_a_stream_keeps_what_was_seen():
    """C75: the user message and the partial text, marked, are in the session."""
    client = ScriptedChatClient(["one two three", "ok"])
    agent = Agent(client)
    session = agent.create_session()
    async for update in agent.run("q", session=session, stream=True):
        if "two" in update.text:
            break
    gc.collect()
    assert (await agent.run("and?", session=session)).text == "ok"  # waits until the left run has ended
    sent = [(m.role, m.text, m.interrupted) for m in client.requests[-1].messages]
    assert sent == [("user", "q", False), ("assistant", "one two ", True), ("user", "and?", False)]


async def test_a_stream_that_is_left_leaves_nothing_running(no_leaks):
    before = asyncio.all_tasks()
    async for _ in Agent(ScriptedChatClient(["one two three"])).run("q", stream=True):
        break
    gc.collect()
    while not last_run().ended or asyncio.all_tasks() - before:
        await asyncio.sleep(0)
    assert last_run().events[-1].payload["stop_reason"] == "cancelled"


async def test_a_closed_stream_still_has_its_response():
    stream = Agent(ScriptedChatClient(["one two three"])).run("q", stream=True)
    async for _ in stream:
        break
    await stream.aclose()
    await stream.aclose()
    response = await stream.get_final_response()
    assert (response.text, response.stop_reason, response.messages[0].interrupted) == ("one ", "cancelled", True)


async def test_a_stream_that_is_left_ends_although_a_variable_holds_it():
    """C75, C93: the next run on the session would wait for ever."""
    agent = Agent(ScriptedChatClient(["one two three", "ok"]))
    session = agent.create_session()
    stream = agent.run("q", session=session, stream=True)
    async for _ in stream:
        break
    assert (await asyncio.wait_for(agent.run("and?", session=session), 5)).text == "ok"
    response = await stream.get_final_response()
    assert (response.text, response.stop_reason) == ("one ", "cancelled")
    assert [update async for update in stream] == []


async def test_a_stream_ends_although_the_error_of_its_consumer_is_kept():
    agent = Agent(ScriptedChatClient(["one two three", "ok"]))
    session = agent.create_session()

    async def consume():
        stream = agent.run("q", session=session, stream=True)
        async for _ in stream:
            raise ZeroDivisionError

    task = asyncio.create_task(consume())
    await asyncio.wait([task])
    assert (await asyncio.wait_for(agent.run("and?", session=session), 5)).text == "ok"
    assert isinstance(task.exception(), ZeroDivisionError)


def test_a_stream_left_at_the_end_of_the_loop_ends_in_order():
    kept, complaints = [], []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        stream = Agent(ScriptedChatClient(["one two three"])).run("q", stream=True)
        kept.append(stream)
        async for _ in stream:
            break

    asyncio.run(main())
    assert complaints == []
    assert last_run().events[-1].payload["stop_reason"] == "cancelled"


async def test_stopping_a_handle_ends_the_run():
    waiter = Waiter()
    waiter_began = threading.Event()

    @tool
    async def slow() -> str:
        waiter_began.set()
        try:
            await asyncio.sleep(30)
        finally:
            waiter.cleaned = True
        return "late"

    agent = Agent(ScriptedChatClient([[tool_call("slow")], "ok"]), tools=[slow])
    session = agent.create_session()
    handle = agent.start("q", session=session)
    await asyncio.to_thread(waiter_began.wait)
    assert not handle.done()
    handle.stop()
    handle.stop()
    with pytest.raises(RunCancelledError):
        await asyncio.to_thread(handle.result, 5)
    assert handle.done()
    assert waiter.cleaned
    assert (await agent.run("go on", session=session)).text == "ok"


async def test_runs_on_one_session_take_turns():
    """C72"""
    client = ScriptedChatClient([lambda r: [tool_call("echo")] if r.messages[-1].role == "user" else "done"] * 4)
    agent = Agent(client, tools=[tool(name="echo")(lambda: "x")])
    session = agent.create_session()
    await asyncio.gather(agent.run("A", session=session), agent.run("B", session=session))
    stored = await agent.thread(session).get_messages()
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant"] * 2
    assert_balanced(stored)


def test_turns_hold_across_two_loops_and_threads_also_when_contended_before():
    """C08, C72"""
    client = ScriptedChatClient(["one two"] * 40, delay=0.0005)
    agent = Agent(client)
    session = agent.create_session()

    async def two():
        await asyncio.gather(agent.run("A", session=session), agent.run("B", session=session))

    asyncio.run(two())
    asyncio.run(two())
    threads = [threading.Thread(target=lambda: asyncio.run(two())) for _ in range(4)]
    for thread in threads:
        thread.start()
    agent.run_sync("C", session=session)
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    stored = asyncio.run(agent.thread(session).get_messages())
    assert [m.role for m in stored] == ["user", "assistant"] * 13


async def test_a_waiting_run_that_is_cancelled_lets_the_next_one_in():
    waiter = Waiter()
    agent = Agent(ScriptedChatClient([[tool_call("slow")], "third"]), tools=waiter.tools())
    session = agent.create_session()
    first = asyncio.create_task(agent.run("1", session=session))
    await waiter.began.wait()
    second = asyncio.create_task(agent.run("2", session=session))
    third = asyncio.create_task(agent.run("3", session=session))
    await asyncio.sleep(0)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert (await third).text == "third"
    ends = {r.events[0].payload["input"][0].text: r.events[-1].payload["stop_reason"] for r in run_log().runs()}
    assert ends == {"1": "cancelled", "2": "cancelled", "3": "completed"}


async def test_a_tool_that_runs_the_session_it_is_part_of_is_an_error_and_another_session_works():
    """C72"""
    session = AgentSession("outer")
    agents, ends = [], []

    @tool
    async def same() -> str:
        try:
            return (await agents[0].run("inner", session=session)).text
        except ReentrantRunError as error:
            ends.append(error.response.stop_reason)
            raise

    @tool
    async def other() -> str:
        return (await agents[0].run("inner")).text

    client = ScriptedChatClient([[tool_call("same")], "a", [tool_call("other")], "inner text", "b"])
    agents.append(Agent(client, tools=[same, other]))
    await agents[0].run("q", session=session)
    outer, inner = run_log().runs()
    assert outer.first("tool.failed").payload["error_type"] == ReentrantRunError.__name__
    assert inner.events[0].payload["parent_run_id"] == outer.run_id
    assert ([event.name for event in inner.events], ends) == (["run.started", "run.ended"], ["failed"])
    assert (await agents[0].run("q", session=session)).text == "b"
    outer, inner = run_log().runs()[-2:]
    assert inner.events[0].payload["parent_run_id"] == outer.run_id


def test_every_way_to_run_works_in_any_order_also_inside_a_running_loop():
    """C01, C02"""
    from contextvars import ContextVar

    seen = ContextVar("seen", default=0)

    @tool
    def look() -> int:
        return seen.get()

    agent = Agent(ScriptedChatClient([lambda r: [tool_call("look")] if r.messages[-1].role == "user" else "ok"] * 99))
    agent = Agent(agent.client, tools=[look])

    def check(response):
        assert response.text == "ok"
        assert response.messages[1].results[0].result == "7"

    async def inside():
        seen.set(7)
        loop_methods = dict(vars(type(asyncio.get_running_loop())))
        for _ in range(3):
            check(agent.run_sync("hi"))
        assert [u.text for u in agent.stream_sync("hi") if u.text] == ["ok"]
        check(await agent.run("hi"))
        check(await agent.start("hi"))
        assert dict(vars(type(asyncio.get_running_loop()))) == loop_methods

    seen.set(7)
    check(agent.run_sync("hi"))
    asyncio.run(inside())
    check(agent.run_sync("hi"))
    worker = threading.Thread(target=lambda: (seen.set(7), check(agent.run_sync("hi"))))
    worker.start()
    worker.join(20)
    check(agent.start("hi").result(20))
    asyncio.run(inside())


def test_run_sync_in_an_async_tool_on_the_loop_thread_says_to_await():
    agents = []

    @tool
    async def nested() -> str:
        return agents[0].run_sync("inner").text

    agents.append(Agent(ScriptedChatClient([[tool_call("nested")], "ok"]), tools=[nested]))
    response = agents[0].run_sync("q")
    assert "await" in response.messages[1].results[0].result


def test_waiting_for_a_handle_on_the_loop_thread_says_to_await():
    agent = Agent(ScriptedChatClient(["inner", [tool_call("nested")], "ok", "ok"], delay=0.01))

    @tool
    async def nested() -> str:
        return agent.start("q").result().text

    handle = agent.start("q")
    handle.result(5)
    response = Agent(agent.client, tools=[nested]).run_sync("q")
    assert "await" in response.messages[1].results[0].result


def test_a_sync_stream_gives_pieces_as_they_come_and_the_response():
    agent = Agent(ScriptedChatClient([["Let me ", "see."]]))
    stream = agent.stream_sync("q")
    assert [u.text for u in stream if u.text] == ["Let me ", "see."]
    assert stream.get_final_response().text == "Let me see."


def test_leaving_a_sync_stream_ends_the_run():
    agent = Agent(ScriptedChatClient(["one two three", "ok"], delay=0.05))
    session = agent.create_session()
    with agent.stream_sync("q", session=session) as stream:
        next(stream)
    assert last_run().events[-1].payload["stop_reason"] == "cancelled"
    assert agent.run_sync("go on", session=session).text == "ok"


def test_errors_come_out_of_the_blocking_calls_too():
    for call in ("run_sync", "stream_sync"):
        with pytest.raises(NBAgentsError, match="script"):
            list([getattr(Agent(ScriptedChatClient([])), call)("q")][0])


def test_a_system_exit_in_a_tool_reaches_the_caller_and_the_next_run_works():
    """C70: it is not turned into an answer."""

    @tool
    def leave() -> None:
        raise SystemExit(3)

    client = ScriptedChatClient([[tool_call("leave")], "ok"])
    agent = Agent(client, tools=[leave])
    session = agent.create_session()
    with pytest.raises(SystemExit):
        agent.run_sync("q", session=session)
    assert agent.run_sync("go on", session=session).text == "ok"
    assert_balanced(client.requests[-1].messages)


async def test_saving_completes_although_the_run_is_cancelled():
    """C75"""
    from nbagents import HistoryProvider

    saving, may_save = asyncio.Event(), asyncio.Event()

    class Slow(HistoryProvider):
        def __init__(self):
            self.stored = []

        async def get_messages(self, session):
            return list(self.stored)

        async def save_messages(self, session, messages):
            saving.set()
            await may_save.wait()
            self.stored.extend(messages)

    history = Slow()
    agent = Agent(ScriptedChatClient(["answer"]), history=history)
    task = asyncio.create_task(agent.run("q"))
    await saving.wait()
    task.cancel()
    may_save.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.text for m in history.stored] == ["q", "answer"]


async def test_a_storage_that_fails_is_one_error_and_the_log_has_its_end():
    from nbagents import HistoryProvider

    class Full(HistoryProvider):
        async def get_messages(self, session):
            return []

        async def save_messages(self, session, messages):
            raise OSError("disk full")

    with pytest.raises(NBAgentsError, match="disk full"):
        await Agent(ScriptedChatClient(["answer"]), history=Full()).run("q")
    assert last_run().events[-1].payload["stop_reason"] == "failed"


def test_in_same_thread_mode_a_sync_tool_runs_on_the_main_thread():
    from nbagents import loop

    @tool
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    agent = Agent(ScriptedChatClient([[tool_call("where")], "ok"] * 2), tools=[where])
    assert agent.run_sync("q").messages[1].results[0].result == "false"
    loop.set_mode("same-thread")
    try:
        assert agent.run_sync("q").messages[1].results[0].result == "true"
    finally:
        loop.set_mode("thread")


def test_runs_that_are_stopped_before_they_begin_are_in_the_log_too():
    agent = Agent(ScriptedChatClient(["one two"] * 50, delay=0.01))
    handles = [agent.start("q") for _ in range(50)]
    for handle in handles:
        handle.stop()
    errors = [handle.exception(10) for handle in handles]
    assert all(isinstance(error, RunCancelledError) for error in errors)
    assert {error.response.stop_reason for error in errors} == {"cancelled"}
    ends = [record.events[-1].payload["stop_reason"] for record in run_log().runs()]
    assert ends == ["cancelled"] * 50


@pytest.mark.parametrize("left_by", ["break", "error", "close"])
def test_a_sync_stream_that_a_variable_holds_ends_when_its_loop_is_left(left_by):
    agent = Agent(ScriptedChatClient([["one ", "two ", *(["more "] * 2000)], "ok"], delay=0.01))
    session = agent.create_session()
    stream = agent.stream_sync("q", session=session)
    if left_by == "close":
        reader = iter(stream)
        next(reader)
        reader.close()
    else:
        with suppress(ZeroDivisionError):
            for _ in stream:
                if left_by == "break":
                    break
                raise ZeroDivisionError
    assert agent.run_sync("go on", session=session).text == "ok"
    assert run_log().runs()[0].events[-1].payload["stop_reason"] == "cancelled"
    assert list(stream) == []
    response = stream.get_final_response()
    assert response.stop_reason == "cancelled"
    assert response.text.startswith("one ")
    assert response.messages[-1].interrupted


def test_a_sync_stream_read_in_part_by_next_goes_on_until_its_response():
    stream = Agent(ScriptedChatClient(["one two three"])).stream_sync("q")
    assert next(stream).text == "one "
    assert stream.get_final_response().text == "one two three"


def test_an_iterator_of_a_sync_stream_that_was_never_asked_ends_nothing():
    stream = Agent(ScriptedChatClient(["one two"])).stream_sync("q")
    iter(stream)
    assert "".join(update.text for update in stream) == "one two"


def test_a_second_thread_on_one_sync_stream_is_told_at_once():
    stream = Agent(ScriptedChatClient(["one two three"], delay=0.05)).stream_sync("q")
    outcomes = []

    def read():
        try:
            outcomes.append("".join(update.text for update in stream))
        except NBAgentsError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes)[0].startswith("Another thread is reading this stream.")
    assert sorted(outcomes)[1] == "one two three"


@pytest.mark.parametrize("nothing", [None, []])
def test_a_run_without_anything_to_answer_says_that_the_model_was_not_asked(nothing):
    client = ScriptedChatClient(["Hello!"])
    response = Agent(client).run_sync(nothing)
    assert (response.text, response.stop_reason, client.requests) == ("", "completed", [])
    assert any("was not asked" in warning for warning in response.warnings)
    assert Agent(client, "Greet.").run_sync(nothing).warnings == []


def test_an_error_of_run_sync_shows_the_call_and_the_users_code_and_not_the_loops_inside():
    def answer(request):
        raise ModelError("mine")

    def frames_of(replies, messages):
        with pytest.raises(NBAgentsError) as caught:
            Agent(ScriptedChatClient(replies)).run_sync(messages)
        return caught.value, [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]

    for replies, messages in (([], "q"), (["a"], 3), ([ValueError("v")], "q")):
        error, frames = frames_of(replies, messages)
        assert frames[0] == "frames_of"
        assert len(frames) <= 5
        assert not {"result", "_work", "run_events"} & set(frames)
        if isinstance(error.__cause__, ValueError):
            assert error.__cause__.__traceback__ is not None
    assert "answer" in frames_of([answer], "q")[1]
