"""Options of a model request: their names, what may be unset, and the one merge."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final, Generic, Required, TypedDict, TypeVar

from nbagents.core.errors import ConfigurationError


class _Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"

    def __copy__(self) -> _Unset:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _Unset:
        return self

    def __reduce__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _Unset()
"""Removes an agent's default for one run; `None` leaves it as it is."""

OPTION_NAMES = frozenset(
    {
        "model",
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "seed",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "reasoning_effort",
        "metadata",
        "user",
        "store",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
    }
)
"""The names of Chat Completions; every client takes these, in its own way."""

T = TypeVar("T")


class TypedOptions(TypedDict, Generic[T], total=False):
    """Options with a `response_format` that is a type: type checkers know `response.value` by it."""

    response_format: Required[type[T]]
    model: Any
    temperature: Any
    top_p: Any
    max_tokens: Any
    stop: Any
    seed: Any
    tool_choice: Any
    parallel_tool_calls: Any
    reasoning_effort: Any
    metadata: Any
    user: Any
    store: Any
    logit_bias: Any
    frequency_penalty: Any
    presence_penalty: Any


TOOL_OPTIONS = frozenset({"tool_choice", "parallel_tool_calls"})
_MERGED = frozenset({"metadata", "logit_bias"})


def check_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of `options` without unset ones.

    Raises:
        ConfigurationError: an unknown name; the nearest known one is named.
    """
    return check_names(
        options, OPTION_NAMES, "What only your provider knows is an argument of the run: client_kwargs={...}."
    )


def check_names(options: Mapping[str, Any] | None, known: Collection[str], advice: str = "") -> dict[str, Any]:
    """Return a copy of `options` without unset ones; a name that is not `known` is an error with the nearest one."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"options must be a mapping, not {type(options).__name__}.")
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known options: {', '.join(sorted(known))}."
            raise ConfigurationError(f"Unknown option {name!r}.", hint=f"{hint} {advice}".strip())
    return {name: value for name, value in options.items() if value is not None}


def merge_options(defaults: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of one run: `overrides` over `defaults`, neither changed.

    `None` means unset, `UNSET` removes a default, `metadata` and `logit_bias` merge by key.

    Raises:
        ConfigurationError: an unknown name.

    Example:
        >>> merge_options({"temperature": 0, "seed": 1}, {"seed": UNSET, "top_p": None})
        {'temperature': 0}
    """
    merged = check_options(defaults)
    for name, value in check_options(overrides).items():
        if name in _MERGED and isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = {**merged[name], **value}
        else:
            merged[name] = value
    return {name: value for name, value in merged.items() if value is not UNSET}
