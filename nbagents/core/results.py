"""What a function returned, as text that a model can read: bounded, valid JSON where it is data; images beside it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Mapping
from io import BytesIO
from itertools import islice
from typing import Any

from nbagents.core.content import DataContent, FunctionCall, FunctionResult, TextContent
from nbagents.core.media import UNKNOWN_TYPE, media_type_of
from nbagents.core.secrets import mask_known, redact

MAX_RESULT_CHARACTERS = 20_000
PREVIEW_ROWS = 20
PREVIEW_COLUMNS = 20
PREVIEW_CELL = 200
MEDIA_DEPTH = 4
"""Images are looked for this deep inside lists and dicts."""


def function_result(call: FunctionCall, value: Any) -> FunctionResult:
    """Return the answer to `call`: `value` as text, and the images and files in it as `items` that the text names.

    Images are what draws itself: `DataContent`, bytes of a known type, Pillow images, matplotlib figures and axes,
    objects with `_repr_png_`; by themselves or inside lists, tuples and dicts.
    """
    items: list[DataContent] = []
    shown = _without_media(value, items, MEDIA_DEPTH)
    if items and isinstance(shown, list) and all(isinstance(line, str) for line in shown):
        shown = "\n".join(shown)  # texts and images in turn are no data
    text = result_text(shown if items else value)
    return FunctionResult(call.call_id, call.name, text, call.id, items=tuple(items), value=value)


def result_text(value: Any, *, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return `value` as text: a string as it is, data as JSON, a table as a preview with its shape.

    What is longer than `limit` characters is cut, and the text says so. Keys that clients use are masked: a tool that
    prints the environment shows them to no model, table or file.
    """
    if isinstance(value, str):
        text = value
    elif _is_table(value):
        text = _table_preview(value)
    else:
        text = _as_json(value)
    return cut(mask_known(text.encode("utf-8", "replace").decode("utf-8")), limit)


def cut(text: str, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return `text`, cut after `limit` characters; then it says so."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {len(text) - limit} of {len(text)} characters left out]"


def error_text(error: BaseException) -> str:
    """Return what a model should know of `error`: its class and message, without paths or secrets."""
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(error_text(e) for e in error.exceptions)
        return f"{type(error).__name__}: {inner}"
    name = type(error).__name__
    try:
        message = redact(str(error)).strip()
    except Exception:  # noqa: BLE001  an error that cannot even say what it is still has a name
        return name
    return f"{name}: {message}" if message else name


def _without_media(value: Any, items: list[DataContent], depth: int) -> Any:
    """Return `value` with a few words in the place of each image and file, which are put into `items`."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple) and depth:
        return [_without_media(item, items, depth - 1) for item in value]
    if isinstance(value, dict) and depth:
        return {key: _without_media(item, items, depth - 1) for key, item in value.items()}
    if isinstance(value, TextContent):
        return value.text
    media = _as_media(value)
    if media is None:
        return value
    items.append(media)
    return media.summary


def _as_media(value: Any) -> DataContent | None:
    """Return `value` as content if it is an image or file, known by what it can do: `core` imports no image library."""
    if isinstance(value, DataContent):
        return value
    if isinstance(value, bytes):
        kind = media_type_of(value)
        return None if kind == UNKNOWN_TYPE else DataContent.from_bytes(value, kind)
    if callable(getattr(type(value), "_repr_png_", None)):
        return _png(value._repr_png_())
    if type(value).__module__.partition(".")[0] in ("matplotlib", "seaborn"):
        value = value if hasattr(value, "savefig") else getattr(value, "figure", None)  # axes know their figure
        if hasattr(value, "savefig"):
            drawn = BytesIO()
            value.savefig(drawn, format="png", bbox_inches="tight")
            return _png(drawn.getvalue())
    return None


def _png(drawn: Any) -> DataContent | None:
    """What `_repr_png_` gives: bytes or base64, alone or with metadata; or None, where it cannot draw after all."""
    if isinstance(drawn, tuple):
        drawn = drawn[0]
    if isinstance(drawn, str):
        drawn = base64.b64decode(drawn)
    return DataContent.from_bytes(drawn, "image/png") if isinstance(drawn, bytes) and drawn else None


def _as_json(value: Any) -> str:
    for prepare in (_as_it_is, _without_missing):  # a missing date of pandas claims to be one; a key is no text
        try:
            return _dumped(prepare(value))
        except (TypeError, UnicodeError):
            continue
        except (ValueError, RecursionError):  # it holds itself, or more than can be written down
            break
    return json.dumps(_as_text(value), ensure_ascii=False)


def _dumped(value: Any) -> str:
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, fallback=_fallback, inf_nan_mode="null", bytes_mode="base64")
    return json.dumps(_without_nan(plain), ensure_ascii=False)


def _as_it_is(value: Any) -> Any:
    return value


_MISSING = ("NaTType", "NAType")
"""Names of pandas' own missing values, which `core` does not import."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object is in memory: another place each time, and a recording of the run would not fit again."""


def _without_missing(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k).encode("utf-8", "replace").decode(): _without_missing(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_missing(item) for item in value]
    return None if type(value).__name__ in _MISSING else value


def _fallback(value: Any) -> Any:
    if type(value).__name__ in _MISSING:
        return None
    for convert in ("tolist", "to_dict", "isoformat"):
        if callable(getattr(type(value), convert, None)):
            return getattr(value, convert)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Collection):
        return list(islice(value, MAX_RESULT_CHARACTERS))
    return _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, BaseException):
        return error_text(value)
    try:
        return redact(_ADDRESS.sub("", str(value)))
    except Exception:  # noqa: BLE001  an object that cannot even say what it is still has a type
        return f"<{type(value).__name__}>"


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return value


def _is_table(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "to_json")


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
