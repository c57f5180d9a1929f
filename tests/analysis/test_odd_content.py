"""Content that no table was made for: by rule it is shown, replaced or missing with a warning, never an error."""

from __future__ import annotations

import asyncio
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import (
    Agent,
    Message,
    ScriptedChatClient,
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
from nbagents.analysis.jsontext import json_text, table_texts
from nbagents.core.content import FunctionCall
from nbagents.core.runlog import RunRecord
from nbagents.core.secrets import register_secret
from tests.analysis.runs import Gate, agent, reported

ALL = (runs_df, requests_df, messages_df, tool_calls_df, events_df, artifacts_df, usage_df)
CIRCULAR: list[object] = [1]
CIRCULAR.append(CIRCULAR)


class Mute:
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([math.nan, math.inf, -math.inf, 1e300], [None, None, None, 1e300]),
        (2**100, 2**100),
        (b"\x00\xff", "AP8="),
        ("half \ud83d", "half ?"),
        ({"\udc00": "\x00"}, {"?": "\x00"}),
        ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "(1, 2)": "c"}),
        ({"x": CIRCULAR}, {"x": [1, "[circular]"]}),
        ({3}, [3]),
        (np.float64(1.5), 1.5),
        (np.array([1, 2]), [1, 2]),
        (pd.NaT, None),
        (Mute(), "<Mute>"),
        ([Message("user", "Hi")], [{"role": "user", "contents": [{"type": "text", "text": "Hi"}]}]),
        (
            {"a": {"password": "abcdefgh"}, "api_key": "ijklmnop"},
            {"a": {"password": "[redacted]"}, "api_key": "[redacted]"},
        ),
    ],
    ids=lambda value: str(type(value)),
)
def test_what_json_cannot_hold_has_its_rule(value: object, expected: object) -> None:
    assert json.loads(json_text(value)) == expected
    assert table_texts([], [[None, value]])[1][0] == [None, value if isinstance(value, str) else json_text(value)]


@pytest.mark.parametrize("beside", ["plain", "half \ud83d", "password: abcdefgh", math.nan, 2**100])
def test_a_number_has_one_form_whatever_stands_beside_it(beside: object) -> None:
    """The log has the odd value and a store what became of it: their tables are the same."""
    text = json_text({"seconds": 5e-05, "large": 1e22, "beside": beside})
    assert text.startswith('{"seconds":0.00005,"large":1e+22,"beside":')
    assert json_text(json.loads(text)) == text


def test_nesting_without_end_is_cut() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    text = json_text({"deep": deep})
    assert "[nested too deep]" in text
    json.loads(text)
    with pytest.MonkeyPatch.context():
        while deep:  # taken apart one by one: the interpreter would recurse
            deep = deep.pop()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=4))
def test_every_value_becomes_json_that_reads_back(values: list[object]) -> None:
    for value in values:
        json_text(value).encode()
        json.loads(json_text(value))
    objects = [value for value in values if not isinstance(value, str)]
    assert table_texts([], [objects])[1][0] == [None if value is None else json_text(value) for value in objects]


async def test_odd_results_and_arguments_are_rows() -> None:
    values = {
        "nan": math.nan,
        "bytes": b"\x00\xff\x00",
        "cycle": CIRCULAR,
        "half": "\ud800",
        "nul": "a\0b",
        "big": 2**70,
    }

    def give(kind: str) -> object:
        """Give."""
        return values[kind]

    calls = [tool_call("give", kind=kind) for kind in values]
    broken = FunctionCall("c9", "give", '{"kind": "\ud83d\0', invalid=True)
    await agent([*calls, broken], "a\0b \ud83d", name="n\0\udc00").run("\ud800 \0?", tools=[give])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frames = [table() for table in ALL]
    for frame in frames:
        text = "\n".join(str(cell) for column in frame for cell in frame[column].dropna())
        text.encode()
        assert "\0" not in text
    calls_frame = tool_calls_df()
    assert len(calls_frame) == 7
    assert calls_frame.status.tolist() == ["ok"] * 6 + ["invalid"]
    assert calls_frame.result.tolist()[3:6] == ["?", "a\ufffdb", str(2**70)]
    assert calls_frame.arguments.tolist()[-1] == '{"kind": "?\ufffd'
    assert runs_df().output_text.tolist() == ["a\ufffdb ?"]
    assert runs_df().agent.tolist() == ["n\ufffd?"]


