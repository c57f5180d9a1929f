"""Agents as files, the other way: what is written builds the same requests again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from nbagents import (
    Agent,
    AnthropicChatClient,
    ChatRequest,
    ContextProvider,
    FileHistoryProvider,
    OpenAIChatClient,
    OpenAIResponsesClient,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    SQLHistoryProvider,
    tool,
)
from nbagents.core.reducers import SlidingWindowReducer, SummarizationReducer, TokenBudgetReducer, TruncationReducer
from nbagents.spec import AgentRegistry, LocalSkills, SpecError
from tests.spec.parts import MenuPlugin, add

HERE = "http://localhost:9/v1"


class Answer(BaseModel):
    text: str
    score: int | None = None


def requests_of(agent: Agent, raw_server: Any) -> list[str]:
    """Return what the agent sends for two turns with a tool call, as text."""
    raw_server.reply_calls(("c1", "get_specials", {})).reply_text('{"text": "a", "score": 1}').reply_text(
        '{"text": "b", "score": null}'
    )
    before = len(raw_server.requests)
    session = agent.create_session()
    agent.run_sync("What is special?", session=session, arguments={"topic": "soup"})
    agent.run_sync("And now?", session=session, arguments={"topic": "fish"})
    return [json.dumps(body) for body in raw_server.requests[before:]]


def texts(request: ChatRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


@pytest.mark.parametrize("format", ["yaml", "json"])
def test_a_file_of_an_agent_builds_byte_identical_requests(format: Any, raw_server: Any, tmp_path: Path) -> None:
    menu = MenuPlugin()
    agent = Agent(
        OpenAIChatClient("a-model", base_url=raw_server.base_url, max_retries=0),
        "Talk of {{$topic}} for {{$who}}, $5, ${HOME} and $${x}.\n  Second line: #1\n",
        name="menu",
        description="Knows ${prices}",
        tools=[menu, tool(add, description="Sums.", timeout=5.0)],
        options={"top_p": 0.5, "logit_bias": {50: -1}, "temperature": 1, "stop": "END", "response_format": Answer},
        arguments={"who": "Ada", "more": [1, {"a": None}]},
        template="nbagents",
        budget=RunBudget(max_steps=None, max_tokens=5_000),
        reducer=SlidingWindowReducer(1, keep=1.0),
    )
    path = tmp_path / f"agent.{format}"
    text = agent.to_spec(path)
    assert path.read_text() == text
    again = AgentRegistry.create_from_file(path, tools=[add, menu])
    assert requests_of(again, raw_server) == requests_of(agent, raw_server)
    assert (again.id, again.name, again.description) == (agent.id, agent.name, agent.description)
    assert again.budget == agent.budget
    assert again.arguments == agent.arguments
    assert again.to_spec(format=format) == text


def test_a_file_of_an_agent_with_a_script_asks_the_same() -> None:
    client = ScriptedChatClient(["One.", "Two."])
    agent = Agent(client, "Be brief.", tools=[add], options={"seed": 3})
    text = agent.to_spec()
    with pytest.raises(SpecError, match="there is no client 'ScriptedChatClient'"):
        Agent.from_yaml(text, tools=[add])
    other = ScriptedChatClient(["One.", "Two."])
    again = Agent.from_yaml(text, tools=[add], client=other)
    for one in (agent, again):
        one.run_sync("Hi")
    first, second = client.requests[0], other.requests[0]
    assert texts(first) == texts(second)
    assert first.options == second.options
    assert first.tools == second.tools


@pytest.mark.parametrize(
    "client",
    [
        OpenAIChatClient("m", base_url=HERE, timeout=3.5, max_concurrency=2, streaming=False),
        OpenAIChatClient("m", azure_endpoint="https://a.openai.azure.com", api_version="2024-10-21", api_key="k" * 12),
        OpenAIResponsesClient("m", base_url=HERE, stores_by_default=False, reasoning_summary="auto"),
        OpenAIResponsesClient("m", base_url=HERE, conversations=True),
        OpenAIResponsesClient("m", azure_endpoint="https://a.openai.azure.com/openai/v1", api_key="k" * 12),
        OpenAIResponsesClient(
            "m", azure_endpoint="https://a.openai.azure.com/openai/v1", api_key="k" * 12, conversations=True
        ),
        AnthropicChatClient("m", base_url=HERE, cache="1h", thinking={"type": "adaptive"}, max_tokens=100),
    ],
    ids=["chat", "azure", "responses", "conversation", "azure-responses", "azure-conversation", "anthropic"],
)
def test_clients_come_back_as_they_were(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k" * 12)
    again: Any = Agent.from_yaml(Agent(client).to_spec()).client
    assert again.__reduce__()[1] == client.__reduce__()[1]
    assert (again.host, again.provider) == (client.host, client.provider)


@pytest.mark.parametrize(
    "reducer",
    [
        SlidingWindowReducer(3),
        TokenBudgetReducer(500, keep=0.2),
        TruncationReducer(9),
        SummarizationReducer(500),
        SummarizationReducer(max_messages=9, keep=0.3),
    ],
    ids=repr,
)
def test_reducers_come_back_as_they_were(reducer: Any) -> None:
    again = Agent.from_yaml(Agent(ScriptedChatClient([]), reducer=reducer).to_spec(), client=ScriptedChatClient([]))
    assert repr(again.reducer) == repr(reducer)


def test_what_came_from_a_file_is_written_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "tips").mkdir()
    (tmp_path / "tips" / "SKILL.md").write_text("Tip.")
    payload: dict[str, Any] = {
        "type": "chat_completion_agent",
        "name": "a",
        "template": "none",
        "tools": [{"id": "tests.spec.parts:add", "type": "function"}],
        "inputs": {"n": {"type": "integer", "description": "how many"}, "m": {"required": False}},
        "memory": {"type": "summary", "max_tokens": 900},
        "session": {"type": "jsonl_file", "path": str(tmp_path / "s")},
        "skills": {"type": "local", "paths": [str(tmp_path / "tips")]},
        "budget": {"max_steps": 3},
    }
    given: dict[str, Any] = {"client": ScriptedChatClient([]), "allowed_modules": ["tests.spec.parts"]}
    agent = Agent.from_dict(payload, **given)
    written = json.loads(agent.to_spec(format="json"))
    assert written == {**payload, "model": {"service_id": "ScriptedChatClient"}}
    assert Agent.from_dict(written, **given).to_spec() == agent.to_spec()


def test_histories_are_written(tmp_path: Path) -> None:
    for history in (FileHistoryProvider(tmp_path / "f"), SQLHistoryProvider(f"sqlite:///{tmp_path}/c.db")):
        agent = Agent(ScriptedChatClient([]), history=history)
        assert repr(Agent.from_yaml(agent.to_spec(), client=ScriptedChatClient([])).history) == repr(history)


def test_the_default_client_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBAGENTS_CLIENT", "demo")
    assert Agent.from_yaml("name: a").to_spec() == "type: chat_completion_agent\nname: a\n"


def test_all_that_no_file_can_hold_is_named_at_once() -> None:
    class Clock(ContextProvider):
        async def before_run(self, context: Any) -> None:
            """Add nothing."""

    async def middleware(context: RunContext, call_next: Any) -> None:
        await call_next()

    agent = Agent(
        OpenAIChatClient("m", client=_factory),
        history=SQLHistoryProvider("sqlite://"),
        reducer=SummarizationReducer(500, stacked=True),
        middleware=[middleware],
        context_providers=[Clock()],
        arguments={"a": object(), "b": None},
    )
    with pytest.raises(SpecError) as caught:
        agent.to_spec()
    assert [fault.path[0] for fault in caught.value.faults] == [
        *("middleware", "context_providers", "model", "inputs", "memory", "session"),
    ]
    agent = Agent(ScriptedChatClient([]), arguments={"a": object()})
    with pytest.raises(SpecError, match=r"inputs.a.default: a spec holds texts"):
        agent.to_spec()


def test_an_agent_of_another_class_is_not_written() -> None:
    class Own(Agent):
        pass

    with pytest.raises(SpecError, match="Own"):
        Own(ScriptedChatClient([])).to_spec()


def test_secrets_stay_placeholders(monkeypatch: pytest.MonkeyPatch, raw_server: Any) -> None:
    """C108, C120: no 6 characters of a key in what is written; keys come back from where they came."""
    key, token = "zq9-Marker-Value-77", "tk4-Another-Marker-5"
    monkeypatch.setenv("MY_KEY", key)
    monkeypatch.setenv("HOOK_TOKEN", token)
    raw_server.reply_text("Hi")
    text = f"model: {{id: m, connection: {{endpoint: '{raw_server.base_url}', api_key: '${{MY_KEY}}'}}}}"
    agent = Agent.from_yaml(text)
    agent.run_sync("Hi")
    written = agent.to_spec()
    assert "api_key: ${MY_KEY}" in written
    Agent.from_yaml(written).run_sync("Hi")
    assert [one["authorization"] for one in raw_server.headers] == [f"Bearer {key}"] * 2
    client = OpenAIResponsesClient("m", base_url=HERE, api_key="kx7-Third-Marker-990")
    hosted = [
        client.get_mcp_tool(server_label="a", server_url=HERE, authorization=token),
        client.get_mcp_tool(server_label="b", server_url=HERE, headers={"x-api-key": "qq2-Marker-Unknown-1"}),
    ]
    mcp = Agent(client, tools=hosted, description=f"Uses {key}.").to_spec()
    assert "authorization: ${HOOK_TOKEN}" in mcp
    assert "x-api-key: ${TOOLS_1_OPTIONS_HEADERS_X_API_KEY}" in mcp
    assert "Uses ${MY_KEY}." in mcp
    for secret in (key, token, "kx7-Third-Marker-990", "qq2-Marker-Unknown-1"):
        assert not [piece for n in range(len(secret) - 5) if (piece := secret[n : n + 6]) in mcp + written]
    monkeypatch.setenv("TOOLS_1_OPTIONS_HEADERS_X_API_KEY", "qq2-Marker-Unknown-1")
    again = Agent.from_yaml(mcp)
    assert again.tools == hosted
    assert again.description == f"Uses {key}."
    with pytest.raises(ValueError, match="would show a key"):
        Agent(client, f"The key is {key}.").to_spec()


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    agent = Agent(ScriptedChatClient([]), context_providers=[])
    with pytest.raises(ValueError, match="cannot be written"):
        agent.to_spec(tmp_path / "none" / "agent.yaml")
    with pytest.raises(ValueError, match="'yaml' or 'json'"):
        agent.to_spec(format="toml")  # type: ignore[arg-type]


def test_skills_given_in_code_are_written(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("Tip.")
    client = ScriptedChatClient(["a"])
    agent = Agent(client, context_providers=LocalSkills(tmp_path))
    again = Agent.from_yaml(agent.to_spec(), client=ScriptedChatClient(["a"]))
    agent.run_sync("Hi")
    again.run_sync("Hi")
    assert texts(again.client.requests[0]) == texts(client.requests[0])  # type: ignore[union-attr]


def _factory() -> Any:
    raise AssertionError("not called")
