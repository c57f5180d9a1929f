"""The limits of a run: each in both modes, also for what fails and for sub-agents."""

import asyncio
import threading

import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    ContextProvider,
    InMemoryHistoryProvider,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    Usage,
    run_log,
    set_price,
    tool,
    tool_call,
)
from nbagents.core.content import TextContent, UsageContent
from nbagents.core.errors import BudgetExceededError, NBAgentsError, RunTimeoutError, ServerError
from tests.core.test_loop import assert_balanced


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no")


class Metered(BaseChatClient):
    """Reports what it used before it says something, fails or goes on."""

    model = "metered"

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = 0

    async def generate(self, request):
        self.requests += 1
        yield ChatResponseUpdate((UsageContent(Usage(600_000, 400_000, 1_000_000)),))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        content = TextContent(reply) if isinstance(reply, str) else reply
        yield ChatResponseUpdate((content,), finish_reason="stop")


ADD = tool_call("add", a=1, b=2)


@pytest.mark.parametrize("limit", [RunBudget(max_tokens=1_500_000), RunBudget(max_cost_usd=1.5)])
async def test_tokens_and_cost_stop_before_the_request_that_would_go_over(ask, limit):
    set_price("metered", input=1, output=1)
    client = Metered(ADD, ADD, "never", "ok")
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    with pytest.raises(BudgetExceededError, match="its budget is") as caught:
        await ask(agent, "q", session=session, budget=limit)
    assert (client.requests, caught.value.response.stop_reason) == (2, "budget_exhausted")
    assert caught.value.response.usage.total_tokens == 2_000_000
    assert [m.role for m in caught.value.response.messages] == ["assistant", "tool"] * 2
    client.replies = ["ok"]
    assert (await ask(agent, "and?", session=session)).text == "ok"
    assert_balanced(await agent.thread(session).get_messages())


@pytest.mark.parametrize("limit", [RunBudget(max_tokens=1_500_000), RunBudget(max_cost_usd=1.5)])
async def test_attempts_that_fail_count_too(ask, limit):
    set_price("metered", input=1, output=1)
    client = Metered(ServerError("busy", headers={"retry-after": "0"}), ADD, "never")
    client.max_retries = 1
    with pytest.raises(BudgetExceededError):
        await ask(Agent(client, tools=[add]), "q", budget=limit)
    assert client.requests == 2


@pytest.mark.parametrize(
    "limit", [RunBudget(max_tokens=1_500_000), RunBudget(max_cost_usd=1.5), RunBudget(max_tool_calls=2)]
)
async def test_sub_agents_have_their_part_of_the_budget(ask, limit):
    """C88: they stop too, and what they used counts for the run that called them."""
    set_price("metered", input=1, output=1)
    child = Agent(Metered(ADD, ADD, "never"), "Add.", name="child", tools=[add])
    client = Metered(tool_call("child", messages="q"), "never")
    with pytest.raises(BudgetExceededError) as caught:
        await ask(Agent(client, name="parent", tools=[child]), "q", budget=limit)
    assert "The run of 'parent'" in str(caught.value)
    assert (client.requests, child.client.requests) == (1, 1 if limit.max_tool_calls is None else 2)
    inner = run_log().runs()[1]
    assert inner.events[-1].payload["stop_reason"] == "budget_exhausted"


async def test_calls_that_fail_count_and_so_do_errors_in_a_row(ask):
    script = [[tool_call("broken")], [tool_call("broken"), tool_call("nothing")], [ADD], "ok"]
    response = await ask(
        Agent(ScriptedChatClient(script), tools=[add, broken]), "q", budget=RunBudget(max_consecutive_errors=3)
    )
    assert response.text == "ok"
    for limit in (RunBudget(max_consecutive_errors=2), RunBudget(max_tool_calls=2)):
        client = ScriptedChatClient(script)
        with pytest.raises(BudgetExceededError) as caught:
            await ask(Agent(client, tools=[add, broken]), "q", budget=limit)
        assert len(client.requests) == 2
        assert_balanced(caught.value.response.messages)


async def test_an_answer_starts_the_count_of_errors_in_a_row_anew(ask):
    script = [[tool_call("broken")], [ADD], [tool_call("broken")], "ok"]
    agent = Agent(ScriptedChatClient(script), tools=[add, broken], budget=RunBudget(max_consecutive_errors=1))
    assert (await ask(agent, "q")).text == "ok"


async def test_validation_retries_are_counted(ask):
    for limit, requests in ((0, 1), (2, 3)):
        client, budget = ScriptedChatClient(["no"] * 5), RunBudget(max_validation_retries=limit)
        with pytest.raises(NBAgentsError):
            await ask(Agent(client), "q", options={"response_format": list[int]}, budget=budget)
        assert len(client.requests) == requests


