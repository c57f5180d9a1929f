"""The fields of a spec and what an agent becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagents import Agent, FileHistoryProvider, RunBudget, ScriptedChatClient, SQLHistoryProvider, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.core.reducers import (
    SlidingWindowReducer,
    SummarizationReducer,
    TokenBudgetReducer,
    TruncationReducer,
)
from nbagents.spec import AgentRegistry, SpecError, load_agents
from tests.spec.parts import MenuPlugin, add, faults_of, places

PAYLOAD: dict[str, Any] = {
    "agents": [{"id": "assistant", "name": "Assistant", "memory": {"type": "noop"}, "pattern": {"type": "react"}}],
    "runtime": {"type": "default"},
    "session": {"type": "in_memory"},
    "events": {"type": "async"},
    "skills": {"type": "local"},
}

FILE = """
type: chat_completion_agent
name: FunctionCallingAgent
description: This agent answers questions about the menu.
instructions: Use the provided functions to answer questions about the menu.
model:
  id: ${OpenAI:ChatModelId}
  connection:
    endpoint: ${OpenAI:Endpoint}
  options:
    temperature: 0.4
tools:
  - id: MenuPlugin.get_specials
    type: function
"""


def scripted(*replies: Any) -> ScriptedChatClient:
    return ScriptedChatClient(list(replies) or ["Hello!"])


def made(payload: dict[str, Any], **settings: Any) -> Agent:
    return AgentRegistry.create_from_dict(payload, **{"client": scripted(), **settings})


def test_the_payload_of_a_runtime_works_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBAGENTS_CLIENT", "demo")
    loaded = load_agents(PAYLOAD)
    (agent,) = loaded.agents
    assert (agent.id, agent.name, loaded.runtime.type, loaded.events.type) == (
        *("assistant", "Assistant", "default", "async"),
    )
    assert agent.run_sync("Hi").text


def test_the_example_file_builds_an_agent(raw_server: Any) -> None:
    raw_server.reply_calls(("c1", "get_specials", {})).reply_text("Clam Chowder.")
    settings = {"OpenAI": {"ChatModelId": "a-model", "Endpoint": raw_server.base_url}}
    agent = AgentRegistry.create_from_yaml(FILE, settings=settings, tools=[MenuPlugin()])
    assert agent.run_sync("What is special?").text == "Clam Chowder."
    body = raw_server.requests[0]
    assert (body["model"], body["temperature"]) == ("a-model", 0.4)
    assert [one["function"]["name"] for one in body["tools"]] == ["get_specials"]
    assert body["messages"][0]["content"] == "Use the provided functions to answer questions about the menu."


def test_a_yaml_agent_and_the_same_agent_in_code_send_the_same(raw_server: Any) -> None:
    from nbagents import OpenAIChatClient

    raw_server.reply_calls(("c1", "get_specials", {})).reply_text("Soup.")
    raw_server.reply_calls(("c1", "get_specials", {})).reply_text("Soup.")
    menu = MenuPlugin()
    settings = {"OpenAI": {"ChatModelId": "a-model", "Endpoint": raw_server.base_url}}
    AgentRegistry.create_from_yaml(FILE, settings=settings, tools=[menu]).run_sync("What is special?")
    Agent(
        OpenAIChatClient("a-model", base_url=raw_server.base_url),
        "Use the provided functions to answer questions about the menu.",
        name="FunctionCallingAgent",
        tools=[menu.get_specials],
        options={"temperature": 0.4},
    ).run_sync("What is special?")
    sent = [json.dumps(body) for body in raw_server.requests]
    assert sent[:2] == sent[2:]


def test_all_faults_are_told_at_once_with_line_and_suggestion() -> None:
    text = """\
type: chat_completion_agnt
nam: x
model:
  id: ${NOPE}
  temperature: 3
  options: {temprature: 1, max_tokens: many}
tools:
  - id: MenuPlugin.get_special
  - {id: add, typ: function}
