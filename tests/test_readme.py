"""The README tells the truth: its code runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
import struct
import tomllib
from pathlib import Path

import pytest

import nbagents
from nbagents.cli import main
from tests.support.kernels import Kernel
from tests.support.servers import LLMock
from tests.support.tools import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```(python|ipython)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
SHELL = re.findall(r"^```bash\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROSE = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
REPLIES = [
    {"type": "reply", "text": "Hello you!"},
    {"type": "reply", "text": "There is more."},
    {"type": "reply", "text": "And more."},
    {"type": "reply", "tool_calls": [{"name": "add", "arguments": {"a": 19, "b": 23}}]},
    {"type": "reply", "text": "It is 42."},
    {"type": "reply", "text": "It is 43."},
    {"type": "reply", "tool_calls": [{"name": "delete", "arguments": {"path": "old.txt"}}]},
    {"type": "reply", "text": "I deleted it."},
    {"type": "reply", "tool_calls": [{"name": "add", "arguments": {"a": 2, "b": 40}}]},
    {"type": "reply", "text": "It is 42 again."},
    {"type": "reply", "text": "It is 44."},
    {"type": "reply", "text": "It is 42, for the record."},
    {"type": "reply", "text": "There is a new release."},
    {"type": "reply", "text": "Hello again to you."},
    {"type": "reply", "text": ""},  # for the embeddings: they take a turn too
    {"type": "reply", "text": "It is eleven."},
]


def test_all_code_runs_in_order_in_one_kernel(kernel: Kernel, llmock: LLMock) -> None:
    llmock.scenario(REPLIES)
    settings = {"OPENAI_API_KEY": "key-for-the-readme", "OPENAI_BASE_URL": llmock.base_url}
    assert kernel.run(f"import os; os.environ.update({settings!r})").ok
    shown = ""
    for _, block in CODE:
        result = kernel.run(block)
        assert result.ok, f"{block}\n{result.error}"
        shown += result.text + "\n"
        for promised in re.findall(r"print\(error\)  # (.+)", block):
            assert promised in result.stdout
    for reply in REPLIES:
        assert reply.get("text", "") in shown
    assert "'It is 43.'" in shown
    assert "completed" in shown
    assert llmock.verdict()["passed"], llmock.verdict()["findings"]
    paths = [request["path"].removeprefix("/v1/") for request in llmock.requests()]
    assert len(paths) == len(REPLIES)
    assert set(paths) == {"chat/completions", "responses", "embeddings"}


def test_both_kinds_of_code_are_there() -> None:
    assert [kind for kind, _ in CODE].count("python") >= 5
    assert [kind for kind, _ in CODE].count("ipython") >= 3


def commands() -> list[str]:
    """Every command of a shell block, and every `nbagents ...` of the text."""
    lines = [part.strip() for block in SHELL for line in block.splitlines() for part in line.split("&&")]
    return [line for line in lines if line] + re.findall(r"`(nbagents [^`]+)`", PROSE)


def test_the_two_commands_are_there() -> None:
    assert [block.strip() for block in SHELL] == [
        'pip install -e ".[lab,local]" && nbagents demo',
        'pip install -e ".[test]" && pytest',
    ]


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = command.split()
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.search(r"\[(.*)\]", command).group(1).split(",")) <= set(extras)
    elif program == "nbagents":
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--help"])
        assert left.value.code == 0
        assert arguments[0] in capsys.readouterr().out
    else:
        assert command == "pytest"


def test_links_to_files_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_picture_is_a_screenshot() -> None:
    picture = Path(ROOT / "notebooks" / "images" / "chat.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert width >= 600
    assert height >= 300


def test_the_badge_opens_the_quickstart() -> None:
    badge = re.search(r"https://mybinder\.org/v2/gh/[^)\s]+", PROSE)
    assert badge is not None
    assert badge.group().endswith("?urlpath=lab/tree/notebooks/quickstart.ipynb")


def test_what_is_said_to_be_missing_is_missing() -> None:
    missing = README.partition("## What is not there yet")[2]
    names = re.findall(r"`([A-Za-z_]+)`", missing)
    assert names
    assert [name for name in names if hasattr(nbagents, name)] == []


def test_public_names_that_the_text_mentions_exist() -> None:
    said = PROSE.partition("## What is not there yet")[0]
    for name in re.findall(r"`([A-Z][A-Za-z]+)(?:\(.*?\))?`", said):
        assert hasattr(nbagents, name) or name.isupper(), name