@pytest.mark.parametrize("what", ["sync tool", "async tool", "model", "pause before a retry", "child"])
async def test_the_duration_ends_what_is_under_way(ask, what):
    """A limit of 100 ms does not wait for what takes a minute."""
    finished, let_go = [], threading.Event()

    @tool
    def sync_tool() -> None:
        """Wait."""
        let_go.wait(60)
        finished.append("sync tool")

    @tool
    async def async_tool() -> None:
        """Wait."""
        await asyncio.sleep(60)
        finished.append("async tool")

    busy = ServerError("busy", headers={"retry-after": "60"})
    script = {
        "sync tool": [[tool_call("sync_tool")]],
        "async tool": [[tool_call("async_tool")]],
        "model": ["never"],
        "pause before a retry": [busy, "never"],
        "child": [[tool_call("child", messages="q")]],
    }[what]
    client = ScriptedChatClient([*script, "ok"], delay=60 if what == "model" else 0)
    client.max_retries = 1
    child = Agent(ScriptedChatClient([[tool_call("async_tool")]]), "Wait.", name="child", tools=[async_tool])
    agent = Agent(client, tools=[sync_tool, async_tool, child])
    session = agent.create_session()
    async with asyncio.timeout(30):
        with pytest.raises(RunTimeoutError) as caught:
            await ask(agent, "q", session=session, budget=RunBudget(max_duration_ms=100))
    assert (caught.value.response.stop_reason, finished) == ("timeout", [])
    assert {record.events[-1].payload["stop_reason"] for record in run_log().runs()} <= {"timeout", "cancelled"}
    client.delay = 0
    if what != "pause before a retry":
        assert (await ask(agent, "and?", session=session)).text == "ok"
        assert_balanced(await agent.thread(session).get_messages())
    let_go.set()


async def test_the_duration_ends_a_reply_without_pauses_and_end(ask):
    class Endless(BaseChatClient):
        async def generate(self, request):
            for _ in range(1_000_000):
                yield ChatResponseUpdate((TextContent("on "),))

    with pytest.raises(RunTimeoutError) as caught:
        await ask(Agent(Endless()), "q", budget=RunBudget(max_duration_ms=50))
    assert caught.value.response.text.startswith("on on ")
    assert caught.value.response.stop_reason == "timeout"


@pytest.mark.parametrize("waits", ["history", "provider", "before the model", "after the model"])
async def test_the_duration_ends_what_stands_around_the_model_too(ask, waits):
    """A storage, a provider and middleware that wait: middleware may clean up, and the session can be used."""
    cleaned, slow = [], [True]

    async def wait(place):
        if place == waits and slow:
            try:
                await asyncio.sleep(30)
            finally:
                cleaned.append(place)

    class Stored(InMemoryHistoryProvider):
        async def get_messages(self, session):
            await wait("history")
            return await super().get_messages(session)

    class Asked(ContextProvider):
        async def before_run(self, context):
            await wait("provider")

    async def around(context: RunContext, call_next):
        await wait("before the model")
        await call_next()
        await wait("after the model")

    agent = Agent(
        ScriptedChatClient([lambda request: "ok"] * 2),
        history=Stored(),
        context_providers=[Asked()],
        middleware=[around],
    )
    session = agent.create_session()
    with pytest.raises(RunTimeoutError) as caught:
        await ask(agent, "q", session=session, budget=RunBudget(max_duration_ms=50))
    assert (caught.value.response.stop_reason, cleaned) == ("timeout", [waits])
    slow.clear()
    assert (await ask(agent, "and?", session=session)).text == "ok"
    assert_balanced(await agent.thread(session).get_messages())


async def test_middleware_has_the_time_that_it_takes_to_clean_up_after_the_duration_has_ended_the_model(ask):
    cleaned = []

    async def around(context: RunContext, call_next):
        try:
            await call_next()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(True)

    agent = Agent(ScriptedChatClient(["late"], delay=30), middleware=[around])
    with pytest.raises(RunTimeoutError):
        await ask(agent, "q", budget=RunBudget(max_duration_ms=20))
    assert cleaned == [True]


async def test_a_timeout_of_its_own_is_not_taken_for_the_duration_of_the_run(ask):
    async def around(context: RunContext, call_next):
        raise TimeoutError("mine")

    with pytest.raises(NBAgentsError, match="mine") as caught:
        await ask(Agent(ScriptedChatClient(["ok"]), middleware=[around]), "q", budget=RunBudget(max_duration_ms=60_000))
    assert caught.value.response.stop_reason == "failed"
