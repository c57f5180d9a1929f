"""Connections: every mix of loops works, what is ours is closed in its loop, what is the user's never is."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import httpx2
import openai
import pytest

from nbagents import Agent, AgentSession, OpenAIChatClient
from nbagents.core.errors import ConfigurationError
from tests.clients.asking import agent_on, ask
from tests.support import require
from tests.support.chunks import delta, finish
from tests.support.leaks import assert_no_leaks
from tests.support.raw_server import RawServer


@pytest.fixture
def server(raw_server: RawServer) -> RawServer:
    """A keep-alive server that always answers."""
    return raw_server.reply_text("Hello you")


class LoopThread:
    """An event loop that goes on running in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class LoopByTurns:
    """An event loop that stands still between two calls.

    For uvloop: a pool of the user's closes what it finds of another loop, and while that loop runs in its own thread,
    this crashes the process now and then. On asyncio it raises an error.
    """

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = new_loop()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


AnyLoop = LoopThread | LoopByTurns


@pytest.fixture(params=["asyncio", "uvloop"])
def two_loops(request: pytest.FixtureRequest) -> Iterator[list[AnyLoop]]:
    loops: list[AnyLoop]
    if request.param == "uvloop":
        require(find_spec("uvloop"), "uvloop")
        new_loop = import_module("uvloop").new_event_loop
        loops = [LoopByTurns(new_loop), LoopByTurns(new_loop)]
    else:
        loops = [LoopThread(), LoopThread()]
    yield loops
    for loop in loops:
        loop.close()


def in_a_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(30)


def test_one_agent_works_from_scripts_loops_and_threads_in_any_order(server: RawServer) -> None:
    """C02: with a keep-alive server and without retries."""
    agent = agent_on(server)

    async def awaited() -> str:
        return (await agent.run("Hi")).text

    texts = [agent.run_sync("Hi").text for _ in range(3)]
    texts += [asyncio.run(awaited()) for _ in range(2)]
    texts += [in_a_thread(lambda: agent.run_sync("Hi").text), in_a_thread(lambda: asyncio.run(awaited()))]
    texts += [agent.start("Hi").result(10).text, agent.run_sync("Hi").text, asyncio.run(awaited())]
    assert texts == ["Hello you"] * 10
    assert len(server.requests) == 10


@pytest.mark.parametrize("borrowed", [False, True])
def test_one_agent_serves_several_loops_at_once(server: RawServer, borrowed: bool) -> None:
    sdk = openai.AsyncOpenAI(base_url=server.base_url, api_key="k") if borrowed else None
    agent = Agent(OpenAIChatClient("m", client=sdk, max_retries=0)) if borrowed else agent_on(server)

    async def many() -> list[str]:
        return [response.text for response in await asyncio.gather(*[agent.run("Hi") for _ in range(20)])]

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(asyncio.run, many()) for _ in range(3)]
        assert [run.result(30) for run in runs] == [["Hello you"] * 20] * 3
    assert len(server.requests) == 60


def test_connections_are_kept_within_a_loop(server: RawServer) -> None:
    async def three() -> None:
        agent = agent_on(server)
        for mode in ("plain", "streamed", "plain"):
            await ask(agent, "Hi", mode)  # type: ignore[arg-type]

    asyncio.run(three())
    assert (len(server.requests), server.connections) == (3, 1)


def run_script(server: RawServer, body: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has `server` as BASE_URL; what it prints to stderr counts."""
    script = f"BASE_URL = {server.base_url!r}\n{textwrap.dedent(body)}"
    return subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script], capture_output=True, text=True, timeout=120
    )


FRESH_AGENTS = """
import asyncio, gc, sys
from nbagents import Agent, AgentSession, OpenAIChatClient

sys.unraisablehook = lambda unraisable: print("UNRAISABLE", unraisable, file=sys.stderr)

async def one(stream):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: print("HANDLER", context, file=sys.stderr))
    agent = Agent(OpenAIChatClient("m", base_url=BASE_URL))
    if stream == "left":
        async for update in agent.run("Hi", stream=True):
            if update.text:
                break
    elif stream:
        await agent.run("Hi", stream=True).get_final_response()
    else:
        await agent.run("Hi")

