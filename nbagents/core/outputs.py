"""Structured output: the schema that a `response_format` asks for and the value that a reply holds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, get_origin

from nbagents.core.errors import ConfigurationError, OutputValidationError
from nbagents.core.secrets import redact
from nbagents.core.strict import NotStrictError, strict_schema, without_unset

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from nbagents.core.usage import Usage

WRAPPER = "value"
"""The field of the object that goes around what is no object itself: services ask for an object at the root."""

_PACKAGE = __name__.partition(".")[0]
_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)```", re.S | re.M)
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.S)
_OPENING = re.compile(r"[\[{]")
_FAULTS_SHOWN = 10
_FAULT_LENGTH = 300
_CUT = {
    "length": ("cut by its length limit", "Raise the option max_tokens, or ask for less."),
    "content_filter": ("stopped by the provider's content filter", "Change what is asked."),
}
_ADVICE = "Pass a pydantic model, a dataclass, a TypedDict, a plain type or a JSON schema."


class UnfitReply(ValueError):
    """A reply that does not hold what was asked for; the text says why, for the model to read."""


class OutputFormat:
    """A type or JSON schema that the reply must fit.

    Args:
        asked: a pydantic model, dataclass, TypedDict, union, list or scalar type, a JSON schema, or the option as it is
            sent to services: `{"type": "json_object"}` or `{"type": "json_schema", ...}`.

    Attributes:
        name: the name that services see, of letters, digits, `_` and `-`.
        schema: the JSON schema; its root is an object.

    Raises:
        ConfigurationError: something that has no schema.
    """

    def __init__(self, asked: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._option: dict[str, Any] | None = None
        self._wrapped = False
        self.name = "output"
        if isinstance(asked, Mapping):
            self.schema = self._read_schema(asked)
            return
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(asked, "__name__", ""))[:64] or self.name
        self._adapter, schema = _adapter_of(asked)
        self.schema = self._at_root(schema)

    @cached_property
    def strict(self) -> dict[str, Any] | None:
        """The schema by the rules of strict mode; None if it has no such form, or is sent as it was given."""
        try:
            return strict_schema(self.schema) if self._option is None else None
        except NotStrictError:
            return None

    def to_option(self) -> dict[str, Any]:
        """Return the Chat Completions form, strict where that can be; one that was given in it comes back as it was."""
        if self._option is not None:
            return dict(self._option)
        if self.strict is None:
            return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema}}
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.strict, "strict": True}}

    def parse(self, text: str) -> Any:
        """Return the value that `text` holds: alone, in a Markdown fence, or with words around it.

        Raises:
            UnfitReply: there is no JSON, it does not fit, or there are several values that do.
        """
        try:
            return self._fitted(_decode(text))
        except UnfitReply:
            raise
        except ValueError as error:
            no_json = UnfitReply(f"It is no JSON: {error}.")
        found = list(_decodable_fences(text)) or list(_embedded(_THOUGHT.sub("", text, count=1)))
        fitting: list[Any] = []
        fault = no_json
        for value in found:
            try:
                fitted = self._fitted(value)
            except UnfitReply as error:
                fault = error
            else:
                if fitted not in fitting:
                    fitting.append(fitted)
        if len(fitting) > 1:
            raise UnfitReply(f"It holds {len(fitting)} values that fit; give only one.")
        if not fitting:
            raise fault
        return fitting[0]

    def correction(self, fault: UnfitReply) -> str:
        """Return what the model is told when its reply does not fit."""
        schema = json.dumps(self.strict or self.schema, ensure_ascii=False)
        return f"Your reply does not fit the required format:\n{fault}\nReply with JSON only, of this schema: {schema}"

    def _read_schema(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take a JSON schema, or the option as services know it."""
        from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

        kind = asked.get("type")
        schema: Any = asked
        if kind == "json_object":
            self._option, schema = dict(asked), {"type": "object"}
        elif kind == "json_schema":
            inner = asked.get("json_schema")
            self._option, schema = dict(asked), inner.get("schema") if isinstance(inner, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ConfigurationError(
                "response_format of the type 'json_schema' holds no schema.",
                hint="It is written {'type': 'json_schema', 'json_schema': {'name': ..., 'schema': {...}}}.",
            )
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ConfigurationError(
                f"response_format is no JSON schema: {error.message} at {error.json_path}.", hint=_ADVICE
            ) from error
        self._given_schema = dict(schema)
        return self._given_schema if self._option is not None else self._at_root(self._given_schema)

    def _at_root(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return `schema` with an object at its root."""
        if schema.get("type") == "object":
            return schema
        if "type" not in schema and "properties" in schema:
            return {"type": "object", **schema}
        self._wrapped = True
        shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        inner = _led_to_wrapper({name: value for name, value in schema.items() if name not in shared})
        closed = {"required": [WRAPPER], "additionalProperties": False}
        return {"type": "object", "properties": {WRAPPER: inner}, **closed, **_led_to_wrapper(shared)}

    def _fitted(self, value: Any) -> Any:
        """Return the value that decoded JSON stands for, with the wrapper or, where the model forgot it, without."""
        if self.strict is not None:
            value = without_unset(value, self.schema)
        forms = [value]
        if self._wrapped and isinstance(value, dict) and value.keys() == {WRAPPER}:
            forms = [value[WRAPPER], value]
        faults = []
        for form in forms:
            try:
                return self._validated(form) if self._adapter is None else _of_type(self._adapter, form)
            except UnfitReply as error:
                faults.append(error)
        raise faults[0]

    def _validated(self, value: Any) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # With a registry of its own a reference to some address is never fetched.
        validator = Draft202012Validator(self._given_schema, registry=Registry())
        try:
            faults = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        except Unresolvable as error:
            raise ConfigurationError(f"response_format has a reference that leads nowhere: {error}") from error
        if faults:
            raise UnfitReply(_listed(faults))
        return value


def output_format(asked: Any) -> OutputFormat | None:
    """Return the format that `asked` (the option `response_format`) means; None for none and for plain text."""
    if asked is None or (isinstance(asked, Mapping) and asked.get("type") == "text"):
        return None
    return _format_of_class(asked) if isinstance(asked, type) else OutputFormat(asked)


@lru_cache(maxsize=64)
def _format_of_class(asked: type) -> OutputFormat:
    """Build the format of a class once: it takes longer than the rest of a run."""
    return OutputFormat(asked)


def check_whole(text: str, finish_reason: str | None, *, attempts: int, usage: Usage | None = None) -> None:
    """Raise OutputValidationError for a reply that was ended before the model had finished: it is not read at all."""
    if finish_reason not in _CUT:
        return
    why, hint = _CUT[finish_reason]
    raise OutputValidationError(
        f"The reply was {why}, so what response_format asks for is not whole.",
        attempts=attempts,
        raw_text=text,
        usage=usage,
        hint=hint,
    )


def _adapter_of(asked: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    from nbagents.core.schema import portable_hint

    if isinstance(asked, str) or (callable(asked) and not isinstance(asked, type) and get_origin(asked) is None):
        hint = 'For any JSON object pass {"type": "json_object"}.' if isinstance(asked, str) else _ADVICE
        raise ConfigurationError(f"response_format={asked!r} is no type.", hint=hint)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(portable_hint(asked), _parent_depth=_depth_of_caller())
        return adapter, adapter.json_schema()
    except (PydanticUndefinedAnnotation, NameError) as error:
        raise _no_schema(asked, error, "Define the types that it names before it, at the top of the module.") from error
    except (PydanticUserError, TypeError) as error:
        undefined = getattr(error, "code", None) == "class-not-fully-defined"
        advice = "Define the types that it names, at the top of the module, or call its model_rebuild()."
        raise _no_schema(asked, error, advice if undefined else _ADVICE) from error


def _no_schema(asked: Any, error: Exception, hint: str) -> ConfigurationError:
    return ConfigurationError(f"response_format={asked!r} has no JSON schema: {str(error).splitlines()[0]}", hint=hint)


def _depth_of_caller() -> int:
    """How many calls `TypeAdapter(...)` is away from the user's code, whose names postponed annotations may use."""
    depth = 2  # as TypeAdapter counts: 2 is the function that calls it, here the caller of this one
    frame = sys._getframe(1)
    while frame.f_back is not None:
        depth += 1
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
            return depth
    return 2


def _of_type(adapter: TypeAdapter[Any], value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return adapter.validate_json(json.dumps(value))  # as JSON: a strict model takes a date only from there
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        places = [".".join(map(str, detail["loc"])) for detail in details]
        fault = UnfitReply(
            _listed([f"{place or 'value'}: {detail['msg']}" for place, detail in zip(places, details, strict=True)])
        )
        shown = str(error)  # it quotes the reply, and is printed as the cause
        raise fault from (error if redact(shown) == shown else None)


def _listed(faults: list[str]) -> str:
    lines = [fault if len(fault) <= _FAULT_LENGTH else f"{fault[:_FAULT_LENGTH]}…" for fault in faults[:_FAULTS_SHOWN]]
    if len(faults) > _FAULTS_SHOWN:
        lines.append(f"and {len(faults) - _FAULTS_SHOWN} more")
    return redact("\n".join(lines))


def _led_to_wrapper(node: Any) -> Any:
    """Return a part of a schema with its references led to where the root now stands."""
    if isinstance(node, Mapping):
        return {key: _led(value) if key == "$ref" else _led_to_wrapper(value) for key, value in node.items()}
    return [_led_to_wrapper(item) for item in node] if isinstance(node, list) else node


def _led(reference: Any) -> Any:
    """Return a reference led to the wrapper; one to definitions, which stay at the root, as it is."""
    if not isinstance(reference, str):
        return _led_to_wrapper(reference)
    stays = reference.startswith(("#/$defs/", "#/definitions/")) or not reference.startswith("#")
    return reference if stays else f"#/properties/{WRAPPER}{reference[1:]}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _decodable_fences(text: str) -> Iterator[Any]:
    for fence in _FENCE.finditer(text):
        try:
            yield _decode(fence[1])
        except ValueError:
            continue


def _embedded(text: str) -> Iterator[Any]:
    """Yield the objects and arrays within `text`; nothing from inside one that is broken."""
    at = 0
    while opening := _OPENING.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            at = max(error.pos, opening.end())
        except ValueError:
            at = opening.end()
        except RecursionError:
            return
        else:
            yield value
