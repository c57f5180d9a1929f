"""What the parts of an agent were made from, where they do not show it themselves: for writing them again."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_KEYS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_DEFAULTS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_PARTS: WeakKeyDictionary[Any, dict[str, Any] | str] = WeakKeyDictionary()


def remember_key(client: Any, placeholder: str) -> None:
    """Note which placeholder the key of a client came from."""
    _KEYS[client] = placeholder


def key_of(client: Any) -> str | None:
    """Return the placeholder that the key of a client came from."""
    return _KEYS.get(client)


def remember_default(client: Any) -> None:
    """Note that a client is the default one."""
    _DEFAULTS[client] = True


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
