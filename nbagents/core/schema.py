"""The JSON schema of a function's parameters, from its hints and docstring, and the check of arguments against it."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Required, Union, get_args, get_origin

from nbagents.core.docstrings import parse_docstring
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import ArgumentsError

if TYPE_CHECKING:
    from pydantic import BaseModel


class FunctionSchema:
    """How a function is called: its description, its parameters as JSON schema, and the check of arguments.

    Args:
        function: what is called.
        injected: the type of the parameter that the run fills in itself; it is not part of the schema.
        names: local names of the place where the function was defined, for hints that are text.

    Attributes:
        description: the docstring without its sections.
        parameters: JSON schema of an object.
    """

    def __init__(self, function: Callable[..., Any], *, injected: type, names: Mapping[str, Any]) -> None:
        self.description, documented = parse_docstring(_docstring(function))
        hints = _hints(function, names)
        self.injected: str | None = None
        self._parameters: list[inspect.Parameter] = []
        self._open = False
        for parameter in _signature(function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if hint is injected or injected in get_args(hint):
                self.injected = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                self._parameters.append(parameter.replace(annotation=hint))
        self._model = self._build_model(function, documented)
        self.parameters = _plain_schema(self._model)

    def bind(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for the call, as the types that the function asks for.

        Raises:
            ArgumentsError: a missing, extra or unfit argument, each by name.
        """
        from pydantic import ValidationError

        try:
            checked = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentsError(self._explain(error)) from error
        args: list[Any] = []
        kwargs: dict[str, Any] = dict(checked.model_extra or {})
        for i, parameter in enumerate(self._parameters):
            value = getattr(checked, f"p{i}")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            elif f"p{i}" in checked.model_fields_set:
                kwargs[parameter.name] = value
        return args, kwargs

    def _build_model(self, function: Callable[..., Any], documented: Mapping[str, str]) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        fields: dict[str, Any] = {}
        for i, parameter in enumerate(self._parameters):
            hint = Any if parameter.annotation is parameter.empty else portable_hint(parameter.annotation)
            description = _annotated_text(hint) or documented.get(parameter.name) or None
            described: dict[str, Any] = (
                {} if _has_description(hint) or not description else {"description": description}
            )
            default = ... if parameter.default is parameter.empty else parameter.default
            # Fields are numbered and aliased, so that a parameter may have any name that pydantic uses itself.
            fields[f"p{i}"] = (hint, Field(default, alias=parameter.name, **described))
        config = ConfigDict(extra="allow" if self._open else "forbid", arbitrary_types_allowed=True)
        try:
            return create_model("Arguments", __config__=config, **fields)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            raise _no_schema(function, error) from error

    def _explain(self, error: Any) -> str:
        known = ", ".join(p.name for p in self._parameters) or "none"
        lines = []
        for detail in error.errors(include_url=False, include_context=False):
            place = ".".join(str(part) for part in detail["loc"])
            if detail["type"] == "missing":
                lines.append(f"missing argument {place!r}")
            elif detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
                lines.append(f"unknown argument {place!r} (known: {known})")
            else:
                lines.append(f"argument {place!r}: {detail['msg']}")
        return "; ".join(lines)


def portable_hint(hint: Any) -> Any:
    """Return `hint` with each `typing.TypedDict` in it as one that pydantic takes before Python 3.12."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint):
        import typing_extensions

        make: Any = typing_extensions.TypedDict
        names = typing.get_type_hints(hint, include_extras=True)
        fields: dict[str, Any] = {
            name: (Required if name in hint.__required_keys__ else NotRequired)[portable_hint(inner)]
            for name, inner in names.items()
        }
        return make(hint.__name__, fields)
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        return Annotated[(portable_hint(inner), *extras)]
    origin, arguments = get_origin(hint), get_args(hint)
    portable = tuple(portable_hint(argument) for argument in arguments)
    if origin is None or all(a is b for a, b in zip(portable, arguments, strict=True)):
        return hint
    return Union[portable] if origin in (Union, types.UnionType) else origin[portable]  # noqa: UP007


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise _no_schema(function, error) from error


def _docstring(function: Any) -> str | None:
    target = getattr(function, "func", function)  # a partial's own docstring is that of `partial`
    if inspect.isroutine(target):
        return inspect.getdoc(target)
    return inspect.getdoc(type(target).__call__) or inspect.getdoc(type(target))


def _hints(function: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    target = getattr(function, "func", function)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, localns=dict(names) or None, include_extras=True)
    except (NameError, TypeError) as error:
        raise _no_schema(function, error) from error


def _plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema = model.model_json_schema(by_alias=True)
    except PydanticInvalidForJsonSchema as error:
        raise _no_schema(model, error) from error
    plain: dict[str, Any] = _without_titles(schema)
    plain.setdefault("properties", {})
    return plain


def _without_titles(node: Any, *, named: bool = False) -> Any:
    """Drop the titles that pydantic makes up; under `properties` a key called title is a parameter."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value, named=key in {"properties", "$defs"} and not named)
            for key, value in node.items()
            if named or key != "title" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    return node


def _annotated_text(hint: Any) -> str | None:
    if get_origin(hint) is Annotated:
        return next((item for item in get_args(hint)[1:] if isinstance(item, str)), None)
    return None


def _has_description(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        getattr(item, "description", None) for item in get_args(hint)[1:] if not isinstance(item, str)
    )


def _no_schema(function: Any, error: Exception) -> ConfigurationError:
    name = getattr(function, "__name__", type(function).__name__)
    reason = str(error).splitlines()[0]
    return ConfigurationError(
        f"No schema can be made for {name!r}: {reason}",
        hint="Give each parameter a hint that pydantic knows, resolvable where the function is defined.",
    )
