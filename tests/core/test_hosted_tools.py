"""Tools that the service runs: sent beside functions, refused where the client cannot send them, never run here."""

from __future__ import annotations

import json
import warnings

import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    ContextProvider,
    HostedTool,
    NBAgentsError,
    OpenAIChatClient,
    RecordedChatClient,
    RunBudget,
    ScriptedChatClient,
    SupportsWebSearchTool,
    TextContent,
    run_log,
    tool,
    tool_call,
    tool_calls_df,
)
from nbagents.core import HostedToolCall, HostedToolResult
from nbagents.core.errors import ConfigurationError


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class SearchingClient(BaseChatClient):
    """A client of one's own whose service searches the web, then asks for a function, then answers."""

    def __init__(self):
        self.requests = []

    def get_web_search_tool(self, **settings):
        return HostedTool("web_search", settings)

    async def generate(self, request):
        self.requests.append(request)
        if len(self.requests) > 1 or not request.tools:
            yield ChatResponseUpdate([TextContent("Done.")], finish_reason="stop")
            return
        found = HostedToolResult("web_search", "ws_1", {"url": "https://example.org"})
        pieces = [HostedToolCall("web_search", "ws_1", {"query": "sums"}), found, tool_call("add", a=1, b=2)]
        for piece in pieces if request.stream else [pieces]:
            yield ChatResponseUpdate(piece if isinstance(piece, list) else [piece])
        yield ChatResponseUpdate((), finish_reason="tool_calls")


def offered(request):
    return [one.type if isinstance(one, HostedTool) else one.name for one in request.tools]


@pytest.mark.parametrize("place", ["agent", "run", "provider"])
async def test_a_hosted_tool_goes_beside_functions_and_only_the_function_is_run(ask, place):
    client = SearchingClient()
    assert isinstance(client, SupportsWebSearchTool)
    search = client.get_web_search_tool(search_context_size="low")

    class Adds(ContextProvider):
        async def before_run(self, context):
            self.add(context, tools=[search] if place == "provider" else None)

    agent = Agent(client, tools=[add, search] if place == "agent" else [add], context_providers=[Adds()])
    session = agent.create_session()
    response = await ask(agent, "q", tools=[search] if place == "run" else None, session=session)
    assert [offered(request) for request in client.requests] == [["add", "web_search"]] * 2
    assert client.requests[0].tools[1].options == {"search_context_size": "low"}
    assert [type(content).__name__ for message in response.messages for content in message.contents] == [
        *("HostedToolCall", "HostedToolResult", "FunctionCall", "FunctionResult", "TextContent")
    ]
    called = [event.payload["tool_id"] for event in run_log().get(response.run_id).named("tool.called")]
    assert called == tool_calls_df(response).tool.tolist() == ["add"]
    assert session.to_dict() == json.loads(json.dumps(session.to_dict()))
    assert (await ask(agent, "and again", session=session)).text == "Done."


async def test_the_closing_request_of_a_run_offers_no_hosted_tools_either(ask):
    client = SearchingClient()
    agent = Agent(client, tools=[add, client.get_web_search_tool()], budget=RunBudget(max_steps=1))
    response = await ask(agent, "q")
    assert ([offered(request) for request in client.requests], response.stop_reason) == (
        [["add", "web_search"], []],
        "max_steps",
    )


async def test_a_model_that_calls_a_hosted_tool_as_a_function_is_told(ask):
    class Confused(ScriptedChatClient):
        def get_web_search_tool(self, **settings):
            return HostedTool("web_search", settings)

    client = Confused([[tool_call("web_search", query="x")], "ok"])
    response = await ask(Agent(client, tools=[client.get_web_search_tool()]), "q")
    (result,) = response.messages[1].results
    assert result.error == "'web_search' is a tool that the service runs itself; it cannot be called as a function."


class Plain(ScriptedChatClient):
    """No hosted tools."""


def provider_of(given):
    class Adds(ContextProvider):
        async def before_run(self, context):
            self.add(context, tools=given)

    return Adds()


@pytest.mark.parametrize("given", [HostedTool("web_search"), HostedTool("file_search"), HostedTool("its_own_word")])
async def test_a_client_that_cannot_send_it_is_an_error_where_it_is_given_that_names_both(ask, given):
    told = rf"Plain cannot send the hosted tool '{given.type}'"
    with pytest.raises(ConfigurationError, match=told) as raised:
        Agent(Plain([]), tools=[given])
    assert given.type == "its_own_word" or f"get_{given.type}_tool" in raised.value.hint
    with pytest.raises(ConfigurationError, match=told):
        Agent(Plain([])).run("q", tools=given)
    client = Plain(["never"])
    with pytest.raises(ConfigurationError, match=told):
        await ask(Agent(client, context_providers=[provider_of(given)]), "q")
    assert client.requests == []


def test_a_client_sends_the_kinds_that_it_has_methods_for_and_words_of_its_own():
    client = SearchingClient()
    Agent(client, tools=[HostedTool("web_search_preview"), HostedTool("browser")])
    with pytest.raises(ConfigurationError, match="SearchingClient cannot send the hosted tool 'code_interpreter'"):
        Agent(client, tools=[HostedTool("code_interpreter")])
    with pytest.raises(ConfigurationError, match="OpenAIChatClient cannot send"):
        Agent(OpenAIChatClient("m", api_key="k"), tools=[HostedTool("web_search")])


