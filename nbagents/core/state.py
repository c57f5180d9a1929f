"""What a session's state may hold, and how it becomes JSON and comes back as it was."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload
from weakref import WeakKeyDictionary

from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import Message

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

MAX_DEPTH = 200
"""Values that are nested deeper are refused: JSON readers give up at about 1,000."""
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types whose values are JSON as they stand; nobody asks for their place."""
_FIT = "The state holds None, text, numbers, lists, tuples, dicts with text keys, messages and registered classes."


class _StateType:
    """A registered class under the name that stands in stored sessions."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls = cls
        self.name = name

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.cls)
            _ = adapter.validator.title  # here a hint shows that cannot be resolved
        except Exception as error:
            raise ConfigurationError(
                f"{_origin(self.cls)} cannot stand in a session's state: {error}",
                hint="Give its fields hints of types that pydantic can write as JSON and that its module knows.",
            ) from error
        return adapter


_by_name: dict[str, _StateType] = {}
_names: WeakKeyDictionary[type, str] = WeakKeyDictionary()
"""The names of registered classes; also of one that a cell, run again, has replaced."""


@overload
def register_state_type(cls: type[T], *, name: str | None = None) -> type[T]: ...
@overload
def register_state_type(*, name: str | None = None) -> Callable[[type[T]], type[T]]: ...
def register_state_type(cls: type[Any] | None = None, *, name: str | None = None) -> Any:
    """Let values of `cls` stand in `session.state`: they come back from `AgentSession.from_dict` as what they were.

    A stored session has only the name; what is read under it is validated by the class's hints. Nothing is imported
    because a stored session says so: register the class, where it is defined, before such a session is read.

    Args:
        cls: a pydantic model, a dataclass or an Enum.
        name: what stored sessions call it; the name of the class by default. Change the class, keep the name.

    Returns:
        The class itself, so this is a decorator too; without `cls` the decorator.

    Raises:
        ConfigurationError: another kind of class, or another class of that name.

    Example:
        >>> from dataclasses import dataclass
        >>> from nbagents import AgentSession, register_state_type
        >>> @register_state_type
        ... @dataclass
        ... class Preferences:
        ...     units: str = "metric"
        >>> session = AgentSession("trip", state={"preferences": Preferences("imperial")})
        >>> AgentSession.from_dict(session.to_dict()).state["preferences"]
        Preferences(units='imperial')
    """
    if cls is None:
        return lambda decorated: register_state_type(decorated, name=name)
    if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or _is_model(cls) or issubclass(cls, Enum)):
        raise ConfigurationError(f"{cls!r} is no pydantic model, dataclass or Enum.", hint="Make it one of these.")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError(f"name is a text that is not empty, not {name!r}.")
    name = name or cls.__name__
    known = _by_name.get(name)
    if known is not None and _origin(known.cls) != _origin(cls):
        raise ConfigurationError(
            f"{_origin(known.cls)} is registered as {name!r} already.",
            hint=f"Pass another name for {_origin(cls)}: register_state_type(..., name=...).",
        )
    if known is None or known.cls is not cls:
        _by_name[name] = _StateType(cls, name)
    _names[cls] = name
    return cls


def encode_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return `state` as JSON-able values; `decode_state` gives equal ones of the same types.

    Raises:
        ConfigurationError: a value that would not come back as it was, naming its place.
    """
    return {key: _encode(value, _Place(key)) for key, value in list(state.items()) if _is_key(key, "")}


def decode_state(record: Any) -> dict[str, Any]:
    """Read what `encode_state` wrote.

    Raises:
        ConfigurationError: something else, or a class that is not registered, naming its place.
    """
    if not isinstance(record, Mapping):
        raise ConfigurationError(f"The state of a stored session is a dict, not {type(record).__name__}.")
    return {key: _decode(value, _Place(key)) for key, value in record.items() if _is_key(key, "")}


class _Place:
    """Where a value stands in the state, and what it is part of."""

    __slots__ = ("around", "path")

    def __init__(self, path: str, around: tuple[int, ...] = ()) -> None:
        self.path = path
        self.around = around

    def __str__(self) -> str:
        return f"session.state[{self.path!r}]"

    def inside(self, value: Any) -> tuple[int, ...]:
        """Return what the items of `value` are part of."""
        if id(value) in self.around:
            raise ConfigurationError(f"{self} contains itself.", hint="Store what it refers to by a key.")
        if len(self.around) >= MAX_DEPTH:
            raise ConfigurationError(
                f"{self} is nested deeper than {MAX_DEPTH} levels.", hint="Keep the state flatter."
            )
        return (*self.around, id(value))


def _items(value: Mapping[str, Any], place: _Place) -> Iterator[tuple[str, Any, _Place]]:
    around = place.inside(value)
    for key, item in list(value.items()):  # a run in another thread may be adding to it
        if _is_key(key, place.path):
            yield key, item, place if type(item) in _PLAIN else _Place(f"{place.path}.{key}", around)


def _elements(value: list[Any] | tuple[Any, ...], place: _Place) -> Iterator[tuple[Any, _Place]]:
    around = place.inside(value)
    for number, item in enumerate(list(value)):
        yield item, place if type(item) in _PLAIN else _Place(f"{place.path}[{number}]", around)


# A single key that begins with `$` says what a record stands for; a dict of the user's that looks so goes into `$dict`.


