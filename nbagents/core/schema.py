"""The JSON schema of a function's parameters, from its hints and docstring, and the check of arguments against it."""

from __future__ import annotations

import inspect
import json
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Required, Self, Union, Unpack, get_args, get_origin

from nbagents.core.callables import docstring_of, hints_of, name_of, parameters_of
from nbagents.core.docstrings import parse_docstring
from nbagents.core.errors import ConfigurationError
from nbagents.core.strict import without_unset
from nbagents.core.tools import ArgumentsError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


_ARRAY_LIBRARIES = frozenset({"pandas", "numpy", "polars", "pyarrow"})


class FunctionSchema:
    """How a function is called: its description, its parameters as JSON schema, and the check of arguments.

    `*names: str` is an optional array of that name; `**others: str` are further arguments of any name.

    Args:
        function: what is called.
        injected: the type of the parameter that the run fills in itself; it is not part of the schema.
        names: local names of the place where the function was defined, for hints that are text.

    Attributes:
        description: the docstring without its sections.
        parameters: JSON schema of an object.
    """

    def __init__(self, function: Callable[..., Any], *, injected: type, names: Mapping[str, Any]) -> None:
        self.description, documented = parse_docstring(docstring_of(function))
        hints = _hints(function, names)
        self._order: list[tuple[inspect.Parameter, str | None]] = []
        self._fields: dict[str, FieldInfo] = {}
        self._others: Any = None
        for number, parameter in enumerate(_parameters(function)):
            hint = hints.get(parameter.name, Any)
            if hint is injected or injected in get_args(hint):
                self._order.append((parameter, None))
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._others = hint
            else:
                if parameter.kind is parameter.VAR_POSITIONAL:
                    hint = list[Any if hint is parameter.empty else hint]  # type: ignore[misc]
                if _is_field(parameter.default):
                    self._fields[parameter.name] = parameter.default
                self._order.append((parameter.replace(annotation=hint), f"p{number}"))
        spreads = any(parameter.kind is parameter.VAR_POSITIONAL for parameter, _ in self._order)
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._by_place = by_place if spreads else by_place[:1]
        self._names = [parameter.name for parameter, field in self._order if field]
        try:
            self._model = self._build_model(function, documented)
            self.parameters = _plain_schema(function, self._model)
        except ConfigurationError as error:
            raise self._table_error(function) or error from error.__cause__

    def bind(self, arguments: Mapping[str, Any], context: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for the call, as the types that the function asks for.

        A null for an optional parameter, or field of one, that takes none means that it is not given: strict mode lets
        a model say it in no other way.

        Raises:
            ArgumentsError: a missing, extra or unfit argument, each by name.
        """
        checked = self._checked(arguments)
        args: list[Any] = []
        kwargs: dict[str, Any] = dict(checked.model_extra or {})
        for parameter, field in self._order:
            if field is None:
                value = context
            elif field in checked.model_fields_set:
                value = getattr(checked, field)
            elif parameter.name in self._fields:
                value = self._fields[parameter.name].get_default(call_default_factory=True)
            elif parameter.kind in self._by_place:
                value = parameter.default
            else:
                continue
            if parameter.kind in self._by_place:
                args.append(value)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(value)
            else:
                kwargs[parameter.name] = value
        return args, kwargs

    def _checked(self, arguments: Mapping[str, Any]) -> BaseModel:
        from pydantic import ValidationError

        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError as error:
            first = error
        given = without_unset(dict(arguments), self.parameters)
        try:
            return self._checked_as_json(given)
        except ValidationError as error:
            told = first if error.errors()[0]["type"] == "json_invalid" else error
            raise ArgumentsError(self._explain(told)) from told

    def _checked_as_json(self, arguments: dict[str, Any]) -> BaseModel:
        """As JSON, since a type that is strict itself takes a date or a set only from there."""
        try:
            text = json.dumps(arguments)
        except (TypeError, ValueError):  # middleware has put something else in
            return self._model.model_validate(arguments)
        return self._model.model_validate_json(text)

    def _build_model(self, function: Callable[..., Any], documented: Mapping[str, str]) -> type[BaseModel]:
        from pydantic import Field, create_model
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
        from pydantic_core import SchemaError

        fields: dict[str, Any] = {}
        for parameter, field in self._order:
            if field is None:
                continue
            default: dict[str, Any] = {"default": ... if parameter.default is parameter.empty else parameter.default}
            if parameter.kind is parameter.VAR_POSITIONAL:
                default = {"default": []}
            hint = Any if parameter.annotation is parameter.empty else portable_hint(parameter.annotation)
            if given := self._fields.get(parameter.name):
                hint = Annotated[hint, given]
                default = {"default_factory": given.default_factory} if given.default_factory else {}
                default = default or {"default": ... if given.is_required() else given.default}
            description = _annotated_text(hint) or documented.get(parameter.name) or None
            described: dict[str, Any] = (
                {} if _has_description(hint) or not description else {"description": description}
            )
            # Fields are numbered and aliased, so that a parameter may have any name that pydantic uses itself.
            fields[field] = (hint, Field(alias=parameter.name, **default, **described))
        try:
            if any(_mentions(hint, Self) for hint, _ in fields.values()):
                raise TypeError("Self is no type outside its class; name the class.")
            return create_model("Arguments", __base__=_base_for(self._others), **fields)
        except (PydanticSchemaGenerationError, PydanticUserError, SchemaError, TypeError) as error:
            raise _no_schema(function, error) from error

    def _table_error(self, function: Callable[..., Any]) -> ConfigurationError | None:
        """What to say of a function that takes tables or arrays; None if it does not."""
        for parameter, _ in self._order:
            if (kind := _table_in(parameter.annotation)) is not None:
                return ConfigurationError(
                    f"The parameter {parameter.name!r} of {name_of(function)!r} is a {kind.__name__}: no model can "
                    "write one.",
                    hint="Take what it can write, a path: str, rows: list[dict] or values: list[float], and make "
                    f"the {kind.__name__} inside the function; or use one there that your notebook has.",
                )
        return None

    def _explain(self, error: Any) -> str:
        known = ", ".join(self._names) or "none"
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
    """Return `hint` as one that pydantic takes and checks at once.

    Before Python 3.12 it takes no `typing.TypedDict`; an `Iterable` it would check only while it is read, in the tool.
    """
    if hint is typing.LiteralString:
        return str
    if sys.version_info < (3, 12) and typing.is_typeddict(hint):
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
    if origin is Iterable:
        return list[portable]  # type: ignore[valid-type]
    if origin is None or all(a is b for a, b in zip(portable, arguments, strict=True)):
        return hint
    return Union[portable] if origin in (Union, types.UnionType) else origin[portable]  # noqa: UP007


def _base_for(others: Any) -> type[BaseModel]:
    """The class of models that take further arguments of the type `others`; None for none."""
    from pydantic import BaseModel, ConfigDict

    namespace: dict[str, Any] = {
        "__module__": __name__,
        "model_config": ConfigDict(extra="forbid" if others is None else "allow", arbitrary_types_allowed=True),
    }
    if others not in (None, Any, inspect.Parameter.empty) and get_origin(others) is not Unpack:
        namespace["__annotations__"] = {"__pydantic_extra__": dict[str, others]}
    return type("Arguments", (BaseModel,), namespace)


def _table_in(hint: Any) -> type | None:
    """The table or array type in `hint`, known by its module: `core` imports none of these."""
    kind = get_origin(hint) or hint
    module = getattr(kind, "__module__", "")
    if isinstance(kind, type) and str(module).partition(".")[0] in _ARRAY_LIBRARIES:
        return kind
    return next((found for part in get_args(hint) if (found := _table_in(part)) is not None), None)


def _mentions(hint: Any, part: Any) -> bool:
    return hint is part or any(_mentions(argument, part) for argument in get_args(hint))


def _is_field(default: Any) -> bool:
    """Whether a default is pydantic's `Field(...)`, which stands for the default that it has."""
    from pydantic.fields import FieldInfo

    return isinstance(default, FieldInfo)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError) as error:
        raise _no_schema(function, error) from error
    if parameters and parameters[0].name == "self" and parameters[0].annotation is inspect.Parameter.empty:
        raise ConfigurationError(
            f"{name_of(function)!r} is a method without its object.",
            hint="Pass the object, which gives all its @tool methods, or the method of an object.",
        )
    return parameters


