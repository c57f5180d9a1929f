"""From the tree of a spec to its checked models: every misspelt, missing or misplaced field, each with its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nbagents.core.errors import ConfigurationError
from nbagents.spec.faults import Path, SpecError, SpecFault, nearest

M = TypeVar("M", bound=BaseModel)


def checked(
    kind: type[M], tree: Any, path: Path = (), unresolved: Collection[Path] = ()
) -> tuple[M | None, list[SpecFault]]:
    """Return `tree` as a model and what is wrong with it; None if that is something.

    Args:
        kind: the model.
        tree: the values.
        path: where they stand in the spec.
        unresolved: places whose placeholders have no value: what does not fit there is no fault of its own.
    """
    try:
        return kind.model_validate(tree), []
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True, include_input=False)
    found: dict[Path, SpecFault] = {}
    for detail in details:
        fault = _fault(kind, tree, detail)
        known = found.get(fault.path)
        if known is not None and known.message != fault.message:
            fault = SpecFault(fault.path, f"{known.message.rstrip('.')}, or: {fault.message}", known.hint)
        found[fault.path] = fault
    return None, [one.under(path) for one in found.values() if (*path, *one.path) not in unresolved]


class Collected:
    """Gathers what goes wrong while the parts of an agent are made, so that all of it can be said at once."""

    def __init__(self) -> None:
        self.faults: list[SpecFault] = []

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Note an error inside as a fault of that place."""
        try:
            yield
        except SpecError as error:
            self.faults += [fault.under(path) for fault in error.faults]
        except ConfigurationError as error:
            self.faults.append(SpecFault(path, error.message, error.hint))

    def check(self) -> None:
        """Raise SpecError if anything went wrong."""
        if self.faults:
            raise SpecError(self.faults)


def _fault(kind: type[BaseModel], tree: Any, detail: Any) -> SpecFault:
    """Return what pydantic found in our words."""
    error_type, message = detail["type"], detail["msg"]
    path, value = _place(detail["loc"], tree)
    if error_type in ("extra_forbidden", "unexpected_keyword_argument"):
        return SpecFault(path, f"there is no field {str(path[-1])!r}.", _meant(kind, path))
    if error_type == "missing":
        return SpecFault(path[:-1], f"the field {str(path[-1])!r} is missing.")
    if error_type in ("literal_error", "enum"):
        expected = detail["ctx"]["expected"].replace(" or ", ", ").split(", ")
        shown = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        return SpecFault(path, f"{shown} is not possible.", nearest(value, [one.strip("'") for one in expected]))
    if error_type == "string_type" and isinstance(value, int | float):
        return SpecFault(path, "this must be a text.", f'Write "{value}" in quotes.')
    if error_type in ("dict_type", "model_type", "dataclass_type"):
        given = "nothing" if value is None else "a list" if isinstance(value, list) else "a single value"
        hint = "Write {} where there is nothing to say." if value is None else None
        return SpecFault(path, f"this must be fields, each with its value, not {given}.", hint)
    if error_type == "value_error":
        cause = detail["ctx"].get("error")
        if isinstance(cause, ConfigurationError):
            return SpecFault(path, cause.message, cause.hint)
        return SpecFault(path, f"{message.removeprefix('Value error, ')}.")
    told = message.replace("Input should be", "this must be")
    return SpecFault(path, f"{told[:1].lower()}{told[1:]}.")


def _place(loc: Iterable[str | int], tree: Any) -> tuple[Path, Any]:
    """Return the place in the tree that pydantic means, without its names for branches of unions, and its value."""
    path: list[str | int] = []
    value = tree
    parts = list(loc)
    for number, part in enumerate(parts):
        if isinstance(value, dict) and (part in value or number == len(parts) - 1):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path), value


def _meant(kind: type[BaseModel], path: Path) -> str | None:
    """Return what an unknown field was probably meant to be: another of the same part, or one of a part inside it."""
    owner = kind
    for part in path[:-1]:
        owner = _inner_models(owner).get(str(part), owner)
    name = str(path[-1])
    hint = nearest(name, _fields(owner))
    if hint is not None and not hint.startswith("Did"):
        for field, inner in _inner_models(owner).items():
            if name in _fields(inner):
                return f"It stands in {field!r}: {field}.{name}."
    return hint


def _fields(kind: Any) -> list[str]:
    fields = kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__
    return list(fields)


@cache
def _inner_models(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the models among the fields of a model, or what its lists and mappings hold."""
    if not issubclass(kind, BaseModel):
        return {}
    return {
        name: inner for name, field in kind.model_fields.items() if (inner := _model_in(field.annotation)) is not None
    }


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and (
        hasattr(annotation, "model_fields") or hasattr(annotation, "__dataclass_fields__")
    ):
        return annotation
    inner = (_model_in(one) for one in getattr(annotation, "__args__", ()))
    return next((one for one in inner if one is not None), None)
