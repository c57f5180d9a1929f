"""Typed tables: a table is one list of columns, and has the same columns, order and dtypes whatever its rows are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nbagents.analysis.jsontext import table_texts
from nbagents.core.callables import depth_of_caller

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
"""In `frame.attrs["schema_version"]`; it grows when a column changes its meaning, name or dtype."""

TEXT = "string"
INTEGER = "Int64"
NUMBER = "Float64"
FLAG = "boolean"
TIME = "datetime64[us, UTC]"

VALUES_TOGETHER = 50_000
"""Of so many values of a column an array is made, which takes a fraction of their room."""
Block = Sequence[Sequence[Any]]
"""The values of some rows of a table, column by column, ready for it."""
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999, as Python's datetime


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: its name.
        dtype: `TEXT`, `INTEGER`, `NUMBER`, `FLAG`, `TIME` (from unix seconds), or the words of a closed vocabulary.
        value: where a row has it: a path of attributes, or a function of the row. None is missing.
        doc: what it says, with units.
        is_json: the values become JSON; a text is one already.
        is_clean: the values are texts without secrets, and nothing else.
    """

    name: str
    dtype: str | tuple[str, ...]
    value: str | Callable[[Any], Any]
    doc: str
    is_json: bool = False
    is_clean: bool = False

    @property
    def dtype_name(self) -> str:
        """The dtype in words."""
        if isinstance(self.dtype, tuple):
            return f"category: {', '.join(self.dtype)}"
        return self.dtype

    @cached_property
    def read(self) -> Callable[[Any], Any]:
        """Returns the value of a row."""
        return attrgetter(self.value) if isinstance(self.value, str) else self.value


def read_block(columns: Sequence[Column], rows: Sequence[Any]) -> Block:
    """Return the values of `rows`, texts as a table can hold them: without secrets."""
    values = [list(map(column.read, rows)) for column in columns]
    unclean = [(place, column) for place, column in enumerate(columns) if column.dtype == TEXT and not column.is_clean]
    texts = [place for place, column in unclean if not column.is_json]
    objects = [place for place, column in unclean if column.is_json]
    cleaned, written = table_texts([values[place] for place in texts], [values[place] for place in objects])
    for place, column_texts in zip((*texts, *objects), (*cleaned, *written), strict=True):
        values[place] = column_texts
    return values


def build_frame(columns: Sequence[Column], blocks: Iterable[Block]) -> pd.DataFrame:
    """Return the table of the rows in `blocks`, in their order.

    A value that its column cannot hold is missing, and a warning says so: a count beyond 64 bits, a time that is none.
    """
    import pandas as pd

    frames = [_frame(columns, values) for values in _joined(len(columns), blocks)]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    frame.attrs["schema_version"] = SCHEMA_VERSION
    return frame


def _joined(n_columns: int, blocks: Iterable[Block]) -> Iterator[list[list[Any]]]:
    """Yield the values of the columns, a bounded number at a time, at least once."""
    values: list[list[Any]] = [[] for _ in range(n_columns)]
    extenders = [value.extend for value in values]
    none_yet = True
    for block in blocks:
        for extend, some in zip(extenders, block, strict=True):
            extend(some)
        if len(values[0]) >= VALUES_TOGETHER:
            yield values
            for value in values:
                value.clear()
            none_yet = False
    if values[0] or none_yet:
        yield values


def _frame(columns: Sequence[Column], values: list[list[Any]]) -> pd.DataFrame:
    import pandas as pd

    arrays = zip(columns, values, strict=True)
    return pd.DataFrame({column.name: _array(column, value) for column, value in arrays}, copy=False)


def _array(column: Column, values: list[Any]) -> Any:
    """Return the values as an array of the column's dtype."""
    if isinstance(column.dtype, tuple):
        return _categories(column.name, column.dtype, values)
    make = _ARRAYS[column.dtype]
    try:
        return make(values)
    except (TypeError, ValueError, OverflowError):
        kept = [value if _fits(column.dtype, value) else None for value in values]
        lost = sum(value is not None for value in values) - sum(value is not None for value in kept)
        warnings.warn(
            f"{lost} of the values of {column.name!r} do not fit the dtype {column.dtype} and are missing.",
            stacklevel=depth_of_caller(),
        )
        return make(kept)


def _categories(name: str, words: tuple[str, ...], values: list[str | None]) -> Any:
    import pandas as pd

    code_of: dict[str | None, int] = {None: -1, **{word: code for code, word in enumerate(words)}}
    try:
        return pd.Categorical.from_codes([code_of[value] for value in values], categories=pd.Index(words))
    except KeyError as error:
        raise ValueError(f"The column {name!r} has no category for {error}.") from None


def _texts(values: list[Any]) -> Any:
    import pandas as pd

    return pd.array(values, dtype="string")


def _integers(values: list[int | None]) -> Any:
    import numpy as np
    import pandas as pd

    missing = np.array([value is None for value in values], dtype=bool)
    filled = [0 if value is None else value for value in values] if missing.any() else values
    if any(type(value) is float for value in filled):
        raise TypeError("a float among the integers")  # numpy would cut it
    return pd.arrays.IntegerArray(np.array(filled, dtype="int64"), missing)


def _numbers(values: list[float | None]) -> Any:
    import numpy as np
    import pandas as pd

    numbers = np.array(values, dtype="float64")  # None is NaN
    return pd.arrays.FloatingArray(numbers, np.isnan(numbers))


def _flags(values: list[bool | None]) -> Any:
    import numpy as np
    import pandas as pd

    missing = np.array([value is None for value in values], dtype=bool)
    return pd.arrays.BooleanArray(np.array([bool(value) for value in values], dtype=bool), missing)


def _times(values: list[float | None]) -> Any:
    import numpy as np
    import pandas as pd

    seconds = np.array(values, dtype="float64")
    if ((seconds < _EARLIEST) | (seconds > _LATEST)).any():
        raise ValueError("a time that no calendar has")
    missing = np.isnan(seconds)
    microseconds = np.rint(np.where(missing, 0.0, seconds) * 1e6).astype("int64").view("datetime64[us]")
    microseconds[missing] = np.datetime64("NaT")
    return pd.DatetimeIndex(microseconds, tz="UTC")


_ARRAYS: dict[str, Callable[[list[Any]], Any]] = {
    TEXT: _texts,
    INTEGER: _integers,
    NUMBER: _numbers,
    FLAG: _flags,
    TIME: _times,
}


def _fits(dtype: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if dtype == INTEGER:
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return dtype != TIME or _EARLIEST <= value <= _LATEST
