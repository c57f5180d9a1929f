"""Tools by grammar, with a scripted model: what the server is asked for, and what the run gets of the reply."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import Agent, AgentSession, RunBudget, ScriptedChatClient, tool
from nbagents.clients.prompted_tools import generate_with_prompted_tools
from nbagents.core import BaseChatClient
from nbagents.core.errors import ConfigurationError, InvalidReplyError


class Prompted(BaseChatClient):
    """What a client of a model without tools looks like."""

    def __init__(self, *replies, tool_rounds=None):
        self.inner = ScriptedChatClient(replies)
        self.tool_rounds = tool_rounds

    def generate(self, request):
        return generate_with_prompted_tools(self.inner, request, tool_rounds=self.tool_rounds)

    def schema(self, request=-1):
        return self.inner.requests[request].options["response_format"]["json_schema"]["schema"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    The rest of the description is not for small models.
    """
    return a + b


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


CALL = '{"tool": "add", "arguments": {"a": 1, "b": 2}}'


def cut(text, size=3):
    return [text[i : i + size] for i in range(0, len(text), size)]


def test_a_tool_branch_becomes_a_call_and_the_answer_streams():
    client = Prompted(cut(CALL), cut('{"answer": "It is \\"3\\".\\nBye"}'))
    stream = Agent(client, tools=[add]).stream_sync("1+2?")
    texts = [update.text for update in stream if update.text]
    response = stream.get_final_response()
    assert response.messages[0].calls[0].arguments == {"a": 1, "b": 2}
    assert response.messages[1].results[0].result == "3"
    assert response.text == "".join(texts) == 'It is "3".\nBye'
    assert len(texts) > 3
    assert response.finish_reason == "stop"


@given(st.text(max_size=40), st.booleans(), st.integers(1, 7))
def test_any_answer_arrives_whole(text, ascii_only, size):
    client = Prompted(cut(json.dumps({"answer": text}, ensure_ascii=ascii_only), size))
    assert Agent(client, tools=[add]).run_sync("q").text == text


def test_the_schema_is_the_union_of_the_tools_and_the_answer():
    client = Prompted('{"answer": "x"}')
    Agent(client, "Be kind.", tools=[add, now]).run_sync("q")
    schema = client.schema()
    tools = [branch["properties"].get("tool", {}).get("const") for branch in schema["anyOf"]]
    assert tools == ["add", "now", None]
    assert list(schema["anyOf"][2]["properties"]) == ["answer"]
    assert all(branch["additionalProperties"] is False for branch in schema["anyOf"])
    request = client.inner.requests[0]
    assert not request.tools
    assert [message.role for message in request.messages] == ["system", "user"]
    system = request.messages[0].text
    assert system.startswith("Be kind.\n\nReply in JSON.")
    assert "- add(a: integer, b: integer): Add two numbers.\n- now(): Tell the time." in system
    assert "small models" not in system


def test_references_inside_a_tools_schema_still_lead_to_their_place():
    from pydantic import BaseModel

    class Place(BaseModel):
        city: str
        near: list["Place"] = []

    def weather(place: Place) -> str:
        """Tell the weather."""
        return "sunny"

    client = Prompted('{"answer": "x"}')
    Agent(client, tools=[weather]).run_sync("q")
    schema = client.schema()

    def resolve(reference):
        place = schema
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        return place

    arguments = resolve(schema["anyOf"][0]["properties"]["arguments"]["$ref"])
    place = resolve(arguments["properties"]["place"]["$ref"])
    assert place["properties"]["city"]["type"] == "string"
    assert resolve(place["properties"]["near"]["items"]["$ref"]) == place


def test_earlier_calls_and_results_are_text_that_the_model_can_read():
    client = Prompted(CALL, '{"answer": "3"}', '{"answer": "bye"}')
    agent, session = Agent(client, tools=[add]), AgentSession()
    agent.run_sync("1+2?", session=session)
    agent.run_sync("Thanks", session=session)
    messages = client.inner.requests[-1].messages
    assert [(m.role, m.text) for m in messages[1:]] == [
        ("user", "1+2?"),
        ("assistant", CALL),
        ("user", "Result of add: 3"),
        ("assistant", "3"),
        ("user", "Thanks"),
    ]
    assert not any(message.calls or message.results for message in messages)


