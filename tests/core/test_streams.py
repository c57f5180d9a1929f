"""`ResponseStream`: messages, maps and hooks, and an end that is always the same."""

import asyncio
import gc
import weakref

import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Message,
    ResponseStream,
    ScriptedChatClient,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.content import RefusalContent, TextContent
from nbagents.core.errors import (
    BadRequestError,
    ConfigurationError,
    NBAgentsError,
    OutputValidationError,
    RunCancelledError,
)


@tool
def add(a: int, b: int) -> int:
    return a + b


def agent_stream(*replies, **settings):
    return Agent(ScriptedChatClient(list(replies)), tools=[add]).run("q", stream=True, **settings)


class Source:
    """Pieces of a reply; it says whether it is open, and can fail after them."""

    def __init__(self, *pieces, error=None):
        self.pieces, self.error = pieces, error
        self.events = []

    async def __call__(self):
        self.events.append("opened")
        try:
            for piece in self.pieces:
                yield ChatResponseUpdate((TextContent(piece),), "assistant")
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0)
            self.events.append("closed")

    def stream(self):
        return ResponseStream(self, self.finish)

    def finish(self):
        self.events.append("finished")
        return ChatResponse(model="m")

    def note(self, name, value=None):
        """A hook that writes down that it was called."""

        async def hook(*_):
            await asyncio.sleep(0)
            self.events.append(name)
            return value

        return hook


async def texts(stream):
    return [update.text async for update in stream]


async def settled():
    """Let what was left behind end."""
    gc.collect()
    for _ in range(10):
        await asyncio.sleep(0)


async def test_messages_come_whole_and_in_causal_order_as_for_on_message():
    def conversation():
        return (["Let me ", "see. ", tool_call("add", a=1, b=2)], "It is 3.")

    told = []
    expected = await agent_stream(*conversation(), on_message=told.append).get_final_response()
    stream = agent_stream(*conversation())
    seen = []
    async for message in stream.messages():
        assert message.text == "It is 3." or not run_log().runs()[-1].ended
        seen.append(message)
    assert told == expected.messages
    assert seen == (await stream.get_final_response()).messages
    for messages in (seen, told):
        assert [(m.role, m.text, [r.result for r in m.results]) for m in messages] == [
            ("assistant", "Let me see. ", []),
            ("tool", "", ["3"]),
            ("assistant", "It is 3.", []),
        ]


async def test_messages_of_a_chat_client_are_those_of_its_response():
    stream = ScriptedChatClient(["one two"]).get_response("q", stream=True)
    seen = [message async for message in stream.messages()]
    assert seen == (await stream.get_final_response()).messages


async def test_a_map_keeps_response_events_and_messages():
    for mapped in (
        agent_stream("good day").map(lambda update: update.text),
        agent_stream("good day").map(lambda update: update).map(lambda update: update.text),
    ):
        assert [text async for text in mapped if text] == ["good ", "day"]
        assert (await mapped.get_final_response()).text == "good day"
    names = [e.name async for e in agent_stream("good day").map(str).events()]
    assert (names[0], names[-1], names.count("llm.delta")) == ("run.started", "run.ended", 2)
    assert [m.text async for m in agent_stream("good day").map(str).messages()] == ["good day"]
    assert (await agent_stream("good day").map(str).get_final_response()).text == "good day"


async def test_a_map_may_be_async_and_its_error_ends_the_source():
    source = Source("a", "b")

    async def shout(update):
        await asyncio.sleep(0)
        return update.text.upper()

    assert [text async for text in source.stream().map(shout)] == ["A", "B"]
    broken = Source("a", "b")
    with pytest.raises(ZeroDivisionError):
        [_ async for _ in broken.stream().map(lambda _: 1 / 0)]
    assert broken.events == ["opened", "closed"]


