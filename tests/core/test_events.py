"""Every event of the code stands in the one table of their names."""

from __future__ import annotations

import ast
from pathlib import Path

import nbagents
from nbagents.core.events import EVENT_TO_CHUNK_KIND, LIVE_EVENTS, OTHER_EVENTS

MAKERS = ("event", "emit", "RunEvent")
"""What an event is made with: of a run, by a tool, of a value."""


def names_in(source: str) -> set[str]:
    """The texts that calls of `MAKERS` give as the name of an event."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    called = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in MAKERS]
    given = [arg.value for call in called for arg in call.args if isinstance(arg, ast.Constant)]
    return {name for name in given if isinstance(name, str) and name}  # a run may have no id yet


def test_the_table_has_the_events_of_the_code_and_no_others() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(nbagents.__file__).parent.rglob("*.py")]
    assert set().union(*map(names_in, sources)) == set(EVENT_TO_CHUNK_KIND) | LIVE_EVENTS | OTHER_EVENTS
    assert OTHER_EVENTS.isdisjoint({*EVENT_TO_CHUNK_KIND, *LIVE_EVENTS})
