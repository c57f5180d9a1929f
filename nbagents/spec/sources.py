"""What the parts of an agent were made from, where they do not show it themselves: for writing them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_KEYS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_DEFAULTS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_shared: ContextVar[list[Any] | None] = ContextVar("nbagents_spec_default", default=None)
_PARTS: WeakKeyDictionary[Any, dict[str, Any] | str] = WeakKeyDictionary()


def remember_key(client: Any, placeholder: str) -> None:
    """Note which placeholder the key of a client came from."""
    _KEYS[client] = placeholder


def key_of(client: Any) -> str | None:
    """Return the placeholder that the key of a client came from."""
    return _KEYS.get(client)


@contextmanager
def one_default() -> Iterator[None]:
    """Inside, `default_of` makes one client for all."""
    token = _shared.set([])
    try:
        yield
    finally:
        _shared.reset(token)


def default_of(make: Callable[[], T]) -> T:
    """Return the default client, made by `make` unless there is one already, and note that it is one."""
    shared = _shared.get()
    if shared:
        return shared[0]  # type: ignore[no-any-return]
    client = make()
    _DEFAULTS[client] = True
    if shared is not None:
        shared.append(client)
    return client


def is_default(client: Any) -> bool:
    """Whether a client is what `default_client()` found for a spec."""
    try:
        return client in _DEFAULTS
    except TypeError:  # a client of the user's that has no hash
        return False


def remember_part(part: Any, written: dict[str, Any] | str) -> None:
    """Note how a part is written: a reducer, an imported tool, an agent's pattern."""
    _PARTS[part] = written


def written_part(part: Any) -> Any:
    """Return how a part was written; None if it does not come from a spec."""
    try:
        return _PARTS.get(part)
    except TypeError:
        return None