def _hints(function: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return hints_of(function, names)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise _no_schema(function, error) from error


def _plain_schema(function: Any, model: type[BaseModel]) -> dict[str, Any]:
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        """Leaves a default that is no JSON out of the schema without a word."""

        ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    try:
        schema = model.model_json_schema(by_alias=True, schema_generator=Quiet)
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise _no_schema(function, error) from error
    plain: dict[str, Any] = _without_titles(schema)
    plain.setdefault("properties", {})
    return plain


def _without_titles(node: Any, *, named: bool = False) -> Any:
    """Drop the titles that pydantic makes up, and NaN and infinity, which are no JSON.

    Under `properties` a key called title is a parameter.
    """
    if isinstance(node, dict):
        return {
            key: _without_titles(value, named=key in {"properties", "$defs"} and not named)
            for key, value in node.items()
            if named or not ((key == "title" and isinstance(value, str)) or _is_no_json(value))
        }
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    return node


def _is_no_json(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _annotated_text(hint: Any) -> str | None:
    if get_origin(hint) is Annotated:
        return next((item for item in get_args(hint)[1:] if isinstance(item, str)), None)
    return None


def _has_description(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        getattr(item, "description", None) for item in get_args(hint)[1:] if not isinstance(item, str)
    )


def _no_schema(function: Any, error: Exception) -> ConfigurationError:
    name = name_of(function)
    reason = " ".join(str(error).partition("\n\n")[0].split())
    return ConfigurationError(
        f"No schema can be made for {name!r}: {reason}",
        hint="Give each parameter a hint that pydantic knows, resolvable where the function is defined.",
    )
