"""One session and those who share it: two agents, several runs, a storage that fails."""

import asyncio
import json

import pytest

from nbagents import (
    Agent,
    AgentSession,
    FileHistoryProvider,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    RunBudget,
    ScriptedChatClient,
    SQLHistoryProvider,
    ToolContext,
    events_df,
    run_log,
    tool,
    tool_call,
)
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.errors import NBAgentsError, ServerError, SessionError, ThreadDeletedError
from tests.support.strict import refusal


@tool
def add(a: int, b: int) -> int:
    return a + b


def pair(planner_says, critic_says, **settings):
    planner = Agent(ScriptedChatClient(planner_says), "Plan.", name="planner", tools=[add], **settings)
    critic = Agent(ScriptedChatClient(critic_says), "Judge.", name="critic", **settings)
    return planner, critic


async def test_two_agents_share_a_session_by_turns(ask):
    planner, critic = pair([[tool_call("add", a=1, b=2)], "Three.", "Still three."], ["Good.", "Fine."])
    session = AgentSession("trip")
    for agent, text in ((planner, "1 + 2?"), (critic, "Well?"), (planner, "Sure?"), (critic, "So?")):
        await ask(agent, text, session=session)
    sent = critic.client.requests[-1]
    assert [(m.role, m.author_name, m.agent_id) for m in sent.messages] == [
        ("system", None, None),
        ("user", None, "planner"),
        ("assistant", "planner", "planner"),
        ("tool", "add", "planner"),
        ("assistant", "planner", "planner"),
        ("user", None, "critic"),
        ("assistant", "critic", "critic"),
        ("user", None, "planner"),
        ("assistant", "planner", "planner"),
        ("user", None, "critic"),
    ]
    assert sent.messages[0].text == "Judge."
    assert (len(sent.tools), len(planner.client.requests[-1].tools)) == (0, 1)
    assert refusal({"messages": wire_messages(sent.messages)}) is None


@pytest.mark.parametrize("stored", ["memory", "file"])
async def test_two_agents_that_run_at_once_on_one_session_take_turns(ask, tmp_path, stored):
    """C72"""
    say = [lambda r: [tool_call("add", a=1, b=1)] if r.messages[-1].role == "user" and r.tools else "done"] * 12
    history = {} if stored == "memory" else {"history": FileHistoryProvider(tmp_path)}
    planner, critic = pair(say, say, **history)
    session = AgentSession("trip")
    await asyncio.gather(*[ask(agent, "q", session=session) for agent in (planner, critic, planner, critic)])
    messages = await planner.thread(session).get_messages()
    turns = []
    for message in messages:
        if message.role == "user":
            turns.append((message.agent_id, []))
        turns[-1][1].append(message.role)
    whole = {"planner": ["user", "assistant", "tool", "assistant"], "critic": ["user", "assistant"]}
    assert sorted(agent for agent, _ in turns) == ["critic", "critic", "planner", "planner"]
    assert all(roles == whole[agent] for agent, roles in turns)
    assert {m.run_id for m in messages} == {record.run_id for record in run_log().runs()[-4:]}


async def test_an_agent_that_a_tool_runs_on_the_shared_session_is_an_error_at_once(ask):
    @tool
    async def ask_critic(context: ToolContext) -> str:
        return (await critic.run("Well?", session=context.session)).text

    critic = Agent(ScriptedChatClient(["Good."]), name="critic")
    planner = Agent(ScriptedChatClient([[tool_call("ask_critic")], "ok"]), tools=[ask_critic], name="planner")
    response = await asyncio.wait_for(ask(planner, "q"), 10)
    assert "a session of its own" in response.messages[1].results[0].result
    assert critic.client.requests == []


