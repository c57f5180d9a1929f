"""Values of the run log as JSON text: the form in which nested values stand in a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from nbagents.core.content import Content, content_to_dict
from nbagents.core.messages import Message
from nbagents.core.secrets import redact
from nbagents.core.usage import Usage


def json_text(value: Any) -> str:
    """Return `value` as JSON with secrets masked; what JSON cannot hold becomes null (NaN) or a text.

    Example:
        >>> json_text({"a": [1, float("nan")], "b": {}})
        '{"a": [1, null], "b": {}}'
    """
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Message | Usage):
        return _plain(value.to_dict())
    if isinstance(value, Content):
        return _plain(content_to_dict(value))
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return redact(str(value))


def _masked(key: str, value: Any) -> Any:
    """Mask a text also where only its key tells that it is a secret."""
    if not isinstance(value, str):
        return _plain(value)
    label = f"{key}="
    shown = redact(label + value)
    return shown.removeprefix(label) if shown.startswith(label) else redact(value)