for number in range(30):
    asyncio.run(one((False, True, "left")[number % 3]))
    gc.collect()
"""


def test_dropped_agents_print_nothing(server: RawServer) -> None:
    """C05: on 30 loops, one after the other."""
    done = run_script(server, FRESH_AGENTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(server.requests) == 30
    server.wait_until(lambda: server.open_connections == 0)


def test_agents_dropped_within_one_loop_print_nothing_and_close_their_connections(server: RawServer) -> None:
    """C05"""
    done = run_script(
        server,
        """
        import asyncio, gc
        from nbagents import Agent, AgentSession, OpenAIChatClient

        async def main():
            for number in range(6):
                agent = Agent(OpenAIChatClient("m", base_url=BASE_URL))
                await agent.run("Hi")
                if number % 2:
                    agent.cycle = agent  # only the garbage collector finds it
                del agent
                gc.collect()
                await asyncio.sleep(0)
            for _ in range(200):
                await asyncio.sleep(0)
            import psutil
            print(len(psutil.Process().net_connections("tcp")))

        asyncio.run(main())
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_an_agent_that_outlives_its_loops_keeps_none_of_them(server: RawServer) -> None:
    import weakref

    agent = agent_on(server)
    loops = []

    async def one() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await agent.run("Hi")

    with assert_no_leaks():
        for _ in range(3):
            asyncio.run(one())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_loops_that_were_closed_carelessly_do_not_pile_up(server: RawServer) -> None:
    """Such a loop closes nothing; what is left of the last one goes with the agent."""
    done = run_script(
        server,
        """
        import asyncio, gc, psutil
        from nbagents import Agent, OpenAIChatClient

        agent = Agent(OpenAIChatClient("m", base_url=BASE_URL))
        for _ in range(4):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(agent.run("Hi"))
            loop.close()
        for _ in range(2):
            gc.collect()
            print(len(psutil.Process().net_connections("tcp")))
            agent = loop = None
        """,
    )
    assert (done.returncode, done.stdout) == (0, "1\n0\n")


@pytest.mark.parametrize("outlives", [False, True], ids=["goes with its loop", "outlives its loop"])
def test_all_connections_of_a_loop_are_closed_at_its_end(server: RawServer, outlives: bool, no_leaks: None) -> None:
    """C05: `asyncio.run` cancels all tasks at its end, also one that closes connections."""
    kept = []

    async def many_at_once() -> None:
        agent = agent_on(server)
        kept.extend([agent] * outlives)
        await asyncio.gather(*(agent.run("Hi") for _ in range(20)))
        assert server.open_connections > 5

    asyncio.run(many_at_once())
    server.wait_until(lambda: server.open_connections == 0)
    kept.clear()
    gc.collect()


async def test_nothing_is_left_when_an_agent_is_dropped(server: RawServer) -> None:
    async with assert_no_leaks(allow_threads=("nbagents", "asyncio_", "AnyIO")):  # the loop's own pools
        await agent_on(server).run("Hi")
        gc.collect()


def test_a_borrowed_client_works_before_between_and_after_and_stays_open(server: RawServer) -> None:
    """C03"""
    http = httpx2.AsyncClient()
    sdk = openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, http_client=http)

    async def all_in_one_loop() -> None:
        agent = Agent(OpenAIChatClient("m", client=sdk, max_retries=0))
        await directly(sdk)
        for _ in range(2):
            assert (await agent.run("Hi")).text == "Hello you"
        await directly(sdk)
        del agent
        gc.collect()
        await asyncio.sleep(0)
        await directly(sdk)
        assert not sdk.is_closed()
        await sdk.close()

    asyncio.run(all_in_one_loop())
    assert len(server.requests) == 5


async def directly(sdk: openai.AsyncOpenAI) -> None:
    reply = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert reply.choices[0].message.content == "Hello you"