memory: {type: windw}
budget: {max_step: 3}
pattern: reakt
inputs:
  customer: {defualt: 1}
outputs:
  answer: {typ: string}
session: {type: sqlit}
"""
    assert faults_of(text, tools=[MenuPlugin()]) == [
        (
            "type",
            1,
            "there is no type of agent 'chat_completion_agnt'. Did you mean 'chat_completion_agent'?",
        ),
        ("nam", 2, "there is no field 'nam'. Did you mean 'name'?"),
        ("model.id", 4, "the environment variable NOPE is not set. Set it, or write ${NOPE:-default}."),
        ("model.temperature", 5, "there is no field 'temperature'. It stands in 'options': options.temperature."),
        (
            "model.options.max_tokens",
            6,
            "this must be a valid integer, unable to parse string as an integer.",
        ),
        ("model.options.temprature", 6, "there is no field 'temprature'. Did you mean 'temperature'?"),
        ("tools[0]", 8, "there is no tool 'MenuPlugin.get_special'. Did you mean 'MenuPlugin.get_specials'?"),
        ("tools[1].typ", 9, "there is no field 'typ'. Did you mean 'type'?"),
        ("memory.type", 10, "'windw' is not possible. Did you mean 'window'?"),
        ("budget.max_step", 11, "there is no field 'max_step'. Did you mean 'max_steps'?"),
        ("pattern", 12, "there is no pattern 'reakt'. Did you mean 'react'?"),
        ("inputs.customer.defualt", 14, "there is no field 'defualt'. Did you mean 'default'?"),
        ("outputs.answer.typ", 16, "there is no field 'typ'. Did you mean 'type'?"),
        ("session.type", 17, "'sqlit' is not possible. Did you mean 'sqlite'?"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("inputs:\n  x:\n", "inputs.x", "nothing. Write {} where there is nothing to say."),
        ("inputs:\n  - x\n", "inputs", "a list."),
        ("tools:\n  - null\n", "tools[0]", "nothing. Write {} where there is nothing to say."),
        ("budget:\n  5\n", "budget", "a single value."),
        ("outputs:\n  a: {properties: {b: text}}\n", "outputs.a.properties.b", "a single value."),
    ],
)
def test_what_has_no_fields_where_there_should_be_some_is_said_in_plain_words(text: str, place: str, told: str) -> None:
    ((where, _, message),) = faults_of(text)
    assert (where, message) == (place, f"this must be fields, each with its value, not {told}")


def test_an_error_names_the_file_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "helper.yaml"
    path.write_text("name: 5\nnam: x\n")
    with pytest.raises(SpecError) as caught:
        AgentRegistry.create_from_file(path)
    assert str(caught.value) == (
        "helper.yaml has 2 faults:\n"
        '  line 1, name: this must be a text. Write "5" in quotes.\n'
        "  line 2, nam: there is no field 'nam'. Did you mean 'name'?"
    )
    assert caught.value.code == "spec"


def test_faults_of_several_agents_name_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = {"agents": [{"name": "a"}, {"name": "a"}, {"nam": "c"}], "sesion": "in_memory"}
    assert sorted(places(payload, client=scripted())) == ["agents"]  # one agent is wanted
    with pytest.raises(SpecError) as caught:
        load_agents(payload, client=scripted())
    assert sorted(str(fault).partition(":")[0] for fault in caught.value.faults) == ["agents[2].nam", "sesion"]
    with pytest.raises(SpecError, match=r"agents\[1\]: two agents have the id 'a'"):
        load_agents({"agents": [{"name": "a"}, {"name": "a"}]}, client=scripted())


@pytest.mark.parametrize("agents", [[], {}, "a", [1], None])
def test_a_list_of_agents_that_is_none_is_an_error(agents: Any) -> None:
    with pytest.raises(SpecError, match="agents"):
        load_agents({"agents": agents}, client=scripted())


def test_texts_alone_are_short_for_the_field_that_matters(raw_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", raw_server.base_url)
    agent = AgentRegistry.create_from_yaml(
        "model: a-model\ntools: [add]\nmemory: window\nsession: in_memory\npattern: react\ntemplate: jinja2", tools=add
    )
    assert getattr(agent.client, "model", None) == "a-model"
    assert [one.name for one in agent.tools] == ["add"]
    assert isinstance(agent.reducer, SlidingWindowReducer)
    assert agent.template is not None
    assert agent.template.format == "jinja2"


def test_model_and_llm_are_two_words_for_one() -> None:
    assert made({"llm": {"options": {"seed": 1}}}).options == {"seed": 1}
    assert [told for _, _, told in faults_of({"llm": "a", "model": "b"})] == [
        "model and llm are two words for one thing; keep one of them."
    ]


def test_instructions_are_the_body_and_the_template_the_format() -> None:
    payload = {"instructions": "Help {{ name }}.", "template": {"format": "jinja2"}, "inputs": {"name": {}}}
    agent = made(payload)
    agent.run_sync("Hi", arguments={"name": "Ada"})
    assert agent.client.requests[0].messages[0].text == "Help Ada."  # type: ignore[union-attr]
    assert made({"template": {"text": "Body."}}).instructions == "Body."
    ((_, _, told),) = faults_of({"instructions": "a", "template": {"text": "b"}})
    assert "template gives only the format" in told


def test_inputs_have_defaults_and_are_required() -> None:
    text = """
