"""Structured output: what is asked of the model, what is read from its reply, and what happens if it does not fit."""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mypy import api as mypy_api
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from nbagents import Agent, RunBudget, ScriptedChatClient, Usage, run_log, tool, tool_call
from nbagents.core import BaseChatClient, ChatResponseUpdate
from nbagents.core.content import TextContent, UsageContent
from nbagents.core.errors import ConfigurationError, OutputValidationError
from nbagents.core.options import OPTION_NAMES, TypedOptions
from nbagents.core.outputs import OutputFormat, UnfitReply, output_format
from nbagents.core.secrets import register_secret
from tests.support.raw_server import RawServer

T = TypeVar("T")


class Tagged(BaseModel):
    kind: Literal["tagged"]
    x: int = 3


class Plain(BaseModel):
    x: int


class Cat(BaseModel):
    pet: Literal["cat"]
    lives: int


class Dog(BaseModel):
    pet: Literal["dog"]
    tricks: list[str]


Pet = Annotated[Cat | Dog, Field(discriminator="pet")]


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Box(BaseModel, Generic[T]):
    item: T


class Numbers(RootModel[list[int]]):
    pass


class Dated(BaseModel):
    model_config = ConfigDict(strict=True)
    on: date


@dataclass
class Point:
    x: int
    when: date | None = None


class Entry(TypedDict):
    a: int
    b: NotRequired[str]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


