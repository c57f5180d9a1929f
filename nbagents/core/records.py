"""Pieces of content as JSON-able records: written without defaults, read with what this version does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from nbagents.core.errors import ConfigurationError
from nbagents.core.usage import Usage

P = TypeVar("P", bound="Piece")


@dataclass(frozen=True, slots=True)
class Piece:
    """What all kinds of content have in common.

    Attributes:
        extra: fields of a stored record that this version does not know; they are written again.
    """

    type: ClassVar[str]
    extra: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False)


_UNSTORED = {"value"}
_CHECKED: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "Arguments": (str, dict, type(None)),
}
"""Hints of fields that are checked when a record is read: it may come from a file that anybody wrote."""


def piece_to_dict(piece: Piece) -> dict[str, Any]:
    """Return `piece` as JSON-able values, without the fields that stand at their default."""
    kind = type(piece)
    read, stored = _stored.get(kind) or _look_up(kind)
    record: dict[str, Any] = {"type": kind.type}
    for (name, default), value in zip(stored, read(piece), strict=False):
        if type(value) is str:
            if value != default:
                record[name] = value
        elif value is not default and value != default:
            record[name] = _plain(value)
    return with_extra(record, piece.extra) if piece.extra else record


_Stored = tuple[Callable[[Piece], tuple[Any, ...]], list[tuple[str, Any]]]
"""What reads the values of the fields that are written, and the names and defaults of these."""
_stored: dict[type[Piece], _Stored] = {}


def _look_up(kind: type[Piece]) -> _Stored:
    """Find out what is written of a kind: once, as this is on the path of every stored message."""
    stored = [(f.name, f.default) for f in fields(kind) if f.name not in _UNSTORED and f.name != "extra"]
    names = [name for name, _ in stored]
    _stored[kind] = attrgetter(*names, "extra"), stored  # with one more, so that it is always a tuple
    return _stored[kind]


def piece_from_dict(kind: type[P], record: Mapping[str, Any], nested: Mapping[str, type[Piece]]) -> P:
    """Read what `piece_to_dict` wrote of a piece of this kind.

    Args:
        kind: what to make.
        record: its fields; those that `kind` does not have are kept in `extra`.
        nested: the kinds of fields that hold one piece or several.

    Raises:
        ConfigurationError: a field is missing or holds something else.
    """
    known = {f.name: f for f in fields(kind) if f.name in record and f.name not in _UNSTORED and f.name != "extra"}
    unknown = {name: value for name, value in record.items() if name not in known and name != "type"}
    try:
        values = {name: _read_field(f, record[name], nested) for name, f in known.items()}
        return kind(**values, extra=unknown or None)
    except (TypeError, AttributeError) as error:
        raise ConfigurationError(f"Content of type {kind.type!r} does not fit: {error}.") from error


def with_extra(record: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `record` with the fields of `extra` that it does not have itself."""
    return {**record, **{name: value for name, value in extra.items() if name not in record}} if extra else record


def _plain(value: Any) -> Any:
    if type(value) is str:
        return value
    if isinstance(value, Piece):
        return piece_to_dict(value)
    if isinstance(value, Usage):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _read_field(f: Field[Any], value: Any, nested: Mapping[str, type[Piece]]) -> Any:
    if f.name == "usage":
        return Usage.from_dict(value)
    if f.name in nested:
        read = partial(_read_nested, nested[f.name], nested=nested)
        return tuple(read(item) for item in value) if isinstance(f.default, tuple) else read(value)
    if not isinstance(value, _CHECKED.get(str(f.type), (object,))):
        raise TypeError(f"{f.name} is {f.type}, not {type(value).__name__}")
    return value


def _read_nested(kind: type[Piece], value: Any, nested: Mapping[str, type[Piece]]) -> Piece:
    if not isinstance(value, Mapping) or value.get("type") != kind.type:
        raise TypeError(f"{str(value)[:80]!r} stands where {kind.type!r} belongs")
    return piece_from_dict(kind, value, nested)
