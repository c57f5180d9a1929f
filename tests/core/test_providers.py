"""Context providers."""

import asyncio

import pytest

from nbagents import Agent, ContextProvider, Message, RunContext, ScriptedChatClient, tool, tool_call
from nbagents.core.errors import ConfigurationError, NBAgentsError, ServerError


class Library(ContextProvider):
    async def before_run(self, context):
        self.add(context, messages=[f"About {context.inputs[0].text}"], instructions="Cite the library.")


async def test_what_a_provider_adds_reaches_the_model_and_is_not_stored(ask):
    client = ScriptedChatClient(["one", "two"])
    agent = Agent(client, "Be brief.", context_providers=[Library()])
    session = agent.create_session()
    await ask(agent, "owls", session=session)
    await ask(agent, "ducks", session=session)
    assert [m.text for m in client.requests[1].messages] == [
        "Be brief.\nCite the library.",
        "owls",
        "one",
        "About ducks",
        "ducks",
    ]
    assert client.requests[1].messages[3].extra == {"source": "Library"}
    assert [m.text for m in await agent.thread(session).get_messages()] == ["owls", "one", "ducks", "two"]


async def test_a_provider_gives_tools_and_middleware(ask):
    seen = []

    class Giver(ContextProvider):
        async def before_run(self, context):
            async def watch(context: RunContext, call_next):
                await call_next()
                seen.append(context.text)

            self.add(context, tools=[tool(name="extra")(lambda: "given")], middleware=[watch])

    agent = Agent(ScriptedChatClient([[tool_call("extra")], "ok"]), context_providers=[Giver()])
    response = await ask(agent, "q")
    assert response.messages[1].results[0].result == "given"
    assert (seen, agent.tools) == (["ok"], [])


async def test_providers_are_asked_in_order_and_told_in_reverse_also_of_failures(ask):
    told = []

    class Named(ContextProvider):
        def __init__(self, name):
            self._name = name

        async def before_run(self, context):
            told.append(f"{self._name} before")

        async def after_run(self, context):
            told.append(f"{self._name} after {context.stop_reason} {context.text}")

    agent = Agent(ScriptedChatClient(["ok", ServerError("down")]), context_providers=[Named("a"), Named("b")])
    await ask(agent, "q")
    assert told == ["a before", "b before", "b after completed ok", "a after completed ok"]
    with pytest.raises(ServerError):
        await ask(agent, "q")
    assert told[-1] == "a after failed "


async def test_a_provider_that_fails_fails_the_run_before_any_request(ask):
    class Broken(ContextProvider):
        async def before_run(self, context):
            raise ServerError("no index")

    agent = Agent(ScriptedChatClient(["ok"]), context_providers=[Broken()])
    with pytest.raises(ServerError, match="no index"):
        await ask(agent, "q")
    assert agent.client.requests == []


def test_something_else_is_no_provider():
    with pytest.raises(ConfigurationError, match="ContextProvider"):
        Agent(ScriptedChatClient([]), context_providers=[Message("user", "x")])


async def test_one_provider_stands_for_a_list_of_one(ask):
    client = ScriptedChatClient(["ok"])
    await ask(Agent(client, context_providers=Library()), "bees")
    assert client.requests[0].messages[0].text == "Cite the library."


@pytest.mark.parametrize("name", ["before_run", "on_stored", "after_run"])
def test_a_provider_with_a_method_that_is_not_async_is_an_error_by_name(name):
    plain = type("Plain", (ContextProvider,), {name: lambda self, *given: None})
    with pytest.raises(ConfigurationError, match=rf"Plain\.{name} is not async"):
        Agent(ScriptedChatClient([]), context_providers=plain())
    with pytest.raises(ConfigurationError, match=r"Library\(\.\.\.\)"):
        Agent(ScriptedChatClient([]), context_providers=[Library])


class Recorder(ContextProvider):
    """Tells in a list what it hears; fails where it is told to."""

    def __init__(self, name, told, *, fails=()):
        self._name = name
        self._told = told
        self._fails = fails

    @property
    def name(self):
        return self._name

    def _hear(self, what, error=None):
        self._told.append(f"{self._name} {what}")
        if what in self._fails:
            raise error or OSError(f"{self._name} failed {what}")

    async def before_run(self, context):
        self._hear("before")

    async def on_stored(self, context, messages):
        self._hear("stored")

    async def after_run(self, context):
        self._hear("after")


def recorders(told, **fails):
    return [Recorder(name, told, fails=fails.get(name, ())) for name in "abc"]