async def test_an_empty_result_is_missing_and_its_length_says_so() -> None:
    def nothing() -> str:
        """Say nothing."""
        return ""

    await agent([tool_call("nothing")], "ok").run("Go", tools=[nothing])
    call = tool_calls_df().iloc[0]
    assert pd.isna(call.result)
    assert (call.status, call.result_chars) == ("ok", 0)


async def test_counts_beyond_64_bits_are_missing_with_a_warning() -> None:
    await agent([reported(cached_input_tokens=2**70), "Hi."]).run("1")
    await agent([reported(cached_input_tokens=7), "Hi."]).run("2")
    with pytest.warns(UserWarning, match="1 of the values of 'cached_input_tokens' do not fit the dtype Int64") as told:
        frame = requests_df()
    assert told[0].filename == __file__
    assert frame.cached_input_tokens.tolist() == [pd.NA, 7]
    assert str(frame.dtypes["cached_input_tokens"]) == "Int64"


@pytest.mark.parametrize("moment", [math.inf, -1e300, 1e30, "yesterday"])
async def test_a_time_that_is_none_is_missing_with_a_warning(moment: object) -> None:
    await agent("Hi.").run([Message("user", "Then", created_at=moment), Message("user", "Now", created_at=1.5)])
    with pytest.warns(UserWarning, match="1 of the values of 'created_at' do not fit"):
        frame = messages_df()
    assert frame.created_at.isna().tolist() == [True, False, False]
    assert frame.created_at[1] == pd.Timestamp("1970-01-01T00:00:01.5Z")


async def test_a_clock_that_is_set_back_gives_no_negative_durations(monkeypatch) -> None:
    moments = iter(range(1_000_000_000, 0, -100))
    monkeypatch.setattr("nbagents.core.run.time.time", lambda: float(next(moments)))
    response = await agent("Hi.").run("1")
    monkeypatch.undo()
    run = runs_df(response).iloc[0]
    assert run.duration_s == 0
    assert run.ended_at < run.started_at
    assert events_df(response).sequence.is_monotonic_increasing
    assert events_df(response).t_rel_s.min() < 0


async def test_a_run_that_goes_on_is_in_every_table() -> None:
    gate = Gate()
    task = asyncio.ensure_future(agent([tool_call("wait")], "Done.").run("Wait", tools=[gate]))
    await gate.begun.wait()
    assert [len(table()) for table in ALL] == [1, 1, 2, 1, 6, 0, 1]
    before = events_df()
    gate.opened.set()
    await task
    pd.testing.assert_frame_equal(events_df().head(6), before)
    assert events_df().kind.tolist()[-1] == "run.ended"


async def test_a_secret_that_becomes_known_later_is_masked_in_old_events_too() -> None:
    await agent("The word is correct-horse-battery.").run("Say it")
    assert "correct-horse-battery" in events_df().to_csv()
    register_secret("correct-horse-battery")
    for table in ALL:
        assert "correct-horse" not in table().to_csv()


async def test_calls_with_one_id_stay_rows_of_their_own() -> None:
    """C113: also ids that a client makes itself may repeat."""
    same = FunctionCall("c1", "add", {"a": 1, "b": 2}, id="call_same")
    helper = agent([same], [same], "3")
    await helper.run("1+2")
    frame = tool_calls_df()
    assert frame.tool_call_id.tolist() == ["call_same", "call_same#2"]
    assert frame.status.tolist() == ["ok", "ok"]


async def test_artifacts_of_all_kinds_are_rows() -> None:
    table = pd.DataFrame({"a": range(1000)})

    @tool
    def draw(context: ToolContext) -> str:
        """Draw."""
        for name, payload in {"frame": table, "text": "a text", "none": None, "nan": math.nan, "object": Mute}.items():
            context.emit_artifact(name, payload, kind="chart")
        return "drawn"

    await Agent(ScriptedChatClient([[tool_call("draw")], "ok"]), tools=[draw]).run("Draw")
    frame = artifacts_df().set_index("name")
    assert frame.kind.unique().tolist() == ["chart"]
    assert json.loads(frame.payload["frame"]).startswith("DataFrame of shape 1000 x 1")
    assert frame.payload[["text", "none", "nan"]].tolist() == ['"a text"', "null", "null"]
    assert frame.tool_call_id.nunique() == 1
    assert frame.artifact_id.is_unique
    assert set(frame.artifact_id) <= set(events_df().event_id)


def test_a_record_without_events_is_no_row() -> None:
    record = run_log().open("run_empty")
    assert isinstance(record, RunRecord)
    try:
        assert runs_df().empty
    finally:
        run_log()._runs.pop("run_empty")
