"""Files checked without a program, and the schema that editors check by: `nbagents validate`, `nbagents schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from nbagents.cli import main
from nbagents.core.errors import ConfigurationError
from nbagents.spec import spec_schema
from nbagents.spec.documents import read_text
from tests.spec.test_agents import FILE, PAYLOAD


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.yaml"


def checked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    status = main(["validate", *map(str, arguments)])
    return status, capsys.readouterr().out.splitlines()


def test_a_valid_file_ends_with_0(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE)
    assert checked(capsys, file) == (0, [f"{file}: valid"])


def test_faults_end_with_1_and_are_told_one_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("nam: a\nmodel: {id: '${NOPE}', options: {seed: '${NUMBER}'}}\ntools: [{idd: x}]\nname: a\nname: b")
    assert checked(capsys, file) == (
        1,
        [
            f"{file}: line 1, nam: there is no field 'nam'. Did you mean 'name'?",
            f"{file}: line 2, model.id: the environment variable NOPE is not set. Set it, or write ${{NOPE:-default}}.",
            f"{file}: line 2, model.options.seed: the environment variable NUMBER is not set. "
            "Set it, or write ${NUMBER:-default}.",
            f"{file}: line 3, tools[0].idd: there is no field 'idd'. Did you mean 'id'?",
            f"{file}: line 5, name: the key 'name' is there twice, in line 4 and line 5.",
        ],
    )
    status, told = checked(capsys, "--without-values", file)
    assert (status, len(told)) == (1, 3)


def test_settings_are_checked_where_they_are_given(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("model: {id: '${A:B}', options: {seed: '${A:Seed}'}}")
    values = tmp_path / "settings.json"
    values.write_text('{"A": {"B": "m", "Sead": 1}}')
    assert checked(capsys, file)[0] == 0
    assert checked(capsys, file, "--settings", values) == (
        1,
        [f"{file}: line 1, model.options.seed: there is no setting 'A:Seed'. Did you mean 'A:Sead'?"],
    )
    values.write_text("[]")
    assert main(["validate", str(file), "--settings", str(values)]) == 1
    assert "settings are a mapping of sections" in capsys.readouterr().err


def test_what_cannot_be_read_ends_with_1_and_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    file.write_text("a: [")
    assert checked(capsys, file)[0] == 1
    with pytest.raises(SystemExit) as ended:
        main(["validate"])
    assert ended.value.code == 2


def test_the_config_of_a_runtime_is_checked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PAYLOAD))
    assert checked(capsys, path)[0] == 0
    path.write_text(json.dumps({**PAYLOAD, "agents": [{"nam": "a"}], "event": {}}, indent=1))
    status, told = checked(capsys, path)
    assert status == 1
    assert ["agents[0].nam" in told[0], "event" in told[1]] == [True, True]


@pytest.mark.parametrize("kind", ["agent", "config"])
def test_the_schema_is_one_and_says_what_fields_mean(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    assert schema == spec_schema(kind)
    assert schema["properties"]["skills"]["description"] == "What the model may look up."


def test_what_is_valid_fits_the_schema_and_a_misspelt_field_does_not() -> None:
    agent, config = Draft202012Validator(spec_schema()), Draft202012Validator(spec_schema("config"))
    agent.validate(read_text(FILE).root)
    config.validate(PAYLOAD)
    short = "model: a\ntools: [add]\nmemory: window\npattern: react\ntemplate: jinja2\nbudget: {max_steps: '${N}'}\n"
    agent.validate(read_text(f"{short}outputs: {{a: {{type: integer}}}}\nskills: {{paths: a}}").root)
    for wrong in (
        "nam: a",
        "model: {options: {temprature: 1}}",
        "memory: {type: windw}",
        "budget: {max_step: 1}",
        "outputs: {a: {typ: x}}",
    ):
        assert list(agent.iter_errors(read_text(wrong).root)), wrong
    assert list(config.iter_errors({"agents": [{"nam": "a"}]}))
    with pytest.raises(ConfigurationError, match="Did you mean 'agent'"):
        spec_schema("agents")  # type: ignore[arg-type]
