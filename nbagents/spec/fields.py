"""What goes into an agent and what comes out: the fields `inputs` and `outputs` of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

JsonType = Literal["string", "number", "integer", "boolean", "object", "array"]
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
}


class Part(BaseModel):
    """A part of a spec: it never changes, and a field that does not exist is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


class InputSpec(Part):
    """A value that the instructions or the tools need."""

    description: str | None = None
    type: JsonType | None = None
    """What a run may give; anything by default."""
    required: bool = True
    """Whether each run has to give it, where there is no default; else it is empty text."""
    default: Any = None
    """Its value where a run gives none."""


class OutputSpec(Part):
    """A field of the answer."""

    type: JsonType | None = None
    """`string` by default; `object` where there are properties, `array` where there are items."""
    description: str | None = None
    required: bool | list[str] | None = None
    """Whether the answer always has it (it does by default); in a JSON schema the names of the fields that it has."""
    enum: list[str | int | float] | None = None
    """The only values."""
    properties: dict[str, OutputSpec] | None = None
    """The fields of an object."""
    items: OutputSpec | None = None
    """What is in an array."""
    nullable: bool = False
    """Whether it may be null."""
    format: str | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    minItems: int | None = None
    maxItems: int | None = None
    additionalProperties: Literal[False] | None = None

    def to_schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        kind = self.type or ("object" if self.properties is not None else "array" if self.items else "string")
        schema: dict[str, Any] = {"type": [kind, "null"] if self.nullable else kind}
        schema |= self.model_dump(
            exclude_none=True,
            exclude={"type", "required", "properties", "items", "nullable", "additionalProperties"},
        )
        if self.nullable and self.enum is not None:
            schema["enum"] = [*self.enum, None]
        if self.items is not None:
            schema["items"] = self.items.to_schema()
        if self.properties is not None:
            schema |= object_schema(self.properties, self.required if isinstance(self.required, list) else None)
            schema["type"] = [kind, "null"] if self.nullable else kind
        return schema


def object_schema(fields: Mapping[str, OutputSpec], required: list[str] | None = None) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {name: field.to_schema() for name, field in fields.items()},
        "required": [name for name in fields if name in required]
        if required is not None
        else [name for name, field in fields.items() if field.required is not False],
        "additionalProperties": False,
    }


def is_schema(outputs: Mapping[str, Any]) -> bool:
    """Whether `outputs` is the JSON schema of the whole answer, rather than its fields by name."""
    return isinstance(outputs.get("type"), str) or "$ref" in outputs


def fits(value: Any, kind: JsonType | None) -> bool:
    """Whether `value` is of a JSON type."""
    if kind is None:
        return True
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def as_list(given: Any) -> Any:
    """Take a text alone for a list of one."""
    return [given] if isinstance(given, str) else given
