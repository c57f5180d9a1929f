"""An agent as a tool of another."""

import json

import pytest

from nbagents import (
    Agent,
    AgentSession,
    FileHistoryProvider,
    FunctionContext,
    RunBudget,
    ScriptedChatClient,
    run_log,
    set_price,
    tool,
    tool_call,
)
from nbagents.core.errors import BudgetExceededError, ConfigurationError, ServerError
from tests.core.test_loop import assert_balanced


def child(*replies, **settings):
    return Agent(ScriptedChatClient(replies), "Answer questions of cooks.\nBe kind.", name="cook", **settings)


def parent(agent, *replies, **settings):
    script = replies or ([tool_call("cook", messages="soup?")], "done")
    return Agent(ScriptedChatClient(script), tools=[agent], **settings)


async def test_an_agent_is_a_tool_with_one_parameter(ask):
    cook = child("with salt")
    definition = cook.as_tool().definition
    assert (definition.name, definition.description) == ("cook", "Answer questions of cooks.")
    assert list(definition.parameters["properties"]) == ["messages"]
    response = await ask(parent(cook), "q")
    assert response.messages[1].results[0].result == "with salt"
    assert cook.client.requests[0].messages[-1].text == "soup?"


async def test_the_child_run_is_nested_and_its_text_shows_in_the_card():
    agent = parent(child("with salt"))
    events = [event async for event in agent.run("q", stream=True).events()]
    assert "".join(e.payload["text"] for e in events if e.name == "tool.delta") == "with salt"
    outer, inner = run_log().runs()[-2:]
    assert inner.events[0].payload["parent_run_id"] == outer.run_id


async def test_usage_of_a_child_counts_once_also_when_it_fails(ask):
    """C88"""
    agent = parent(
        child("a word", ["half ", ServerError("down")]),
        [tool_call("cook", messages="1")],
        [tool_call("cook", messages="2")],
        "done",
    )
    response = await ask(agent, "q")
    runs = [run_log().get(response.run_id), *run_log().runs()[-2:]]
    own = [run.events[-1].payload["usage"] for run in {r.run_id: r for r in runs}.values()]
    assert response.usage.total_tokens == sum(usage.total_tokens for usage in own if usage)
    assert "down" in response.messages[3].results[0].result


async def test_the_budget_of_the_parent_holds_for_the_child(ask):
    """C88"""
    cook = child([tool_call("nothing")], "never", tools=[tool(name="nothing")(lambda: "x" * 100)])
    agent = parent(cook)
    with pytest.raises(BudgetExceededError) as caught:
        await ask(agent, "q", budget=RunBudget(max_tokens=3))
    assert len(cook.client.requests) == 1
    assert caught.value.response.stop_reason == "budget_exhausted"
    with pytest.raises(BudgetExceededError):
        await ask(parent(child([tool_call("nothing")], "x")), "q", budget=RunBudget(max_tool_calls=1))


@pytest.fixture
def removed():
    return []


