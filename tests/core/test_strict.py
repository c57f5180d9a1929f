"""Strict schemas of tools: their form, where they fall back, and what a null from the model means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from nbagents import Agent, OpenAIChatClient, ScriptedChatClient, tool, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.core.strict import NotStrictError, strict_schema, without_unset
from nbagents.core.tools import FunctionTool


def strict_parameters(function):
    return FunctionTool(function, strict=True).definition.parameters


def test_plain_schemas_require_what_has_no_default_and_strict_ones_make_the_rest_nullable():
    """C58"""

    def f(a: int, b: str = "x", c: int | None = None) -> None:
        """Do it."""

    plain = FunctionTool(f).definition
    assert (plain.strict, plain.parameters["required"]) == (None, ["a"])
    assert plain.parameters["properties"]["b"]["default"] == "x"
    assert strict_parameters(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }


def free_dict(a: int, d: dict[str, int] | None = None) -> None:
    """Do it."""


def free_keywords(a: int, **more: int) -> None:
    """Do it."""


def anything(a: Any) -> None:
    """Do it."""


def no_hint(a) -> None:
    """Do it."""


def bare_list(a: list) -> None:
    """Do it."""


def pair(a: tuple[int, str]) -> None:
    """Do it."""


class Open(BaseModel, extra="allow"):
    n: int


def open_model(items: list[Open]) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (free_dict, "d is an object with free keys"),
        (free_keywords, "it is an object with free keys"),
        (anything, "a may be anything"),
        (no_hint, "a may be anything"),
        (bare_list, r"a\[\] may be anything"),
        (pair, "a has 'prefixItems'"),
        (open_model, "Open is an object with free keys"),
    ],
)
def test_a_tool_that_cannot_be_strict_stays_plain_where_the_client_decides_and_is_an_error_where_asked(
    function, reason
):
    """C58"""
    left_open = FunctionTool(function).definition
    assert left_open.strict_form.strict is False
    assert left_open.strict_form.parameters == left_open.parameters
    with pytest.raises(ConfigurationError, match=rf"{function.__name__}' cannot be strict: .*{reason}"):
        Agent(ScriptedChatClient([]), tools=[FunctionTool(function, strict=True)])


def test_what_the_author_decides_no_client_changes():
    def f(a: int = 1) -> None:
        """Do it."""

    assert FunctionTool(f).definition.strict_form.strict is True
    assert FunctionTool(f, strict=False).definition.strict_form.strict is False
    assert "default" in FunctionTool(f, strict=False).definition.strict_form.parameters["properties"]["a"]
    assert FunctionTool(f, strict=True).definition.strict_form.parameters["required"] == ["a"]


class Colour(Enum):
    RED = "red"


class Leaf(BaseModel):
    """A leaf."""

    name: str = Field(min_length=2, max_length=9, pattern="^[a-z]+$")
    size: Annotated[int, Field(ge=0, multiple_of=2)] = 2
    below: list[Leaf] = []


class Spot(TypedDict, total=False):
    x: float


@dataclass
class Box:
    spot: Spot
    colour: Colour = Colour.RED


Leaf.model_rebuild()


def test_nested_types_are_closed_too_and_lose_only_what_strict_mode_does_not_know():
    def f(
        leaf: Annotated[Leaf, Field(description="the leaf")],
        box: Box | None = None,
        mixed: Literal["a", 1, None] = None,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """Do it."""

    made = strict_parameters(f)
    assert made["properties"]["leaf"] == {"anyOf": [{"$ref": "#/$defs/Leaf"}], "description": "the leaf"}
    assert made["properties"]["mixed"] == {"enum": ["a", 1, None], "type": ["string", "integer", "null"]}
    assert made["properties"]["tags"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}
    leaf = made["$defs"]["Leaf"]
    assert leaf["properties"]["name"] == {"type": "string", "pattern": "^[a-z]+$"}
    assert leaf["properties"]["size"]["anyOf"][0] == {"type": "integer", "minimum": 0, "multipleOf": 2}
    assert [made["$defs"][name]["required"] for name in ("Leaf", "Box", "Spot")] == [
        ["name", "size", "below"],
        ["spot", "colour"],
        ["x"],
    ]
    assert faults(made) == []


def faults(schema, place=""):
    """What OpenAI refuses in a strict schema, by its own documentation."""
    found = []
    if isinstance(schema, list):
        return [fault for one in schema for fault in faults(one, place)]
    if not isinstance(schema, dict):
        return []
    known = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref"}
    known |= {"$defs", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum"}
    known |= {"exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
    found += [f"{place}: {key}" for key in schema.keys() - known]
    if "$ref" in schema and len(schema) > 1:
        found.append(f"{place}: a reference with company")
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            found.append(f"{place}: open")
        if sorted(schema.get("required", [])) != sorted(schema.get("properties", {})):
            found.append(f"{place}: not all required")
    if not schema.keys() & {"type", "anyOf", "$ref"}:
        found.append(f"{place}: no type")
    parts = [*schema.get("properties", {}).items(), *schema.get("$defs", {}).items()]
    parts += [(key, schema[key]) for key in ("items", "anyOf") if key in schema]
    return [*found, *(fault for name, one in parts for fault in faults(one, f"{place}.{name}"))]


scalars = st.sampled_from(
    [{"type": "string", "minLength": 1}, {"type": "integer", "default": 3}, {"const": "x"}, {"enum": [1, None]}]
)


def objects(inner):
    return st.dictionaries(st.sampled_from("abc"), inner, max_size=3).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties) or ["-"])).map(
            lambda required: {
                "type": "object",
                "title": "T",
                "properties": properties,
                "required": sorted(required & properties.keys()),
            }
        )
    )


schemas = st.recursive(
    scalars,
    lambda inner: (
        objects(inner)
        | inner.map(lambda one: {"type": "array", "items": one, "uniqueItems": True})
        | st.lists(inner, min_size=1, max_size=2).map(lambda many: {"oneOf": many})
    ),
    max_leaves=12,
)


@given(objects(schemas))
def test_every_strict_form_keeps_the_rules_and_the_given_schema_is_not_changed(schema):
    before = repr(schema)
    assert faults(strict_schema(schema)) == []
    assert repr(schema) == before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "object", "properties": {}}]},
        {"type": "object"},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/definitions/Old"}}, "definitions": {"Old": {}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}, {"minLength": 1}]}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
    ],
)
def test_what_has_no_strict_form_is_said_so(schema):
    with pytest.raises(NotStrictError):
        strict_schema(schema)


def test_a_root_that_is_a_reference_is_put_in_its_place():
    made = strict_schema(Leaf.model_json_schema())
    assert made["type"] == "object"
    assert faults(made) == []


class Item(BaseModel):
    name: str
    n: int = 1


@pytest.mark.parametrize("strict", [None, True])
async def test_a_null_for_what_is_optional_means_its_default(ask, strict):
    """C58"""
    got: dict[str, Any] = {}

    @tool(strict=strict)
    def f(
        a: int,
        b: str = "x",
        c: int | None = 7,
        item: Item | None = None,
        items: list[Item | int] = [],  # noqa: B006
        box: Box | None = None,
    ) -> str:
        """Do it."""
        got.update(a=a, b=b, c=c, item=item, items=items, box=box)
        return "done"

    call = tool_call(
        "f",
        a=1,
        b=None,
        c=None,
        item={"name": "i", "n": None},
        items=[{"name": "j", "n": None}, 3],
        box={"spot": {"x": None}, "colour": None},
    )
    await ask(Agent(ScriptedChatClient([[call], "ok"]), tools=[f]), "q")
    assert got == {
        "a": 1,
        "b": "x",
        "c": None,
        "item": Item(name="i"),
        "items": [Item(name="j"), 3],
        "box": Box({}, Colour.RED),
    }


async def test_a_null_for_what_is_required_or_an_entry_of_a_free_dict_is_still_wrong(ask):
    @tool
    def f(a: int, prices: dict[str, int], b: int = 2) -> str:
        """Do it."""
        raise AssertionError("must not run")

    calls = [tool_call("f", a=None, prices={}, b=None), tool_call("f", a=1, prices={"x": None})]
    response = await ask(Agent(ScriptedChatClient([calls, "ok"]), tools=[f]), "q")
    told = [result.result for message in response.messages for result in message.results]
    assert told == [
        "The call does not fit the tool 'f': argument 'a': Input should be a valid integer.",
        "The call does not fit the tool 'f': argument 'prices.x': Input should be a valid integer.",
    ]


def test_a_union_of_objects_is_told_apart_by_its_fields():
    schema = {
        "type": "object",
        "properties": {
            "pet": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
                        "required": ["kind"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "dog"}, "lives": {"type": ["integer", "null"]}},
                        "required": ["kind"],
                    },
                ]
            }
        },
        "required": ["pet"],
    }
    assert without_unset({"pet": {"kind": "cat", "lives": None}}, schema) == {"pet": {"kind": "cat"}}
    assert without_unset({"pet": {"kind": "dog", "lives": None}}, schema) == {"pet": {"kind": "dog", "lives": None}}


async def test_a_type_that_is_strict_itself_takes_a_date_from_json(ask):
    from datetime import date

    class Trip(BaseModel, strict=True):
        day: date
        days: int

    @tool
    def book(trip: Trip) -> str:
        """Book it."""
        return f"{trip.day:%d.%m.} for {trip.days}"

    call = tool_call("book", trip={"day": "2026-11-30", "days": 2})
    response = await ask(Agent(ScriptedChatClient([[call], "ok"]), tools=[book]), "q")
    assert response.messages[1].results[0].result == "30.11. for 2"


@pytest.mark.parametrize(("strict", "sent"), [(True, True), (None, None), (False, None)])
async def test_a_server_hears_of_strict_only_where_the_tool_says_so(raw_server, ask, strict, sent):
    """C58"""

    @tool(strict=strict)
    def f(a: int, b: str = "x") -> str:
        """Do it."""
        return f"{a}{b}"

    raw_server.strict = True
    raw_server.reply_calls(("c1", "f", {"a": 1, "b": None})).reply_text("done")
    client = OpenAIChatClient("m", base_url=raw_server.base_url)
    response = await ask(Agent(client, tools=[f]), "q")
    function = raw_server.requests[0]["tools"][0]["function"]
    assert function.get("strict") is sent
    assert function["parameters"]["required"] == (["a", "b"] if sent else ["a"])
    assert [result.result for message in response.messages for result in message.results] == ["1x"]