CASES: list[tuple[Any, Any, Any]] = [
    (Plain, {"x": 1}, Plain(x=1)),
    (Tagged | Plain, {"value": {"kind": "tagged", "x": 1}}, Tagged(kind="tagged", x=1)),
    (Tagged | Plain, {"value": {"x": 1}}, Plain(x=1)),
    (Tagged | Plain, {"value": {"kind": "tagged", "x": None}}, Tagged(kind="tagged")),
    (Pet, {"value": {"pet": "dog", "tricks": []}}, Dog(pet="dog", tricks=[])),
    (Plain | None, {"value": None}, None),
    (Plain | None, {"value": {"x": 1}}, Plain(x=1)),
    (list[Plain], {"value": [{"x": 1}]}, [Plain(x=1)]),
    (list[Plain], [{"x": 1}], [Plain(x=1)]),
    (dict[str, int], {"value": 1}, {"value": 1}),
    (dict, {"a": [1]}, {"a": [1]}),
    (int, {"value": 7}, 7),
    (int, 7, 7),
    (bool, {"value": True}, True),
    (float, {"value": 0.5}, 0.5),
    (str, {"value": "x"}, "x"),
    (Literal["x", "y"], {"value": "y"}, "y"),
    (Colour, {"value": "blue"}, Colour.BLUE),
    (date, {"value": "2026-11-30"}, date(2026, 11, 30)),
    (Decimal, {"value": "0.10"}, Decimal("0.10")),
    (tuple[int, str], {"value": [1, "a"]}, (1, "a")),
    (Node, {"value": {"name": "a", "children": [{"name": "b"}]}}, Node(name="a", children=[Node(name="b")])),
    (Node, {"value": {"name": "a", "children": None}}, Node(name="a")),
    (Box[Plain], {"item": {"x": 1}}, Box[Plain](item=Plain(x=1))),
    (Numbers, {"value": [1]}, Numbers([1])),
    (Dated, {"on": "2026-11-30"}, Dated(on=date(2026, 11, 30))),
    (Point, {"x": 1, "when": None}, Point(1)),
    (Entry, {"a": 1, "b": None}, {"a": 1}),
    ({"type": "array", "items": {"type": "integer"}}, {"value": [1]}, [1]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": None}, {}),
    ({"type": "json_object"}, {"a": 1}, {"a": 1}),
]  # fmt: skip
NOT_STRICT = (dict[str, int], dict, tuple[int, str], {"type": "json_object"})


@pytest.mark.parametrize(
    ("asked", "reply", "value"), CASES, ids=[f"{n}-{str(case[0])[:30]}" for n, case in enumerate(CASES)]
)
async def test_every_kind_of_type_is_asked_for_and_read(ask, asked: Any, reply: Any, value: Any) -> None:
    """C82"""
    client = ScriptedChatClient([json.dumps(reply)])
    response = await ask(Agent(client), "q", options={"response_format": asked})
    assert response.value == value
    assert type(response.value) is type(value)
    sent = client.requests[0].options["response_format"]
    if asked in NOT_STRICT:
        assert not sent.get("json_schema", {}).get("strict")
    else:
        assert list(faults_by_openai(sent)) == []


def faults_by_openai(option: dict[str, Any]):
    """What OpenAI refuses in a strict `response_format`, by its guide to structured outputs."""
    asked = option["json_schema"]
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", asked["name"]):
        yield f"name {asked['name']!r}"
    if asked.get("strict") is not True:
        yield "not strict"
    schema = asked["schema"]
    if schema.get("type") != "object" or "anyOf" in schema or "$ref" in schema:
        yield "the root is no object"
    yield from faults_of_schema(schema)


def faults_of_schema(schema: dict[str, Any]):
    for keyword in {
        "oneOf",
        "allOf",
        "not",
        "default",
        "prefixItems",
        "patternProperties",
        "uniqueItems",
    } & schema.keys():
        yield f"keyword {keyword}"
    if "$ref" in schema and len(schema) > 1:
        yield "words beside a reference"
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield "an object is open"
        if schema.get("required") != list(schema.get("properties", {})):
            yield "a property is not required"
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    for one in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from faults_of_schema(one)


def test_classes_of_one_name_and_local_ones_are_told_apart():
    def one():
        class Same(BaseModel):
            a: int

        return Same

    def other():
        class Same(BaseModel):
            b: int

        return Same

    first, second = one(), other()
    asked = OutputFormat(first | second)
    assert asked.parse('{"value": {"b": 1}}') == second(b=1)
    assert list(faults_by_openai(asked.to_option())) == []


def test_a_local_dataclass_may_name_another_local_one():
    @dataclass
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner

    run = Agent(ScriptedChatClient(['{"inner": {"n": 1}}'])).run("q", stream=True, options={"response_format": Outer})
    assert run is not None
    assert output_format(Outer).parse('{"inner": {"n": 1}}') == Outer(Inner(1))


class Unfinished(BaseModel):
    later: NeverDefined  # noqa: F821


@dataclass
class UnfinishedToo:
    later: NeverDefined  # noqa: F821


class Open(TypedDict):
    later: NeverDefined  # noqa: F821


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("json", "json_object"),
        (3, "no JSON schema"),
        (print, "no type"),
        (lambda: 1, "no type"),
        (Unfinished, "Define the types"),
        (UnfinishedToo, "Define the types"),
        (Open, "Define the types"),
        (list["NeverDefined"], "Define the types"),  # noqa: F821
        ({"type": "objekt"}, "no JSON schema: 'objekt'"),
        ({"type": "json_schema"}, "holds no schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "holds no schema"),
    ],
)
def test_what_has_no_schema_is_an_error_at_the_call(asked, words):
    client = ScriptedChatClient(["x"])
    with pytest.raises(ConfigurationError, match=words):
        Agent(client).run("q", options={"response_format": asked})
    with pytest.raises(ConfigurationError, match=words):
        client.get_response("q", options={"response_format": asked})


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"x": 1}\n```',
        'Here you are:\n\n```\n{"x": 1}\n```\nAnything else?',
        '  ```json\n{"x": 1}```',
        'Sure! {"x": 1} That is it.',
        '<think>Maybe {"x": 2}? No.</think>\n{"x": 1}',
        'See [1] and {note}: {"x": 1}',
        '{"x": 1}\n{"x": 1}',
        'Either {"y": 2} or {"x": 1}',
    ],
)
async def test_json_is_read_out_of_a_fence_and_out_of_words(ask, text):
    response = await ask(Agent(ScriptedChatClient([text])), "q", options={"response_format": Plain})
    assert response.value == Plain(x=1)


class AllOptional(BaseModel):
    a: int | None = None


@pytest.mark.parametrize(
    ("asked", "text", "fault"),
    [
        (Plain, "", "no JSON"),
        (Plain, '{"x": NaN}', "NaN is no JSON"),
        (Plain, '{"x": "many"}', "x: Input should be a valid integer"),
        (Plain, '{"x": 1} or {"x": 2}', "2 values"),
        (AllOptional, '{"b": {"a": 1}', "no JSON"),
        (list[int], "[" * 100_000, "nested too deeply"),
        (Plain, "{" * 100_000, "no JSON"),
        (Plain, '{"x": ' + "9" * 5_000 + "}", "no JSON"),
        (list[int], json.dumps(["a"] * 1000), "and 990 more"),
        ({"type": "object", "required": ["a"]}, "{}", "'a' is a required property"),
        ({"type": "json_object"}, "[1]", "is not of type 'object'"),
    ],
)
def test_what_does_not_fit_is_told_in_short_words(asked, text, fault):
    with pytest.raises(UnfitReply) as caught:
        OutputFormat(asked).parse(text)
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 1_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
words = st.text(st.characters(codec="utf-8", exclude_characters="{}[]`<"))