def _encode(value: Any, place: _Place) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is dict:
        record = {key: _encode(item, at) for key, item, at in _items(value, place)}
        return {"$dict": record} if _is_tagged(value) else record
    if kind is list:
        return [_encode(item, at) for item, at in _elements(value, place)]
    if kind is tuple:
        return {"$tuple": [_encode(item, at) for item, at in _elements(value, place)]}
    if isinstance(value, Message):
        return {"$message": _encode(value.to_dict(), place)}
    if kind in _names:
        return {"$state": _encode_registered(value, _by_name[_names[kind]], place)}
    raise ConfigurationError(f"{place} holds a {_shown(kind)}, which does not serialise.", hint=_advice(kind))


def _decode(value: Any, place: _Place) -> Any:
    if isinstance(value, list):
        return [_decode(item, at) for item, at in _elements(value, place)]
    if not isinstance(value, dict):
        return value
    if not _is_tagged(value):
        return {key: _decode(item, at) for key, item, at in _items(value, place)}
    ((tag, inner),) = value.items()
    with _readable(place):
        if tag == "$message":
            return Message.from_dict(_decode_untagged(inner, place))
        if tag == "$dict":
            return _decode_untagged(inner, place)
        if tag == "$tuple":
            return tuple(_decode(item, at) for item, at in _elements(inner, place))
        if tag == "$float":
            return float(inner)
        if tag == "$state":
            return _decode_registered(inner, place)
    raise ConfigurationError(
        f"{place} holds {tag!r}, which this nbagents does not know.", hint="A newer one may have written it."
    )


def _decode_untagged(record: dict[str, Any], place: _Place) -> dict[str, Any]:
    return {key: _decode(item, at) for key, item, at in _items(record, place)}


def _encode_registered(value: Any, known: _StateType, place: _Place) -> dict[str, Any]:
    """Return name and fields of `value`, after a look whether they make the same value again."""
    adapter = known.adapter
    try:
        dumped = adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings="error")
        again = adapter.validate_json(json.dumps(dumped))
    except Exception as error:
        raise ConfigurationError(
            f"{place} holds a {known.name} that does not serialise: {error}",
            hint="Give its fields hints that pydantic can write as JSON and read again.",
        ) from error
    changed = _difference(value, again, known.name)
    if changed is not None:
        raise ConfigurationError(
            f"{place}: {changed} would not come back as it is.", hint="Give that field a more exact hint."
        )
    return {"type": known.name, "value": _encode(dumped, place)}


def _decode_registered(record: Mapping[str, Any], place: _Place) -> Any:
    name = record["type"]
    known = _by_name.get(name)
    if known is None:
        raise ConfigurationError(
            f"{place} holds a {name!r}, and no class is registered under this name.",
            hint="Import the module that defines it, or call register_state_type(...), before the session is read.",
        )
    return known.adapter.validate_json(json.dumps(_decode(record["value"], place)))


@contextmanager
def _readable(place: _Place) -> Iterator[None]:
    """Make whatever a record of another shape leads to one error that names the place."""
    try:
        yield
    except ConfigurationError as error:
        if error.message.startswith("session.state["):
            raise
        raise ConfigurationError(f"{place} does not fit: {error.message}", hint=error.hint) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(
            f"{place} does not fit: {error}", hint="Pass what AgentSession.to_dict() returned."
        ) from error


def _difference(left: Any, right: Any, path: str) -> str | None:
    """Return the path of the first difference in value or type, or None."""
    if type(left) is not type(right) and _names.get(type(left)) != _names.get(type(right), ""):
        return path
    if isinstance(left, dict):
        if list(left) != list(right):
            return path
        pairs = [(left[key], right[key], f"{path}[{key!r}]") for key in left]
    elif isinstance(left, list | tuple):
        if len(left) != len(right):
            return path
        pairs = [(one, other, f"{path}[{i}]") for i, (one, other) in enumerate(zip(left, right, strict=True))]
    elif _is_model(type(left)) or dataclasses.is_dataclass(left):
        pairs = [(getattr(left, n), getattr(right, n, None), f"{path}.{n}") for n in _fields(left)]
    else:
        return None if left == right or (left != left and right != right) else path
    return next((found for one, other, at in pairs if (found := _difference(one, other, at))), None)


def _fields(value: Any) -> list[str]:
    """The names of what is stored of a model or dataclass; a pydantic field with `exclude=True` is not."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    stored = [name for name, field in type(value).model_fields.items() if not field.exclude]
    return [*stored, *(value.model_extra or {})]


def _is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # without it nobody can have made a model
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def _is_tagged(value: dict[Any, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _is_key(key: Any, path: str) -> TypeGuard[str]:
    if type(key) is str:
        return True
    place = f"session.state[{path!r}]" if path else "session.state"
    raise ConfigurationError(
        f"{place} has the key {key!r}: JSON has only text as keys.",
        hint=f"Use {str(key)!r}, or a registered class with a field such as dict[int, str].",
    )


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _shown(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _advice(kind: type) -> str:
    if dataclasses.is_dataclass(kind) or _is_model(kind) or issubclass(kind, Enum):
        return f"Register its class: register_state_type({kind.__name__})."
    base = next((b for b in (str, int, float, list, tuple, dict) if issubclass(kind, b)), None)
    if base is not None:
        return f"Convert it: {base.__name__}(value)."
    if issubclass(kind, set | frozenset):
        return "Use a list, or a registered class with a field such as set[str]."
    return _FIT
