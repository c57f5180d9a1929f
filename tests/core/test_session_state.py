"""What a session's state may hold: it comes back as it was, or is refused by name."""

import json
import math
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from nbagents import (
    Agent,
    AgentSession,
    Message,
    ScriptedChatClient,
    ToolContext,
    register_state_type,
    tool,
    tool_call,
)
from nbagents.core import state as states
from nbagents.core.content import FunctionCall
from nbagents.core.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(states, "_by_name", dict(states._by_name))
    monkeypatch.setattr(states, "_names", WeakKeyDictionary(states._names))


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Stop:
    city: str
    at: datetime | None = None


@dataclass
class Trip:
    stops: list[Stop] = field(default_factory=list)
    seats: dict[int, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    price: Decimal = Decimal(0)
    pair: tuple[int, int] = (0, 0)
    anything: Any = None


class Preferences(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    units: str = Field("metric", alias="u")
    moods: list[Mood] = []
    when: datetime | None = None
    score: float = 0.0
    trip: Trip | None = None


def back(value):
    """What comes back of `value` after JSON text."""
    record = json.loads(json.dumps(AgentSession("trip", state={"it": value}).to_dict()))
    return AgentSession.from_dict(record).state["it"]


def refused(value, *told):
    with pytest.raises(ConfigurationError) as caught:
        AgentSession("trip", state={"it": value}).to_dict()
    assert all(one in str(caught.value) for one in told), str(caught.value)


TRIP = Trip([Stop("Łódź", datetime(2026, 1, 2, tzinfo=UTC))], {7: "window"}, frozenset({"a"}), Decimal("1.10"), (1, 2))


@pytest.mark.parametrize("value", [TRIP, Preferences(u="k", moods=[Mood.GOOD], score=math.inf, trip=TRIP), Mood.GOOD])
def test_a_registered_class_comes_back_as_itself(value):
    register_state_type(type(value))
    for stored in (value, [value, {"deep": (value,)}]):
        assert (back(stored), type(back(stored))) == (stored, type(stored))


def test_registering_is_a_decorator_too_with_a_name_of_its_own():
    @register_state_type(name="acme.counter")
    @dataclass
    class Counter:
        n: int = 0

    record = AgentSession("trip", state={"it": Counter(3)}).to_dict()
    assert record["state"]["it"] == {"$state": {"type": "acme.counter", "value": {"n": 3}}}
    assert AgentSession.from_dict(record).state["it"] == Counter(3)


def test_a_cell_that_is_run_again_replaces_the_class_also_for_values_of_the_old_one():
    def cell():
        @register_state_type
        @dataclass
        class Counter:
            n: int = 0

        return Counter

    old, new = cell(), cell()
    assert register_state_type(new) is new
    assert type(back(old(3))) is new


def test_another_class_of_the_same_name_is_an_error():
    register_state_type(Stop)
    other = dataclass(type("Stop", (), {"__annotations__": {"x": int}, "__module__": "elsewhere"}))
    with pytest.raises(ConfigurationError, match=r"test_session_state\.Stop is registered as 'Stop'.*name="):
        register_state_type(other)
    register_state_type(other, name="elsewhere.Stop")
    assert type(back(other(1))) is other


@pytest.mark.parametrize("wrong", [int, dict, "Stop", lambda: None, None.__class__, type("Plain", (), {})])
def test_only_classes_that_can_be_validated_are_registered(wrong):
    with pytest.raises(ConfigurationError, match="no pydantic model, dataclass or Enum"):
        register_state_type(wrong)


class Loose(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")
    value: Any = None
    secret: SecretStr | None = None
    hidden: int = Field(0, exclude=True)
    _private: int = PrivateAttr(0)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Loose(value=(1, 2)), "Loose.value"),
        (Loose(value={"a": [Mood.GOOD]}), "Loose.value['a'][0]"),
        (Loose(value={1: "a"}), "Loose.value"),
        (Loose(secret="Zx8Qw3"), "Loose.secret"),
        (Loose(other={1}), "Loose.other"),
    ],
)
def test_a_field_that_would_come_back_changed_is_refused_by_name(value, place):
    register_state_type(Loose)
    refused(value, "session.state['it']", place, "more exact hint")


