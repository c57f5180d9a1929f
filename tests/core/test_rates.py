"""Limits that all runs of one client share: requests at once, and requests and tokens in a minute."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nbagents import Agent, BaseChatClient, ChatRequest, ChatResponseUpdate, RateLimits, RunBudget, ScriptedChatClient
from nbagents.clients.recorded import RecordedChatClient
from nbagents.core import rates
from nbagents.core.content import TextContent, UsageContent
from nbagents.core.errors import ConfigurationError, RateLimitError, RunTimeoutError, ServerError
from nbagents.core.usage import Usage


class Held(BaseChatClient):
    """Answers when `gate` is set; keeps who is being answered, in which order they began and when."""

    def __init__(self, limits: RateLimits | None = None, *, tokens: int = 0, open: bool = False) -> None:
        self.limits = limits
        self.tokens = tokens
        self.gate = threading.Event()
        self.begun: list[str] = []
        self.times: list[float] = []
        self.active = 0
        self.most = 0
        self.lock = threading.Lock()
        if open:
            self.gate.set()

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        with self.lock:
            self.begun.append(request.messages[-1].text)
            self.times.append(time.monotonic())
            self.active += 1
            self.most = max(self.most, self.active)
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.001)
            yield ChatResponseUpdate([TextContent("ok")], "assistant")
            reported = [UsageContent(Usage(1, self.tokens - 1))] if self.tokens else []
            yield ChatResponseUpdate(reported, finish_reason="stop")
        finally:
            with self.lock:
                self.active -= 1


async def has_begun(client: Held, number: int) -> None:
    async with asyncio.timeout(10):
        while len(client.begun) < number:
            await asyncio.sleep(0.001)


@pytest.fixture
def minute(monkeypatch):
    """A minute of 0.3 seconds."""
    monkeypatch.setattr(rates, "MINUTE", 0.3)
    return 0.3


async def test_runs_and_bare_calls_of_one_client_share_the_places_in_the_order_of_their_coming(ask):
    client = Held(RateLimits(max_concurrency=2))
    agent = Agent(client)
    tasks = []
    for number in range(5):
        asking = client.get_response(str(number)) if number % 2 else ask(agent, str(number))
        tasks.append(asyncio.ensure_future(asking))
        await asyncio.sleep(0)
    await has_begun(client, 2)
    assert client.begun == ["0", "1"]
    client.gate.set()
    assert [response.text for response in await asyncio.gather(*tasks)] == ["ok"] * 5
    assert (client.begun, client.most) == (["0", "1", "2", "3", "4"], 2)


def test_one_limit_holds_for_all_threads_and_loops():
    client = Held(RateLimits(max_concurrency=2))
    agent = Agent(client)

    async def pair() -> list[str]:
        return [response.text for response in await asyncio.gather(agent.run("a"), agent.run("b"))]

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(asyncio.run, pair()) for _ in range(2)]
        others.append(pool.submit(lambda: [agent.run_sync("c").text]))
        while len(client.begun) < 2:
            time.sleep(0.001)
        client.gate.set()
        assert [text for other in others for text in other.result(30)] == ["ok"] * 5
    assert client.most == 2


async def test_no_more_requests_begin_within_a_minute_than_are_allowed(minute):
    client = Held(RateLimits(requests_per_minute=3), open=True)
    await asyncio.gather(*(client.get_response(str(number)) for number in range(7)))
    assert client.begun == [str(number) for number in range(7)]
    assert all(later - earlier >= minute for earlier, later in zip(client.times, client.times[3:], strict=False))


async def test_tokens_are_counted_as_reported_in_the_place_of_the_estimate(minute):
    client = Held(RateLimits(tokens_per_minute=100), tokens=60, open=True)
    for _ in range(4):
        await client.get_response("Hi")
    first, second, third, fourth = client.times
    assert third - first >= minute  # the second fitted by its estimate; then 120 were used
    assert fourth - second >= minute


async def test_what_a_reply_may_use_counts_until_it_is_known_what_it_used():
    limits = RateLimits(tokens_per_minute=1000)
    client = Held(limits, tokens=10)
    first = asyncio.ensure_future(client.get_response("Hi", options={"max_tokens": 900}))
    await has_begun(client, 1)
    second = asyncio.ensure_future(client.get_response("Hi", options={"max_tokens": 900}))
    await asyncio.sleep(0.02)
    assert len(client.begun) == 1
    client.gate.set()
    async with asyncio.timeout(10):  # and not a minute
        await asyncio.gather(first, second)


async def test_a_request_larger_than_the_limit_goes_when_nothing_else_counts(minute):
    client = Held(RateLimits(tokens_per_minute=10), tokens=500, open=True)
    async with asyncio.timeout(20):
        for _ in range(2):
            assert (await client.get_response("many words " * 50)).text == "ok"
    assert client.times[1] - client.times[0] >= minute


async def test_a_reply_without_usage_counts_as_estimated(minute):
    client = Held(RateLimits(tokens_per_minute=100), open=True)
    for _ in range(2):
        await client.get_response("word " * 70)
    assert client.times[1] - client.times[0] >= minute


@pytest.mark.parametrize("limits", [{"max_concurrency": 1}, {"requests_per_minute": 1}, {"tokens_per_minute": 1}])
async def test_who_waits_can_be_cancelled_and_the_next_goes_on(limits, minute):
    client = Held(RateLimits(**limits))
    first = asyncio.ensure_future(client.get_response("first"))
    await has_begun(client, 1)
    waiting = [asyncio.ensure_future(client.get_response(name)) for name in ("second", "third", "fourth")]
    await asyncio.sleep(0.01)
    for task in waiting[:2]:
        task.cancel()
    client.gate.set()
    async with asyncio.timeout(10):
        await asyncio.gather(first, *waiting, return_exceptions=True)
    assert client.begun == ["first", "fourth"]
    assert [task.cancelled() for task in waiting] == [True, True, False]


async def test_waiting_for_a_place_counts_into_the_duration_of_the_run(ask):
    client = Held(RateLimits(requests_per_minute=1), open=True)
    agent = Agent(client)
    await ask(agent, "first")
    with pytest.raises(RunTimeoutError):
        await ask(agent, "second", budget=RunBudget(max_duration_ms=50))
    assert client.begun == ["first"]


async def test_a_place_is_free_after_every_way_out():
    client = ScriptedChatClient([ServerError("no"), ["Hel", "lo"], "Hello"])
    client.limits = RateLimits(max_concurrency=1)
    async with asyncio.timeout(10):
        with pytest.raises(ServerError):
            await client.get_response("Hi")
        async for _ in client.get_response("Hi", stream=True):
            break
        assert (await client.get_response("Hi")).text == "Hello"


async def test_a_retry_gives_its_place_back_while_it_waits(ask):
    slow = ServerError("busy", headers={"retry-after": "0.3"})
    client = ScriptedChatClient([slow, "other", "again"])
    client.limits, client.max_retries = RateLimits(max_concurrency=1), 1
    agent = Agent(client)
    first = asyncio.ensure_future(ask(agent, "first"))
    while not client.requests:
        await asyncio.sleep(0)
    assert (await ask(agent, "second")).text == "other"
    assert (await first).text == "again"


async def test_once_the_service_said_how_long_to_wait_no_run_of_the_client_asks_sooner():
    client = ScriptedChatClient([RateLimitError("slow down", headers={"retry-after": "0.3"}), "later", "later"])
    client.limits, client.max_retries = RateLimits(max_concurrency=5), 1
    agent = Agent(client)
    first = asyncio.ensure_future(agent.run("first"))
    while not client.requests:
        await asyncio.sleep(0)
    begun = time.monotonic()
    assert (await agent.run("second")).text == "later"
    assert time.monotonic() - begun > 0.2
    assert (await first).text == "later"


async def test_a_wait_that_nobody_keeps_holds_nobody_back():
    errors = [
        RateLimitError("come back in an hour", headers={"retry-after": "3600"}),
        RateLimitError("no quota", headers={"retry-after": "60"}, retryable=False),
    ]
    client = ScriptedChatClient([*errors, "Hello"])
    client.limits = RateLimits(max_concurrency=1)
    async with asyncio.timeout(10):
        for _ in errors:
            with pytest.raises(RateLimitError):
                await client.get_response("Hi")
        assert (await client.get_response("Hi")).text == "Hello"


async def test_a_replay_uses_up_nothing(tmp_path):
    client = ScriptedChatClient(["Hello"])
    client.limits = RateLimits(requests_per_minute=1)
    recorded = RecordedChatClient(tmp_path / "tape.jsonl", client)
    assert (await recorded.get_response("Hi")).text == "Hello"
    replaying = RecordedChatClient(tmp_path / "tape.jsonl", client)
    async with asyncio.timeout(10):
        assert (await replaying.get_response("Hi")).text == "Hello"
    assert len(client.requests) == 1


def test_a_copy_is_the_same_limit_and_a_pickled_one_counts_anew():
    limits = RateLimits(max_concurrency=3, tokens_per_minute=10)
    assert copy.deepcopy(limits) is limits
    again = pickle.loads(pickle.dumps(limits))
    assert repr(again) == repr(limits) == "RateLimits(max_concurrency=3, tokens_per_minute=10)"


def test_without_a_limit_there_is_nothing():
    assert RateLimits.of() is None
    assert RateLimits.of(requests_per_minute=5).requests_per_minute == 5


@pytest.mark.parametrize("name", ["max_concurrency", "requests_per_minute", "tokens_per_minute"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_limit_that_is_no_whole_number_is_an_error(name, wrong):
    with pytest.raises(ConfigurationError, match=f"{name} is a whole number from 1"):
        RateLimits.of(**{name: wrong})


def test_a_misspelt_limit_is_named_with_the_right_one():
    with pytest.raises(ConfigurationError, match="max_concurrency"):
        RateLimits(max_concurency=1)
