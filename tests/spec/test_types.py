"""Types of agents: which client each makes, what is missing, and types of the program's own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nbagents import Agent, AnthropicChatClient, OpenAIChatClient, OpenAIResponsesClient, ScriptedChatClient
from nbagents.clients.connections import Package
from nbagents.core.errors import ConfigurationError
from nbagents.spec import AgentRegistry, load_agents, register_agent_type, register_client, register_pattern
from nbagents.spec.registry import AGENT_TYPES, CLIENTS, PATTERNS
from tests.spec.parts import add, faults_of, places

HERE = {"connection": {"endpoint": "http://localhost:9/v1"}}
AZURE = {"connection": {"endpoint": "https://a.openai.azure.com", "api_key": "${A_KEY}", "api_version": "2024-10-21"}}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "key-1234567890")


@pytest.fixture(autouse=True)
def registered_for_one_test() -> Iterator[None]:
    tables: list[Any] = [AGENT_TYPES, CLIENTS, PATTERNS]
    before = [dict(one._registered) for one in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table._registered = entries


def made(payload: dict[str, Any], **settings: Any) -> Agent:
    return AgentRegistry.create_from_dict(payload, **settings)


@pytest.mark.parametrize(
    ("payload", "kind", "provider"),
    [
        ({"model": {"id": "m", **HERE}}, OpenAIChatClient, "openai"),
        ({"model": {"id": "m", "api": "responses", **HERE}}, OpenAIResponsesClient, "openai"),
        ({"model": {"id": "m", "provider": "azure", **AZURE}}, OpenAIChatClient, "azure"),
        ({"model": {"id": "m", "provider": "anthropic", **HERE}}, AnthropicChatClient, "anthropic"),
        ({"type": "openai_responses", "model": {"id": "m", **HERE}}, OpenAIResponsesClient, "openai"),
        ({"type": "azure_chat_completion_agent", "model": {"id": "m", **AZURE}}, OpenAIChatClient, "azure"),
        ({"type": "azure_responses", "model": {"id": "m", **AZURE}}, OpenAIResponsesClient, "azure"),
        ({"type": "openai_conversation", "model": {"id": "m", **HERE}}, OpenAIResponsesClient, "openai"),
        ({"type": "anthropic", "model": {"id": "m", **HERE}}, AnthropicChatClient, "anthropic"),
    ],
)
def test_each_type_has_its_client(payload: dict[str, Any], kind: type, provider: str) -> None:
    client: Any = made(payload).client
    assert type(client) is kind
    assert (client.provider, client.model) == (provider, "m")
    assert getattr(client, "conversations", False) is (payload.get("type") == "openai_conversation")


def test_settings_of_a_connection_reach_the_client() -> None:
    connection = {"base_url": "http://localhost:9/v1", "timeout": "5", "max_retries": 0, "streaming": "no", "own": [1]}
    client: Any = made({"model": {"id": "m", "connection": connection}}).client
    assert (client.timeout, client.max_retries, client.streaming, client.host) == (5.0, 0, False, "localhost:9")


def test_what_a_client_does_not_take_is_a_fault() -> None:
    ((place, _, told),) = faults_of({"model": {"id": "m", "connection": {"cache": True, **HERE["connection"]}}})
    assert (place, told) == ("model.connection.cache", "OpenAIChatClient has no setting 'cache'. Leave it out.")


def test_an_extra_that_looks_misspelt_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"connection.api_ky .* did you mean 'api_key'"):
        made({"model": {"id": "m", "connection": {"api_ky": "x", **HERE["connection"]}}})


def test_the_key_comes_from_a_variable_or_a_placeholder(raw_server: Any) -> None:
    raw_server.reply_text("Hi")
    for connection in ({"api_key": "${A_KEY}"}, {"api_key_env": "A_KEY"}):
        payload = {"model": {"id": "m", "connection": {"endpoint": raw_server.base_url, **connection}}}
        made(payload).run_sync("Hi")
        assert raw_server.headers[-1]["authorization"] == "Bearer key-1234567890"
    both = {"api_key": "${A_KEY}", "api_key_env": "A_KEY"}
    assert places({"model": {"id": "m", "connection": both}}) == ["model"]
    assert places({"model": {"id": "m", "connection": {"api_key_env": "NOPE"}}}) == ["model.connection.api_key_env"]


def test_no_error_and_no_repr_shows_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """C108: 6 characters of a key are too many."""
    key = "zq9-Marker-Value-77"
    monkeypatch.setenv("A_KEY", key)
    payload = {
        "model": {"id": "m", "provider": "${A_KEY}", "connection": {"api_key": "${A_KEY}", "timeout": "${A_KEY}"}}
    }
    shown = json.dumps(faults_of(payload))
    agent = made({"model": {"id": "m", "connection": {"api_key": "${A_KEY}", **HERE["connection"]}}})
    shown += f"{agent!r} {agent.to_spec()} {agent.to_spec(format='json')}"
    assert not [key[n : n + 6] for n in range(len(key) - 5) if key[n : n + 6] in shown]
    assert "${A_KEY}" in agent.to_spec()


def test_what_is_missing_for_a_client_is_a_fault_of_the_model() -> None:
    assert [told for _, _, told in faults_of({"model": {"connection": {"timeout": 1}}})] == [
        "the field 'id' is missing. It is the model's name."
    ]
    ((place, _, told),) = faults_of({"model": "m"})
    assert place == "model"
    assert "OPENAI_API_KEY" in told
    assert places({"type": "azure_responses", "model": "m"}) == ["model.connection"]
    assert places({"type": "openai_responses"}) == ["model"]
    ((place, _, told),) = faults_of({"type": "openai_responses", "model": {"id": "m", "provider": "azure", **AZURE}})
    assert "speaks to openai (responses), not azure (responses)" in told
    assert places({"model": {"id": "m", "provider": "anthropic", "api": "chat"}}) == ["model"]


@pytest.mark.parametrize(
    ("kind", "successor"), [("openai_assistant", "openai_conversation"), ("azure_assistant", "azure_responses")]
)
def test_assistants_are_retired_and_say_what_has_taken_their_place(kind: str, successor: str) -> None:
    ((_, _, told),) = faults_of({"type": kind, "model": "m"})
    assert "OpenAI has retired the Assistants API" in told
    assert f"Conversations have taken its place: write type: {successor}." in told


def test_a_missing_extra_breaks_only_its_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Package) -> None:
        if self.name == "anthropic":
            raise ConfigurationError("This client needs the package anthropic.", hint="Run: pip install anthropic")

    monkeypatch.setattr(Package, "require", missing)
    ((place, _, told),) = faults_of({"type": "anthropic", "model": {"id": "m", **HERE}})
    assert (place, told) == ("model", "This client needs the package anthropic. Run: pip install anthropic")
    assert made({"model": {"id": "m", **HERE}}).client
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for module in ("history_tables", "databases"):
        monkeypatch.delitem(sys.modules, f"nbagents.core.{module}", raising=False)
    ((place, _, told),) = faults_of({"session": "sqlite"}, client=ScriptedChatClient([]))
    assert place == "session"
    assert 'pip install "sqlalchemy>=2"' in told


def test_without_a_model_the_default_client_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBAGENTS_CLIENT", "demo")
    assert type(made({}).client).__name__ == "DemoChatClient"
    assert type(made({"model": {"options": {"seed": 1}}}).client).__name__ == "DemoChatClient"
    one, other = load_agents({"agents": [{"id": "a"}, {"id": "b"}]}).agents
    assert one.client is other.client
    assert (one.name, other.name) == ("a", "b")
    monkeypatch.setenv("NBAGENTS_CLIENT", "nonsense")
    assert places({}) == ["model"]


def test_a_registered_client_goes_by_its_id() -> None:
    client = ScriptedChatClient(["Hi"])
    register_client("mine", client)
    register_client("mine", client)
    assert made({"model": {"service_id": "mine"}}).client is client
    assert made({"model": {"connection": {"service_id": "mine"}}}).client is client
    with pytest.raises(ConfigurationError, match="'mine' is registered already"):
        register_client("mine", ScriptedChatClient([]))
    register_client("mine", ScriptedChatClient([]), replace=True)
    assert [told for _, _, told in faults_of({"model": {"service_id": "mime"}})] == [
        "there is no client 'mime'. Did you mean 'mine'?"
    ]
    with pytest.raises(ConfigurationError, match="must be a chat client"):
        register_client("other", ScriptedChatClient)  # type: ignore[arg-type]


def test_types_are_registered_once_and_clash_by_name() -> None:
    class Own:
        @classmethod
        def from_spec(cls, spec: Any, *, tools: Any, client: Any, settings: Any) -> Agent:
            return Agent(ScriptedChatClient([settings["A"]["B"]]), name=spec.name, tools=tools)

    assert register_agent_type("own", Own) is Own
    register_agent_type("own", Own)
    agent = made({"type": "own", "name": "x"}, settings={"A": {"B": "answer"}})
    assert agent.run_sync("Hi").text == "answer"

    class Other:
        from_spec = Own.from_spec

    with pytest.raises(ConfigurationError, match="'own' is registered already"):
        register_agent_type("own", Other)
    with pytest.raises(ConfigurationError, match="'openai_responses' is built in"):
        register_agent_type("openai_responses", Own)
    with pytest.raises(ConfigurationError, match="makes no agents"):
        register_agent_type("none", object)  # type: ignore[arg-type]
    assert "own" in AgentRegistry.list_types()


def test_a_class_that_is_defined_again_takes_its_own_place() -> None:
    def cell() -> Any:
        class Again:
            @classmethod
            def from_spec(cls, spec: Any, **given: Any) -> Agent:
                return Agent(ScriptedChatClient(["Hi"]))

        return Again

    register_agent_type("again", cell())
    second = register_agent_type("again", cell())
    assert AGENT_TYPES.find("again") is second


def test_a_type_that_fails_or_makes_something_else_is_a_fault() -> None:
    @register_agent_type("odd")
    class Odd:
        @classmethod
        def from_spec(cls, spec: Any, **given: Any) -> Any:
            if spec.name:
                raise ConfigurationError("No names here.", hint="Leave it out.")
            return 5

    assert [told for _, _, told in faults_of({"type": "odd", "name": "a"})] == ["No names here. Leave it out."]
    assert "made a int instead of an Agent" in faults_of({"type": "odd"})[0][2]


def test_patterns_change_agents() -> None:
    def polite(agent: Agent, word: str = "please") -> Agent:
        agent.instructions = f"Say {word}."
        return agent

    register_pattern("polite", polite)
    payload = {"pattern": {"type": "polite", "word": "thanks"}}
    agent = made(payload, client=ScriptedChatClient(["Hi"]))
    assert agent.instructions == "Say thanks."
    assert "type: polite" in agent.to_spec()
    with pytest.raises(ConfigurationError, match="'react' is built in"):
        register_pattern("react", polite)
    with pytest.raises(ConfigurationError, match="a function of the agent"):
        register_pattern("none", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["openai_responses", "openai_conversation"])
def test_agents_whose_service_keeps_the_conversation_send_the_same_as_in_code(kind: str, responses_server: Any) -> None:
    responses_server.replies = ["Hello!"]
    text = f"""
type: {kind}
instructions: Be brief.
model: {{id: m, connection: {{endpoint: "{responses_server.base_url}"}}, options: {{temperature: 0.5, top_p: 1}}}}
tools: [add, {{type: web_search, options: {{search_context_size: low}}}}]
"""
    agent = AgentRegistry.create_from_yaml(text, tools=[add])
    client = OpenAIResponsesClient("m", base_url=responses_server.base_url, conversations=kind == "openai_conversation")
    in_code = Agent(
        client,
        "Be brief.",
        tools=[add, client.get_web_search_tool(search_context_size="low")],
        options={"temperature": 0.5, "top_p": 1},
    )
    sent: list[str] = []
    for one in (agent, in_code, AgentRegistry.create_from_yaml(agent.to_spec(), tools=[add])):
        responses_server.asked.clear()
        session = one.create_session()
        one.run_sync("Hi", session=session)
        one.run_sync("And now?", session=session)
        asked = json.dumps(responses_server.asked)
        sent.append(re.sub(r"(conv|resp)_\w+", "an-id", asked))
    assert sent[0] == sent[1] == sent[2]
    assert ("/conversations" in sent[0]) is (kind == "openai_conversation")