def test_a_field_that_is_not_to_be_stored_is_not():
    register_state_type(Loose)
    assert back(Loose(value=1, hidden=5, more="x")) == Loose(value=1, hidden=0, more="x")


def test_a_registered_value_with_something_open_inside_is_refused():
    register_state_type(Loose)
    refused(Loose(value=sys.stdout), "session.state['it']", "Loose")
    refused(Loose(value=object()), "Loose that does not serialise")


class Level(IntEnum):
    LOW = 1


Point = namedtuple("Point", "x y")
CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "object"),
        (sys.stdout, "does not serialise"),
        (lambda: None, "function"),
        ({"a", "b"}, "list"),
        (b"bytes", "bytes"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime.datetime"),
        (np.float64(1.5), "float(value)"),
        (np.arange(3), "numpy.ndarray"),
        (Level.LOW, "register_state_type(Level)"),
        (Mood.GOOD, "register_state_type(Mood)"),
        (Stop("x"), "register_state_type(Stop)"),
        (Preferences(u="k"), "register_state_type(Preferences)"),
        (Point(1, 2), "tuple(value)"),
        (OrderedDict(a=1), "dict(value)"),
        ({1: "a"}, "the key 1"),
        ({None: "a"}, "the key None"),
        (CYCLE, "contains itself"),
        (Message("assistant", [FunctionCall("c", "f", {"x": {1, 2}})]), "arguments.x"),
    ],
)
def test_what_cannot_come_back_as_it_was_is_refused_with_its_place_and_the_fix(value, told):
    refused(value, "session.state['it", told)
    refused([0, {"deep": (value,)}], "session.state['it[1].deep[0]", told)


def test_a_state_that_is_nested_without_end_is_refused():
    value: Any = 1
    for _ in range(5000):
        value = [value]
    refused(value, "nested deeper")
    record = AgentSession("trip").to_dict()
    record["state"] = {"it": value}
    with pytest.raises(ConfigurationError, match="nested deeper"):
        AgentSession.from_dict(record)


def test_a_value_that_stands_in_two_places_is_no_cycle():
    shared = [1]
    assert back({"a": shared, "b": [shared, shared]}) == {"a": [1], "b": [[1], [1]]}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
keys = st.text("$abc", max_size=3) | st.sampled_from(["$message", "$tuple", "$float", "$state", "$dict"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=2)
    ),
    max_leaves=12,
)


