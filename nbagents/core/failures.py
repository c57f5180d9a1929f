"""What the log says of an error: its facts and its traceback, without secrets."""

from __future__ import annotations

import traceback
from typing import Any

from nbagents.core.results import error_text
from nbagents.core.secrets import redact


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return type, code, message and hint of `error`, redacted."""
    return {
        "type": type(error).__name__,
        "code": getattr(error, "code", None),
        "message": getattr(error, "message", None) or error_text(error),
        "hint": getattr(error, "hint", None),
    }


def traceback_text(error: BaseException) -> str:
    """Return the traceback of `error`, redacted."""
    return redact("".join(traceback.format_exception(error)))
