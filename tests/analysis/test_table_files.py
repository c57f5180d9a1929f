"""Tables survive files and other programs: CSV, Parquet, Arrow; JSON columns come apart."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import nbagents
from nbagents import (
    ToolContext,
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    runs_df,
    tool,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis import expand, read_table, write_table
from nbagents.analysis.columns import TABLES as SCHEMAS
from nbagents.analysis.schema import schema_page
from nbagents.analysis.usage import SUMS
from nbagents.core.errors import ConfigurationError
from tests.analysis.runs import agent, run_that_fails
from tests.support import require

ALL = [runs_df, requests_df, messages_df, tool_calls_df, events_df, artifacts_df, usage_df]
TABLES = pytest.mark.parametrize("table", ALL, ids=lambda table: table.__name__)
VALUES = {
    "text": "text",
    "dict": {"a": 1},
    "list": [1, 2],
    "none": None,
    "empty": {},
    "NA": "NA",
    "lines": "a\r\nb\n",
    "cr": "a\rb",
}

POLARS: dict[str, Callable[[Any], Any]] = {
    "string": lambda pl: pl.String(),
    "Int64": lambda pl: pl.Int64(),
    "Float64": lambda pl: pl.Float64(),
    "boolean": lambda pl: pl.Boolean(),
    "category": lambda pl: pl.Categorical(),
    "datetime64[us, UTC]": lambda pl: pl.Datetime("us", "UTC"),
}


@tool
def give(kind: str, context: ToolContext, deep: dict[str, object] | None = None) -> object:
    """Give a value."""
    context.emit_artifact(kind, VALUES[kind])
    return VALUES[kind]


async def runs_of_all_kinds() -> None:
    calls = [tool_call("give", kind=kind, **({"deep": {"x": [1]}} if kind == "dict" else {})) for kind in VALUES]
    with nbagents.tags(experiment='a "quoted", one', fold=1):
        response = await agent([*calls, tool_call("fail", reason="x")], "Grüße, 世界 🎉\r\n").run("Go", tools=[give])
    response.note("fine\nreally", thumbs="up")
    await run_that_fails()


def with_pyarrow() -> None:
    require(importlib.util.find_spec("pyarrow") is not None, "pyarrow")


@TABLES
@pytest.mark.parametrize("rows", ["all", "none"])
async def test_csv_gives_back_values_and_dtypes(table, rows, tmp_path) -> None:
    """C112: results and arguments of many kinds in one column, an empty dict, nullable integers, missing values."""
    await runs_of_all_kinds()
    frame = table() if rows == "all" else table([])
    write_table(frame, tmp_path / "t.csv")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame, check_categorical=True)
    assert read_table(tmp_path / "t.csv").attrs == {"schema_version": 1}


@TABLES
@pytest.mark.parametrize("rows", ["all", "none"])
async def test_parquet_gives_back_values_and_dtypes(table, rows, tmp_path) -> None:
    """C112: the same through Parquet."""
    with_pyarrow()
    await runs_of_all_kinds()
    frame = table() if rows == "all" else table([])
    write_table(frame, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame, check_categorical=True)
    if rows == "all":  # of an empty column pandas keeps no categories
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "t.parquet"), frame, check_categorical=True)
    assert read_table(tmp_path / "t.parquet").attrs == {"schema_version": 1}


@TABLES
async def test_arrow_has_a_plain_type_for_every_column(table) -> None:
    """What polars, DuckDB and others read frames through."""
    with_pyarrow()
    import pyarrow as pa

    await runs_of_all_kinds()
    for frame in (table(), table([])):
        schema = pa.Table.from_pandas(frame, preserve_index=False).schema
        for field in schema:
            dtype = str(frame.dtypes[field.name])
            expected = {
                "Int64": pa.int64(),
                "Float64": pa.float64(),
                "boolean": pa.bool_(),
                "datetime64[us, UTC]": pa.timestamp("us", "UTC"),
            }
            if dtype == "category":
                assert pa.types.is_dictionary(field.type), field
                assert pa.types.is_string(field.type.value_type) or pa.types.is_large_string(field.type.value_type)
            elif dtype == "string":
                assert pa.types.is_string(field.type) or pa.types.is_large_string(field.type), field
            else:
                assert field.type == expected[dtype], field


@TABLES
async def test_arrow_reads_every_value_as_a_stream_of_columns(table) -> None:
    """As DuckDB and others read it, without a word of pandas."""
    with_pyarrow()
    import pyarrow as pa

    await runs_of_all_kinds()
    frame = table()
    columns = pa.RecordBatchReader.from_stream(frame).read_all().to_pydict()
    assert list(columns) == list(frame)
    for name, values in columns.items():
        assert values == frame[name].astype(object).where(frame[name].notna(), None).tolist(), name


@TABLES
async def test_polars_reads_every_value(table) -> None:
    with_pyarrow()
    require(importlib.util.find_spec("polars") is not None, "polars")
    import polars as pl

    await runs_of_all_kinds()
    for frame in (table(), table([])):
        read = pl.DataFrame(frame)
        assert read.columns == list(frame)
        assert read.schema == {name: POLARS[str(dtype)](pl) for name, dtype in frame.dtypes.items()}
        for name in frame:
            known = frame[name].astype(object).where(frame[name].notna(), None).tolist()
            assert read[name].to_list() == known, name


async def test_what_pandas_wrote_is_read_too(tmp_path) -> None:
    await runs_of_all_kinds()
    frame = tool_calls_df()[["tool", "status", "duration_s", "started_at"]].sort_values("tool", ignore_index=True)
    frame.to_csv(tmp_path / "part.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "part.csv"), frame)
    usage = usage_df(by=["tags.fold", "status"])
    write_table(usage, tmp_path / "usage.csv")
    pd.testing.assert_frame_equal(read_table(tmp_path / "usage.csv"), usage)


def test_other_files_are_refused_with_the_reason(tmp_path, monkeypatch) -> None:
    with pytest.raises(ConfigurationError, match=r"\.csv or \.parquet, not as \.xlsx"):
        write_table(runs_df([]), tmp_path / "t.xlsx")
    (tmp_path / "foreign.csv").write_text("a,run_id\n1,2\n")
    with pytest.raises(ConfigurationError, match=r"No table of nbagents has the columns of .*foreign\.csv: a\."):
        read_table(tmp_path / "foreign.csv")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install .nbagents\[parquet\]"):
        read_table(tmp_path / "t.parquet")


def test_nested_fields_become_columns() -> None:
    texts = ['{"city": "Rome", "at": {"lat": 1, "lon": 2.5}}', '{"city": null, "days": [1, {"x": 1}], "at": {}}', None]
    frame = pd.DataFrame({"id": [1, 2, 3], "data": pd.array(texts, dtype="string"), "end": list("abc")})
    frame.attrs["schema_version"] = 1
    wide = expand(frame, "data")
    assert wide.columns.tolist() == ["id", "data.city", "data.at.lat", "data.at.lon", "data.days", "data.at", "end"]
    assert wide.dtypes.astype(str).tolist()[1:4] == ["string", "Int64", "Float64"]
    assert wide["data.city"].isna().tolist() == [False, True, True]
    assert wide["data.days"][1] == [1, {"x": 1}]
    assert wide["data.at"][1] == {}
    assert wide.attrs == {"schema_version": 1}
    assert frame.columns.tolist() == ["id", "data", "end"]


def test_what_is_no_object_stays_in_its_column() -> None:
    frame = pd.DataFrame(
        {"a": pd.array(['{"x": 1}', "[1, 2]", "{broken", "3", "NaN"], dtype="string")}, index=list("vwxyz")
    )
    wide = expand(frame, "a")
    assert wide.columns.tolist() == ["a.x", "a"]
    assert wide["a"].tolist()[1:4] == [[1, 2], "{broken", 3]
    assert math.isnan(wide["a"].tolist()[4])
    assert wide["a.x"].isna().tolist() == [False, True, True, True, True]
    assert wide.index.tolist() == list("vwxyz")


def test_fields_of_one_name_are_both_kept() -> None:
    frame = pd.DataFrame({"a": ['{"b.c": 1, "b": {"c": 2}, "d": 4}'], "a.d": [3]})
    wide = expand(frame, "a")
    assert wide.to_dict("records") == [{"a.b.c": 1, "a.b.c#2": 2, "a.d#2": 4, "a.d": 3}]


def test_numbers_beyond_64_bits_and_mixed_values_keep_what_they_are() -> None:
    wide = expand(
        pd.DataFrame({"a": ['{"x": 99999999999999999999, "y": 1, "z": true}', '{"x": 1, "y": "b", "z": 1}']}), "a"
    )
    assert wide["a.x"].tolist() == [99999999999999999999, 1]
    assert wide["a.y"].tolist() == [1, "b"]
    assert wide["a.z"].tolist() == [True, 1]


def test_a_wrong_column_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'argument'.*Did you mean 'arguments'\?"):
        expand(tool_calls_df([]), "argument")
    with pytest.raises(ConfigurationError, match="holds no JSON texts, but int"):
        expand(pd.DataFrame({"a": [1]}), "a")


async def test_the_columns_of_tables_come_apart() -> None:
    await runs_of_all_kinds()
    calls = expand(tool_calls_df(), "arguments")
    assert calls["arguments.kind"].dropna().tolist() == list(VALUES)
    assert calls["arguments.deep.x"].tolist()[1] == [1]
    assert expand(runs_df(), "tags")["tags.fold"].tolist() == [1, pd.NA]
    assert expand(tool_calls_df([]), "arguments").columns.tolist() == [c for c in tool_calls_df([]) if c != "arguments"]
    assert json.loads(artifacts_df().payload[4]) == {}


def test_the_schema_page_lists_every_column() -> None:
    script = [sys.executable, "-W", "error", "-m", "nbagents.analysis.schema"]
    page = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout
    assert page.rstrip("\n") == schema_page()
    sections = {part.splitlines()[0]: part for part in page.split("\n## ")[1:]}
    assert list(sections) == [*SCHEMAS, "usage_df"]
    for table in ALL:
        section = sections[table.__name__]
        names = table([]).columns if table is not usage_df else [column.name for column in SUMS]
        listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert listed == list(names)
    assert "| `status` | category: ok, error, cancelled, limit, approval |" in sections["runs_df"]