@pytest.mark.parametrize("read", ["iterated", "awaited", "left", "closed", "closed unread"])
async def test_the_hooks_of_a_mapped_stream_run_however_it_ends(read):
    source = Source("a", "b")
    inner = source.stream().with_result_hook(source.note("inner result")).with_cleanup_hook(source.note("inner end"))
    mapped = inner.map(lambda update: update.text).with_cleanup_hook(source.note("outer end"))
    if read == "iterated":
        assert [text async for text in mapped] == ["a", "b"]
        expected = ["opened", "closed", "finished", "inner result", "inner end", "outer end"]
    elif read == "awaited":
        await mapped.get_final_response()
        expected = ["opened", "closed", "finished", "inner result", "inner end", "outer end"]
    elif read == "left":
        async for _ in mapped:
            break
        await settled()
        expected = ["opened", "closed", "inner end", "outer end"]
    else:
        if read == "closed":
            await anext(aiter(mapped))
        await mapped.aclose()
        expected = [*(["opened", "closed"] if read == "closed" else []), "inner end", "outer end"]
    assert source.events == expected
    await mapped.aclose()
    assert source.events == expected


async def test_transform_hooks_change_and_drop_what_is_seen_and_not_what_was_said():
    async def shout(update):
        update.contents = [TextContent(update.text.upper())] if update.text else update.contents
        return update

    stream = agent_stream("one two three")
    stream.with_transform_hook(lambda update: None if "two" in update.text else update).with_transform_hook(shout)
    assert [text for text in await texts(stream) if text] == ["ONE ", "THREE"]
    assert (await stream.get_final_response()).text == "one two three"


async def test_transform_hooks_see_every_update_also_of_a_stream_that_is_only_awaited():
    seen = []
    stream = agent_stream("one two").with_transform_hook(lambda update: seen.append(update.text))
    assert (await stream.get_final_response()).text == "one two"
    assert "".join(seen) == "one two"


async def test_result_hooks_run_once_in_order_and_none_leaves_the_response_as_it_is():
    source = Source("a")
    other = ChatResponse(model="other")
    seen = []
    stream = source.stream().with_result_hook(lambda _: other).with_result_hook(seen.append)
    await texts(stream)
    assert seen == [other]
    assert await stream.get_final_response() is other
    assert await stream.get_final_response() is other
    assert seen == [other]
    assert source.events.count("finished") == 1


async def test_the_response_of_a_stream_that_was_left_passes_the_result_hooks_too():
    stream = agent_stream("one two").with_result_hook(lambda response: response.text.upper())
    async for update in stream:
        if update.text:
            break
    await stream.aclose()
    assert await stream.get_final_response() == "ONE "


async def test_events_and_messages_end_with_the_hooks_too():
    for read in ("events", "messages"):
        called = []
        stream = agent_stream("x").with_result_hook(lambda r, c=called: c.append(r.text))
        stream.with_cleanup_hook(lambda c=called: c.append("end"))
        [_ async for _ in getattr(stream, read)()]
        assert called == ["x", "end"]


async def test_all_cleanup_hooks_run_and_the_first_error_of_theirs_is_raised_after_them():
    source = Source("a")
    stream = source.stream().with_cleanup_hook(lambda: 1 / 0).with_cleanup_hook(source.note("second"))
    with pytest.raises(ZeroDivisionError):
        await stream.aclose()
    assert source.events == ["second"]
    await stream.aclose()


@pytest.mark.parametrize("add", ["with_transform_hook", "with_result_hook", "with_cleanup_hook"])
async def test_a_hook_that_is_none_or_comes_too_late_is_an_error(add):
    stream = Source("a").stream()
    with pytest.raises(ConfigurationError, match="function, not int"):
        getattr(stream, add)(3)
    await texts(stream)
    with pytest.raises(ConfigurationError, match="before you iterate"):
        getattr(stream, add)(print)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("read", ["iterated", "awaited"])
async def test_a_failed_stream_raises_the_same_error_again(hooked, read):
    error = BadRequestError("no")
    stream = ScriptedChatClient([["par", "tial", error]]).get_response("q", stream=True)
    if hooked:
        stream.with_cleanup_hook(lambda: None)
    if read == "iterated":
        with pytest.raises(BadRequestError):
            await texts(stream)
    for _ in range(2):
        with pytest.raises(BadRequestError) as caught:
            await stream.get_final_response()
        assert caught.value is error
    await stream.aclose()
    with pytest.raises(BadRequestError):
        await stream.get_final_response()