async def test_calls_that_wait_for_a_person_are_taken_up_by_the_agent_that_knows_the_tool(ask):
    @tool(approval="always")
    def remove(path: str) -> str:
        return f"{path} is gone"

    planner = Agent(ScriptedChatClient([[tool_call("remove", path="x")], "Done."]), tools=[remove], name="planner")
    critic = Agent(ScriptedChatClient(["Too late."]), name="critic")
    session = AgentSession("trip")
    response = await ask(planner, "q", session=session)
    await ask(critic, "Wait!", session=session)
    sent = critic.client.requests[0].messages
    assert refusal({"messages": wire_messages(sent)}) is None
    assert "nobody approved" in sent[2].results[0].result
    response = await ask(planner, [r.approve() for r in response.approvals], session=session)
    assert "No call waits for these approvals" in response.warnings[0]


class Failing(HistoryProvider):
    """Fails from group number `fails_at` on."""

    def __init__(self, fails_at, earlier=()):
        self.groups = [list(earlier)]
        self.fails_at = fails_at
        self.number = 0

    async def get_messages(self, session):
        return [message for group in self.groups for message in group]

    async def save_messages(self, session, messages):
        self.number += 1
        if self.number >= self.fails_at:
            raise OSError("disk full")
        self.groups.append(list(messages))


