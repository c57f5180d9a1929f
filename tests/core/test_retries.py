"""What is tried again, how long is waited before, and how what was shown is taken back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import Agent, RunBudget, ScriptedChatClient, requests_df, run_log, tool, tool_call
from nbagents.core import retries
from nbagents.core.content import FunctionCall, ReasoningContent, TextContent, UsageContent
from nbagents.core.errors import (
    BadRequestError,
    ConnectionFailedError,
    IncompleteStreamError,
    ModelError,
    RateLimitError,
    RunTimeoutError,
    ServerError,
)
from nbagents.core.folding import UpdateFolder
from nbagents.core.retries import asked_wait, wait_before_retry
from nbagents.core.updates import BEGINS_AGAIN, AgentResponseUpdate, ChatResponseUpdate
from nbagents.core.usage import Usage
from nbagents.render.transcript import Transcript


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.001)


def broke() -> ConnectionFailedError:
    return ConnectionFailedError("The connection broke.")


def client_of(*replies, max_retries: int = 1, retry_streams: bool = False) -> ScriptedChatClient:
    client = ScriptedChatClient(replies)
    client.max_retries, client.retry_streams = max_retries, retry_streams
    return client


def events_of(run_id, *names):
    return [event for event in run_log().get(run_id).events if not names or event.name in names]


class Shown:
    """What a person sees who removes what is taken back."""

    def __init__(self):
        self.texts: dict[str, str] = {}
        self.seen: list[str] = []

    def take(self, update):
        for message_id in update.retracts:
            self.texts.pop(message_id, None)
        if update.text:
            self.texts[update.message_id] = self.texts.get(update.message_id, "") + update.text
        self.seen.append("".join(self.texts.values()))


# After something was shown


async def test_a_broken_stream_is_an_error_with_its_partial_text_by_default():
    """C92"""
    agent = Agent(client_of(["Hel", broke()], "Hello"))
    session = agent.create_session()
    stream = agent.run("Hi", stream=True, session=session)
    with pytest.raises(ConnectionFailedError) as caught:
        await stream.get_final_response()
    assert (caught.value.partial_text, caught.value.attempts, len(agent.client.requests)) == ("Hel", 1, 1)
    assert [(m.text, m.interrupted) for m in await agent.thread(session).get_messages()] == [
        ("Hi", False),
        ("Hel", True),
    ]


async def test_a_broken_stream_begins_again_where_that_is_asked_for():
    """C92: 'Hello' and not 'HelHello', for who watches and in the response; both attempts are rows."""
    used = UsageContent(Usage(7, 1))
    agent = Agent(client_of([used, ReasoningContent("Hm"), "Hel", broke()], ["Hel", "lo"], retry_streams=True))
    session = agent.create_session()
    stream = agent.run("Hi", stream=True, session=session)
    shown = Shown()
    async for update in stream:
        shown.take(update)
    response = await stream.get_final_response()
    assert [text for n, text in enumerate(shown.seen) if n == 0 or text != shown.seen[n - 1]] == [
        "",
        "Hel",
        "",
        "Hel",
        "Hello",
    ]
    assert response.text == "Hello"
    assert [m.text for m in await agent.thread(session).get_messages()] == ["Hi", "Hello"]
    names = [event.name for event in events_of(response.run_id) if event.name.startswith("llm.")]
    assert names == ["llm.requested", "llm.failed", "llm.retried", "llm.requested", "llm.succeeded"]
    table = requests_df(run_id=response.run_id)
    assert list(table["attempt"]) == [1, 2]
    assert list(table["input_tokens"]) == [7, response.usage.input_tokens - 7]


async def test_updates_that_were_kept_fold_to_the_same_response():
    agent = Agent(client_of(["Hel", broke()], "Hello", retry_streams=True))
    stream = agent.run("Hi", stream=True)
    updates = [update async for update in stream]
    response = await stream.get_final_response()
    for kept in (updates, [AgentResponseUpdate.from_dict(update.to_dict()) for update in updates]):
        folder = UpdateFolder()
        for update in kept:
            folder.add(update)
        assert [m.text for m in folder.messages()] == ["Hello"]
        assert (folder.finish_reason, folder.usage.total_tokens) == ("stop", response.usage.total_tokens)


pieces = st.lists(
    st.one_of(
        st.text(max_size=3).map(TextContent),
        st.text(max_size=3).map(ReasoningContent),
        st.builds(FunctionCall, st.sampled_from(["c1", "c2"]), st.just("add"), st.sampled_from(["", "{", '{"a": 1}'])),
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=60)
@given(broken=st.lists(pieces, max_size=4), whole=st.lists(pieces, max_size=4), before=pieces)
def test_a_reply_that_begins_again_is_the_second_one_whatever_came_of_the_first(broken, whole, before):
    def fold(*parts):
        folder = UpdateFolder()
        for message_id, contents in parts:
            retracts = ("first",) if contents is None else ()
            folder.add(AgentResponseUpdate(contents or (), "assistant", message_id=message_id, retracts=retracts))
        return folder.messages()

    kept = [("before", before), *(("second", contents) for contents in whole)]
    first = [("first", contents) for contents in broken]
    assert fold(kept[0], *first, (None, None), *kept[1:]) == fold(*kept)


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "awaited"])
async def test_a_tool_whose_call_was_whole_when_the_stream_broke_runs_once(watched):
    """C92"""
    ran = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        ran.append((a, b))
        return a + b

    call = tool_call("add", a=1, b=2)
    client = client_of([call, broke()], [call], ["Thr", broke()], "Three", retry_streams=True)
    client.streaming = True
    agent = Agent(client, tools=[add])
    if watched:
        stream = agent.run("1+2", stream=True)
        shown = Shown()
        async for update in stream:
            shown.take(update)
        response = await stream.get_final_response()
        assert shown.seen[-1] == "Three"
    else:
        response = await agent.run("1+2")
    assert ran == [(1, 2)]
    assert [(m.role, m.text, len(m.calls)) for m in response.messages] == [
        ("assistant", "", 1),
        ("tool", "", 0),
        ("assistant", "Three", 0),
    ]
    assert response.messages[0].calls[0].id == response.messages[1].results[0].id
    assert len(events_of(response.run_id, "llm.retried")) == 2
    assert len(events_of(response.run_id, "tool.called")) == 1


async def test_what_nobody_watches_is_asked_again_without_being_told_to():
    """A server that can only stream, and a run that is awaited."""
    client = client_of(["Hel", broke()], "Hello")
    client.streaming = True
    assert (await Agent(client).run("Hi")).text == "Hello"


async def test_a_run_that_is_stopped_while_it_waits_has_taken_back_what_it_showed():
    slow = ServerError("busy", headers={"retry-after": "60"})
    agent = Agent(client_of(["Hel", slow], "Hello", retry_streams=True))
    session = agent.create_session()
    retried = asyncio.Event()

    async def watch():
        async with aclosing(agent.run("Hi", stream=True, session=session).events()) as events:
            async for event in events:
                if event.name == "llm.retried":
                    retried.set()

    task = asyncio.ensure_future(watch())
    await asyncio.wait_for(retried.wait(), 10)
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert await agent.thread(session).get_messages() == []
    assert (await agent.run("Hi", session=session)).text == "Hello"


async def test_the_transcript_has_the_second_text_in_the_place_of_the_first():
    agent = Agent(client_of([ReasoningContent("Hm"), "Hel", broke()], "Hello", retry_streams=True), name="ada")
    transcript, snapshots = Transcript(), []
    stream = agent.run("Hi", stream=True)
    async for event in stream.events():
        transcript.apply(event)
        transcript.patches()
        snapshots.append(transcript.to_text())
    assert "ada: Hel" in "\n".join(snapshots)
    assert snapshots[-1].split("\n") == ["You: Hi", "[Trying again. The connection broke.]", "ada: Hello"]
    assert "Hm" not in transcript.to_html() + transcript.to_markdown()


async def test_a_sub_agent_says_that_its_reply_begins_again():
    child = Agent(client_of(["Hel", broke()], "Hello", retry_streams=True), "Greet.", name="child")
    agent = Agent(ScriptedChatClient([[tool_call("child", messages="Hi")], "Done"]), tools=[child])
    stream = agent.run("Go", stream=True)
    told = [event.payload["text"] async for event in stream.events() if event.name == "tool.delta"]
    assert "".join(told) == f"Hel{BEGINS_AGAIN}Hello"
    assert (await stream.get_final_response()).messages[1].results[0].result == "Hello"


# Bare clients


async def test_a_bare_client_tries_again_too():
    assert (await client_of(broke(), "Hello").get_response("Hi")).text == "Hello"
    stream = client_of(broke(), "Hello").get_response("Hi", stream=True)
    assert "".join([update.text async for update in stream]) == "Hello"


async def test_a_bare_stream_that_broke_is_an_error_or_begins_again():
    """C92"""
    client = client_of(["Hel", broke()], "Hello")
    stream = client.get_response("Hi", stream=True)
    with pytest.raises(ConnectionFailedError) as caught:
        await stream.get_final_response()
    assert (caught.value.partial_text, len(client.requests)) == ("Hel", 1)
    stream = client_of(["Hel", broke()], ["Hel", broke()], ["Hello"], max_retries=2, retry_streams=True).get_response(
        "Hi", stream=True
    )
    shown = Shown()
    async for update in stream:
        shown.take(update)
    assert (shown.seen[-1], (await stream.get_final_response()).text) == ("Hello", "Hello")


async def test_a_bare_reply_that_was_cut_is_an_error():
    class Cut(ScriptedChatClient):
        async def generate(self, request):
            yield ChatResponseUpdate([TextContent("Hel")], "assistant")

    with pytest.raises(IncompleteStreamError) as caught:
        await Cut([]).get_response("Hi", stream=True).get_final_response()
    assert caught.value.partial_text == "Hel"


# Whether, and when


async def test_the_last_error_is_the_servers_and_tells_the_number_of_attempts(ask):
    facts = {"status": 503, "headers": {"retry-after": "0", "x-request-id": "r1"}, "body_text": '{"error": "busy"}'}
    agent = Agent(client_of(*(ServerError("busy", hint="Wait.", **facts) for _ in range(3)), max_retries=2))
    with pytest.raises(ServerError) as caught:
        await ask(agent, "Hi")
    error = caught.value
    assert (error.status, error.headers["x-request-id"], error.body_text) == (503, "r1", '{"error": "busy"}')
    assert (error.attempts, str(error)) == (3, "busy. Tried 3 times. Wait.")
    assert len(agent.client.requests) == 3


async def test_a_server_that_asks_for_a_very_long_wait_is_not_waited_for(ask):
    agent = Agent(client_of(RateLimitError("Too much", headers={"retry-after": "3600"}), "Hello"))
    async with asyncio.timeout(10):
        with pytest.raises(RateLimitError, match=r"asks to wait 3,600 s"):
            await ask(agent, "Hi")
    assert len(agent.client.requests) == 1


async def test_a_wait_that_ends_after_the_run_is_not_begun(ask):
    busy = ServerError("busy", headers={"retry-after": "60"})
    agent = Agent(client_of(busy, "Hello"))
    async with asyncio.timeout(10):
        with pytest.raises(RunTimeoutError) as caught:
            await ask(agent, "Hi", budget=RunBudget(max_duration_ms=30_000))
    assert caught.value.__cause__ is busy
    assert caught.value.response.stop_reason == "timeout"


async def test_the_server_may_say_itself_whether_to_come_again(ask):
    refused = BadRequestError("odd", headers={"X-Should-Retry": "true"})
    assert (await ask(Agent(client_of(refused, "Hello")), "Hi")).text == "Hello"
    final = ServerError("gone", headers={"x-should-retry": "false"})
    with pytest.raises(ServerError):
        await ask(Agent(client_of(final, "Hello")), "Hi")


def waits_after(number, headers=None, attempt=1):
    """The wait after the same failure, of many that failed together."""
    return [
        wait_before_retry(ModelError("x", retryable=True, headers=headers), attempt=attempt, retries=9_999)
        for _ in range(number)
    ]


def test_those_that_failed_together_do_not_come_back_together(monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.5)
    for attempt, longest in ((1, 0.5), (2, 1.0), (3, 2.0), (9, 8.0), (5_000, 8.0)):
        waits = waits_after(50, attempt=attempt)
        assert longest * 0.75 <= min(waits) < max(waits) <= longest
    waits = waits_after(50, {"retry-after": "10"})
    assert 10 <= min(waits) < max(waits) <= 12.5


@pytest.mark.parametrize("header", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_coming_again_at_once_is_tried_once(header, monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.5)
    error = ServerError("busy", headers={"retry-after": header})
    waits = [wait_before_retry(error, attempt=attempt, retries=9) for attempt in (1, 2, 3)]
    assert waits[0] == 0
    assert 0.75 <= waits[1] <= 1.0 < 1.5 <= waits[2] <= 2.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "Wed, 99999999999999999999 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": " 2 "}, 2.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "later", "retry-after": "9"}, 9.0),
        ({"date": "Sun, 06 Nov 1994 08:49:00 GMT", "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 37.0),
        ({"date": "Sun, 06 Nov 1994 08:49:00 GMT", "retry-after": "Sunday, 06-Nov-94 08:49:37 GMT"}, 37.0),
        ({"date": "Sun, 06 Nov 1994 08:49:00 GMT", "retry-after": "Sun Nov  6 08:49:37 1994"}, 37.0),
        ({"date": "Sun, 06 Nov 1994 08:49:00 GMT", "retry-after": "Sun, 06 Nov 1994 08:48:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_the_wait_that_a_server_asks_for(headers, seconds, monkeypatch):
    """Numbers and the three forms of an HTTP date (RFC 9110, 5.6.7), in whatever time zone this machine is."""
    monkeypatch.setenv("TZ", "America/New_York")
    assert asked_wait(headers) == seconds