instructions: "Help {{$name}} with {{$topic}}{{$more}}."
inputs:
  name: {description: who, type: string}
  topic: {default: maths}
  more: {required: false}
"""
    agent = AgentRegistry.create_from_yaml(text, client=scripted())
    agent.run_sync("Hi", arguments={"name": "Ada"})
    assert agent.client.requests[0].messages[0].text == "Help Ada with maths."  # type: ignore[union-attr]
    with pytest.raises(ConfigurationError, match="missing: name"):
        agent.run_sync("Hi")
    with pytest.raises(ConfigurationError, match="'name' of the agent 'agent' is a string, not int"):
        agent.run_sync("Hi", arguments={"name": 5})


def test_a_required_input_that_only_tools_read_is_asked_for() -> None:
    agent = made({"inputs": {"customer": {"required": True}}})
    with pytest.raises(ConfigurationError, match="needs inputs that are missing: customer"):
        agent.run_sync("Hi")
    assert agent.run_sync("Hi", arguments={"customer": "Ada"}).text == "Hello!"


def test_a_default_of_another_type_is_a_fault() -> None:
    assert places({"inputs": {"a": {"type": "integer", "default": "x"}}}, client=scripted()) == ["inputs.a.default"]


def test_outputs_are_a_nested_schema_of_the_answer() -> None:
    text = """
outputs:
  summary: {description: in one line}
  score: {type: integer, minimum: 0}
  tags: {items: {enum: [a, b]}, required: false}
  author:
    properties:
      name: {}
      born: {type: integer, nullable: true}
      mood: {enum: [good, bad], nullable: true, required: false}
