"""What a function returned, as text that a model can read: bounded, valid JSON where it is data."""

from __future__ import annotations

import json
from typing import Any

from nbagents.core.secrets import redact

MAX_RESULT_CHARACTERS = 20_000
PREVIEW_ROWS = 20
PREVIEW_COLUMNS = 20
PREVIEW_CELL = 200


def result_text(value: Any, *, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return `value` as text: a string as it is, data as JSON, a table as a preview with its shape.

    What is longer than `limit` characters is cut, and the text says so.
    """
    if isinstance(value, str):
        text = value
    elif _is_table(value):
        text = _table_preview(value)
    else:
        text = _as_json(value)
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {len(text) - limit} of {len(text)} characters left out]"


def error_text(error: BaseException) -> str:
    """Return what a model should know of `error`: its class and message, without paths or secrets."""
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(error_text(e) for e in error.exceptions)
        return f"{type(error).__name__}: {inner}"
    message = redact(str(error)).strip()
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _as_json(value: Any) -> str:
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(
        value, fallback=_fallback, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=False
    )
    return json.dumps(_without_nan(plain), ensure_ascii=False)


def _fallback(value: Any) -> Any:
    for convert in ("tolist", "to_dict", "isoformat"):
        method = getattr(value, convert, None)
        if callable(method):
            return method()
    return redact(str(value))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return value


def _is_table(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "shape")


def _table_preview(value: Any) -> str:
    """A pandas object, known by its module: `core` does not import pandas."""
    shape = " x ".join(str(n) for n in value.shape)
    kind = type(value).__name__
    head = value.head(PREVIEW_ROWS) if hasattr(value, "head") else value
    if len(value.shape) == 2:
        head = head.iloc[:, :PREVIEW_COLUMNS]
        rows = json.loads(head.to_json(orient="split", date_format="iso", default_handler=str))
        rows["data"] = [[_short(cell) for cell in row] for row in rows["data"]]
        shown = json.dumps(rows, ensure_ascii=False)
        omitted = value.shape[0] > PREVIEW_ROWS or value.shape[1] > PREVIEW_COLUMNS
    else:
        shown = json.dumps([_short(cell) for cell in json.loads(head.to_json(orient="values", default_handler=str))])
        omitted = value.shape[0] > PREVIEW_ROWS
    note = f"; only the first {PREVIEW_ROWS} rows and {PREVIEW_COLUMNS} columns are shown" if omitted else ""
    return f"{kind} of shape {shape}{note}:\n{shown}"


def _short(cell: Any) -> Any:
    if isinstance(cell, str) and len(cell) > PREVIEW_CELL:
        return f"{cell[:PREVIEW_CELL]}… [{len(cell)} characters]"
    return cell
