"""Arguments of every kind: hints, defaults, shapes of signatures, and what models send."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, ParamSpec, Self, TypeVar, Union
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema
from typing_extensions import TypedDict

from nbagents import Agent, FunctionContext, ScriptedChatClient, ToolContext, tool, tool_call
from nbagents.core.content import FunctionCall
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.core.toolset import collect_tools

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
UserId = NewType("UserId", int)
Numbers = list[int] | None


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(StrEnum):
    RED = "red"


class Item(BaseModel):
    name: str
    n: int = 1


class Wrapped(BaseModel, Generic[T]):
    of: T


class Spot(NamedTuple):
    x: int
    y: int = 0


class Row(TypedDict, total=False):
    cell: int


@dataclass
class Tree:
    value: int
    below: list[Tree]


HINTS = [
    (UserId, 3, 3),
    (Numbers, [1, "2"], [1, 2]),
    (Annotated[Optional[Annotated[int, Field(ge=1)]], "text"], None, None),  # noqa: UP045
    (Union[Item, int], {"name": "a"}, Item(name="a")),  # noqa: UP007
    (Literal["a", 1, True, None], 1, 1),
    (Level, 2, Level.HIGH),
    (Level, "2", Level.HIGH),
    (Colour, "red", Colour.RED),
    (set[int], [1, 2, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset("a")),
    (tuple[int, str], [1, "b"], (1, "b")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (dict[str, Item], {"k": {"name": "a", "n": 2}}, {"k": Item(name="a", n=2)}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (Iterable[int], ["1"], [1]),
    (Path, "a/b", Path("a/b")),
    (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    (Decimal, "1.50", Decimal("1.50")),
    (bytes, "é", "é".encode()),
    (datetime, "2026-11-30T10:00:00Z", datetime(2026, 11, 30, 10, tzinfo=timezone.utc)),  # noqa: UP017
    (date, "2026-11-30", date(2026, 11, 30)),
    (time, "10:00", time(10)),
    (timedelta, "PT1H", timedelta(hours=1)),
    (re.Pattern, "a+", re.compile("a+")),
    (Wrapped[int], {"of": 3}, Wrapped[int](of=3)),
    (Spot, {"x": 1}, Spot(1)),
    (Row, {"cell": 1}, {"cell": 1}),
    (Tree, {"value": 1, "below": [{"value": 2, "below": []}]}, Tree(1, [Tree(2, [])])),
    (Any, None, None),
    (float, "3.5", 3.5),
    (int, "5", 5),
    (bool, "true", True),
]


@pytest.mark.parametrize(("hint", "sent", "got"), HINTS, ids=[str(hint) for hint, *_ in HINTS])
async def test_hints_of_every_usual_kind_reach_the_function_as_what_they_say(hint, sent, got):
    """C60"""
    seen = []

    def f(value) -> None:
        """Take."""
        seen.append(value)

    f.__annotations__ = {"value": hint}
    schema = FunctionTool(f).definition.parameters
    json.dumps(schema, allow_nan=False)
    assert schema["required"] == ["value"]
    await Agent(ScriptedChatClient([[tool_call("f", value=sent)], "ok"]), tools=[f]).run("q")
    assert seen == [got]
    assert type(seen[0]) is type(got)


@pytest.mark.parametrize(
    "hint", [Callable[[int], int], Self, range, "Nowhere", "int |", Annotated[str, Field(pattern="(")]]
)
def test_a_hint_without_a_schema_is_one_error_that_names_the_function(hint):
    def useless(value) -> None:
        """Take."""

    useless.__annotations__ = {"value": hint}
    with pytest.raises(ConfigurationError, match=r"No schema can be made for 'useless': \w+") as raised:
        Agent(ScriptedChatClient([]), tools=[useless])
    assert "\n" not in str(raised.value)


def test_defaults_that_are_no_json_stay_out_of_the_schema_without_a_word(recwarn):
    marker = object()

    def f(a: Any = marker, b: float = float("nan"), c: bytes = b"\xff", d: Callable | None = None) -> None:
        """Take."""

    def g(a: Any = marker, b: float = float("inf"), c: bytes = b"\xff", d: frozenset[int] = frozenset({1})) -> None:
        """Take."""

    with pytest.raises(ConfigurationError):
        _ = FunctionTool(f).definition
    properties = FunctionTool(g).definition.parameters["properties"]
    assert {name: one.get("default") for name, one in properties.items()} == {"a": None, "b": None, "c": None, "d": [1]}
    assert FunctionTool(g).schema.bind({}) == ([], {})
    assert list(recwarn) == []


def test_a_field_as_the_default_is_what_it_stands_for():
    def f(
        a: int = Field(3, ge=0, description="how many"),
        b: list[int] = Field(default_factory=list),  # noqa: B008
        c: str = Field(max_length=3),
    ) -> None:
        """Take."""

    one = FunctionTool(f)
    assert one.definition.parameters["required"] == ["c"]
    assert one.definition.parameters["properties"]["a"]["description"] == "how many"
    first, second = one.schema.bind({"c": "x"})[1], one.schema.bind({"c": "x", "a": 1})[1]
    assert (first, second["a"]) == ({"a": 3, "b": [], "c": "x"}, 1)
    assert first["b"] is not second["b"]


async def test_signatures_of_every_shape_are_called_as_they_want_to_be(ask):
    got = []

    @tool
    def f(
        context: ToolContext, a: int, b: str = "x", /, c: int = 1, *rest: int, d: int, e: int = 2, **more: int
    ) -> None:
        """Take."""
        got.append((context.call_id != "", a, b, c, rest, d, e, more))

    parameters = f.definition.parameters
    assert (list(parameters["properties"]), parameters["required"]) == (["a", "b", "c", "rest", "d", "e"], ["a", "d"])
    calls = [
        tool_call("f", a=1, d="2", z="3"),
        tool_call("f", a=1, b="y", c=5, d=2, e=6),
        tool_call("f", a=1, d=1, z="no"),
    ]
    response = await ask(Agent(ScriptedChatClient([calls, "ok"]), tools=[f]), "q")
    assert got == [(True, 1, "x", 1, (), 2, 2, {"z": 3}), (True, 1, "y", 5, (), 2, 6, {})]
    (told,) = (r.error for m in response.messages for r in m.results if r.error)
    assert "argument 'z': Input should be a valid integer" in told


def greet(greeting: str, name: str, key: str = "k") -> str:
    """Greet."""
    return f"{greeting} {name} {key}"


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return inner


class Holder:
    """Not this."""

    def __init__(self):
        self.func = len  # what a partial has too

    def __call__(self, name: str) -> str:
        """Hold."""
        return f"held {name}"

    @staticmethod
    def static(name: str) -> str:
        """Hold."""
        return f"static {name}"

    @classmethod
    def klass(cls, name: str) -> str:
        """Hold."""
        return f"{cls.__name__} {name}"


KINDS = {
    "partial": (functools.partial(greet, "Hi", key="hidden"), "greet", "Hi Ada hidden"),
    "partial of a partial": (functools.partial(functools.partial(greet, "Hi"), key="x"), "greet", "Hi Ada x"),
    "partial of a tool": (functools.partial(tool(greet), "Hi", key="x"), "greet", "Hi Ada x"),
    "partial of an object": (functools.partial(Holder()), "Holder", "held Ada"),
    "decorated": (functools.partial(logged(greet), "Hi", key="x"), "greet", "Hi Ada x"),
    "cached": (functools.lru_cache(Holder.static), "static", "static Ada"),
    "object": (Holder(), "Holder", "held Ada"),
    "static method": (Holder().static, "static", "static Ada"),
    "class method": (Holder.klass, "klass", "Holder Ada"),
}


@pytest.mark.parametrize(("function", "name", "result"), KINDS.values(), ids=KINDS.keys())
async def test_callables_of_every_kind_have_their_own_name_and_open_parameters(ask, function, name, result):
    """C65"""
    client = ScriptedChatClient([[tool_call(name, name="Ada")], "ok"])
    response = await ask(Agent(client, tools=[function]), "q")
    (offered,) = client.requests[0].tools
    assert (offered.name, list(offered.parameters["properties"])) == (name, ["name"])
    assert offered.description in ("Greet.", "Hold.")
    assert response.messages[1].results[0].result == result


def test_a_tool_takes_other_settings_and_keeps_the_rest():
    @tool(timeout=5, description="Add.")
    def add(a: int) -> int:
        """Not this."""
        return a

    asked = tool(approval="always", name="plus")(add)
    assert (asked.name, asked.timeout, asked.approval, asked.definition.description) == ("plus", 5, "always", "Add.")
    assert (add.name, add.approval) == ("add", "never")
    assert tool(add) is add


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"aproval": "always"}, "'aproval'.*'approval'"),
        ({"name": 3}, "tool name 3"),
        ({"name": "a" * 65}, "tool name"),
        ({"description": 3}, "description is a text"),
        ({"approval": ["always"]}, "approval is"),
        ({"timeout": "5"}, "timeout is a number"),
        ({"timeout": float("nan")}, "timeout is a number"),
        ({"strict": "yes"}, "strict is True, False or None"),
    ],
)
def test_a_setting_that_does_not_fit_is_an_error_at_the_decorator(settings, named):
    with pytest.raises(ConfigurationError, match=named):
        tool(**settings)(lambda: None)


def test_an_approval_rule_must_be_a_plain_function_and_a_class_method_is_decorated_inside():
    async def rule(arguments):
        return True

    with pytest.raises(ConfigurationError, match="approval must be a plain one"):
        tool(approval=rule)(greet)
    with pytest.raises(ConfigurationError, match=r"not classmethod.* Put @tool below @classmethod"):
        tool(classmethod(greet))


SENT = [
    ('{"a": 1}', "1 'x'"),
    ('"{\\"a\\": 1}"', "1 'x'"),
    ({"a": 1}, "1 'x'"),
    ("", "0 'x'"),
    (" \n", "0 'x'"),
    (None, "0 'x'"),
    ('{"a": "7"}', "7 'x'"),
    ('{"a": 1, "a": 2}', "2 'x'"),
    ('{"a": null, "b": null}', "0 'x'"),
    ('{"a": ' + "9" * 400 + "}", "9" * 400 + " 'x'"),
    ('{"b": "a\\ud83d"}', "0 'a\\ud83d'"),
    ("null", "no JSON object"),
    ("[]", "no JSON object"),
    ("[1,2]", "no JSON object"),
    ("true", "no JSON object"),
    ('{"a": 1}{"a": 2}', "no JSON object"),
    ('{"a": 1,}', "no JSON object"),
    ("query = x", "no JSON object"),
    ("[" * 5_000, "no JSON object"),
    ('{"a": NaN}', "argument 'a': Input should be a finite number"),
    ('{"a": 1e400}', "argument 'a': Input should be a finite number"),
    ('{"a": 1.5}', "argument 'a': Input should be a valid integer"),
    ('{"z": 1}', r"unknown argument 'z' \(known: a, b\)"),
]


@pytest.mark.parametrize(("sent", "told"), SENT, ids=[str(sent)[:30] for sent, _ in SENT])
async def test_what_models_send_is_read_or_told_by_name_and_the_next_turn_goes_on(ask, sent, told):
    """C48"""

    @tool
    def f(a: int = 0, b: str = "x") -> str:
        """Take."""
        return f"{a} {b!r}"

    agent = Agent(ScriptedChatClient([[FunctionCall("c1", "f", sent)], "ok", "on"]), tools=[f])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    (result,) = response.messages[1].results
    assert re.search(told, result.result) if result.error else result.result == told
    assert len(result.result) < 1_000
    assert json.loads(json.dumps(session.to_dict()))
    assert (await ask(agent, "go on", session=session)).text == "on"


async def test_what_middleware_puts_in_is_checked_as_it_is(ask):
    async def put_in(context: FunctionContext, call_next):
        context.arguments |= {"day": date(2026, 11, 30)}
        await call_next()

    @tool
    def book(day: date, rooms: int = 1) -> str:
        """Book it."""
        return f"{rooms} on {day}"

    calls = [tool_call("book", rooms=2), tool_call("book", rooms=None), tool_call("book", rooms="many")]
    agent = Agent(ScriptedChatClient([calls, "ok"]), tools=[book], middleware=[put_in])
    response = await ask(agent, "q")
    *booked, wrong = [result.result for message in response.messages for result in message.results]
    assert booked == ["2 on 2026-11-30", "1 on 2026-11-30"]
    assert "argument 'rooms': Input should be a valid integer" in wrong


async def test_further_arguments_by_place_are_an_array_that_may_be_left_out(ask):
    calls = []

    def mix(base: str = "water", /, kind: str = "soup", *herbs: str, hot: bool = False, **grams: int) -> str:
        """Mix.

        Args:
            *herbs: what to add.
        """
        calls.append((base, kind, herbs, hot, grams))
        return "mixed"

    named = [tool_call("mix", herbs=["dill", "sage"], hot=True, salt=3), tool_call("mix", kind="tea")]
    client = ScriptedChatClient([[*named, tool_call("mix", herbs=[["no"]])], "ok"])
    response = await ask(Agent(client, tools=tool(mix, concurrency=1)), "q")
    assert calls == [("water", "soup", ("dill", "sage"), True, {"salt": 3}), ("water", "tea", (), False, {})]
    parameter = client.requests[0].tools[0].parameters["properties"]["herbs"]
    assert parameter == {"type": "array", "items": {"type": "string"}, "default": [], "description": "what to add."}
    results = [result for message in response.messages for result in message.results]
    assert "'herbs.0'" in results[2].error


def test_a_table_or_an_array_as_a_parameter_is_an_error_that_names_it_and_says_what_to_take():

    def whole(n: int, df: pd.DataFrame) -> None:
        """Take."""

    def maybe(n: int, df: np.ndarray | None = None) -> None:
        """Take."""

    for function, kind in ((whole, "DataFrame"), (maybe, "ndarray")):
        with pytest.raises(ConfigurationError, match=rf"parameter 'df' of '{function.__name__}' is a {kind}.*list\["):
            Agent(ScriptedChatClient([]), tools=function)

    def own(df: Annotated[pd.DataFrame, PlainValidator(pd.DataFrame), WithJsonSchema({"type": "array"})]) -> None:
        """Take."""

    assert tool(own).definition.parameters["properties"]["df"] == {"type": "array"}


name = "who it is"


def test_names_in_hints_are_those_of_the_module_and_not_of_what_makes_the_tool():
    def greet(who: Annotated[str, name]) -> None:
        """Greet."""

    class Local(BaseModel):
        n: int

    def take(local: Local) -> None:
        """Take."""

    for made in (tool(greet), tool()(greet), FunctionTool(greet), collect_tools(greet)[0]):
        assert made.definition.parameters["properties"]["who"]["description"] == "who it is"
    for made in (tool(take), tool()(take), FunctionTool(take), collect_tools(take)[0]):
        assert made.definition.parameters["properties"]["local"] == {"$ref": "#/$defs/Local"}