@pytest.mark.parametrize("http_client", ["openai's", "the user's"])
@pytest.mark.parametrize("order", ["in turn", "in blocks", "after direct calls"])
def test_a_borrowed_client_serves_two_loops_and_none_of_60_calls_fails(
    server: RawServer, two_loops: list[AnyLoop], http_client: str, order: str
) -> None:
    """C03: a pooled connection cannot change loops, so a naive client fails half of these."""
    http = openai.DefaultAsyncHttpxClient() if http_client == "the user's" else None
    sdk = openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, http_client=http)
    agent = Agent(OpenAIChatClient("m", client=sdk, max_retries=0))
    first, second = two_loops
    texts = []
    for number in range(60):
        mode: Any = ("plain", "streamed")[number % 3 == 0]
        if order == "after direct calls":
            first.run(directly(sdk))
            texts.append(second.run(ask(agent, "Hi", mode)).text)
        else:
            loop = two_loops[number % 2] if order == "in turn" else two_loops[number // 5 % 2]
            texts.append(loop.run(ask(agent, "Hi", mode)).text)
    assert texts == ["Hello you"] * 60
    assert not sdk.is_closed()
    if http_client == "openai's":  # nothing is sent twice, and connections are kept
        assert len(server.requests) == (120 if order == "after direct calls" else 60)
        assert server.connections == 2
    first.run(sdk.close())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the user's unclosed connection
@pytest.mark.parametrize("http_client", ["openai's", "the user's"])
def test_a_borrowed_client_that_was_used_on_a_closed_loop(server: RawServer, http_client: str) -> None:
    """C03: its pool still holds the connection of that loop."""
    http = openai.DefaultAsyncHttpxClient() if http_client == "the user's" else None
    sdk = openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, http_client=http)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(directly(sdk))
    loop.close()
    agent = Agent(OpenAIChatClient("m", client=sdk, max_retries=0))
    assert agent.run_sync("Hi").text == "Hello you"
    del sdk, http, agent
    gc.collect()  # what the user left open shows up here, in this test


def test_a_borrowed_client_is_used_as_it_is_configured(server: RawServer) -> None:
    sdk = openai.AsyncOpenAI(
        base_url=server.base_url, api_key="k1", default_headers={"x-team": "a"}, default_query={"v": "1"}
    )
    Agent(OpenAIChatClient("m", client=sdk)).run_sync("Hi")
    assert (server.headers[0]["x-team"], server.headers[0]["authorization"]) == ("a", "Bearer k1")
    assert server.paths == ["/v1/chat/completions?v=1"]


def test_the_transport_of_a_borrowed_client_is_used() -> None:
    """Proxies, certificates, mocks: an HTTP client of the user's is never replaced."""
    body = {"choices": [{"message": {"content": "from the mock"}, "finish_reason": "stop"}]}
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda request: httpx2.Response(200, json=body)))
    agent = Agent(OpenAIChatClient("m", client=openai.AsyncOpenAI(api_key="k", http_client=http)))
    assert agent.run_sync("Hi").text == "from the mock"
    assert asyncio.run(_text(agent)) == "from the mock"


async def _text(agent: Agent) -> str:
    return (await agent.run("Hi")).text


def test_a_factory_is_called_once_per_loop_and_its_clients_stay_open(server: RawServer) -> None:
    made: list[openai.AsyncOpenAI] = []

    def make() -> openai.AsyncOpenAI:
        made.append(openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0))
        return made[-1]

    agent = Agent(OpenAIChatClient("m", client=make, max_retries=0))

    async def twice() -> None:
        await agent.run("Hi")
        await agent.run("Hi")
        assert not made[-1].is_closed()
        await made[-1].close()

    asyncio.run(twice())
    asyncio.run(twice())
    assert len(made) == 2


def test_a_closed_client_is_a_clear_error(server: RawServer) -> None:
    sdk = openai.AsyncOpenAI(base_url=server.base_url, api_key="k", http_client=openai.DefaultAsyncHttpxClient())
    asyncio.run(sdk.close())
    with pytest.raises(ConfigurationError, match="closed"):
        Agent(OpenAIChatClient("m", client=sdk)).run_sync("Hi")


def test_a_factory_that_makes_something_else_is_a_clear_error() -> None:
    agent = Agent(OpenAIChatClient("m", client=lambda: "x"))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match="AsyncOpenAI, not str"):
        agent.run_sync("Hi")


