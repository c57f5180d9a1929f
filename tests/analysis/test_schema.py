"""Tables have the same columns, order and dtypes whatever is in them."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pandas as pd
import pytest

from nbagents import (
    ToolContext,
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis import plot_timeline, plot_usage
from nbagents.core.events import EVENT_TO_CHUNK_KIND, LIVE_EVENTS, OTHER_EVENTS
from nbagents.core.secrets import register_secret
from tests.analysis.runs import agent, call_with_id, run_over_budget, run_that_fails, run_that_is_cancelled

TEXT, INTEGER, NUMBER, FLAG, TIME = "string", "Int64", "Float64", "boolean", "datetime64[us, UTC]"
TOKENS = {
    "input_tokens": INTEGER,
    "cached_input_tokens": INTEGER,
    "cache_write_tokens": INTEGER,
    "output_tokens": INTEGER,
    "reasoning_tokens": INTEGER,
    "total_tokens": INTEGER,
}
SCHEMAS = {
    runs_df: {
        **dict.fromkeys(["run_id", "parent_run_id", "session_id", "agent", "team", "model", "provider"], TEXT),
        "params": TEXT,
        **{"started_at": TIME, "ended_at": TIME, "duration_s": NUMBER, "ttft_s": NUMBER},
        **{"stop_reason": "category", "status": "category", "error_type": TEXT, "error_message": TEXT},
        **{"n_requests": INTEGER, "n_turns": INTEGER, "n_tool_calls": INTEGER},
        **TOKENS,
        **{"usage_complete": FLAG, "cost_usd": NUMBER, "cost_complete": FLAG},
        **{"input_text": TEXT, "output_text": TEXT, "tags": TEXT, "notes": TEXT, "thumbs": "category"},
    },
    requests_df: {
        **{"request_id": TEXT, "run_id": TEXT, "step": INTEGER, "attempt": INTEGER},
        **{"model_requested": TEXT, "model_returned": TEXT},
        **{"started_at": TIME, "latency_s": NUMBER, "ttft_s": NUMBER},
        **TOKENS,
        **{"cost_usd": NUMBER, "finish_reason": TEXT, "error_type": TEXT, "replayed": FLAG},
    },
    messages_df: {
        **{"message_id": TEXT, "run_id": TEXT, "session_id": TEXT, "turn": INTEGER, "index": INTEGER},
        **{"role": "category", "author_name": TEXT, "content": TEXT, "n_chars": INTEGER},
        **{"tool_calls": TEXT, "tool_call_id": TEXT, "created_at": TIME, "interrupted": FLAG},
    },
    tool_calls_df: {
        **{"tool_call_id": TEXT, "run_id": TEXT, "step": INTEGER, "tool": TEXT, "arguments": TEXT, "result": TEXT},
        **{"result_chars": INTEGER, "truncated": FLAG, "started_at": TIME, "duration_s": NUMBER},
        **{"status": "category", "error_type": TEXT, "error_message": TEXT, "approval": "category"},
    },
    events_df: {
        **{"event_id": TEXT, "run_id": TEXT, "sequence": INTEGER, "t_rel_s": NUMBER, "timestamp": TIME},
        **{"kind": "category", "data": TEXT},
    },
    artifacts_df: {
        **{"artifact_id": TEXT, "run_id": TEXT, "tool_call_id": TEXT, "step": INTEGER, "tool": TEXT},
        **{"name": TEXT, "kind": TEXT, "payload": TEXT, "timestamp": TIME},
    },
    usage_df: {
        **{"agent": TEXT, "model": TEXT, "n_runs": INTEGER, "n_requests": INTEGER},
        **TOKENS,
        **{"usage_complete": FLAG, "cost_usd": NUMBER, "cost_complete": FLAG},
    },
}
TABLES = pytest.mark.parametrize("table", SCHEMAS, ids=lambda table: table.__name__)


@tool
def draw(context: ToolContext) -> str:
    """Draw."""
    context.emit_artifact("plot", {"points": [1, 2]}, kind="chart")
    return "drawn"


def schema(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


@TABLES
def test_an_empty_table_has_all_columns(table) -> None:
    """C110: zero rows with all documented columns and dtypes; helpers and plots accept it."""
    frame = table()
    assert frame.shape == (0, len(SCHEMAS[table]))
    assert list(schema(frame).items()) == list(SCHEMAS[table].items())
    assert frame.attrs["schema_version"] == 1
    assert frame.iloc[:5].groupby("run_id" if "run_id" in frame else "model").sum(numeric_only=True).empty
    assert plot_usage().get_xlabel() == "tokens"
    assert plot_timeline().get_xlabel() == "seconds"


@TABLES
async def test_an_empty_list_selects_nothing(table) -> None:
    """C110: [] is never all."""
    await agent([tool_call("add", a=1, b=2), tool_call("draw")], "3").run("1+2", tools=[draw])
    assert len(table()) > 0
    for none in ([], (), iter(())):
        frame = table(none)
        assert len(frame) == 0
        assert list(schema(frame).items()) == list(SCHEMAS[table].items())
    assert len(table(run_id=[])) == len(table(session_id=[])) == 0


@TABLES
async def test_columns_do_not_depend_on_the_rows(table) -> None:
    """C113: runs with tools, without, and with errors give the same columns, order and dtypes, so they join."""
    frames = []
    plain = await agent("Hello.").run("Hi")
    frames.append(table(plain))
    calls = [tool_call("add", a=1, b=2), tool_call("fail", reason="no"), tool_call("draw"), tool_call("draw")]
    called = await agent(calls, "3").run("1+2", tools=[draw])
    frames.append(table(called))
    for ending in (run_that_fails, run_that_is_cancelled, run_over_budget):
        await ending()
        frames.append(table(run_log().runs()[-1].run_id))
    for frame in [*frames, pd.concat(frames), table()]:
        assert list(schema(frame).items()) == list(SCHEMAS[table].items())
    assert sum(map(len, frames)) >= 2
    for name, dtype in table().dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            assert list(dtype.categories) == list(table([]).dtypes[name].categories), name


async def test_ids_are_unique_and_join() -> None:
    """C113: row ids are unique even if provider ids repeat."""
    same_id = call_with_id("call_1", "add", a=1, b=2)
    helper = agent([same_id], [same_id], "3", [same_id], "3")
    session = helper.create_session()
    for _ in range(2):
        await helper.run("1+2", session=session)
    await agent([tool_call("draw"), tool_call("draw")], "ok").run("Draw", tools=[draw])
    for frame, key in (
        (runs_df(), "run_id"),
        (requests_df(), "request_id"),
        (messages_df(), "message_id"),
        (tool_calls_df(), "tool_call_id"),
        (events_df(), "event_id"),
        (artifacts_df(), "artifact_id"),
    ):
        assert len(frame) > 1
        assert frame[key].is_unique, key
        assert frame[key].notna().all(), key
        assert set(frame.run_id) <= set(runs_df().run_id)
    answers = messages_df().dropna(subset="tool_call_id")
    assert sorted(answers.tool_call_id) == sorted(tool_calls_df().tool_call_id)
    steps = tool_calls_df().merge(requests_df(), on=["run_id", "step"])
    assert len(steps) == len(tool_calls_df()) == 5
    assert set(artifacts_df().tool_call_id) == set(tool_calls_df()[tool_calls_df().tool == "draw"].tool_call_id)


async def test_nested_and_mixed_values_survive_csv(tmp_path) -> None:
    """C112: results and arguments of many kinds in one column are JSON text; integers stay nullable."""
    values = {"text": "text", "dict": {"a": 1}, "list": [1, 2], "none": None, "empty": {}}

    def give(kind: str, deep: dict[str, object] | None = None) -> object:
        """Give a value."""
        return values[kind]

    calls = [tool_call("give", kind=kind, **({"deep": {"x": [1]}} if kind == "dict" else {})) for kind in values]
    await agent([*calls, tool_call("fail", reason="x")], "Done.").run("Go", tools=[give])
    frame = tool_calls_df()
    path = tmp_path / "calls.csv"
    frame.to_csv(path, index=False)
    dtypes = {name: dtype for name, dtype in frame.dtypes.items() if name != "started_at"}
    again = pd.read_csv(path, dtype=dtypes, parse_dates=["started_at"], keep_default_na=False, na_values=[""])
    again["started_at"] = again.started_at.astype(TIME)
    pd.testing.assert_frame_equal(again, frame, check_categorical=True)
    assert again.result[:5].tolist() == ["text", '{"a": 1}', "[1, 2]", "null", "{}"]
    assert json.loads(again.arguments[1]) == {"kind": "dict", "deep": {"x": [1]}}
    assert again.result_chars.dtype == "Int64"
    assert again.result_chars.isna().tolist() == [False] * 5 + [True]


async def test_every_event_has_a_declared_kind() -> None:
    await agent([tool_call("add", a=1, b=2)], "3").run("1+2")
    await run_that_fails()
    categories = list(events_df().kind.cat.categories)
    assert set(categories) == (set(EVENT_TO_CHUNK_KIND) | OTHER_EVENTS) - LIVE_EVENTS
    assert events_df().kind.notna().all()
    assert [json.loads(text) for text in events_df().data]


async def test_secrets_are_masked_and_json_stays_json() -> None:
    """C108: a key that reached a tool or a message stands in no table."""
    secret = "sk-verysecret-0123456789"
    register_secret("hunter2hunter2")

    def connect(api_key: str) -> str:
        """Connect."""
        return "connected"

    helper = agent([tool_call("fail", reason=secret), tool_call("connect", api_key="abcdefgh")], f"It is {secret}.")
    options = {"metadata": {"password": "hunter2hunter2"}}
    await helper.run(f"Use {secret} and hunter2hunter2", options=options, tools=[connect])
    for table in SCHEMAS:
        shown = table().to_csv()
        assert "verysecret" not in shown
        assert "hunter2" not in shown
        assert "abcdefgh" not in shown
    for text in [*tool_calls_df().arguments, *events_df().data, *runs_df().params]:
        assert isinstance(json.loads(text), dict)


async def test_a_lone_surrogate_does_not_break_an_export() -> None:
    await agent("half a pair: \ud83d").run("\udc00?")
    buffer = io.BytesIO()
    messages_df().to_csv(buffer)
    runs_df().to_json(buffer, date_format="iso")
    assert b"half a pair: ?" in buffer.getvalue()


@TABLES
def test_the_docstring_lists_the_columns(table) -> None:
    listed = [line.split(" (")[0].strip() for line in table.__doc__.split("Columns:")[1].strip().splitlines()]
    assert [name for name in SCHEMAS[table] if name in listed] == listed
    assert set(SCHEMAS[table]) - set(listed) <= {"agent", "model"}
    assert table is usage_df or "joins on `run_id`" in table.__doc__


def test_pandas_and_matplotlib_are_imported_when_a_table_or_plot_is_made() -> None:
    script = (
        "import sys, nbagents.analysis as analysis\n"
        "assert not {'pandas', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "analysis.runs_df()\n"
        "assert 'pandas' in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