@given(st.lists(json_values), words, words)
def test_any_value_comes_back_whatever_words_stand_around_it(value, before, after):
    asked = OutputFormat(list[Any])
    for form in (value, {"value": value}):
        text = json.dumps(form)
        assert asked.parse(text) == asked.parse(f"{before}{text}{after}") == value
        assert asked.parse(f"{before}\n```json\n{text}\n```\n{after}") == value


class Counting(BaseChatClient):
    """Gives each text with these counts of tokens."""

    model = "counting"

    def __init__(self, *replies: tuple[str, int, int], finish_reason: str = "stop") -> None:
        self.replies = list(replies)
        self.finish_reason = finish_reason
        self.requests: list[Any] = []

    async def generate(self, request):
        self.requests.append(request)
        text, sent, received = self.replies.pop(0)
        usage = UsageContent(Usage(sent, received, sent + received))
        yield ChatResponseUpdate((TextContent(text), usage), finish_reason=self.finish_reason)


async def test_the_tokens_of_tries_that_did_not_fit_are_counted(ask):
    """C87"""
    client = Counting(("no", 50, 10), ("never", 50, 10), ("7", 60, 10))
    budget = RunBudget(max_validation_retries=2)
    response = await ask(Agent(client), "q", options={"response_format": int}, budget=budget)
    assert (response.value, response.usage) == (7, Usage(160, 30, 190))
    client = Counting(("no", 50, 10), ("never", 50, 10), ("not at all", 60, 10))
    with pytest.raises(OutputValidationError) as caught:
        await ask(Agent(client), "q", options={"response_format": int}, budget=budget)
    assert caught.value.usage == caught.value.response.usage == Usage(160, 30, 190)


