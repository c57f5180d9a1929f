"""Tags: words that a person gives to the runs of a stretch of code, to find them again in the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from nbagents.core.errors import ConfigurationError

TagValue = str | int | float | bool

_tags: ContextVar[Mapping[str, TagValue]] = ContextVar("tags", default={})  # noqa: B039  no mapping in it is changed


@contextmanager
def tags(**named: TagValue) -> Iterator[None]:
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
    for name, value in named.items():
        if not is_tag_value(value):
            raise ConfigurationError(
                f"The tag {name!r} is a text, a number or a bool, not {value!r:.100}.",
                hint="Give what belongs together as several tags.",
            )
    token = _tags.set({**_tags.get(), **named})
    try:
        yield
    finally:
        _tags.reset(token)


def is_tag_value(value: object) -> bool:
    """Whether `value` can be that of a tag."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def current_tags() -> Mapping[str, TagValue]:
    """The tags of a run that is asked for here."""
    return _tags.get()
