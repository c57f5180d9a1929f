"""Context providers."""

import pytest

from nbagents import Agent, ContextProvider, Message, RunContext, ScriptedChatClient, tool, tool_call
from nbagents.core.errors import ConfigurationError, ServerError


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
