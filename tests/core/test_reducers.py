"""Whatever a reducer is told to do, a request has what it must have, and what is stored stays whole."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbagents import (
    Agent,
    AgentSession,
    Message,
    Reducer,
    ReductionContext,
    ScriptedChatClient,
    SlidingWindowReducer,
    SummarizationReducer,
    TokenBudgetReducer,
    ToolResultReducer,
    TruncationReducer,
    estimate_tokens,
    tool_call,
)
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.errors import ConfigurationError
from tests.support import strict


@st.composite
def conversations(draw):
    """Stored messages of a session: turns with and without tools, interrupted ones, messages of the system."""
    messages, number = [], 0
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "user", "system", "interrupted"]))
        size = draw(st.sampled_from([1, 5, 400]))
        number += 1
        if kind == "system":
            messages.append(Message("system", f"Rule {number}."))
            continue
        messages += [Message("user", f"Question {number} " * size)] * draw(st.integers(1, 2))
        for _ in range(draw(st.integers(0, 3))):
            calls = [FunctionCall(f"c{number}.{i}", "look", {"x": i}) for i in range(draw(st.integers(1, 3)))]
            number += 1
            messages.append(Message("assistant", ["Looking.", *calls], "helper", f"call{number}"))
            messages += [Message("tool", [FunctionResult(c.call_id, "look", "found " * size)]) for c in calls]
        if kind == "user":
            messages.append(Message("assistant", f"Answer {number} " * size, "helper", f"answer{number}"))
    return messages


def every_other(messages):
    return messages[::2]


def nothing(messages):
    return []


def results_only(messages):
    return [message for message in messages if message.role == "tool"]


limits = st.integers(1, 40)
reducers = st.one_of(
    limits.map(TruncationReducer),
    limits.map(SlidingWindowReducer),
    st.integers(1, 3_000).map(TokenBudgetReducer),
    st.integers(1, 3_000).map(ToolResultReducer),
    st.integers(1, 3_000).map(lambda n: TokenBudgetReducer(n, keep=0.2, counter=len)),
    limits.map(lambda n: SummarizationReducer(max_messages=n, client=ScriptedChatClient(["It was."] * 9))),
    st.just([ToolResultReducer(100), TruncationReducer(6)]),
    st.sampled_from([every_other, nothing, results_only]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations(), reducers)
def test_a_request_is_whole_whatever_was_left_out(messages, reducer):
    client = ScriptedChatClient(["Fine.", "Fine again."])
    session = AgentSession(state={"messages": list(messages)})
    agent = Agent(client, "Be brief.", reducer=reducer)
    stored = copy.copy(session.state["messages"])
    for question in ("And now?", "And then?"):
        agent.run_sync(question, session=session)
        request = client.requests[-1].messages
        assert strict.refusal({"messages": wire_messages(request)}) is None
        assert request[0].text == "Be brief."
        told = [message for message in request if message.role != "system"]
        assert told[0].role != "tool"
        assert question in [message.text for message in told if message.role == "user"]
        rules = [message.text for message in messages if message.role == "system"]
        assert [message.text for message in request if message.role == "system"] == ["Be brief.", *rules]
        places = [stored.index(message) for message in request if message in stored]
        assert places == sorted(places)
    assert session.state["messages"][: len(stored)] == stored


def talk(agent, session, turns, text="word " * 20):
    """Have `turns` turns; return the request of each."""
    requests = []
    for number in range(turns):
        agent.run_sync(f"Question {number}: {text}", session=session)
        requests.append(agent.client.requests[-1].messages)
    return requests


def scripted(*, turns=200, text="word " * 20):
    return ScriptedChatClient([f"Answer {number}: {text}" for number in range(turns)])


@pytest.mark.parametrize(
    ("reducer", "fits"),
    [
        (TruncationReducer(10), lambda request: len(request) <= 11),
        (SlidingWindowReducer(4), lambda request: sum(m.role == "user" for m in request) <= 4),
        (TokenBudgetReducer(600, counter=len), lambda request: sum(len(m.text) for m in request) <= 600),
    ],
    ids=repr,
)
def test_a_long_conversation_stays_within_its_limit_and_in_order(reducer, fits):
    client = scripted()
    agent = Agent(client, "Be brief.", reducer=reducer)
    session = agent.create_session()
    requests = talk(agent, session, 40)
    assert all(map(fits, requests))
    for number, request in enumerate(requests):
        questions = [int(m.text.split(":")[0].split()[1]) for m in request if m.role == "user"]
        assert questions == list(range(number - len(questions) + 1, number + 1))
    assert len(session.state["messages"]) == 80


def test_between_two_cuts_each_request_begins_as_the_one_before():
    """The provider's cache of prefixes needs that."""
    agent = Agent(scripted(), "Be brief.", reducer=TruncationReducer(20))
    wires = [wire_messages(request) for request in talk(agent, agent.create_session(), 60)]
    cuts = [number for number in range(1, 60) if wires[number][: len(wires[number - 1])] != wires[number - 1]]
    assert 5 <= len(cuts) <= 60 / 2.5


def test_a_turn_of_many_tool_rounds_is_cut_within():
    def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}: " + "word " * 50

    client = ScriptedChatClient([*([tool_call("look", page=n)] for n in range(20)), "Done."])
    agent = Agent(client, tools=[look], reducer=TokenBudgetReducer(600, counter=estimate_tokens))
    session = agent.create_session()
    agent.run_sync("Read all.", session=session)
    for request in client.requests:
        assert request.messages[0].text == "Read all."
        assert strict.refusal({"messages": wire_messages(request.messages)}) is None
        assert len(request.messages) <= 22
    last = client.requests[-1].messages
    assert last[-1].results[0].result.startswith("page 19")
    assert len(session.state["messages"]) == 42