async def test_the_error_of_a_failed_run_has_its_response_each_time():
    stream = agent_stream(["par", "tial", BadRequestError("no")])
    for _ in range(2):
        with pytest.raises(NBAgentsError, match="no") as caught:
            await stream.get_final_response()
        assert caught.value.response.text == "partial"


async def test_the_error_of_a_hook_is_that_of_the_stream():
    source = Source("a")
    stream = source.stream().with_result_hook(lambda _: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await stream.get_final_response()
    assert source.events == ["opened", "closed", "finished"]
    stream = Source("a").stream().with_transform_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await texts(stream)
    with pytest.raises(ZeroDivisionError):
        await stream.get_final_response()


async def test_the_response_of_a_stream_that_was_just_left_waits_for_its_end():
    stream = agent_stream("one two")
    async for update in stream:
        if update.text:
            break
    gc.collect()
    response = await stream.get_final_response()
    assert (response.text, response.stop_reason) == ("one ", "cancelled")


async def test_several_who_wait_for_the_response_get_the_same():
    source = Source("a", "b")
    stream = source.stream().with_result_hook(source.note("result"))
    first, second = await asyncio.gather(stream.get_final_response(), stream.get_final_response())
    assert first is second
    assert source.events == ["opened", "closed", "finished", "result"]
    error = BadRequestError("no")
    stream = Source("a", error=error).stream()
    asked = [stream.get_final_response() for _ in range(3)]
    assert await asyncio.gather(*asked, return_exceptions=True) == [error] * 3


async def test_when_one_who_waits_for_the_response_is_cancelled_the_others_get_what_there_is():
    began = asyncio.Event()

    @tool
    async def slow() -> str:
        began.set()
        await asyncio.Event().wait()

    stream = Agent(ScriptedChatClient([["So ", tool_call("slow")]]), tools=[slow]).run("q", stream=True)
    first, second = (asyncio.create_task(stream.get_final_response()) for _ in range(2))
    await began.wait()
    first.cancel()
    assert (await second).stop_reason == "cancelled"
    assert first.cancelled()


async def test_a_second_task_on_one_stream_is_told_at_once_and_does_not_disturb_the_first():
    let_go = asyncio.Event()

    async def source():
        yield ChatResponseUpdate((TextContent("a"),))
        await let_go.wait()
        yield ChatResponseUpdate((TextContent("b"),))

    stream = ResponseStream(source, ChatResponse)
    seen, busy = [], asyncio.Event()

    async def read():
        async for update in stream:
            seen.append(update.text)
            busy.set()

    reading = asyncio.create_task(read())
    await busy.wait()
    for other in (texts(stream), stream.get_final_response(), stream.aclose()):
        with pytest.raises(ConfigurationError, match="Another task is reading"):
            await other
    await settled()
    let_go.set()
    await reading
    assert seen == ["a", "b"]
    await stream.get_final_response()


async def test_looking_at_the_first_piece_and_going_on_loses_nothing():
    stream = agent_stream("one two three")
    updates = aiter(stream)
    first = await anext(updates)
    seen = [first.text]
    async for update in stream:
        seen.append(update.text)
        break
    await settled()
    assert "".join([*seen, *await texts(updates)]) == "one two three"


async def test_closing_twice_at_once_closes_once():
    source = Source("a", "b")
    stream = source.stream().with_cleanup_hook(source.note("end"))
    await anext(updates := aiter(stream))
    await asyncio.gather(stream.aclose(), updates.aclose(), stream.aclose())
    assert source.events == ["opened", "closed", "end"]


@pytest.mark.parametrize("wait", ["get_final_response", "aclose"])
async def test_a_hook_that_waits_for_its_own_stream_is_told(wait):
    stream = Source("a").stream()
    stream.with_cleanup_hook(lambda: getattr(stream, wait)())
    with pytest.raises(ConfigurationError, match=r"its own stream|Another task is reading"):
        await stream.get_final_response()


@pytest.mark.parametrize("how", ["fails", "is cancelled", "is closed"])
async def test_clean_up_hooks_run_in_order_after_the_source_has_ended_however_that_was(how):
    source = Source("a", error=BadRequestError("no") if how == "fails" else None)
    stream = source.stream().with_cleanup_hook(source.note("first")).with_cleanup_hook(source.note("second"))
    stream.with_result_hook(source.note("result"))
    began = asyncio.Event()

    async def consume():
        async for _ in stream:
            began.set()
            if how != "fails":
                await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    await began.wait()
    if how == "is cancelled":
        task.cancel()
    if how == "is closed":
        await stream.aclose()
        task.cancel()
    await asyncio.wait([task])
    await settled()
    assert source.events == ["opened", "closed", "first", "second"]


async def test_a_stream_is_read_in_one_way():
    stream = agent_stream("a b")
    async for _ in stream:
        for other in (stream.events, stream.messages):
            with pytest.raises(ConfigurationError, match="already read as updates"):
                other()
    with pytest.raises(ConfigurationError, match="updates only"):
        Source("a").stream().events()


async def test_an_awaitable_response_becomes_a_stream():
    agent = Agent(ScriptedChatClient(["one two"]))
    stream = ResponseStream.from_awaitable(agent.run("q"))
    assert "".join(await texts(stream)) == "one two"
    response = await stream.get_final_response()
    assert (response.text, response.stop_reason) == ("one two", "completed")
    words = ResponseStream.from_awaitable(agent.run("q"), lambda response: response.text.split())
    with pytest.raises(NBAgentsError):
        [_ async for _ in words]  # the script has no second reply
    with pytest.raises(NBAgentsError):
        await words.get_final_response()


async def test_an_awaitable_stream_becomes_a_stream():
    source = Source("a", "b")

    async def later():
        await asyncio.sleep(0)
        return source.stream().with_cleanup_hook(source.note("inner end"))

    stream = ResponseStream.from_awaitable(later())
    assert await texts(stream) == ["a", "b"]
    assert (await stream.get_final_response()).model == "m"
    assert stream.finished().model == "m"
    assert source.events == ["opened", "closed", "finished", "inner end"]


async def test_an_awaitable_that_is_never_awaited_is_closed_with_its_stream():
    async with ResponseStream.from_awaitable(Agent(ScriptedChatClient(["x"])).run("q")) as stream:
        pass  # a coroutine that is dropped would warn, and a warning fails the test
    gc.collect()
    with pytest.raises(RunCancelledError, match="closed before"):
        await stream.get_final_response()


@pytest.mark.parametrize("how", ["plain", "hooked", "mapped", "messages", "events", "awaitable"])
@pytest.mark.parametrize("left_by", ["break", "error", "cancel"])
async def test_a_stream_that_is_left_and_collected_leaves_nothing(how, left_by, no_leaks):
    """C93's kind: no task, no open source, no warning, and a run that is recorded as cancelled."""
    before = asyncio.all_tasks()
    ended = []
    stream = agent_stream([tool_call("add", a=1, b=2)], "one two three")
    if how == "hooked":
        stream.with_transform_hook(lambda update: update).with_cleanup_hook(lambda: ended.append(True))
    elif how == "mapped":
        stream = stream.map(lambda update: update).map(lambda update: update)
    elif how == "awaitable":
        inner = stream

        async def later():
            return inner

        stream = ResponseStream.from_awaitable(later())
    began = asyncio.Event()

    async def consume():
        items = getattr(stream, how)() if how in ("messages", "events") else stream
        async for _ in items:
            began.set()
            if left_by == "break":
                break
            if left_by == "error":
                raise ZeroDivisionError
            await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    await began.wait()
    if left_by == "cancel":
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or isinstance(task.exception(), ZeroDivisionError | None)
    del task
    gc.collect()
    while not run_log().runs()[-1].ended or asyncio.all_tasks() - before:
        await asyncio.sleep(0)
    assert run_log().runs()[-1].events[-1].payload["stop_reason"] == "cancelled"
    assert ended == ([True] if how == "hooked" else [])


async def test_a_stream_that_nobody_holds_goes_away():
    stream = agent_stream("one two").with_cleanup_hook(lambda: None).map(lambda update: update)
    gone = weakref.ref(stream)
    async for _ in stream:
        break
    del stream
    while gone() is not None:
        await settled()


async def test_updates_may_be_asked_for_one_by_one_without_holding_the_iterator():
    """C93: a client that waits for the network waits within the update that was asked for."""
    unhandled = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    stream = Agent(ScriptedChatClient(["one two three"], delay=0.001)).run("q", stream=True)
    assert [(await anext(aiter(stream))).text for _ in range(2)] == ["one ", "two "]
    assert (await stream.get_final_response()).text == "one two three"
    assert unhandled == []


async def test_the_end_of_async_with_ends_the_source():
    source = Source("a", "b")
    async with source.stream() as stream:
        await anext(aiter(stream))
    assert source.events == ["opened", "closed"]
    await stream.aclose()


async def test_cancelling_the_wait_for_the_response_keeps_what_there_is():
    began = asyncio.Event()

    @tool
    async def slow() -> str:
        began.set()
        await asyncio.Event().wait()

    stream = Agent(ScriptedChatClient([["So ", tool_call("slow")]]), tools=[slow]).run("q", stream=True)
    stream.with_result_hook(lambda response: response)
    task = asyncio.create_task(stream.get_final_response())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    response = await stream.get_final_response()
    assert (response.text, response.stop_reason) == ("So ", "cancelled")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_client_gives_the_value_that_response_format_asks_for(stream):
    async def ask(*replies):
        client = ScriptedChatClient(list(replies))
        reply = client.get_response("q", stream=stream, options={"response_format": list[int]})
        return client, await (reply.get_final_response() if stream else reply)

    client, response = await ask('{"value": [1, 2]}')
    assert response.value == [1, 2]
    assert client.requests[0].options["response_format"]["type"] == "json_schema"
    assert (await ask([RefusalContent("I cannot.")]))[1].value is None
    assert (await ask([tool_call("add", a=1)]))[1].value is None
    with pytest.raises(OutputValidationError, match="does not fit") as caught:
        await ask("no numbers")
    assert (caught.value.attempts, caught.value.raw_text) == (1, "no numbers")


class Echo(BaseChatClient):
    """All that a client has to write."""

    async def generate(self, request):
        yield ChatResponseUpdate((TextContent(request.messages[-1].text),), finish_reason="stop")


async def test_a_client_is_one_async_generator():
    assert (await Echo().get_response("x")).messages == [Message("assistant", "x")]
    assert await texts(Echo().get_response("x", stream=True)) == ["x"]
    assert (await Echo().as_agent().run("x")).text == "x"


async def test_a_stream_that_is_read_in_the_wrong_way_names_the_right_ones():
    stream = agent_stream("one two")
    assert repr(stream) == "<ResponseStream: not read yet>"
    told = r"`async for`.*stream_sync.*get_final_response\(\)"
    with pytest.raises(ConfigurationError, match=told):
        list(stream)
    with pytest.raises(ConfigurationError, match=told):
        await stream
    async for _ in stream:
        assert repr(stream) == "<ResponseStream: read as updates>"
    assert repr(stream) == "<ResponseStream: ended>"
    assert (await stream.get_final_response()).text == "one two"
    left = agent_stream("one two")
    await left.aclose()
    assert repr(left) == "<ResponseStream: ended>"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_stream_that_a_tool_or_a_hook_returns_is_iterated_and_not_awaited(is_async):
    async def later():
        return agent_stream("one two")

    def now():
        return agent_stream("one two")

    client = ScriptedChatClient([[tool_call("later" if is_async else "now")], "ok"])
    response = await Agent(client, tools=[later, now]).run("q")
    assert "two" in str(response.messages[1].results[0].result)
    streams = [item async for item in agent_stream("a").map(lambda _: now())]
    assert "".join([update.text async for update in streams[0]]) == "one two"