async def test_only_those_that_were_asked_are_told_of_a_run_that_could_not_begin(ask):
    told = []
    agent = Agent(ScriptedChatClient(["ok"]), context_providers=recorders(told, b=["before"]))
    with pytest.raises(NBAgentsError, match="b failed before"):
        await ask(agent, "q")
    assert told == ["a before", "b before", "a after"]


async def test_a_provider_that_fails_after_the_run_fails_it_once_the_others_are_told_and_all_is_stored(ask):
    told = []
    agent = Agent(ScriptedChatClient(["one", "two"]), context_providers=recorders(told, b=["after"], a=["after"]))
    session = agent.create_session()
    with (
        pytest.warns(UserWarning, match="a failed: .*a failed after"),
        pytest.raises(NBAgentsError, match="b failed after") as caught,
    ):
        await ask(agent, "q", session=session)
    assert told[-3:] == ["c after", "b after", "a after"]
    assert len(told) == 9
    assert (caught.value.response.text, caught.value.response.stop_reason) == ("one", "failed")
    assert [m.text for m in session.state["messages"]] == ["q", "one"]


async def test_a_provider_that_fails_beside_another_error_does_not_hide_it(ask):
    told = []
    agent = Agent(ScriptedChatClient([ServerError("down")]), context_providers=recorders(told, c=["after"]))
    with pytest.warns(UserWarning, match="c failed after"), pytest.raises(ServerError, match="down") as caught:
        await ask(agent, "q")
    assert told[-3:] == ["c after", "b after", "a after"]
    assert any("c failed after" in text for text in caught.value.response.warnings)


async def test_what_a_provider_raises_at_stored_messages_ends_no_run(ask):
    told = []
    agent = Agent(ScriptedChatClient(["ok"]), context_providers=recorders(told, a=["stored"]))
    with pytest.warns(UserWarning, match="a failed stored"):
        response = await ask(agent, "q")
    assert response.text == "ok"
    steps = [("before", "abc"), ("stored", "abc"), ("after", "cba")]
    assert told == [f"{name} {what}" for what, names in steps for name in names]


async def test_providers_are_told_of_a_run_that_is_cancelled_and_the_cancellation_stays_one():
    began, told = asyncio.Event(), []

    @tool
    async def slow() -> None:
        began.set()
        await asyncio.sleep(30)

    class Watch(ContextProvider):
        async def after_run(self, context):
            told.append((context.stop_reason, type(context.error).__name__, [m.role for m in context.added]))
            raise OSError("no index")

    agent = Agent(ScriptedChatClient([[tool_call("slow")]]), tools=[slow], context_providers=[Watch()])
    task = asyncio.create_task(agent.run("q"))
    await began.wait()
    task.cancel()
    with pytest.warns(UserWarning, match="no index"), pytest.raises(asyncio.CancelledError):
        await task
    assert told == [("cancelled", "CancelledError", ["assistant", "tool"])]


async def test_a_stream_that_is_left_tells_the_providers_too():
    told = []
    agent = Agent(ScriptedChatClient(["one two three"]), context_providers=recorders(told))
    async with agent.run("q", stream=True) as stream:
        async for _ in stream:
            break
    steps = [("before", "abc"), ("stored", "abc"), ("after", "cba")]
    assert told == [f"{name} {what}" for what, names in steps for name in names]


async def test_what_several_providers_add_stands_in_their_order_and_names_them(ask):
    class Adds(ContextProvider):
        def __init__(self, name):
            self._name = name

        @property
        def name(self):
            return self._name

        async def before_run(self, context):
            note = Message("user", f"{self._name} says", "Ada", extra={"page": 3})
            self.add(context, messages=["plain", note], instructions=f"Heed {self._name}.")

    client = ScriptedChatClient(["ok"])
    agent = Agent(client, context_providers=[Adds("law"), Adds("lore")])
    await ask(agent, "q")
    system, *sent = client.requests[0].messages
    assert system.text == "Heed law.\nHeed lore."
    assert [(m.text, m.author_name, m.extra) for m in sent] == [
        ("plain", None, {"source": "law"}),
        ("law says", "Ada", {"page": 3, "source": "law"}),
        ("plain", None, {"source": "lore"}),
        ("lore says", "Ada", {"page": 3, "source": "lore"}),
        ("q", None, None),
    ]


async def test_a_tool_of_a_provider_that_is_there_already_fails_the_run_by_name(ask):
    class Giver(ContextProvider):
        async def before_run(self, context):
            self.add(context, tools=[tool(name="extra")(lambda: "mine")])

    agent = Agent(ScriptedChatClient(["ok"]), tools=[tool(name="extra")(lambda: "own")], context_providers=[Giver()])
    with pytest.raises(ConfigurationError, match="extra"):
        await ask(agent, "q")
    assert agent.client.requests == []