@pytest.fixture
def guarded(removed):
    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove."""
        removed.append(path)
        return f"removed {path}"

    return parent(child([tool_call("remove", path="a")], "The child is done.", tools=[remove]))


async def test_approvals_of_a_child_surface_and_go_back_to_it(ask, guarded, removed):
    session = guarded.create_session()
    response = await ask(guarded, "q", session=session)
    assert response.stop_reason == "approval_required"
    assert [r.call.name for r in response.approvals] == ["remove"]
    assert await guarded.thread(session).get_messages() == []
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    response = await ask(guarded, [r.approve() for r in response.approvals], session=session)
    assert (response.text, removed) == ("done", ["a"])
    stored = await guarded.thread(session).get_messages()
    assert_balanced(stored)
    assert stored[2].results[0].result == "The child is done."


async def test_a_denial_reaches_the_child(ask, guarded, removed):
    session = guarded.create_session()
    (request,) = (await ask(guarded, "q", session=session)).approvals
    response = await ask(guarded, request.deny("keep it"), session=session)
    assert (response.text, removed) == ("done", [])


async def test_going_on_without_an_answer_refuses_the_call_of_the_child(ask, guarded, removed):
    session = guarded.create_session()
    await ask(guarded, "q", session=session)
    response = await ask(guarded, "never mind", session=session)
    assert (response.text, removed) == ("done", [])
    assert "nobody approved" in guarded.client.requests[-1].messages[2].results[0].result


@pytest.mark.parametrize("answer", ["swallowed", "another error"])
async def test_middleware_that_answers_errors_does_not_lose_the_approvals_of_a_child(ask, guarded, removed, answer):
    async def comfort(context: FunctionContext, call_next):
        try:
            await call_next()
        except Exception as error:
            if answer == "another error":
                raise RuntimeError("odd") from error
            context.result = "never mind"

    session = guarded.create_session()
    response = await ask(guarded, "q", session=session, middleware=[comfort])
    assert response.stop_reason == "approval_required"
    response = await ask(guarded, response.approvals[0].approve(), session=session, middleware=[comfort])
    assert (response.text, removed) == ("done", ["a"])


async def test_the_sessions_of_a_child_are_fresh_shared_or_told(ask):
    script = ([tool_call("cook", messages="1")], [tool_call("cook", messages="2")], "done")
    expected = {"fresh": ["2"], "shared": ["1", "one", "2"], "transcript": ["q", "2"]}
    for kind, texts in expected.items():
        cook = child("one", "two")
        agent = Agent(ScriptedChatClient(script), tools=[cook.as_tool(session=kind)])
        session = agent.create_session()
        await ask(agent, "q", session=session)
        assert [m.text for m in cook.client.requests[1].messages[1:]] == texts, kind
        json.dumps(session.to_dict())


async def test_shared_sessions_of_children_that_run_at_once_lose_nothing(ask):
    """Two children, one of them twice: each goes on where the one before it has ended."""
    cook = child("one", "two", "three")
    cook.client.delay = 0.001  # the calls of one reply overlap
    waiter = Agent(ScriptedChatClient(["yes", "sure"]), "Serve.", name="waiter")
    first = [tool_call("cook", messages="1"), tool_call("waiter", messages="a"), tool_call("cook", messages="2")]
    script = [first, "ok", [tool_call("cook", messages="3"), tool_call("waiter", messages="b")], "ok"]
    tools = [cook.as_tool(session="shared"), waiter.as_tool(session="shared")]
    agent = Agent(ScriptedChatClient(script), tools=tools)
    session = agent.create_session()
    for _ in range(2):
        await ask(agent, "q", session=session)
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert [m.text for m in cook.client.requests[-1].messages[1:]] == ["1", "one", "2", "two", "3"]
    assert [m.text for m in waiter.client.requests[-1].messages[1:]] == ["a", "yes", "b"]


@pytest.mark.parametrize("stored", ["memory", "file"])
async def test_shared_sessions_of_children_that_wait_for_a_person_lose_nothing(ask, removed, tmp_path, stored):
    """C72: two calls of one shared child wait at once; the third goes on from both."""

    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove a file."""
        removed.append(path)
        return "gone"

    def reply(request):
        said = request.messages[-1]
        return [tool_call("remove", path=said.text)] if said.role == "user" and len(said.text) == 1 else "done"

    history = FileHistoryProvider(tmp_path) if stored == "file" else None
    cook = Agent(ScriptedChatClient([reply] * 9), "Cook.", name="cook", tools=[remove], history=history)
    both = [tool_call("cook", messages="a"), tool_call("cook", messages="b")]
    script = [both, "ok", [tool_call("cook", messages="and then?")], "ok"]
    agent = Agent(ScriptedChatClient(script), tools=[cook.as_tool(session="shared")])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    await ask(agent, [request.approve() for request in response.approvals], session=session)
    await ask(agent, "q", session=session)
    assert sorted(removed) == ["a", "b"]
    said = [m.text for m in cook.client.requests[-1].messages if m.role == "user"]
    assert sorted(said) == ["a", "and then?", "b"]
    assert_balanced(cook.client.requests[-1].messages)


async def test_agents_that_call_each_other_for_ever_are_stopped_and_the_run_goes_on(ask):
    def pass_on(request):
        return "enough" if request.messages[-1].role == "tool" else [tool_call(request.tools[0].name, messages="you!")]

    client = ScriptedChatClient([pass_on] * 1_000)
    ping, pong = (Agent(client, "Play.", name=name) for name in ("ping", "pong"))
    ping.tools.append(pong.as_tool())
    pong.tools.append(ping.as_tool())
    response = await ask(ping, "serve")
    assert response.text == "enough"
    results = [result.result for request in client.requests for m in request.messages for result in m.results]
    assert results[0] == "Not run: agents have called each other 32 deep."
    assert results[1:] == ["enough"] * 32


async def test_a_caller_may_give_instructions_only_where_the_agent_accepts_an_override(ask):
    """What it writes is no template, and holds for one call."""
    cook = child("soup", "{{$fish}}", "bread", template="nbagents")
    assert list(cook.as_tool().definition.parameters["properties"]) == ["messages"]
    tool_of_cook = cook.as_tool(instructions=True)
    assert list(tool_of_cook.definition.parameters["properties"]) == ["messages", "instructions"]
    assert tool_of_cook.definition.parameters["required"] == ["messages"]
    calls = [tool_call("cook", messages="1", instructions=text) for text in ("Use {{$salt}}.", "", None)]
    response = await ask(Agent(ScriptedChatClient([*([call] for call in calls), "done"]), tools=[tool_of_cook]), "q")
    assert [m.results[0].error for m in response.messages if m.results] == [None] * 3
    own = "Answer questions of cooks.\nBe kind."
    assert [r.messages[0].text for r in cook.client.requests] == ["Use {{$salt}}.", own, own]
    assert (cook.instructions, {record.events[0].payload["agent_id"] for record in run_log().runs()[1:]}) == (
        own,
        {"cook"},
    )


