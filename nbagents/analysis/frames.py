"""Typed tables: a table is one list of columns, and has the same columns, order and dtypes whatever its rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from nbagents.core.secrets import redact

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
"""In `frame.attrs["schema_version"]`; it grows when a column changes its meaning, name or dtype."""

TEXT = "string"
INTEGER = "Int64"
NUMBER = "Float64"
FLAG = "boolean"
TIME = "datetime64[us, UTC]"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: its name.
        dtype: `TEXT`, `INTEGER`, `NUMBER`, `FLAG`, `TIME` (from unix seconds), or the words of a closed vocabulary.
        value: where a row has it: a path of attributes, or a function of the row. None is missing.
        doc: what it says, with units.
        free_text: words of people, models or tools, in which secrets are masked.
    """

    name: str
    dtype: str | tuple[str, ...]
    value: str | Callable[[Any], Any]
    doc: str
    free_text: bool = False

    @property
    def dtype_name(self) -> str:
        """The dtype in words."""
        if isinstance(self.dtype, tuple):
            return f"category: {', '.join(self.dtype)}"
        return self.dtype


def build_frame(columns: Sequence[Column], rows: Iterable[Any]) -> pd.DataFrame:
    """Return the table of `rows`, in their order."""
    import pandas as pd

    kept = list(rows)
    frame = pd.DataFrame({column.name: _array(column, kept) for column in columns})
    frame.attrs["schema_version"] = SCHEMA_VERSION
    return frame


def lists_columns(columns: Sequence[Column]) -> Callable[[F], F]:
    """Put the list of `columns` at the end of the docstring of a function that returns their table."""

    def documented(function: F) -> F:
        listed = "\n".join(f"        {column.name} ({column.dtype_name}): {column.doc}" for column in columns)
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n    Columns:\n{listed}\n    "
        return function

    return documented


def _array(column: Column, rows: list[Any]) -> Any:
    import numpy as np
    import pandas as pd

    read = attrgetter(column.value) if isinstance(column.value, str) else column.value
    values = [read(row) for row in rows]
    if isinstance(column.dtype, tuple):
        if unknown := set(values) - {None, *column.dtype}:
            raise ValueError(f"The column {column.name!r} has no category for {sorted(map(str, unknown))}.")
        return pd.Categorical(values, categories=list(column.dtype))
    if column.dtype == TIME:
        microseconds = [None if value is None else round(value * 1_000_000) for value in values]
        return pd.DatetimeIndex(np.array(microseconds, dtype="datetime64[us]"), tz="UTC")
    if column.dtype == TEXT:
        values = [None if value is None else _clean(value, column.free_text) for value in values]
    extension_type: Any = column.dtype
    return pd.array(values, dtype=extension_type)


def _clean(text: str, free: bool) -> str:
    """Mask secrets in free text, and replace lone surrogates, which no file format can hold."""
    if free:
        text = redact(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
