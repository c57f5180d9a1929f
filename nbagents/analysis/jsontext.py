"""Values of the run log as JSON text: the form in which nested values stand in tables and stores, secrets masked."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from nbagents.core.content import Content, content_to_dict
from nbagents.core.messages import Message
from nbagents.core.results import result_text
from nbagents.core.secrets import may_hold_secret, redact
from nbagents.core.usage import Usage

_SCALARS = frozenset({str, int, float, bool, type(None)})
_MAX_DEPTH = 60
CIRCULAR = "[circular]"
TOO_DEEP = "[nested too deep]"


def json_text(value: Any) -> str:
    """Return `value` as JSON with secrets masked.

    What JSON cannot hold has its rule: NaN and infinity are null, bytes are base64, a lone surrogate is a question
    mark, a table is a preview of it, a value inside itself is "[circular]", any other object is its `str()`.

    Example:
        >>> json_text({"a": [1, float("nan")], "b": {}})
        '{"a":[1,null],"b":{}}'
    """
    text = _written(value)
    return _without_secrets(text) if may_hold_secret(text) else text


def _written(value: Any) -> str:
    try:
        return to_json(_plain(value), fallback=_as_plain, inf_nan_mode="null", bytes_mode="base64").decode()
    except (ValueError, TypeError, RecursionError):
        return _dumps(_safe(value, ()))


def _without_secrets(text: str) -> str:
    return _dumps(_masked(json.loads(text)))


def table_texts(
    texts: Sequence[Sequence[str | None]], values: Sequence[Sequence[Any]]
) -> tuple[list[list[str | None]], list[list[str | None]]]:
    """Return columns of `texts` and of other `values` as a table can hold them; an empty text is None.

    In texts secrets are masked, a lone surrogate is a question mark and NUL the replacement character, as no CSV or
    Parquet file has them. Values become what `json_text` makes of them; a text among them is JSON already, without
    secrets. All are searched for secrets together, as there is seldom one.
    """
    said = {text for column in texts for text in column if text}  # names come again and again
    written = [[value if type(value) in _TEXTS else _written(value) for value in column] for column in values]
    new = [text for old, column in zip(values, written, strict=True) for text in map(_new, old, column) if text]
    together = "\n".join((*said, *new))
    if "\0" in together or not _is_encodable(together) or may_hold_secret(together):
        clean = {text: clean_text(text) for text in said}
        cleaned = [[clean[text] if text else None for text in column] for column in texts]
        written = [[value if type(value) in _TEXTS else json_text(value) for value in column] for column in values]
        return cleaned, written
    return [[text or None for text in column] for column in texts], written


_TEXTS = (str, type(None))


def _new(value: Any, text: str | None) -> str | None:
    return None if text is value else text


def clean_text(text: str) -> str:
    """Return `text` as `table_texts` does."""
    text = redact(text)
    return text if text.isascii() and "\0" not in text else _encodable(text).replace("\0", "\ufffd")


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> Any:
    """Return `value` with the objects of this package as dicts."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {
            key if type(key) is str else str(key): item if type(item) in _SCALARS else _plain(item)
            for key, item in value.items()
        }
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is Message or kind is Usage:
        return value.to_dict()
    return content_to_dict(value) if isinstance(value, Content) else value


def _as_plain(value: Any) -> Any:
    """Return something like `value`, a thing of a class that JSON does not know, as what it does know."""
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if type(value).__module__.partition(".")[0] == "pandas":
        return result_text(value)
    convert = getattr(value, "tolist", None)  # scalars and arrays of numpy, which may not be there
    if callable(convert):
        return convert()
    try:
        return str(value)
    except Exception:  # noqa: BLE001  an object that cannot say what it is still has a class
        return f"<{type(value).__name__}>"


def _safe(value: Any, inside: tuple[int, ...]) -> Any:
    """Return `value` by the rules of `json_text`, however odd it is; `to_json` stops at the first oddity."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if id(value) in inside:
        return CIRCULAR
    if len(inside) > _MAX_DEPTH:
        return TOO_DEEP
    inside = (*inside, id(value))
    if isinstance(value, Mapping):
        return {_safe(str(key), ()): _safe(item, inside) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(item, inside) for item in value]
    own = _plain(value)
    return _safe(own if own is not value else _as_plain(value), inside)


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _masked_field(key, item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _masked_field(key: str, value: Any) -> Any:
    """Mask a text also where only its key tells that it is a secret."""
    if not isinstance(value, str):
        return _masked(value)
    label = f"{key}="
    shown = redact(label + value)
    return shown.removeprefix(label) if shown.startswith(label) else redact(value)


def _dumps(value: Any) -> str:
    """Write plain values: by the same writer as all others, as `json` has another form for small numbers."""
    return to_json(value, inf_nan_mode="null").decode()