async def test_a_storage_that_fails_in_the_middle_ends_the_run_and_doubles_nothing(ask):
    history = Failing(2)
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], [tool_call("add", a=1, b=3)], "ok", "ok"])
    agent = Agent(client, tools=[add], history=history)
    session = AgentSession("trip")
    with pytest.raises(NBAgentsError, match="disk full") as caught:
        await ask(agent, "q", session=session)
    assert caught.value.response.stop_reason == "failed"
    assert len(caught.value.response.messages) == 4  # nothing of it is lost for the caller
    history.fails_at = 99
    await ask(agent, "go on", session=session)
    assert [m.role for m in client.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    stored = await history.get_messages(session)
    assert [m.role for m in stored] == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_storage_that_fails_while_a_run_is_cancelled_leaves_it_cancelled_and_says_so():
    began = asyncio.Event()

    @tool
    async def slow() -> None:
        began.set()
        await asyncio.sleep(30)

    agent = Agent(ScriptedChatClient([[tool_call("slow")]]), tools=[slow], history=Failing(1))
    task = asyncio.create_task(agent.run("q"))
    await began.wait()
    task.cancel()
    with pytest.warns(UserWarning, match="disk full"), pytest.raises(asyncio.CancelledError):
        await task
    record = run_log().runs()[-1]
    assert record.events[-1].payload["stop_reason"] == "cancelled"
    events = events_df(run_id=record.run_id)
    (told,) = events[events["kind"] == "provider.failed"]["data"]
    assert "disk full" in json.loads(told)["error"]["message"]


async def test_a_storage_that_fails_beside_the_models_error_does_not_hide_it():
    agent = Agent(ScriptedChatClient([["Let me ", ServerError("down")]]), history=Failing(1))
    with pytest.warns(UserWarning, match="disk full"), pytest.raises(ServerError, match="down"):
        await agent.run("q", stream=True).get_final_response()


async def test_a_storage_that_cannot_be_read_fails_the_run_before_any_request(ask):
    class Unreadable(Failing):
        async def get_messages(self, session):
            raise OSError("no such share")

    agent = Agent(ScriptedChatClient(["ok"]), history=Unreadable(99))
    with pytest.raises(NBAgentsError, match="no such share"):
        await ask(agent, "q")
    assert agent.client.requests == []


@pytest.mark.parametrize("how", ["steps", "tool_calls", "tokens", "failed"])
async def test_what_a_limit_or_an_error_leaves_the_next_turn_can_use_and_nothing_is_doubled(ask, tmp_path, how):
    budgets = {"steps": {"max_steps": 1}, "tool_calls": {"max_tool_calls": 1}, "tokens": {"max_tokens": 1}}
    calls = ["Let me. ", tool_call("add", a=1, b=2), tool_call("add", a=2, b=2)]
    second = {"failed": [ServerError("down")], "steps": [[tool_call("add", a=3, b=4)]]}.get(how, [])
    client = ScriptedChatClient([calls, *second, "ok"])
    budget = RunBudget(**budgets[how]) if how in budgets else None
    agent = Agent(client, tools=[add], history=FileHistoryProvider(tmp_path))
    try:
        await ask(agent, "q", session=AgentSession("trip"), budget=budget)
    except NBAgentsError:
        assert how != "steps"
    stored = await agent.thread(AgentSession("trip")).get_messages()
    await ask(agent, "go on", session=AgentSession("trip"))
    sent = client.requests[-1].messages
    assert refusal({"messages": wire_messages(sent)}) is None
    assert sent[:-1] == stored  # nothing had to be repaired
    assert len({m.message_id for m in stored if m.role != "user"}) == len([m for m in stored if m.role != "user"])


async def test_messages_of_the_same_text_are_all_kept(ask):
    session = AgentSession("trip")
    agent = Agent(ScriptedChatClient(["ok"] * 3))
    same = Message("user", "again", message_id="m1")
    for _ in range(3):
        await ask(agent, [same, same], session=session)
    assert [m.text for m in session.state["messages"]] == ["again", "again", "ok"] * 3


async def test_work_that_a_tool_leaves_behind_may_use_the_session_once_the_run_has_ended(ask):
    """Also while another run has the session: then it waits like everybody."""
    ended, began, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    followed = []

    @tool
    async def plan(context: ToolContext) -> str:
        async def follow_up():
            await ended.wait()
            return (await agent.run("Now.", session=context.session)).text

        followed.append(asyncio.create_task(follow_up()))
        return "planned"

    @tool
    async def wait() -> None:
        began.set()
        await may_end.wait()

    script = [[tool_call("plan")], "ok", [tool_call("wait")], "ok", "Done."]
    agent = Agent(ScriptedChatClient(script), tools=[plan, wait])
    session = agent.create_session()
    await ask(agent, "q", session=session)
    other = asyncio.ensure_future(ask(agent, "r", session=session))
    await began.wait()
    ended.set()
    for _ in range(20):
        await asyncio.sleep(0)
    may_end.set()
    await other
    assert await asyncio.wait_for(followed[0], 20) == "Done."
    texts = [m.text for m in session.state["messages"] if m.role != "tool" and not m.calls]
    assert texts == ["q", "ok", "r", "ok", "Now.", "Done."]


async def test_a_history_may_give_any_iterable_of_messages(ask):
    class Lazy(Failing):
        async def get_messages(self, session):
            return (message for group in self.groups for message in group)

    agent = Agent(ScriptedChatClient(["a", "b"]), history=Lazy(99))
    for text in ("1", "2"):
        await ask(agent, text, session=AgentSession("trip"))
    assert [m.text for m in agent.client.requests[-1].messages] == ["1", "a", "2"]


@pytest.mark.parametrize("wrong", [None, "hello", [{"role": "user", "contents": []}], [Message("user", "x"), 3]])
async def test_a_history_that_gives_no_messages_is_named(ask, wrong):
    class Wrong(Failing):
        async def get_messages(self, session):
            return wrong

    with pytest.raises(SessionError, match=r"Wrong gave a \w+ among the messages of 'trip'"):
        await ask(Agent(ScriptedChatClient(["ok"]), history=Wrong(99)), "q", session=AgentSession("trip"))
    if wrong is not None:
        session = AgentSession("trip", state={"messages": wrong})
        with pytest.raises(SessionError, match="InMemoryHistoryProvider gave a"):
            await ask(Agent(ScriptedChatClient(["ok"])), "q", session=session)


async def test_runs_that_wait_for_a_session_that_is_deleted_are_told(ask):
    began = asyncio.Event()

    @tool
    async def wait() -> None:
        began.set()
        await may_end.wait()

    may_end = asyncio.Event()
    agent = Agent(ScriptedChatClient([[tool_call("wait")], "ok", "late"]), tools=[wait])
    session = agent.create_session()
    tasks = [asyncio.ensure_future(ask(agent, "q", session=session)) for _ in range(2)]
    await began.wait()
    await agent.thread(session).delete()
    may_end.set()
    assert [type(end) for end in await asyncio.gather(*tasks, return_exceptions=True)] == [ThreadDeletedError] * 2
    assert session.state == {"nbagents.deleted": True}


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
def test_a_stream_that_is_left_when_the_loop_ends_is_stored(tmp_path, kind):
    """C75: asyncio.run cancels every task that it finds, the one that stores too if it finds it."""
    session, kept = AgentSession("trip"), []

    def history():
        if kind == "memory":
            return InMemoryHistoryProvider()
        return FileHistoryProvider(tmp_path) if kind == "file" else SQLHistoryProvider(f"sqlite:///{tmp_path}/chat.db")

    async def main():
        stream = Agent(ScriptedChatClient(["one two three"]), history=history()).run("q", stream=True, session=session)
        kept.append(stream)
        async for _ in stream:
            break

    asyncio.run(main())
    stored = asyncio.run(history().get_messages(session))
    assert [(m.text, m.interrupted) for m in stored] == [("q", False), ("one ", True)]


async def test_two_runs_that_ask_for_each_others_session_do_not_wait_for_ever(ask):
    """C72: neither at once nor in a longer circle."""
    names = ["a", "b", "c"]
    sessions = {name: AgentSession(name) for name in names}
    arrived = asyncio.Barrier(len(names))

    @tool
    async def ask_next(context: ToolContext) -> str:
        name = context.session.session_id
        await arrived.wait()
        following = sessions[names[(names.index(name) + 1) % len(names)]]
        return (await Agent(ScriptedChatClient(["fine"])).run("q", session=following)).text

    async def run(name):
        agent = Agent(ScriptedChatClient([[tool_call("ask_next")], "ok"]), tools=[ask_next])
        response = await ask(agent, "q", session=sessions[name])
        return response.messages[1].results[0].result

    results = await asyncio.wait_for(asyncio.gather(*map(run, names)), 20)
    assert sorted("fine" in result for result in results) == [False, True, True]
    assert sum("a session of its own" in result for result in results) == 1


async def test_waiting_for_another_session_is_no_circle(ask):
    """C72: a run may wait for a session whose own run waits for a third one."""
    began, may_end = asyncio.Event(), asyncio.Event()
    sessions = {name: AgentSession(name) for name in "abc"}

    @tool
    async def wait() -> str:
        began.set()
        await may_end.wait()
        return "waited"

    @tool
    async def ask_session(name: str) -> str:
        return (await Agent(ScriptedChatClient(["fine"])).run("q", session=sessions[name])).text

    def run(name, **call):
        script = [[tool_call(*call, **next(iter(call.values())))], "ok"]
        return asyncio.ensure_future(
            ask(Agent(ScriptedChatClient(script), tools=[wait, ask_session]), "q", session=sessions[name])
        )

    tasks = [run("c", wait={})]
    await began.wait()
    tasks += [run("b", ask_session={"name": "c"}), run("a", ask_session={"name": "b"})]
    for _ in range(20):
        await asyncio.sleep(0)
    may_end.set()
    done = await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert [response.messages[1].results[0].result for response in done] == ["waited", "fine", "fine"]


async def test_the_words_of_an_application_may_stand_in_the_state(ask):
    words = {"pending": ["milk"], "deleted": True, "subagents": 3, "unsent": "x"}
    session = AgentSession("trip", state=words)
    agent = Agent(ScriptedChatClient(["ok"]))
    await ask(agent, "q", session=session)
    assert {key: value for key, value in session.state.items() if key != "messages"} == words
