"""Tags: words that a person gives to the runs of a stretch of code, to find them again in the tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar, Token

from nbagents.core.errors import ConfigurationError

TagValue = str | int | float | bool

_tags: ContextVar[Mapping[str, TagValue]] = ContextVar("tags", default={})  # noqa: B039  no mapping in it is changed


class tags(ContextDecorator):
    """Give tags to all runs that are asked for inside the `with` block, in whichever task or thread they then run.

    Blocks nest: inner tags are added to the outer ones, and the same name wins inside. Runs that tools begin have the
    tags of the run that called them.

    Args:
        named: names and values; a value is a text, a number or a bool.

    Raises:
        ConfigurationError: a value that is something else.

    Example:
        >>> with tags(experiment="a", fold=1):
        ...     pass  # agent.run_sync(...); then runs_df(tag={"experiment": "a"})
    """

    def __init__(self, /, **named: TagValue) -> None:
        self._used = True  # until its values are known to be tags
        for name, value in named.items():
            if not is_tag_value(value):
                raise ConfigurationError(
                    f"The tag {name!r} is a text, a number or a bool, not {value!r:.100}.",
                    hint="Give what belongs together as several tags.",
                )
        self._named = named
        self._used = False

    def __repr__(self) -> str:
        return f"<tags {self._named}: they are given inside `with tags(...):`>"

    def __enter__(self) -> None:
        self._used = True
        self._token: Token[Mapping[str, TagValue]] = _tags.set({**_tags.get(), **self._named})

    def __exit__(self, *error: object) -> None:
        _tags.reset(self._token)

    def _recreate_cm(self) -> tags:
        """A block of its own for each call of a decorated function: calls may overlap."""
        self._used = True
        return tags(**self._named)

    def __del__(self) -> None:
        if not getattr(self, "_used", True):  # made wrongly, it has nothing
            warnings.warn(f"{self!r} were given to no run.", stacklevel=2)


def is_tag_value(value: object) -> bool:
    """Whether `value` can be that of a tag."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def current_tags() -> Mapping[str, TagValue]:
    """The tags of a run that is asked for here."""
    return _tags.get()