def test_the_window_begins_with_a_question():
    agent = Agent(scripted(), reducer=TruncationReducer(7))
    assert {request[0].role for request in talk(agent, agent.create_session(), 20)} == {"user"}


def test_a_cut_after_a_long_turn_leaves_what_there_is_room_for():
    def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}"

    client = ScriptedChatClient([*([tool_call("look", page=n)] for n in range(20)), "Done.", "Fine."])
    agent = Agent(client, tools=[look], reducer=TruncationReducer(20))
    session = agent.create_session()
    agent.run_sync("Read all.", session=session)
    agent.run_sync("And now?", session=session)
    first, *_, answer, question = client.requests[-1].messages
    assert (first.text, answer.text, question.text) == ("Read all.", "Done.", "And now?")
    assert len(client.requests[-1].messages) >= 10


def test_counters_that_come_and_go_do_not_take_each_others_counts():
    message = Message("user", "one two three")
    for number in range(200):
        agent = Agent(scripted(), reducer=TokenBudgetReducer(10**6, counter=lambda text, number=number: number))
        assert agent.reducer.sizes([message]) == [number + 4]


class Counted(list):
    """A list that counts how often something in it is looked at."""

    looks = 0

    def __getitem__(self, place):
        self.looks += 1
        return super().__getitem__(place)


async def looks_at(rounds):
    """How often a cut of tool rounds that nobody asked for looks at a message."""
    messages = Counted()
    for number in range(rounds):
        messages.append(Message("assistant", [FunctionCall(f"c{number}", "look", {})], "helper", f"call{number}"))
        messages.append(Message("tool", [FunctionResult(f"c{number}", "look", "found")]))
    reducer = TruncationReducer(rounds * 2 - 2)
    assert len(await reducer.reduce(messages, ReductionContext({}, 1.0, lambda counter: 0, None, None))) < rounds * 2
    return messages.looks


async def test_a_cut_takes_linear_time_also_where_nobody_asks():
    assert await looks_at(400) <= 2 * await looks_at(200) + 20


def test_what_the_user_says_in_several_messages_is_one_turn():
    agent = Agent(scripted(), reducer=SlidingWindowReducer(4))
    session = agent.create_session()
    for number in range(6):
        agent.run_sync([Message("user", f"{letter}{number}") for letter in "abc"], session=session)
    said = [message.text for message in agent.client.requests[-1].messages if message.role == "user"]
    assert said == [f"{letter}{number}" for number in (2, 3, 4, 5) for letter in "abc"]


def test_old_results_are_shortened_and_new_ones_are_whole():
    def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}: " + "word " * 200

    client = ScriptedChatClient([*([tool_call("look", page=n)] for n in range(8)), "Done."])
    agent = Agent(client, tools=[look], reducer=ToolResultReducer(900, preview=10, counter=estimate_tokens))
    session = agent.create_session()
    agent.run_sync("Read all.", session=session)
    results = [m.results[0].result for m in client.requests[-1].messages if m.role == "tool"]
    assert len(results) == 8
    assert results[0] == "page 0: wo [… 998 more characters were here]"
    assert len(results[-1]) > 1000
    assert all(len(m.results[0].result) > 1000 for m in session.state["messages"] if m.role == "tool")


def test_a_reducer_of_ones_own_is_a_function_or_a_class():
    class LastTwo(Reducer):
        async def reduce(self, messages, context):
            context.state["asked"] = context.state.get("asked", 0) + 1
            return messages[-2:]

    async def last_two(messages):
        return messages[-2:]

    for reducer in (LastTwo(), last_two, lambda messages: messages[-2:]):
        agent = Agent(scripted(), reducer=reducer)
        session = agent.create_session()
        assert [len(request) for request in talk(agent, session, 5)] == [1, 2, 2, 2, 2]
        assert len(session.state["messages"]) == 10


@pytest.mark.parametrize(
    ("reducer", "says"),
    [
        (8_000, "reducer is a reducer"),
        ("truncate", "reducer is a reducer"),
        (TruncationReducer, "not the class TruncationReducer"),
        ([], "reducer is a reducer"),
        ([TruncationReducer(3), 4], "reducer is a reducer"),
    ],
)
def test_what_is_no_reducer_is_one_error(reducer, says):
    with pytest.raises(ConfigurationError, match=says):
        Agent(scripted(), reducer=reducer)
    with pytest.raises(ConfigurationError, match=says):
        Agent(scripted()).run_sync("Hi", reducer=reducer)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TruncationReducer(0), "max_messages is a whole number from 1, not 0"),
        (lambda: TokenBudgetReducer(1.5), "max_tokens is a whole number from 1, not 1.5"),
        (lambda: SlidingWindowReducer(True), "max_turns is a whole number"),
        (lambda: TruncationReducer(5, keep=0), "keep is a part of the limit"),
        (lambda: SummarizationReducer(), "takes max_tokens or max_messages"),
        (lambda: SummarizationReducer(5, max_messages=5), "takes max_tokens or max_messages"),
        (lambda: ToolResultReducer(5, preview=-1), "preview is a number of characters"),
    ],
)
def test_limits_that_are_none_are_one_error(make, says):
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_a_function_that_returns_no_messages_ends_the_run_with_one_error():
    session = AgentSession(state={"messages": [Message("user", "Hi"), Message("assistant", "Hello.")]})
    agent = Agent(scripted(), reducer=lambda messages: ["Hi"])
    with pytest.raises(ConfigurationError, match="returned str among the messages"):
        agent.run_sync("And now?", session=session)
    assert len(session.state["messages"]) == 2
