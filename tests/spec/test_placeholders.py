"""Placeholders: what is replaced, what never is, and what is said of those without a value."""

from __future__ import annotations

from typing import Any

import pytest

from nbagents import ScriptedChatClient
from nbagents.core.errors import ConfigurationError
from nbagents.spec import AgentRegistry, AgentSpec, register_agent_type
from nbagents.spec.placeholders import Placeholders, escaped
from tests.spec.parts import faults_of, places


def resolved(value: Any, settings: dict[str, Any] | None = None) -> Any:
    engine = Placeholders(settings)
    found = engine.resolved(value)
    assert engine.faults == []
    return found


def scripted() -> ScriptedChatClient:
    return ScriptedChatClient(["Hello!"])


def test_a_variable_with_characters_of_yaml_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: values are put in after parsing, so nothing in them is syntax."""
    monkeypatch.setenv("ODD", "a: #b\n- c ${HOME}")
    agent = AgentRegistry.create_from_yaml("description: ${ODD}\nname: 'x ${ODD} y'", client=scripted())
    assert agent.description == "a: #b\n- c ${HOME}"
    assert agent.name == "x a: #b\n- c ${HOME} y"


def test_comments_and_keys_are_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: a comment that mentions a variable which is not set, and a key that looks like a placeholder."""
    monkeypatch.setenv("KEY", "value")
    assert AgentRegistry.create_from_yaml("# ${NOPE}\nname: a  # ${NOPE}", client=scripted()).name == "a"
    assert resolved({"${KEY}": ["${KEY}", {"a": "${KEY}"}]}) == {"${KEY}": ["value", {"a": "value"}]}


INSTRUCTIONS = "instructions: |\n  Pay ${name} $5 and ${KEY}, not $${KEY}.\nname: a"


def test_instructions_stay_as_they_are_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: prompt text is not expanded unless opted in."""
    monkeypatch.setenv("KEY", "value")
    agent = AgentRegistry.create_from_yaml(INSTRUCTIONS, client=scripted())
    assert agent.instructions == "Pay ${name} $5 and ${KEY}, not $${KEY}.\n"
    monkeypatch.setenv("name", "Ada")
    agent = AgentRegistry.create_from_yaml(INSTRUCTIONS, client=scripted(), expand_instructions=True)
    assert agent.instructions == "Pay Ada $5 and value, not ${KEY}.\n"


def test_a_missing_variable_is_an_error_with_path_and_name() -> None:
    """C120: no default, no value."""
    ((place, line, told),) = faults_of("name: a\ndescription: x ${MISSING}", client=scripted())
    assert (place, line) == ("description", 2)
    assert "the environment variable MISSING is not set" in told
    assert "${MISSING:-default}" in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${MISSING:-dflt}", "dflt"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-dflt}", "dflt"),
        ("${EMPTY}", ""),
        ("${SET:-dflt}", "value"),
        ("a${SET}b${MISSING:-c:-d}", "avaluebc:-d"),
        ("$${SET}", "${SET}"),
        ("$$${SET}", "$${SET}"),
        ("$SET $5 $ { } ${", "$SET $5 $ { } ${"),
        ("${MISSING:-http://a:1/b}", "http://a:1/b"),
        ("${Section:Nope:-dflt}", "dflt"),
    ],
)
def test_forms(text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: defaults, escapes and what only looks like a placeholder."""
    monkeypatch.setenv("SET", "value")
    monkeypatch.setenv("EMPTY", "")
    assert resolved(text, {}) == expected


def test_a_placeholder_that_is_none_is_named() -> None:
    (fault,) = faults_of({"description": "${a b}"}, client=scripted())
    assert fault[0] == "description"
    assert "is no placeholder" in fault[2]


def test_a_placeholder_within_another_is_a_fault_and_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNER_KEY", "hunter2-hunter2")
    (fault,) = faults_of({"description": "${NOPE:-${INNER_KEY}}"}, client=scripted())
    assert fault[0] == "description"
    assert fault[2] == "a placeholder stands in another one. A default is plain text: ${NAME:-text}."


