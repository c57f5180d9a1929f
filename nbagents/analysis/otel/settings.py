"""What live telemetry and the export have in common: their packages, and whether words may be told."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from nbagents.core.errors import ConfigurationError
from nbagents.core.secrets import redact

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The conventional switch: `true`, or `SPAN_ONLY` and `SPAN_AND_EVENT`, the words of newer instrumentations."""
_YES = frozenset({"true", "1", "span_only", "span_and_event"})


def check_packages() -> None:
    """Check that OpenTelemetry is there.

    Raises:
        ConfigurationError: it is not.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise ConfigurationError(
            "Telemetry needs the packages of OpenTelemetry.",
            hint="Run: pip install opentelemetry-sdk (the extra `otel`)",
        )


def check_can(name: str, given: Any, method: str, example: str) -> None:
    """Check that an argument does what it is for.

    Raises:
        ConfigurationError: it is something else, such as an address or a class.
    """
    if given is None or (callable(getattr(given, method, None)) and not isinstance(given, type)):
        return
    shown = f"the class {given.__name__}" if isinstance(given, type) else repr(given)[:100]
    raise ConfigurationError(f"{name} has a method {method}, and {redact(shown)} is none.", hint=f"Such as {example}.")


def captures(capture_content: bool | None) -> bool:
    """Return what was asked for, or else what the environment says; False by default.

    Raises:
        ConfigurationError: it is something else.
    """
    if capture_content is None:
        return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _YES
    if not isinstance(capture_content, bool):
        raise ConfigurationError(f"capture_content is True, False or None, not {capture_content!r:.100}.")
    return capture_content
