"""`RunBudget`, the limits of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError

DEFAULT_MAX_STEPS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """The limits of one run; None means no limit.

    Tokens and cost are looked at before each model request: a reply under way is not cut (that is what the option
    `max_tokens` is for), and a complete answer is given also where it went over the limit.

    Attributes:
        max_steps: model requests that may call tools. When they are used up the model gets one more request, without
            tools, to close; the run ends with `max_steps`. Default 25.
        max_tool_calls: tool calls, failed ones included.
        max_tokens: tokens of all model requests together, sub-agents included.
        max_cost_usd: US dollars of all model requests together; the model must have a known price.
        max_duration_ms: milliseconds from the start of the run; what is under way is cancelled.
        max_validation_retries: how often a reply that does not fit `response_format` is asked for again. Default 1.
        max_consecutive_errors: failed tool calls in a row. Default: no limit.

    Raises:
        ConfigurationError: a limit that is no number (whole, but for cost and duration), or below 0 (`max_steps`: below
            1), or that does not exist.

    Example:
        >>> RunBudget(max_steps=5).max_steps
        5
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    max_steps: int | None = DEFAULT_MAX_STEPS
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_ms: float | None = None
    max_validation_retries: int = 1
    max_consecutive_errors: int | None = None

    def __post_init__(self) -> None:
        for name in _LIMITS:
            value = getattr(self, name)
            if value is None and name != "max_validation_retries":
                continue
            least = 1 if name == "max_steps" else 0
            allowed, what = ((int, float), "a number") if name in _FRACTIONS else ((int,), "a whole number")
            if isinstance(value, bool) or not isinstance(value, allowed) or not least <= value < math.inf:
                no_limit = "" if name == "max_validation_retries" else " or None (no limit)"
                raise ConfigurationError(
                    f"RunBudget.{name} must be {what} of at least {least}{no_limit}, not {value!r}."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set."""
        return {name: value for name in _LIMITS if (value := getattr(self, name)) is not None}


_LIMITS = tuple(f.name for f in fields(RunBudget))
_FRACTIONS = frozenset({"max_cost_usd", "max_duration_ms"})
RunBudget.__init__ = exact_arguments()(RunBudget.__init__)  # type: ignore[method-assign]
DEFAULT_BUDGET = RunBudget()