"""
    answer = {"summary": "s", "score": 3, "author": {"name": "Ada", "born": None}}
    agent = AgentRegistry.create_from_yaml(text, client=scripted(json.dumps(answer)))
    assert agent.run_sync("Hi").value == answer
    schema = agent.options["response_format"]
    assert schema["required"] == ["summary", "score", "author"]
    assert schema["properties"]["author"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "born": {"type": ["integer", "null"]},
            "mood": {"type": ["string", "null"], "enum": ["good", "bad", None]},
        },
        "required": ["name", "born"],
        "additionalProperties": False,
    }
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}


def test_outputs_may_be_a_json_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert made({"outputs": schema}, client=scripted('{"n": 1}')).run_sync("Hi").value == {"n": 1}


@pytest.mark.parametrize(
    ("memory", "kind", "limit"),
    [
        ({"type": "noop"}, type(None), None),
        ({"type": "window", "max_turns": 3}, SlidingWindowReducer, 3),
        ({"type": "window"}, SlidingWindowReducer, 20),
        ({"type": "token_budget", "max_tokens": 500, "keep": 0.5}, TokenBudgetReducer, 500),
        ({"type": "truncation", "max_messages": 7}, TruncationReducer, 7),
        ({"type": "summary", "max_tokens": 900}, SummarizationReducer, None),
        ({"type": "summary", "max_messages": 9}, SummarizationReducer, None),
        ({"type": "summary"}, SummarizationReducer, None),
    ],
)
def test_memory_is_a_reducer(memory: dict[str, Any], kind: type, limit: int | None) -> None:
    reducer: Any = made({"memory": memory}).reducer
    assert type(reducer) is kind
    assert limit is None or reducer.limit == limit


def test_memory_leaves_out_of_requests_and_not_of_what_is_stored() -> None:
    client = scripted(*[str(n) for n in range(4)])
    agent = made({"memory": {"type": "window", "max_turns": 1, "keep": 1}}, client=client)
    session = agent.create_session()
    for question in "abcd":
        agent.run_sync(question, session=session)
    assert [one.text for one in client.requests[-1].messages] == ["d"]


def test_a_limit_of_another_memory_is_a_fault() -> None:
    ((place, _, told),) = faults_of({"memory": {"type": "window", "max_tokens": 5}}, client=scripted())
    assert place == "memory.max_tokens"
    assert "Did you mean" in told or "max_turns" in told


def test_sessions_are_stored_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("session: {type: jsonl_file, path: talks}")
    agent = AgentRegistry.create_from_file(path, client=scripted())
    response = agent.run_sync("Hi", session=agent.create_session("trip"))
    assert response.text == "Hello!"
    assert isinstance(agent.history, FileHistoryProvider)
    assert (tmp_path / "talks" / "trip.jsonl").exists()
    path.write_text("session: sqlite")
    agent = AgentRegistry.create_from_file(path, client=scripted())
    agent.run_sync("Hi")
    assert isinstance(agent.history, SQLHistoryProvider)
    assert (tmp_path / "chat.db").exists()


def test_what_stands_around_agents_is_for_those_without_their_own(tmp_path: Path) -> None:
    payload = {
        "agents": [{"name": "a"}, {"name": "b", "session": "in_memory"}],
        "session": {"type": "jsonl_file", "path": str(tmp_path)},
        "runtime": {"max_sessions": 7},
    }
    loaded = load_agents(payload, client=scripted())
    assert [type(one.history).__name__ for one in loaded.agents] == ["FileHistoryProvider", "InMemoryHistoryProvider"]
    assert loaded.runtime.max_sessions == 7


def test_budgets_and_patterns_limit_runs() -> None:
    assert made({"budget": {"max_steps": None, "max_cost_usd": 0.5}}).budget == RunBudget(
        max_steps=None, max_cost_usd=0.5
    )
    assert made({"pattern": {"type": "react", "max_steps": 3}}).budget == RunBudget(max_steps=3)
    assert places({"pattern": {"type": "react", "max_stes": 3}}, client=scripted()) == ["pattern"]
    assert places({"budget": {"max_steps": 0}}, client=scripted()) == ["budget"]


def test_agents_work_like_those_in_code() -> None:
    client = scripted([tool_call("add", a=1, b=2)], "3")
    agent = Agent.from_yaml("name: adder\ntools: [add]", tools=[add], client=client)
    assert agent.run_sync("1 + 2?").text == "3"
    assert Agent.from_dict({"name": "adder"}, client=client).name == "adder"


def test_fields_of_no_use_are_refused() -> None:
    assert places({"session": {"type": "in_memory", "path": "x"}}, client=scripted()) == ["session.path"]
    assert places({"events": {"type": "sync"}, "runtime": "other"}, client=scripted()) == [
        "runtime",
        "events.type",
    ]
