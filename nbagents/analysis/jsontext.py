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

_SCALARS = (str, int, float, bool, type(None))
_MAX_DEPTH = 60
CIRCULAR = "[circular]"
TOO_DEEP = "[nested too deep]"
_LOOKED_AT_TOGETHER = 500


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


def json_texts(values: Sequence[Any]) -> list[str | None]:
    """Return `values` as `json_text` does, in less time; a text among them is JSON already, without secrets."""
    texts: list[str | None] = []
    for begin in range(0, len(values), _LOOKED_AT_TOGETHER):
        some = values[begin : begin + _LOOKED_AT_TOGETHER]
        written = [value if value is None or type(value) is str else _written(value) for value in some]
        new = [text for text, value in zip(written, some, strict=True) if text is not value and text is not None]
        if new and may_hold_secret("\n".join(new)):
            written = [value if value is None or type(value) is str else json_text(value) for value in some]
        texts += written
    return texts


def _written(value: Any) -> str:
    try:
        return to_json(_plain(value), fallback=_as_plain, inf_nan_mode="null", bytes_mode="base64").decode()
    except (ValueError, TypeError, RecursionError):
        return _dumps(_safe(value, ()))


def _without_secrets(text: str) -> str:
    return _dumps(_masked(json.loads(text)))


def clean_texts(texts: Sequence[str | None]) -> list[str | None]:
    """Return `texts` as a table can hold them: secrets masked, nothing that files cannot hold, None where one is empty.

    A lone surrogate is a question mark and NUL the replacement character, as no CSV or Parquet file has them.
    """
    cleaned: list[str | None] = []
    for begin in range(0, len(texts), _LOOKED_AT_TOGETHER):
        some = texts[begin : begin + _LOOKED_AT_TOGETHER]
        joined = "\n".join(text for text in set(some) if text)  # names come again and again
        plain = joined.isascii() and "\0" not in joined and not may_hold_secret(joined)
        cleaned += [text or None for text in some] if plain else [clean_text(text) if text else None for text in some]
    return cleaned


def clean_text(text: str) -> str:
    """Return `text` as `clean_texts` does."""
    text = redact(text)
    return text if text.isascii() and "\0" not in text else _encodable(text).replace("\0", "\ufffd")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> Any:
    """Return `value` with the objects of this package as dicts."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {_key(key): item if type(item) in _SCALARS else _plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is Message or kind is Usage:
        return value.to_dict()
    return content_to_dict(value) if isinstance(value, Content) else value


def _key(key: Any) -> str:
    return key if type(key) is str else str(key)


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
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