def test_the_same_hosted_tool_again_replaces_and_a_function_of_its_name_is_an_error():
    client = SearchingClient()
    agent = Agent(client, tools=[HostedTool("web_search", {"a": 1}), HostedTool("web_search", {"a": 2})])
    assert [one.options for one in agent.tools] == [{"a": 2}]
    agent.run_sync("q", tools=[HostedTool("web_search", {"a": 3})])
    assert [one.options for one in client.requests[0].tools] == [{"a": 3}]
    with pytest.raises(ConfigurationError, match="Two tools are called 'web_search'"):
        Agent(client, tools=[HostedTool("web_search"), tool(name="web_search")(lambda: None)])


def test_servers_of_one_type_are_several_tools():
    class Remote(ScriptedChatClient):
        def get_mcp_tool(self, **settings):
            return HostedTool("mcp", settings)

    client = Remote([])
    given = [client.get_mcp_tool(server_label=label, server_url=f"https://{label}.test") for label in ("a", "b", "a")]
    assert [one.name for one in Agent(client, tools=given).tools] == ["mcp-a", "mcp-b"]


@pytest.mark.parametrize("arguments", [("",), (3,), ("web_search", "low"), ("web_search", [1])])
def test_a_hosted_tool_without_a_type_or_with_odd_options_is_an_error(arguments):
    with pytest.raises(ConfigurationError, match="hosted tool"):
        HostedTool(*arguments)


@pytest.mark.parametrize("place", ["headers", "authorization"])
async def test_the_key_of_a_server_shows_in_no_repr_error_or_event(ask, place):
    """C108"""
    key = f"hosted-{place}-4Zk8Qw2x"
    options = {"headers": {"Authorization": f"Bearer {key}"}} if place == "headers" else {"authorization": key}

    class Remote(ScriptedChatClient):
        def get_mcp_tool(self, **settings):
            return HostedTool("mcp", settings)

    client = Remote([ConnectionError(f"refused with {key}")])
    given = client.get_mcp_tool(server_label="a", **options)
    agent = Agent(client, tools=[given])
    with pytest.raises(NBAgentsError) as raised:
        await ask(agent, "q")
    events = run_log().get(raised.value.response.run_id).events
    assert client.requests[0].tools[0].options == {"server_label": "a", **options}
    assert key not in f"{given!r} {agent!r} {client.requests!r} {raised.value} {raised.value.response!r} {events!r}"


async def test_a_recording_of_a_client_with_hosted_tools_passes_them_on_and_replays(ask, tmp_path):
    inner = SearchingClient()
    search = inner.get_web_search_tool(user_location="here")
    recorded = RecordedChatClient(tmp_path / "r.jsonl", inner, mode="record")
    first = await ask(Agent(recorded, tools=[add, search]), "q")
    assert offered(inner.requests[0]) == ["add", "web_search"]
    replayed = await ask(Agent(RecordedChatClient(tmp_path / "r.jsonl"), tools=[add, search]), "q")
    assert replayed.text == first.text
    assert len(inner.requests) == 2
    with pytest.raises(ConfigurationError, match="RecordedChatClient cannot send"):
        Agent(RecordedChatClient(tmp_path / "s.jsonl", Plain([])), tools=[search])


async def test_a_compatible_server_gets_a_hosted_tool_in_its_own_words(raw_server, ask):
    class Browsing(OpenAIChatClient):
        def get_web_search_tool(self, **settings):
            return HostedTool("browser_search", settings)

    raw_server.reply_text("ok")
    client = Browsing("m", base_url=raw_server.base_url)
    await ask(Agent(client, tools=[client.get_web_search_tool(depth=1)]), "q")
    assert raw_server.requests[0]["tools"] == [{"type": "browser_search", "depth": 1}]


class Toolless(ScriptedChatClient):
    """A model that calls no functions."""

    supports_tools = False


WARNING = r"Toolless does not support tools, so the agent 'helper' runs without its tools: add\."


async def test_a_client_without_tools_warns_once_when_the_agent_is_built_and_gets_none(ask):
    client = Toolless(["one", "two"])
    with pytest.warns(UserWarning, match=WARNING) as caught:
        agent = Agent(client, name="helper", tools=[add], options={"tool_choice": "required"})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await ask(agent, "q")).text == "one"
        assert (await ask(agent, "q", tools=[tool(name="other")(lambda: None)])).text == "two"
    assert [(list(request.tools), dict(request.options)) for request in client.requests] == [([], {})] * 2


async def test_tools_of_a_run_that_the_client_cannot_offer_warn_once_too(ask):
    agent = Toolless(["one", "two"]).as_agent(name="helper")
    with pytest.warns(UserWarning, match=WARNING) as caught:
        await ask(agent, "q", tools=add)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await ask(agent, "q", tools=add)


async def test_tools_that_a_provider_adds_warn_too(ask):
    client = Toolless(["one"])
    agent = Agent(client, name="helper", context_providers=[provider_of(add)])
    with pytest.warns(UserWarning, match=WARNING):
        await ask(agent, "q")
    assert list(client.requests[0].tools) == []


async def test_a_client_without_functions_still_gets_hosted_tools_and_does_not_warn(ask):
    class Searches(Toolless):
        def get_web_search_tool(self, **settings):
            return HostedTool("web_search", settings)

    client = Searches(["ok"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await ask(Agent(client, tools=[client.get_web_search_tool()]), "q")
    assert offered(client.requests[0]) == ["web_search"]


async def test_a_call_of_a_model_that_was_offered_no_tools_is_not_run(ask):
    ran = []

    @tool
    def secret() -> str:
        """Do."""
        ran.append(True)
        return "ran"

    client = Toolless([[tool_call("secret")], "ok"])
    with pytest.warns(UserWarning, match="without its tools: secret"):
        response = await ask(Agent(client, tools=[secret]), "q")
    assert (response.text, ran) == ("ok", [])
    assert response.messages[1].results[0].error.startswith("There is no tool 'secret'")
