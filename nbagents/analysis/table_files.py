"""Tables in files: CSV and Parquet that give back the values and dtypes they were written from."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from nbagents.analysis.columns import TABLES
from nbagents.analysis.frames import SCHEMA_VERSION, TIME, Column
from nbagents.analysis.usage import GROUPINGS, TAG, usage_columns
from nbagents.core.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table to `path`, as what the end of its name says: `.csv` or `.parquet` (needs the extra `parquet`).

    The file is plain: other programs read it too. A CSV file quotes every text, so that line breaks of all kinds stay.

    Args:
        frame: a table of this package, or some of its rows or columns.
        path: the file.

    Raises:
        ConfigurationError: another kind of file, or pyarrow is missing.
    """
    if _kind(path) == "csv":
        frame.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
    else:
        frame.to_parquet(path, index=False, engine="pyarrow")


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table that `write_table`, `frame.to_csv(index=False)` or `frame.to_parquet()` wrote.

    Returns:
        The table with its dtypes, whatever the file says of them: CSV says nothing, and Parquet keeps no categories of
        an empty column.

    Raises:
        ConfigurationError: another kind of file, pyarrow is missing, or columns that no table of this package has.

    Example:
        >>> import tempfile
        >>> from nbagents import runs_df
        >>> path = tempfile.mkdtemp() + "/runs.csv"
        >>> write_table(runs_df([]), path)
        >>> read_table(path).dtypes.equals(runs_df([]).dtypes)
        True
    """
    import pandas as pd

    if _kind(path) == "csv":
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    else:
        frame = pd.read_parquet(path, engine="pyarrow")
    columns = _columns_of([str(name) for name in frame.columns], path)
    typed = pd.DataFrame({column.name: _typed(frame[column.name], column) for column in columns}, index=frame.index)
    typed.attrs["schema_version"] = frame.attrs.get("schema_version", SCHEMA_VERSION)
    return typed


def _typed(values: pd.Series, column: Column) -> pd.Series:
    import pandas as pd

    if isinstance(column.dtype, tuple):
        return values.astype(pd.CategoricalDtype(list(column.dtype)))
    if column.dtype == TIME:
        return pd.to_datetime(values, utc=True, format="ISO8601").dt.as_unit("us")
    if column.dtype == "boolean" and not pd.api.types.is_bool_dtype(values):
        values = values.map({"True": True, "False": False})
    return values.astype(column.dtype)  # type: ignore[call-overload, no-any-return]  # one of the dtypes of frames.py


def _columns_of(names: list[str], path: str | Path) -> list[Column]:
    """The columns of the table that has all `names`, the one with the fewest others first."""
    tags = [name for name in names if name.startswith(TAG)]
    usage = usage_columns([*GROUPINGS, *tags])
    for columns in sorted([*(columns for columns, _ in TABLES.values()), usage], key=len):
        known = {column.name: column for column in columns}
        if known.keys() >= set(names):
            return [known[name] for name in names]
    unknown = sorted(set(names) - _all_names())
    raise ConfigurationError(
        f"No table of nbagents has the columns of {path}: {', '.join(unknown[:5] or names[:5])}.",
        hint="read_table() reads what write_table() wrote; pandas reads the rest.",
    )


def _all_names() -> set[str]:
    return {column.name for columns, _ in TABLES.values() for column in columns}


def _kind(path: str | Path) -> str:
    kind = Path(path).suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ConfigurationError(f"A table is written as .csv or .parquet, not as {kind or 'something else'}.")
    if kind == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigurationError("Parquet files need pyarrow.", hint='pip install "nbagents[parquet]"')
    return kind.removeprefix(".")
