"""JSON columns of a table, taken apart into columns."""

from __future__ import annotations

import json
import math
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from nbagents.core.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

_MISSING = object()


def expand(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return `frame` with the JSON texts of `column` as columns: `arguments.city` for the field `city`, nested too.

    Lists and empty objects stay what they are, as cells. A value that is no object (a number, a list, a text that is
    no JSON) stays in `column`, which is there only if there is one. A field that a row does not have is missing.
    The dtypes follow from the values: nullable integers, floats, booleans and text, or object where they are mixed or
    nested.

    Args:
        frame: a table.
        column: its name.

    Returns:
        A new frame; the columns stand where `column` stood, in the order in which the fields first occur. A field with
        the name of another column has `#2` appended.

    Raises:
        ConfigurationError: no such column, or one that holds no texts.

    Example:
        >>> import pandas as pd
        >>> expand(pd.DataFrame({"a": ['{"x": {"y": 1}}', '{"z": [2]}']}), "a").columns.tolist()
        ['a.x.y', 'a.z']
    """
    import pandas as pd

    if column not in frame.columns:
        near = get_close_matches(str(column), map(str, frame.columns), 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Its columns are: {', '.join(map(str, frame.columns))}."
        raise ConfigurationError(f"The table has no column {column!r}.", hint=hint)
    rows = [_fields(column, text) for text in frame[column].tolist()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    place = frame.columns.get_loc(column)
    assert isinstance(place, int)
    parts = [frame.iloc[:, :place], frame.iloc[:, place + 1 :]]
    taken = {str(name) for part in parts for name in part.columns}
    expanded: dict[str, pd.Series] = {}
    for name in names:
        shown, times = name, 1
        while shown in taken:
            times += 1
            shown = f"{name}#{times}"
        expanded[shown] = pd.Series(_typed([row.get(name, _MISSING) for row in rows]), index=frame.index)
    result = pd.concat([parts[0], pd.DataFrame(expanded, index=frame.index), parts[1]], axis=1)
    result.attrs = dict(frame.attrs)
    return result


def _fields(name: str, text: Any) -> dict[str, Any]:
    """The fields of a JSON object by their paths; what is none stands under `name` itself."""
    if not isinstance(text, str):
        if text is None or type(text).__name__ == "NAType" or (isinstance(text, float) and math.isnan(text)):
            return {}
        raise ConfigurationError(f"The column {name!r} holds no JSON texts, but {type(text).__name__}.")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {name: text}
    if not isinstance(value, dict):
        return {name: value}
    fields: dict[str, Any] = {}
    _flatten(name, value, fields)
    return fields


def _flatten(name: str, value: dict[str, Any], fields: dict[str, Any]) -> None:
    for key, item in value.items():
        path = f"{name}.{key}"
        if isinstance(item, dict) and item:
            _flatten(path, item, fields)
        else:
            fields[path if path not in fields else f"{path}#2"] = item


def _typed(values: list[Any]) -> Any:
    """An array of the dtype that suits all values that are there."""
    import pandas as pd

    cells = [None if value is _MISSING else value for value in values]
    given = [value for value in cells if value is not None]
    kinds = {type(value) for value in given}
    exact = all(
        abs(value) <= 2**53 if float in kinds else -(2**63) <= value < 2**63 for value in given if type(value) is int
    )
    if kinds == {bool}:
        return pd.array(cells, dtype="boolean")
    if kinds == {str}:
        return pd.array(cells, dtype="string")
    if kinds == {int} and exact:
        return pd.array(cells, dtype="Int64")
    if kinds in ({float}, {int, float}) and exact:
        return pd.array(cells, dtype="Float64")
    return pd.array(cells, dtype=object)