def test_settings_are_dicts_in_dicts_or_flat_and_keep_their_types() -> None:
    settings = {"A": {"B": {"C": "deep"}}, "Flat:Key": "flat", "N": {"Limit": 3, "On": True}}
    assert resolved("${A:B:C} ${Flat:Key}", settings) == "deep flat"
    assert resolved("${N:Limit}", settings) == 3
    assert resolved("${N:On}", settings) is True
    assert resolved("x${N:On}", settings) == "xtrue"


def test_a_missing_setting_names_what_was_probably_meant() -> None:
    ((place, _, told),) = faults_of(
        {"description": "${OpenAI:ChatModelID}"}, settings={"OpenAI": {"ChatModelId": "m"}}, client=scripted()
    )
    assert place == "description"
    assert told == "there is no setting 'OpenAI:ChatModelID'. Did you mean 'OpenAI:ChatModelId'?"


def test_a_section_is_no_value() -> None:
    assert places({"description": "${A:B}"}, settings={"A": {"B": {"C": "x"}}}, client=scripted()) == ["description"]


def test_numbers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: PORT=8080 in a field for a whole number, and others."""

    class PortSpec(AgentSpec):
        port: int

    ports: list[int] = []

    @register_agent_type("with-a-port")
    class WithPort:
        spec_model = PortSpec

        @classmethod
        def from_spec(cls, spec: PortSpec, *, tools: Any, client: Any, settings: Any) -> Any:
            ports.append(spec.port)
            return AgentRegistry.create_from_dict({"budget": spec.budget and spec.budget.to_dict()}, client=client)

    monkeypatch.setenv("PORT", "8080")
    text = "type: with-a-port\nport: ${PORT}\nbudget: {max_steps: '${PORT}'}"
    agent = AgentRegistry.create_from_yaml(text, client=scripted())
    assert ports == [8080]
    assert agent.budget is not None
    assert agent.budget.max_steps == 8080
    monkeypatch.setenv("PORT", "many")
    (fault, _) = faults_of(text, client=scripted())
    assert fault[:2] == ("port", 2)
    assert "many" not in fault[2], "a value that came from the environment is not shown"


def test_one_syntax_in_all_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """C120: one syntax everywhere, also inside lists."""
    monkeypatch.setenv("WORD", "END")
    agent = AgentRegistry.create_from_dict(
        {
            "id": "${WORD}",
            "model": {"options": {"stop": ["${WORD}", "x"], "metadata": {"k": "${WORD}"}, "temperature": "${T:-0.5}"}},
            "inputs": {"a": {"default": ["${WORD}"]}},
        },
        client=scripted(),
    )
    assert agent.id == "END"
    assert agent.options == {"stop": ["END", "x"], "metadata": {"k": "END"}, "temperature": 0.5}
    assert agent.arguments == {"a": ["END"]}


def test_with_a_client_of_the_program_the_connection_needs_no_values() -> None:
    text = "model: {id: '${OpenAI:Id}', connection: {endpoint: '${OpenAI:Endpoint}', timeout: '${T}'}}"
    assert AgentRegistry.create_from_yaml(text, client=scripted()).options == {}
    assert places(text) == ["model.id", "model.connection.endpoint", "model.connection.timeout"]


@pytest.mark.parametrize(
    "text",
    ["${A}", "$${A}", "$$${A}", "x${A:-b}$${C:D}${", "$", "{}", "${a b}", "$$$${A}", "${A:-${B}}", "$${A:-$${B}}"],
)
def test_what_is_escaped_comes_back(text: str) -> None:
    assert resolved(escaped(text)) == text


def test_settings_of_another_kind_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="settings is a dict of sections, not list"):
        AgentRegistry.create_from_dict({}, settings=[1], client=scripted())