def test_after_the_allowed_rounds_the_model_must_answer():
    client = Prompted(CALL, '{"answer": "3"}', CALL, '{"answer": "3"}', tool_rounds=1)
    agent, session = Agent(client, tools=[add]), AgentSession()
    for _ in range(2):
        assert agent.run_sync("1+2?", session=session).text == "3"
    offered = [[next(iter(branch["properties"])) for branch in client.schema(i)["anyOf"]] for i in range(4)]
    assert offered == [["tool", "answer"], ["answer"], ["tool", "answer"], ["answer"]]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
def test_a_required_call_leaves_no_way_to_answer(choice):
    client = Prompted('{"tool": "now", "arguments": {}}', '{"answer": "noon"}')
    response = Agent(client, tools=[add, now], options={"tool_choice": choice}).run_sync("q")
    assert response.text == "noon"
    names = [branch["properties"]["tool"]["const"] for branch in client.schema(0)["anyOf"]]
    assert names == (["add", "now"] if choice == "required" else ["now"])
    assert "tool_choice" not in client.inner.requests[0].options


@pytest.mark.parametrize("reply", ["I would rather not.", '{"answer": "no"}', '{"other": 1}', ""])
def test_required_without_a_call_is_an_error(reply):
    with pytest.raises(InvalidReplyError, match="asks for a call"):
        Agent(Prompted(reply), tools=[add], options={"tool_choice": "required"}).run_sync("q")


def test_a_required_tool_that_there_is_not_is_an_error():
    choice = {"type": "function", "function": {"name": "rm"}}
    with pytest.raises(ConfigurationError, match="'rm'"):
        Agent(Prompted("x"), tools=[add], options={"tool_choice": choice}).run_sync("q")


def test_without_tools_the_reply_is_left_alone():
    client = Prompted('{"answer": "raw"}')
    assert Agent(client).run_sync("q").text == '{"answer": "raw"}'
    assert "response_format" not in client.inner.requests[0].options


def test_tool_choice_none_asks_for_text():
    client = Prompted("plain text")
    assert Agent(client, tools=[add], options={"tool_choice": "none"}).run_sync("q").text == "plain text"
    assert "response_format" not in client.inner.requests[0].options


def test_the_closing_request_of_a_budget_reads_the_calls_too():
    client = Prompted(CALL, "That is all.")
    response = Agent(client, tools=[add]).run_sync("q", budget=RunBudget(max_steps=1))
    assert response.stop_reason == "max_steps"
    assert client.inner.requests[-1].messages[-1].text.startswith("Result of add: ")


def test_structured_output_and_tools_go_together():
    client = Prompted(CALL, cut('{"answer": {"sum": 3}}'))
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    response = Agent(client, tools=[add]).run_sync("q", options={"response_format": schema})
    assert response.value == {"sum": 3}
    assert client.schema()["$defs"]["answer"] == {**schema, "additionalProperties": False}


@pytest.mark.parametrize("reply", ['{"tool": "rm", "arguments": {}}', '{"tool": "add", "arguments": [1]}', "{not json"])
def test_a_reply_out_of_the_schema_is_kept_as_text(reply):
    """For servers that take `response_format` for a wish."""
    response = Agent(Prompted(reply), tools=[add]).run_sync("q")
    assert response.text == reply
    assert not response.messages[0].calls


async def test_a_call_that_is_cut_is_marked_invalid():
    class Cut(ScriptedChatClient):
        async def generate(self, request):
            async for update in super().generate(request):
                update.finish_reason = update.finish_reason and "length"
                yield update

    client = Prompted()
    client.inner = Cut(['{"tool": "add", "arguments": {"a": 1'])
    response = await Agent(client, tools=[add]).run("q")
    (call,) = response.messages[0].calls
    assert (call.name, call.arguments, call.invalid) == ("add", '{"a": 1', True)
    assert response.finish_reason == "length"
    assert response.messages[1].results[0].interrupted


async def test_breaking_off_closes_the_reply_below():
    closed = []

    class Watched(ScriptedChatClient):
        async def generate(self, request):
            try:
                async for update in super().generate(request):
                    yield update
            finally:
                closed.append(True)

    client = Prompted()
    client.inner = Watched([cut('{"answer": "a long text"}')])
    async with Agent(client, tools=[add]).run("q", stream=True) as stream:
        async for update in stream:
            if update.text:
                break
    assert closed == [True]
