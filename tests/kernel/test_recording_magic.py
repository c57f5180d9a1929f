"""`%%recording` in a real kernel."""

import json

import pytest

from tests.support.kernels import Kernel

SETUP = """
%load_ext nbagents
from nbagents import Agent, ScriptedChatClient
script = ScriptedChatClient(["one", "two", "three", "four"])
agent = Agent(script, name="helper")
"""


@pytest.fixture
def magics(kernel: Kernel) -> Kernel:
    assert kernel.run(SETUP).ok
    return kernel


def recorded(kernel: Kernel, name: str = "r.jsonl") -> int:
    path = kernel.cwd / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_cell_is_recorded_and_replayed_when_it_runs_again(magics: Kernel) -> None:
    cell = "%%recording r.jsonl\nx = 1\nagent.run_sync('Hi').text"
    first = magics.run(cell)
    assert "'one'" in first.text
    assert "Recorded 1 of 1 replies in r.jsonl." in first.stderr
    again = magics.run(cell)
    assert "'one'" in again.text
    assert again.stderr == ""
    assert magics.run("len(script.requests), x").text == "(1, 1)"


@pytest.mark.parametrize(
    "body",
    [
        "(await agent.run('Hi')).text",
        "print([u.text async for u in agent.run('Hi', stream=True)])",
        "h = agent.start('Hi')\nh.result().text",
        "\n%%agent -n agent\nHi",
        "%%time\nagent.run_sync('Hi').text",
        "%agent -n agent Hi",
    ],
)
def test_it_reaches_every_way_to_run_an_agent(magics: Kernel, body: str) -> None:
    first = magics.run(f"%%recording 'r.jsonl'\n{body}")
    assert first.ok, first.error
    assert "one" in first.text
    assert recorded(magics) == 1


def test_it_ends_with_the_cell_also_when_that_fails(magics: Kernel) -> None:
    failed = magics.run("%%recording r.jsonl\nawait agent.run('Hi')\n1 / 0")
    assert failed.error is not None
    assert failed.error.name == "ZeroDivisionError"
    assert recorded(magics) == 1
    magics.run("agent.run_sync('Outside')")
    magics.run("await agent.run('Outside, awaited')")
    assert recorded(magics) == 1


def test_replay_asks_nobody_and_shows_the_nearest_request(magics: Kernel) -> None:
    magics.run("%%recording r.jsonl\nagent.run_sync('Hello there')")
    assert magics.run("%%recording r.jsonl --mode replay\nagent.run_sync('Hello there').text").text == "'one'"
    missed = magics.run("%%recording r.jsonl --mode replay\nagent.run_sync('Hello you')")
    assert missed.error is not None
    assert missed.error.name == "ReplayMissError"
    assert "-user: Hello there" in missed.error.value
    assert "+user: Hello you" in missed.error.value
    assert magics.run("len(script.requests)").text == "1"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "A path is missing"),
        ("r.jsonl --mode always", "--mode is one of auto, record, replay"),
        ("r.jsonl s.jsonl", "Not understood: s.jsonl"),
        ("none.jsonl --mode replay", "There is no recording none.jsonl"),
    ],
)
def test_wrong_options_are_told(magics: Kernel, line: str, told: str) -> None:
    result = magics.run(f"%%recording {line}\nagent.run_sync('Hi')")
    assert not result.ok
    assert told in result.stderr + str(result.error)
    assert magics.run("len(script.requests)").text == "0"


def test_it_is_a_magic_for_scripts_and_for_help(magics: Kernel) -> None:
    assert magics.run("get_ipython().run_cell_magic('recording', 'r.jsonl', 'y = agent.run_sync(\"Hi\").text')").ok
    assert magics.run("y").text == "'one'"
    assert recorded(magics) == 1
    assert "--timing" in magics.run("print(get_ipython().magics_manager.magics['cell']['recording'].__doc__)").text


def test_the_times_of_pieces_are_kept(magics: Kernel) -> None:
    magics.run("%%recording r.jsonl\nawait agent.run('Hi')")
    (line,) = (magics.cwd / "r.jsonl").read_text().splitlines()
    assert all(update["at"] >= 0 for update in json.loads(line)["updates"])