async def test_a_cost_limit_needs_the_prices_of_all_models_before_the_first_request(ask):
    """C88: also those of agents that are tools of tools, and of one that a tool runs by itself."""
    set_price("known", input=1, output=1)
    unpriced = child("x")

    @tool
    async def ask_by_itself() -> str:
        """Ask."""
        return (await unpriced.run("q")).text

    middle = Agent(ScriptedChatClient([], model="known"), "Pass on.", name="agent", tools=[unpriced])
    agent = Agent(ScriptedChatClient(["never"], model="known"), tools=[middle], budget=RunBudget(max_cost_usd=1))
    with pytest.raises(ConfigurationError, match="'scripted' of 'cook' is unknown"):
        await ask(agent, "q")
    assert agent.client.requests == []
    client = ScriptedChatClient([[tool_call("ask_by_itself")], "ok"], model="known")
    response = await ask(Agent(client, tools=[ask_by_itself]), "q", budget=RunBudget(max_cost_usd=1))
    assert "of 'cook' is unknown" in response.messages[1].results[0].error
    assert (response.text, unpriced.client.requests) == ("ok", [])


async def test_agents_that_are_tools_of_each_other_have_their_prices_checked_too(ask):
    set_price("known", input=1, output=1)
    one, other = (Agent(ScriptedChatClient(["ok"], model="known"), "Help.", name=name) for name in ("one", "other"))
    one.tools, other.tools = [other.as_tool()], [one.as_tool()]
    assert (await ask(one, "q", budget=RunBudget(max_cost_usd=1))).text == "ok"


def test_an_agent_that_says_nothing_of_itself_is_no_tool():
    with pytest.raises(ConfigurationError, match="description"):
        Agent(ScriptedChatClient([]), tools=[Agent(ScriptedChatClient([]), name="x")])
    with pytest.raises(ConfigurationError, match="fresh"):
        child().as_tool(session="new")


def test_two_agents_with_names_that_services_refuse_are_two_tools():
    """C63"""
    agents = [Agent(ScriptedChatClient([]), "Help.", name=name) for name in ("天气", "新闻", "Help Desk", "Help/Desk")]
    names = [one.name for one in Agent(ScriptedChatClient([]), tools=agents).tools]
    assert len(set(names)) == 4
    with pytest.raises(ConfigurationError, match="Two tools"):
        Agent(ScriptedChatClient([]), tools=[child(), tool(name="cook")(lambda: None)])


async def test_approvals_two_agents_deep_surface_and_go_back_one_after_the_other(ask, removed):
    """A text that comes with the answers waits until the child has all that it needs."""

    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove a file."""
        removed.append(path)
        return f"removed {path}"

    def calls(*paths):
        return ["Sure. ", *(tool_call("remove", path=path) for path in paths)]

    washer = Agent(
        ScriptedChatClient([calls("a", "b"), calls("c"), "All is gone."]), "Wash up.", name="washer", tools=[remove]
    )
    cook = child([tool_call("washer", messages="Wash up!")], "The kitchen is clean.", tools=[washer])
    agent = parent(cook, [tool_call("cook", messages="soup?"), tool_call("cook", messages="tea?")], "done")
    cook.client = ScriptedChatClient([lambda request: cook_reply(request)] * 9)

    def cook_reply(request):
        if request.messages[-1].role == "tool":
            return "The kitchen is clean."
        return [tool_call("washer", messages="Wash up!")] if "soup" in request.messages[-1].text else "With sugar."

    session = agent.create_session()

    def reopened():
        return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))

    response = await ask(agent, "q", session=session)
    assert [m.results[0].result for m in response.messages if m.results] == ["With sugar."]
    a, b = response.approvals
    session = reopened()
    response = await ask(agent, [a.approve(), "and be quick"], session=session)
    assert (response.stop_reason, removed) == ("approval_required", ["a"])
    assert [r.id for r in response.approvals] == [b.id]
    session = reopened()
    response = await ask(agent, [a.approve(), b.deny()], session=session)
    assert ([r.call.arguments for r in response.approvals], removed) == ([{"path": "c"}], ["a"])
    session = reopened()
    response = await ask(agent, response.approvals[0].approve(), session=session)
    assert (response.text, removed) == ("done", ["a", "c"])
    stored = await agent.thread(session).get_messages()
    assert [m.text for m in stored if m.role == "user"] == ["q", "and be quick"]
    assert sorted(r.result for m in stored for r in m.results) == ["The kitchen is clean.", "With sugar."]