@pytest.fixture
async def single(raw_server: RawServer) -> Any:
    """An agent whose client has one connection and waits two seconds for it."""
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
    http = openai.DefaultAsyncHttpxClient(limits=limits, timeout=httpx2.Timeout(10.0, pool=2.0))
    async with openai.AsyncOpenAI(base_url=raw_server.base_url, api_key="k", http_client=http) as sdk:
        yield Agent(OpenAIChatClient("m", client=sdk, max_retries=0))


async def leave(agent: Agent, session: AgentSession, way: str) -> None:
    """Begin to consume a stream and leave it in one of the ways of C93."""
    stream = agent.run("Hi", stream=True, session=session)
    async for update in stream:
        if not update.text:
            continue
        if way == "raise":
            raise ZeroDivisionError
        if way == "aclose":
            await stream.aclose()
        elif way == "cancel":
            await asyncio.Event().wait()
        return


@pytest.mark.parametrize("way", ["break", "aclose", "raise", "cancel", "cancel while waiting for a chunk"])
async def test_a_stream_that_is_left_frees_its_connection_at_once(
    raw_server: RawServer, single: Agent, way: str
) -> None:
    """C93"""
    gate = threading.Event()
    chunks = [delta("x "), *[gate] * (way == "cancel while waiting for a chunk"), *[delta("x ")] * 400]
    raw_server.reply(*chunks, finish("stop"), delay=0.02).reply_text("Free")
    session = single.create_session()
    if way.startswith("cancel"):
        waits = leave(single, session, "cancel") if way == "cancel" else ask(single, "Hi", "streamed", session)
        task = asyncio.ensure_future(waits)
        await asyncio.to_thread(raw_server.wait_until, lambda: raw_server.requests)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        with suppress(ZeroDivisionError):
            await leave(single, session, way)
    assert (await single.run("Hi")).text == "Free"
    assert (await single.run("Hi", session=session)).text == "Free"
    await asyncio.to_thread(raw_server.wait_until, lambda: raw_server.hang_ups == 1)


async def test_a_cancelled_plain_request_frees_its_connection_at_once(raw_server: RawServer, single: Agent) -> None:
    """C93"""
    raw_server.reply(end="stall").reply_text("Free")
    task = asyncio.ensure_future(single.run("Hi"))
    await asyncio.to_thread(raw_server.wait_until, lambda: raw_server.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await single.run("Hi")).text == "Free"


def test_max_concurrency_holds_across_loops_and_threads(raw_server: RawServer) -> None:
    """Two at once of six, from three loops; the order of the rest is that of their coming."""
    gate = threading.Event()
    raw_server.reply(delta("Hel"), gate, delta("lo"), finish("stop"))
    agent = agent_on(raw_server, max_concurrency=2, streaming=True)
    with ThreadPoolExecutor(3) as pool:
        pairs = [pool.submit(asyncio.run, _pair(agent)) for _ in range(3)]
        raw_server.wait_until(lambda: len(raw_server.requests) == 2)
        at_once = len(raw_server.requests)
        gate.set()
        texts = [text for pair in pairs for text in pair.result(30)]
    assert (at_once, texts) == (2, ["Hello"] * 6)
    assert raw_server.connections <= 6


async def _pair(agent: Agent) -> list[str]:
    return [response.text for response in await asyncio.gather(agent.run("Hi"), agent.run("Hi"))]


async def test_max_concurrency_is_given_back_on_every_way_out(raw_server: RawServer) -> None:
    raw_server.reply_json({"error": "no"}, 400).reply(delta("x"), end="stall").reply_text("Free")
    agent = agent_on(raw_server, max_concurrency=1)
    with pytest.raises(Exception, match="refused"):
        await agent.run("Hi")
    async for update in agent.run("Hi", stream=True):
        if update.text:
            break
    gc.collect()
    waiting = asyncio.ensure_future(agent.run("Hi"))
    assert (await asyncio.wait_for(waiting, 10)).text == "Free"
    cancelled = [asyncio.ensure_future(agent.run("Hi")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
    assert (await asyncio.wait_for(agent.run("Hi"), 10)).text == "Free"