def exactly(value):
    """`value` in a form that tells types and NaN."""
    if isinstance(value, list | tuple):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, dict):
        return [(key, exactly(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(values)
def test_every_plain_value_comes_back_as_it_was_and_the_second_time_byte_for_byte(value):
    session = AgentSession("trip", state={"it": value})
    record = json.dumps(session.to_dict())
    again = AgentSession.from_dict(json.loads(record))
    assert exactly(again.state["it"]) == exactly(value)
    assert json.dumps(again.to_dict()) == record
    assert "NaN" not in record.replace('"nan"', "") or "NaN" in repr(value)


HOSTILE = [
    {"$state": {"type": "os.system", "value": "true"}},
    {"$state": {"type": "builtins.eval", "value": {}}},
    {"$state": {"type": "Stop", "value": {"city": 7}}},
    {"$state": {"type": "Stop", "value": {"city": "x", "at": "soon"}}},
    {"$state": {"type": ["Stop"], "value": {}}},
    {"$state": {"type": "Stop"}},
    {"$state": "Stop"},
    {"$state": None},
    {"$message": {"role": "root", "contents": []}},
    {"$message": 3},
    {"$tuple": 3},
    {"$dict": []},
    {"$float": "one"},
    {"$float": {}},
    {"$pickle": "gASVCgAAAAAAAACMBnN5c3RlbZQu"},
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_record_that_anybody_may_have_written_makes_nothing_but_values(value):
    register_state_type(Stop)
    before = set(sys.modules)
    record = {"version": 1, "session_id": "trip", "service_session_id": None, "state": {"it": [value]}}
    with pytest.raises(ConfigurationError, match=r"session\.state\['it\[0\]"):
        AgentSession.from_dict(record)
    assert set(sys.modules) == before


def test_a_class_that_is_not_registered_says_what_to_do():
    record = AgentSession("trip", state={"prefs": {}}).to_dict()
    record["state"]["prefs"] = {"$state": {"type": "Prefs", "value": {}}}
    with pytest.raises(ConfigurationError, match=r"session\.state\['prefs'\] holds a 'Prefs'.*register_state_type"):
        AgentSession.from_dict(record)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "{}",
        {},
        {"version": 1},
        {"version": 2, "session_id": "x"},
        {"version": 1, "session_id": None},
        {"version": 1, "session_id": ""},
        {"version": 1, "session_id": "x", "service_session_id": 3},
        {"version": 1, "session_id": "x", "state": []},
        {"version": 1, "session_id": "x", "state": {1: 2}},
        {1: 2},
    ],
)
def test_what_is_no_stored_session_is_one_error(record):
    with pytest.raises(ConfigurationError):
        AgentSession.from_dict(record)


@pytest.mark.parametrize("wrong", [{"session_id": 3}, {"session_id": ""}, {"state": []}, {"service_session_id": 3}])
def test_a_wrong_argument_of_a_session_is_named(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        AgentSession(**wrong)


async def test_the_callers_dict_stays_as_it_was(ask):
    """C78"""
    given_state = {"n": 1}
    session = AgentSession("trip", state=given_state)
    await ask(Agent(ScriptedChatClient(["ok"])), "q", session=session)
    assert given_state == {"n": 1}
    assert session.state["n"] == 1


async def test_a_tool_keeps_typed_state_and_the_next_program_reads_it(ask):
    register_state_type(Trip)

    @tool
    def visit(city: str, context: ToolContext) -> str:
        trip = context.session.state.setdefault("trip", Trip())
        trip.stops.append(Stop(city))
        return f"{len(trip.stops)} stops"

    session = AgentSession("trip")
    for city in ("Oslo", "Rome"):
        agent = Agent(ScriptedChatClient([[tool_call("visit", city=city)], "ok"]), tools=[visit])
        await ask(agent, "go", session=session)
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert session.state["trip"] == Trip([Stop("Oslo"), Stop("Rome")])
    assert len(session.state["messages"]) == 8


class Colour(Enum):
    RED = (1, 0, 0)


def test_an_enum_whose_values_are_no_json_is_refused():
    register_state_type(Colour)
    refused(Colour.RED, "session.state['it'] holds a Colour that does not serialise")


def test_a_hint_that_cannot_be_resolved_is_told_when_writing_and_when_reading():
    @register_state_type
    @dataclass
    class Lost:
        value: "Nowhere"  # noqa: F821

    refused(Lost(1), "Lost cannot stand in a session's state", "that its module knows")
    record = AgentSession("trip").to_dict() | {"state": {"it": {"$state": {"type": "Lost", "value": {"value": 1}}}}}
    with pytest.raises(ConfigurationError, match=r"session\.state\['it'\].*Lost cannot stand"):
        AgentSession.from_dict(record)


async def test_messages_may_stand_anywhere_in_the_state():
    @register_state_type
    class Notes(BaseModel):
        kept: list[Message] = []

    call = FunctionCall("c1", "f", {"a": [1, {"b": None}]}, "call_1")
    message = Message("assistant", ["Hm.", call], "agent", "m1", created_at=1.5, extra={"later": True})
    for value in (message, {"deep": [(message,)]}, Notes(kept=[message])):
        assert back(value) == value
