"""Reading files: what plain values mean, where each stands, and files that mean harm."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import Agent, ScriptedChatClient
from nbagents.core.errors import ConfigurationError
from nbagents.spec import AgentRegistry, SpecError, load_agents
from nbagents.spec.documents import MAX_BYTES, read_dict, read_text
from nbagents.spec.yamltext import write_yaml
from tests.spec.parts import faults_of


def scripted() -> ScriptedChatClient:
    return ScriptedChatClient(["Hello!"])


def test_plain_values_are_those_of_yaml_1_2() -> None:
    text = (
        "a: no\nb: 12:30\nc: 2024-10-21\nd: 010\ne: 1e-3\nf: true\ng: ~\nh:\ni: 0x10\nj: 0o17\nk: 1_000\nl: '1'\nm: .5"
    )
    assert read_text(text).root == {
        **{"a": "no", "b": "12:30", "c": "2024-10-21", "d": 10, "e": 0.001, "f": True, "g": None, "h": None},
        **{"i": 16, "j": 15, "k": "1_000", "l": "1", "m": 0.5},
    }


def test_json_keeps_what_yaml_would_lose() -> None:
    text = '{\n\t"a": "\\ud83d\\ude00",\n\t"b": [1, {"c": 2.5e3}, "x, {y}: [z]"]\n}'
    document = read_text(text)
    assert document.root == {"a": "😀", "b": [1, {"c": 2500.0}, "x, {y}: [z]"]}
    assert {path: document.lines[path] for path in [("a",), ("b",), ("b", 1, "c")]} == {
        ("a",): 2,
        ("b",): 3,
        ("b", 1, "c"): 3,
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), values, max_size=4))
def test_what_is_written_comes_back(root: dict[str, Any]) -> None:
    assert read_text(write_yaml(root), "yaml").root == root


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_json_reads_it(root: dict[str, Any], indent: Any) -> None:
    assert read_text(json.dumps(root, indent=indent), "json").root == root


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet="{}[]:-,&*!|>'\"#\n ab<$"))
def test_any_text_is_an_agent_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert isinstance(AgentRegistry.create_from_yaml(text, client=scripted()), Agent)


def test_long_texts_are_written_as_blocks() -> None:
    assert write_yaml({"instructions": "First.\nSecond: #2\n"}) == "instructions: |\n  First.\n  Second: #2\n"


def test_anchors_and_merges_work() -> None:
    text = "a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\nc: *base\n"
    assert read_text(text).root == {"a": {"x": 1, "y": 2}, "b": {"y": 3, "x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("name: a\nx: !!python/object/apply:os.system ['echo hi']", 2, "the tag !!python/object/apply:os.system"),
        ("name: !mine a", 1, "the tag !mine is not allowed"),
        ("name: !!binary aGk=", 1, "the tag !!binary is not allowed"),
        ("name: a\n\nname: b", 3, "the key 'name' is there twice, in line 1 and line 3"),
        ('{"name": "a",\n "name": "b"}', 2, "the key 'name' is there twice, in line 1 and line 2"),
        ("name: a\n1: b", 2, "keys are texts, not 1"),
        ("null: b", 1, "keys are texts, not null"),
        ("[a, b]: c", 1, "keys are texts"),
        ("name: a\nmodel: {options: {temperature: .nan}}", 2, "no number that can be sent"),
        ("name: a\nmodel: {options: {temperature: -.inf}}", 2, "no number that can be sent"),
        ('{"name": "a",\n"inputs": {"x": {"default": NaN}}}', 2, "no number that can be sent"),
        ('{"inputs": {"x": {"default": 1e999}}}', 1, "no number that can be sent"),
        ("name: !!int x", 1, "'x' is no int"),
        ("a: [", 1, "it is no YAML"),
        ("a: b: c", 1, "goes into quotes"),
        ("a:\n\t- b", 2, "Indent with spaces"),
        ("a: *nope", 1, "undefined alias"),
        ("name: a\n---\nname: b", 2, "it is no YAML"),
        ("name: a\x00", 1, "0x0000"),
        ("a: &a [*a]", 1, "nested more than"),
        ("[" * 2_000, None, "nested"),
        ("{a: " * 2_000, 1, "nested more than"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", None, "nested"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", 1, "nested more than"),
        ("- a\n- b", None, "a spec is a mapping of fields"),
        ("just text", None, "a spec is a mapping of fields"),
        ("", None, "it is empty"),
        ("# nothing", None, "it is empty"),
    ],
)
def test_hostile_and_broken_texts_are_refused_with_their_line(text: str, line: int | None, told: str) -> None:
    faults = faults_of(text, client=scripted())
    assert any(told in message for _, _, message in faults), faults
    assert line is None or line in [where for _, where, _ in faults]


def test_a_billion_laughs_end_at_the_limit() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 35))]
    (fault,) = faults_of("\n".join(lines), client=scripted())
    assert "more than 20,000 values" in fault[2]


@pytest.mark.parametrize(
    "text", ["- a\n" * 240_000, f"x: [{'a,' * 490_000}]", f"{'9' * 5_000}: 1", f"a: {'9' * 5_000}"]
)
def test_what_is_too_much_is_given_up_early(text: str) -> None:
    (fault,) = faults_of(text, client=scripted())
    assert len(fault[2]) < 600


def test_a_python_tag_runs_nothing(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    with pytest.raises(SpecError):
        AgentRegistry.create_from_yaml(f"x: !!python/object/apply:os.mkdir ['{proof}']", client=scripted())
    assert not proof.exists()


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("name: a\n" + "# x\n" * 2_500_000)
    with pytest.raises(SpecError, match="larger than 1,000,000 bytes"):
        AgentRegistry.create_from_file(path, client=scripted())
    assert MAX_BYTES == 1_000_000


@pytest.mark.parametrize("name", ["agent.yaml", "agent.json", "agent"])
def test_a_bom_is_passed_over(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b'\xef\xbb\xbf{"name": "a"}')
    assert AgentRegistry.create_from_file(path, client=scripted()).name == "a"


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: a\ndescription: Café".encode("latin-1"))
    with pytest.raises(SpecError, match=r"latin\.yaml: line 2: it is not UTF-8"):
        AgentRegistry.create_from_file(latin, client=scripted())
    with pytest.raises(ConfigurationError, match="is a folder"):
        load_agents(tmp_path)
    with pytest.raises(ConfigurationError, match="No such file"):
        load_agents(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_agents("a\0b")
    broken = tmp_path / "broken.json"
    broken.write_text('{"name": "a",\n}')
    with pytest.raises(SpecError, match=r"broken\.json: line 2: it is no JSON"):
        load_agents(broken)


def test_wrong_kinds_of_arguments_name_the_other_function() -> None:
    with pytest.raises(ConfigurationError, match="create_from_dict"):
        AgentRegistry.create_from_yaml({"name": "a"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="create_from_yaml"):
        AgentRegistry.create_from_dict("name: a")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="Did you mean 'tools'"):
        Agent.from_yaml("name: a", tool=[])


def test_a_dict_is_copied_and_checked_like_a_file() -> None:
    payload: dict[str, Any] = {"name": "a", "inputs": {"x": {"default": [1]}}}
    agent = AgentRegistry.create_from_dict(payload, client=scripted())
    agent.arguments["x"].append(2)
    assert payload == {"name": "a", "inputs": {"x": {"default": [1]}}}
    loop: dict[str, Any] = {}
    loop["a"] = loop
    with pytest.raises(SpecError, match="nested more than"):
        AgentRegistry.create_from_dict(loop)
    told = [text for _, _, text in faults_of({"name": object(), 1: 2, "inputs": {"x": {"default": float("nan")}}})]
    assert ["not object" in told[0], "keys are texts, not 1" in told[1], "no number" in told[2]] == [True] * 3


def test_one_document_reads_the_same_from_yaml_json_and_dict() -> None:
    payload = {"name": "a", "model": {"options": {"stop": ["x"]}}, "budget": {"max_steps": None}}
    read = [read_text(write_yaml(payload)).root, read_text(json.dumps(payload)).root, read_dict(payload).root]
    assert read == [payload] * 3
