"""JSON schemas by the rules of strict mode: every object closed, every property required, optional ones nullable.

The rules are those of OpenAI's structured outputs; tools and response formats share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEPT = frozenset(
    {
        *("type", "description", "enum", "const", "anyOf", "properties", "items", "$ref", "$defs"),
        *("pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems"),
    }
)
"""What strict mode knows; other keywords only narrow or annotate, and are left out."""
_REFUSED = frozenset(
    {
        *("allOf", "not", "if", "then", "else", "prefixItems", "patternProperties", "contains"),
        *("dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties"),
    }
)
"""What strict mode does not know and what would mean something else without it."""
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_REFERENCE = "#/$defs/"


class NotStrictError(ValueError):
    """A schema has no strict form; the text says why."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the strict form of `schema`, which stays as it is.

    A property that was optional may be null instead, which means "not given": `without_unset` takes such nulls out of
    what a model sends. Defaults, and bounds that strict mode does not know, are left out.

    Raises:
        NotStrictError: it has none: an object with free keys, a value of any type, a root that is no object.

    Example:
        >>> made = strict_schema({"type": "object", "properties": {"a": {"type": "string", "default": ""}}})
        >>> made["properties"]["a"]
        {'anyOf': [{'type': 'string'}, {'type': 'null'}]}
        >>> made["required"], made["additionalProperties"]
        (['a'], False)
    """
    definitions = schema.get("$defs") or {}
    root = _resolved(schema, definitions)
    if root.get("type") != "object":
        raise NotStrictError("its root is no object")
    made = _strict({key: value for key, value in root.items() if key != "$defs"}, "", definitions)
    if definitions:
        made["$defs"] = {name: _strict(one, name, definitions) for name, one in definitions.items()}
    return made


def without_unset(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """Return `value` without each null that stands for "not given": of an optional property that takes no null.

    Args:
        value: what a model sent.
        schema: the schema before it was made strict.
        definitions: the schemas that it refers to; those in it by default.

    Example:
        >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": []}
        >>> without_unset({"a": None}, schema)
        {}
    """
    definitions = schema.get("$defs") or {} if definitions is None else definitions
    schema = _resolved(schema, definitions)
    if isinstance(value, list):
        items = schema.get("items") or _branch_with(schema, "items", definitions).get("items") or {}
        return [without_unset(item, items, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "properties" not in schema:
        schema = _branch_of(value, schema, definitions)
    properties, required = schema.get("properties", {}), schema.get("required", ())
    others = schema.get("additionalProperties")
    others = others if isinstance(others, Mapping) else {}
    return {
        name: without_unset(item, properties.get(name, others), definitions)
        for name, item in value.items()
        if not (
            item is None
            and name in properties
            and name not in required
            and not _takes_null(properties[name], definitions)
        )
    }


def _strict(schema: Any, place: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    where = f"{place or 'it'} "
    if not isinstance(schema, Mapping):
        raise NotStrictError(f"{where}may be anything")
    schema = _plain_union(schema)
    if refused := _REFUSED.intersection(schema):
        raise NotStrictError(f"{where}has {min(refused)!r}")
    made = {key: value for key, value in schema.items() if key in _KEPT and _knows(key, value)}
    if "$ref" in made:
        _resolved(schema, definitions)
        reference = made.pop("$ref")
        return {"anyOf": [{"$ref": reference}], **made} if made else {"$ref": reference}  # a reference stands alone
    types = _types(schema)
    if not (types or made.keys() & {"anyOf", "enum", "const"}) or not types <= _TYPES:
        raise NotStrictError(f"{where}may be anything")
    if "anyOf" in made:
        made["anyOf"] = [_strict(one, place, definitions) for one in made["anyOf"]]
    elif not types:  # a list of values; the service wants their types too
        values = schema.get("enum", [schema.get("const")])
        made["type"] = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    if "array" in types:
        made["items"] = _strict(schema.get("items"), f"{place}[]", definitions)
    if "object" in types:
        made |= _closed(schema, place, definitions)
    return made


def _closed(schema: Mapping[str, Any], place: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of an object: closed, and each property required."""
    if schema.get("additionalProperties", "properties" not in schema) is not False:
        raise NotStrictError(f"{place or 'it'} is an object with free keys")
    given = schema.get("required", ())
    properties = {}
    for name, one in schema.get("properties", {}).items():
        made = _strict(one, f"{place}.{name}".lstrip("."), definitions)
        properties[name] = made if name in given else _nullable(made, definitions)
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _nullable(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if _takes_null(schema, definitions):
        return schema
    described = {key: schema[key] for key in ("description",) if key in schema}
    bare = {key: value for key, value in schema.items() if key not in described}
    branches = bare["anyOf"] if bare.keys() == {"anyOf"} else [bare]
    return {"anyOf": [*branches, {"type": "null"}], **described}


def _plain_union(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `schema` with its `oneOf` as `anyOf`, and an `allOf` of one schema as that schema."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
        schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    return schema


def _knows(key: str, value: Any) -> bool:
    if key == "format":
        return value in _FORMATS
    return key != "pattern" or not any(group in str(value) for group in ("(?=", "(?!", "(?<"))


def _types(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type", ())
    return {kind} if isinstance(kind, str) else set(kind)


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `schema` refers to, with what stands beside the reference."""
    seen: set[str] = set()
    while isinstance(reference := schema.get("$ref"), str):
        name = reference.removeprefix(_REFERENCE)
        if reference in seen or not reference.startswith(_REFERENCE) or name not in definitions:
            raise NotStrictError(f"the reference {reference!r} leads nowhere")
        seen.add(reference)
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _takes_null(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    schema = _resolved(schema, definitions)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return any(_takes_null(one, definitions) for one in branches)
    if "const" in schema or "enum" in schema:
        return schema.get("const", "") is None or None in schema.get("enum", ())
    return not _types(schema) or "null" in _types(schema)


def _branches(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_resolved(one, definitions) for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]


def _branch_with(schema: Mapping[str, Any], keyword: str, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((one for one in _branches(schema, definitions) if keyword in one), {})


def _branch_of(
    value: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the branch of a union that `value` is meant for, by its fields; `schema` itself where there is none."""
    for one in _branches(schema, definitions):
        properties = one.get("properties", {})
        fixed = {name: field["const"] for name, field in properties.items() if "const" in field}
        if (
            properties
            and (value.keys() <= properties.keys() or one.get("additionalProperties"))
            and value.keys() >= set(one.get("required", ()))
            and all(value.get(name, const) == const for name, const in fixed.items())
        ):
            return one
    return _branch_with(schema, "additionalProperties", definitions) or schema
