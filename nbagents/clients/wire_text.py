"""Texts in the form that every service takes, and ids as they come from one: pure functions."""

from __future__ import annotations

import json
import math
from typing import Any

from nbagents.core.content import FunctionCall
from nbagents.core.folding import parse_arguments
from nbagents.core.names import VALID_NAME, safe_name


def clean_text(text: str) -> str:
    """Put U+FFFD where a half of a surrogate pair stands alone: it cannot be sent, and would block the session."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_values(value: Any) -> Any:
    """Return JSON values with all texts in them clean, the names of fields too; no number is NaN or infinite."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): clean_values(item) for name, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [clean_values(item) for item in value] if isinstance(value, list | tuple) else value


def read_id(value: Any) -> str | None:
    """Return an id or a name that a server gives, so that it can go back; None where it is neither text nor number."""
    if not value or not isinstance(value, str | int) or isinstance(value, bool):
        return None
    return str(value).encode("utf-8", "replace").decode()


def argument_text(call: FunctionCall) -> str:
    """The arguments as JSON text that every server parses; what is no object goes out as `{}`."""
    if isinstance(call.arguments, dict):
        try:
            text = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except ValueError:  # NaN and infinity are no JSON, though Python reads them
            return "{}"
        return clean_text(text)
    if call.invalid or not call.arguments or parse_arguments(call.arguments) is None:
        return "{}"
    return clean_text(call.arguments) if call.arguments.strip() else "{}"


def function_name(name: str) -> str:
    """Return `name` as services take it."""
    return name if VALID_NAME.match(name) else safe_name(name, fallback="tool")