class Never(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def refuse(cls, x: int) -> int:
        raise ValueError("x is never right")


async def test_a_fault_is_quoted_to_the_model_and_is_the_cause_of_the_error(ask):
    """C83"""
    client = ScriptedChatClient(['{"x": 1}'] * 3)
    budget = RunBudget(max_validation_retries=2)
    with pytest.raises(OutputValidationError, match="never right") as caught:
        await ask(Agent(client), "q", options={"response_format": Never}, budget=budget)
    assert (caught.value.attempts, caught.value.raw_text, len(client.requests)) == (3, '{"x": 1}', 3)
    assert type(caught.value.__cause__).__name__ == "ValidationError"
    correction = client.requests[1].messages[-1]
    assert "x is never right" in correction.text
    assert '"required": ["x"]' in correction.text
    retries = run_log().get(caught.value.response.run_id).named("validation.retry")
    assert [event.payload["attempt"] for event in retries] == [1, 2]


async def test_no_retry_where_the_budget_has_none(ask):
    client = ScriptedChatClient(["no"])
    with pytest.raises(OutputValidationError, match="after 1 tries"):
        await ask(Agent(client), "q", options={"response_format": int}, budget=RunBudget(max_validation_retries=0))
    assert len(client.requests) == 1


@pytest.mark.parametrize(("reason", "words"), [("length", "max_tokens"), ("content_filter", "content filter")])
async def test_a_reply_that_was_cut_is_not_read_and_not_asked_for_again(ask, reason, words):
    client = Counting(("12", 5, 1), ("ok", 6, 1), finish_reason=reason)
    agent = Agent(client)
    session = agent.create_session()
    with pytest.raises(OutputValidationError, match=words) as caught:
        await ask(agent, "q", session=session, options={"response_format": int})
    assert (caught.value.attempts, caught.value.raw_text, caught.value.usage) == (1, "12", Usage(5, 1, 6))
    assert caught.value.response.stop_reason == "failed"
    assert (await ask(agent, "And now?", session=session)).text == "ok"


async def test_the_session_keeps_the_reply_that_fits_and_the_next_turn_is_free(ask):
    client = ScriptedChatClient(["seven", '{"value": 7}', "You are welcome."])
    agent = Agent(client)
    session = agent.create_session()
    response = await ask(agent, "q", session=session, options={"response_format": int})
    assert (response.value, response.text) == (7, '{"value": 7}')
    assert [m.role for m in response.messages] == ["assistant"]
    stored = await agent.thread(session).get_messages()
    assert [(m.role, m.text) for m in stored] == [("user", "q"), ("assistant", '{"value": 7}')]
    await ask(agent, "Thanks", session=session)
    assert [m.text for m in client.requests[2].messages] == ["q", '{"value": 7}', "Thanks"]
    assert "response_format" not in client.requests[2].options
    said = [event.payload["text"] for event in run_log().get(response.run_id).named("llm.succeeded")]
    assert said == ["seven", '{"value": 7}']


async def test_a_session_goes_on_after_no_reply_fitted(ask):
    client = ScriptedChatClient(["one", "two", "Hello"])
    agent = Agent(client)
    session = agent.create_session()
    with pytest.raises(OutputValidationError):
        await ask(agent, "q", session=session, options={"response_format": int})
    await ask(agent, "Hi", session=session)
    assert [m.text for m in client.requests[2].messages] == ["q", "two", "Hi"]


async def test_tools_and_structured_output_go_together_also_in_a_repair(ask):
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    client = ScriptedChatClient(
        [tool_call("add", a=1, b=2), "three", ["Let me see. ", tool_call("add", a=1, b=2)], '{"value": 3}']
    )
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    response = await ask(agent, "q", session=session, options={"response_format": int})
    assert response.value == 3
    assert all("response_format" in request.options for request in client.requests)
    stored = await agent.thread(session).get_messages()
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert all(m.text != "three" for m in stored)


async def test_the_closing_reply_at_the_step_limit_is_read_too(ask):
    budget = RunBudget(max_steps=1)
    agent = Agent(ScriptedChatClient(["no", "7"]))
    response = await ask(agent, "q", options={"response_format": int}, budget=budget)
    assert (response.value, response.stop_reason) == (7, "max_steps")
    agent = Agent(ScriptedChatClient(["no", "neither"]))
    response = await ask(agent, "q", options={"response_format": int}, budget=budget)
    assert (response.value, response.stop_reason) == (None, "max_steps")
    assert "does not fit" in response.warnings[0]


async def test_the_form_of_services_is_sent_as_it_was_given_and_validated(ask):
    given = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}}}
    client = ScriptedChatClient(["{}", '{"a": 1}'])
    response = await ask(Agent(client), "q", options={"response_format": given})
    assert response.value == {"a": 1}
    assert client.requests[0].options["response_format"] == given
    client = ScriptedChatClient(["{"])
    response = await ask(Agent(client), "q", options={"response_format": {"type": "text"}})
    assert (response.text, response.value) == ("{", None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_by_itself_reads_values_and_tells_what_they_cost(stream):
    async def ask(client, asked):
        reply = client.get_response("q", stream=stream, options={"response_format": asked})
        return await (reply.get_final_response() if stream else reply)

    assert (await ask(Counting(('{"x": 1}', 5, 1)), Plain)).value == Plain(x=1)
    assert (await ask(Counting(('{"x": 1}', 5, 1)), {"type": "json_object"})).value == {"x": 1}
    for client in (Counting(("no", 5, 1)), Counting(("7", 5, 1), finish_reason="length")):
        with pytest.raises(OutputValidationError) as caught:
            await ask(client, int)
        assert (caught.value.attempts, caught.value.usage) == (1, Usage(5, 1, 6))


async def test_a_reference_to_an_address_is_never_fetched(raw_server: RawServer):
    schema = {"type": "object", "properties": {"a": {"$ref": f"{raw_server.base_url}/schema.json"}}}
    agent = Agent(ScriptedChatClient(['{"a": 1}']))
    with pytest.raises(ConfigurationError, match="leads nowhere"):
        await agent.run("q", options={"response_format": schema})
    assert raw_server.paths == []


async def test_a_key_in_a_reply_that_does_not_fit_is_not_in_the_error(ask):
    """C108"""
    key = "Rq3vMARKER-pear-77-crimson-0042-Tk"
    register_secret(key)
    client = ScriptedChatClient([json.dumps({"x": key})] * 2)
    with pytest.raises(OutputValidationError) as caught:
        await ask(Agent(client), "q", options={"response_format": Plain})
    assert key not in "".join(traceback.format_exception(caught.value))


TYPED = """
from nbagents import Agent, ScriptedChatClient

agent = Agent(ScriptedChatClient([]))

async def ask() -> None:
    reveal_type((await agent.run("q", options={"response_format": list[int], "seed": 1})).value)
    reveal_type((await agent.run("q", stream=True, options={"response_format": int}).get_final_response()).value)
    reveal_type((await agent.run("q", options={"seed": 1})).value)

reveal_type(agent.run_sync("q", options={"response_format": str}).value)
reveal_type(agent.run_sync("q").value)
"""


@pytest.mark.slow
def test_a_type_checker_knows_the_value_by_the_format(tmp_path):
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    told, _, status = mypy_api.run(["--strict", "--follow-imports=silent", str(file)])
    revealed = re.findall(r'Revealed type is "([^"]*)"', told)
    assert (status, revealed) == (0, ["list[int] | None", "int | None", "Any | None", "str | None", "Any | None"])


def test_the_typed_options_are_all_options():
    assert set(TypedOptions.__annotations__) == OPTION_NAMES
