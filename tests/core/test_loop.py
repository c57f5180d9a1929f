"""A run: model request, tool calls, model request, until there is an answer."""

from typing import Any

import pytest

from nbagents import (
    UNSET,
    Agent,
    AgentResponse,
    BaseChatClient,
    ChatResponseUpdate,
    FunctionContext,
    Message,
    NBAgentsError,
    RunBudget,
    ScriptedChatClient,
    ToolContext,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import (
    BudgetExceededError,
    ConfigurationError,
    IncompleteStreamError,
    OutputValidationError,
    RunTimeoutError,
    ServerError,
)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def names_of(run_id):
    return [event.name for event in run_log().get(run_id).events]


async def test_a_tool_round_ends_with_the_answer(ask):
    client = ScriptedChatClient([["Let me see. ", tool_call("add", a=1, b=2)], "It is 3."])
    agent = Agent(client, "Be brief.", name="calc", tools=[add])
    session = agent.create_session()
    response = await ask(agent, "1 + 2?", session=session)
    assert response.text == "Let me see. \nIt is 3."
    assert response.stop_reason == "completed"
    assert [m.role for m in response.messages] == ["assistant", "tool", "assistant"]
    assert response.messages[1].results[0].result == "3"
    assert {m.author_name for m in response.messages} == {"calc", "add"}
    assert [m.role for m in client.requests[1].messages] == ["system", "user", "assistant", "tool"]
    assert [m.role for m in await agent.thread(session).get_messages()] == ["user", "assistant", "tool", "assistant"]
    assert all(m.run_id == response.run_id for m in await agent.thread(session).get_messages())


async def test_a_session_is_remembered_and_the_system_message_is_not_stored(ask):
    client = ScriptedChatClient(["Hello Ada.", "Ada."])
    agent = Agent(client, "Be brief.")
    session = agent.create_session()
    await ask(agent, "I am Ada.", session=session)
    response = await ask(agent, "Who am I?", session=session)
    sent = [(m.role, m.text) for m in client.requests[1].messages]
    assert sent == [
        ("system", "Be brief."),
        ("user", "I am Ada."),
        ("assistant", "Hello Ada."),
        ("user", "Who am I?"),
    ]
    assert response.session is session


async def test_both_modes_give_the_same_messages_and_the_same_transcript():
    def script():
        return ScriptedChatClient([[ReasoningContent("hm "), "a", "b", tool_call("add", a=1, b=2), "c"], "3"])

    transcripts = []
    for stream in (False, True):
        agent = Agent(script(), tools=[add])
        reply = agent.run("q", stream=stream)
        response = await (reply.get_final_response() if stream else reply)
        transcripts.append([[(c.type, getattr(c, "text", None)) for c in m.contents] for m in response.messages])
    assert transcripts[0] == transcripts[1]


async def test_the_updates_fold_to_the_response():
    agent = Agent(ScriptedChatClient([["Let me ", "see.", tool_call("add", a=1, b=2)], "3"]), tools=[add])
    stream = agent.run("q", stream=True)
    updates = [update async for update in stream]
    response = await stream.get_final_response()
    folded = AgentResponse.from_updates(updates)
    assert folded.text == response.text
    assert [m.message_id for m in folded.messages] == [m.message_id for m in response.messages]
    assert folded.usage.total_tokens == response.usage.total_tokens
    assert (folded.run_id, folded.stop_reason) == (response.run_id, "completed")
    assert all(update.author_name for update in updates)


async def test_a_piece_arrives_before_the_next_one_is_made():
    made = []

    class Client(BaseChatClient):
        async def generate(self, request):
            for word in ("one ", "two ", "three"):
                made.append(word)
                yield ChatResponseUpdate((TextContent(word),))
            yield ChatResponseUpdate(finish_reason="stop")

    seen = [(update.text, len(made)) async for update in Agent(Client()).run("q", stream=True) if update.text]
    assert seen == [("one ", 1), ("two ", 2), ("three", 3)]


async def test_the_log_tells_the_whole_run(ask):
    agent = Agent(ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"]), tools=[add])
    response = await ask(agent, "q")
    assert names_of(response.run_id) == [
        "run.started",
        "message.added",
        "llm.requested",
        "llm.succeeded",
        "message.added",
        "tool.called",
        "tool.succeeded",
        "message.added",
        "llm.requested",
        "llm.succeeded",
        "message.added",
        "run.ended",
    ]
    events = run_log().get(response.run_id).events
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].payload["output_text"] == "3"


async def test_calls_of_one_reply_run_at_once_and_answer_in_the_order_of_the_model(ask):
    import asyncio

    first_may_end = asyncio.Event()

    @tool
    async def first() -> str:
        await first_may_end.wait()
        return "first"

    @tool
    async def second() -> str:
        first_may_end.set()
        return "second"

    agent = Agent(ScriptedChatClient([[tool_call("first"), tool_call("second")], "ok"]), tools=[first, second])
    response = await ask(agent, "q")
    assert [m.results[0].result for m in response.messages if m.role == "tool"] == ["first", "second"]


async def test_a_failing_call_does_not_stop_its_siblings_and_is_answered(ask):
    """C50, C70"""

    @tool
    def broken() -> str:
        raise ValueError

    @tool
    async def cancels_itself() -> str:
        import asyncio

        raise asyncio.CancelledError

    client = ScriptedChatClient([[tool_call("broken"), tool_call("add", a=1, b=2), tool_call("cancels_itself")], "ok"])
    response = await ask(Agent(client, tools=[broken, add, cancels_itself]), "q")
    results = [m.results[0] for m in response.messages if m.role == "tool"]
    assert [r.error is None for r in results] == [False, True, False]
    assert "ValueError" in results[0].result
    assert "/" not in results[0].result
    failed = run_log().get(response.run_id).named("tool.failed")
    assert any("raise ValueError" in event.payload["traceback"] for event in failed)
    assert response.text == "ok"


BAD_CALLS = {
    "unknown tool": (tool_call("ad", a=1), "did you mean 'add'"),
    "no JSON": (FunctionCall("c", "add", "query = x"), "query = x"),
    "a list": (FunctionCall("c", "add", "[1,2]"), "no JSON object"),
    "null": (FunctionCall("c", "add", "null"), "no JSON object"),
    "missing": (tool_call("add", a=1), "missing argument 'b'"),
    "extra": (tool_call("add", a=1, b=2, c=3), "unknown argument 'c'"),
    "unfit": (tool_call("add", a="x", b=2), "argument 'a'"),
}


@pytest.mark.parametrize(("call", "told"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
async def test_a_bad_call_is_answered_by_name_and_the_run_goes_on(ask, call, told):
    """C48"""
    ran = []

    @tool(name="add")
    def adding(a: int, b: int) -> int:
        ran.append((a, b))
        return a + b

    client = ScriptedChatClient([[call, tool_call("add", a=1, b=2)], "ok"])
    response = await ask(Agent(client, tools=[adding]), "q")
    results = [m.results[0] for m in response.messages if m.role == "tool"]
    assert told in results[0].result
    assert (results[1].result, ran, response.text) == ("3", [(1, 2)], "ok")


async def test_arguments_that_are_an_object_already_are_taken(ask):
    """C48"""
    client = ScriptedChatClient([[FunctionCall("c", "add", {"a": 1, "b": 2})], "ok"])
    response = await ask(Agent(client, tools=[add]), "q")
    assert response.messages[1].results[0].result == "3"


async def test_blank_text_before_a_call_is_not_the_answer(ask):
    """C32"""
    client = ScriptedChatClient([["\n\n", tool_call("add", a=1, b=2)], "It was heads"])
    response = await ask(Agent(client, tools=[add]), "q")
    assert (response.text, len(client.requests)) == ("It was heads", 2)


async def test_announced_calls_that_do_not_come_end_the_run_with_a_warning(ask):
    """C35"""

    class Client(BaseChatClient):
        requests = 0

        async def generate(self, request):
            self.requests += 1
            yield ChatResponseUpdate((TextContent("Opening the report now."),))
            yield ChatResponseUpdate(finish_reason="tool_calls")

    client = Client()
    response = await ask(Agent(client, tools=[add]), "q")
    assert (response.text, client.requests) == ("Opening the report now.", 1)
    assert "announced tool calls" in response.warnings[0]


async def test_a_refusal_ends_the_run_after_one_request(ask):
    """C42"""
    client = ScriptedChatClient([[RefusalContent("I cannot"), RefusalContent(" help")]])
    response = await ask(Agent(client), "q", options={"response_format": int})
    assert (response.stop_reason, response.text, len(client.requests)) == ("refused", "", 1)
    assert response.messages[0].contents == (RefusalContent("I cannot help"),)
    assert response.usage is not None


async def test_a_reply_cut_by_its_length_runs_no_tool_and_leaves_a_balanced_session(ask):
    class Client(ScriptedChatClient):
        async def generate(self, request):
            async for update in super().generate(request):
                update.finish_reason = update.finish_reason and "length"
                yield update

    ran = []
    client = Client([["So ", tool_call("note", text="x")], "ok"])
    agent = Agent(client, tools=[tool(name="note")(lambda text: ran.append(text))])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (response.stop_reason, response.finish_reason, ran) == ("completed", "length", [])
    assert [m.role for m in await agent.thread(session).get_messages()] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(("steps", "requests", "ran"), [(1, 2, 0), (2, 3, 1), (3, 4, 2)])
async def test_the_step_limit_ends_with_one_closing_request_without_tools(ask, steps, requests, ran):
    """C67: `max_steps` requests may call tools; the calls of the last are not run; one more closes."""
    calls = []
    count = tool(name="count")(lambda: calls.append(1))
    client = ScriptedChatClient([lambda r: [tool_call("count")] if r.tools else "That is all."] * 9)
    agent = Agent(client, tools=[count], budget=RunBudget(max_steps=steps))
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (len(client.requests), len(calls)) == (requests, ran)
    assert (response.stop_reason, response.messages[-1].text) == ("max_steps", "That is all.")
    await ask(agent, "again", session=session)
    assert_balanced(client.requests[-1].messages)


async def test_an_answer_within_the_step_limit_is_complete(ask):
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"])
    response = await ask(Agent(client, tools=[add], budget=RunBudget(max_steps=2)), "q")
    assert (response.stop_reason, len(client.requests)) == ("completed", 2)


async def test_the_duration_ends_a_slow_tool_and_the_session_can_be_used(ask):
    import asyncio

    cleaned = []

    @tool
    async def slow() -> str:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append(True)
        return "late"

    client = ScriptedChatClient([[tool_call("slow")], "ok"])
    agent = Agent(client, tools=[slow])
    session = agent.create_session()
    with pytest.raises(RunTimeoutError) as caught:
        await ask(agent, "q", session=session, budget=RunBudget(max_duration_ms=50))
    assert caught.value.response.stop_reason == "timeout"
    assert cleaned == [True]
    assert (await ask(agent, "and?", session=session)).text == "ok"
    assert_balanced(client.requests[-1].messages)


async def test_the_duration_ends_a_slow_model(ask):
    agent = Agent(ScriptedChatClient(["one two three"], delay=5))
    with pytest.raises(RunTimeoutError):
        await ask(agent, "q", budget=RunBudget(max_duration_ms=50))


async def test_the_budgets_of_calls_and_tokens_stop_the_run_with_what_there_is(ask):
    client = ScriptedChatClient([["Sure. ", tool_call("add", a=1, b=2)], [tool_call("add", a=1, b=2)], "never"])
    with pytest.raises(BudgetExceededError) as caught:
        await ask(Agent(client, tools=[add]), "q", budget=RunBudget(max_tool_calls=1))
    assert caught.value.response.text == "Sure. "
    client = ScriptedChatClient([["Sure. ", tool_call("add", a=1, b=2)], "never"])
    with pytest.raises(BudgetExceededError) as caught:
        await ask(Agent(client, tools=[add]), "q", budget=RunBudget(max_tokens=1))
    assert (caught.value.response.stop_reason, len(client.requests)) == ("budget_exhausted", 1)


async def test_a_model_that_breaks_off_leaves_partial_text_marked_and_no_tool_runs(ask):
    """C38"""
    ran = []

    class Client(BaseChatClient):
        async def generate(self, request):
            yield ChatResponseUpdate((TextContent("Hel"),))
            yield ChatResponseUpdate((TextContent("lo"), FunctionCall("c", "note", '{"text": "x"}')))

    agent = Agent(Client(), tools=[tool(name="note")(lambda text: ran.append(text))])
    session = agent.create_session()
    with pytest.raises(IncompleteStreamError) as caught:
        await ask(agent, "q", session=session)
    assert (caught.value.partial_text, ran) == ("Hello", [])
    assert caught.value.response.stop_reason == "failed"
    user, partial = await agent.thread(session).get_messages()
    assert (user.role, partial.text, partial.interrupted, partial.calls) == ("user", "Hello", True, [])


async def test_a_run_that_fails_before_any_output_leaves_the_session_as_it_was(ask):
    client = ScriptedChatClient([ServerError("down"), "ok"])
    agent = Agent(client)
    session = agent.create_session()
    with pytest.raises(ServerError) as caught:
        await ask(agent, "q", session=session)
    assert await agent.thread(session).get_messages() == []
    ended = run_log().get(caught.value.response.run_id).events[-1]
    assert ended.payload["error"] == {"type": "ServerError", "code": "server", "message": "down", "hint": None}
    assert (await ask(agent, "again", session=session)).text == "ok"
    assert [m.text for m in client.requests[-1].messages] == ["again"]


async def test_an_error_after_a_tool_round_keeps_the_round(ask):
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], ServerError("down"), "ok"])
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    with pytest.raises(ServerError):
        await ask(agent, "q", session=session)
    assert (await ask(agent, "again", session=session)).text == "ok"
    assert [m.role for m in client.requests[-1].messages] == ["user", "assistant", "tool", "user"]


async def test_a_retryable_error_is_tried_again_before_anything_was_shown(ask):
    client = ScriptedChatClient([ServerError("busy", headers={"retry-after": "0"}), "ok"])
    client.max_retries = 1
    response = await ask(Agent(client), "q")
    assert response.text == "ok"
    assert names_of(response.run_id)[2:6] == ["llm.requested", "llm.failed", "llm.retried", "llm.requested"]


async def test_nothing_is_tried_again_after_visible_text():
    """C92"""
    client = ScriptedChatClient([["Hel", ServerError("broken")], "Hello"])
    client.max_retries = 3
    with pytest.raises(ServerError) as caught:
        await Agent(client).run("q", stream=True).get_final_response()
    assert (caught.value.partial_text, len(client.requests)) == ("Hel", 1)


async def test_structured_output_is_validated_and_repaired_within_the_run(ask):
    """C87, C82"""
    client = ScriptedChatClient(["not json", "```json\n[1, 2]\n```"])
    response = await ask(Agent(client), "q", options={"response_format": list[int]})
    assert response.value == [1, 2]
    assert "does not fit" in client.requests[1].messages[-1].text
    assert response.usage.output_tokens == sum(
        event.payload["usage"].output_tokens for event in run_log().get(response.run_id).named("llm.succeeded")
    )


async def test_output_that_never_fits_is_one_error_with_the_last_reply(ask):
    """C83"""
    client = ScriptedChatClient(["no", "never", "not at all"])
    with pytest.raises(OutputValidationError) as caught:
        await ask(Agent(client), "q", options={"response_format": int}, budget=RunBudget(max_validation_retries=2))
    assert (caught.value.attempts, caught.value.raw_text, len(client.requests)) == (3, "not at all", 3)
    assert caught.value.response.usage is not None


async def test_inputs_are_never_changed(ask):
    """C78"""
    inputs = [Message("user", "a"), "b"]
    options = {"metadata": {"k": "v"}}
    agent = Agent(ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"]), tools=[add], options=options)
    await ask(agent, inputs, options={"metadata": {"x": "y"}})
    assert inputs == [Message("user", "a"), "b"]
    assert options == {"metadata": {"k": "v"}} == agent.options
    assert Agent(ScriptedChatClient([])).tools == []


async def test_what_is_stored_is_never_an_object_of_the_caller(ask):
    """C78: also not where the message has been through a run already."""
    agent = Agent(ScriptedChatClient(["ok", "ok", "ok"]), tools=[add])
    session = agent.create_session()
    call = FunctionCall("c", "add", {"a": [1]}, "id")
    given = [
        Message("user", "a", created_at=1.0, run_id="run", agent_id="ann", extra={"mood": ["calm"]}),
        Message("assistant", call, "ann", created_at=1.0, run_id="run", agent_id="ann"),
        Message("tool", FunctionResult("c", "add", "3", "id"), "add"),
    ]
    await ask(agent, given, session=session)
    stored = (await agent.thread(session).get_messages())[:3]
    assert [(m.role, m.contents, m.extra) for m in stored] == [(m.role, m.contents, m.extra) for m in given]
    assert [m.run_id for m in stored[:2]] == ["run", "run"]
    assert all(one is not other for one, other in zip(stored, given, strict=True))
    call.arguments["a"].append(2)
    given[0].extra["mood"].append("merry")
    assert (stored[1].calls[0].arguments, stored[0].extra) == ({"a": [1]}, {"mood": ["calm"]})


async def test_what_tools_and_middleware_do_to_their_arguments_does_not_change_what_the_model_said(ask):
    @tool
    def fill(options: dict, anything: Any) -> str:
        options["x"] = anything["x"] = 1
        return "filled"

    async def more(context: FunctionContext, call_next):
        context.arguments["options"]["y"] = 1
        await call_next()

    agent = Agent(ScriptedChatClient([[tool_call("fill", options={}, anything={})], "ok"]), tools=[fill])
    response = await ask(agent, "q", middleware=[more])
    assert response.messages[0].calls[0].arguments == {"options": {}, "anything": {}}


async def test_options_of_a_run_override_those_of_the_agent(ask):
    client = ScriptedChatClient(["ok", "ok"])
    agent = Agent(client, options={"temperature": 0.1, "seed": 1, "tool_choice": "required", "metadata": {"a": "1"}})
    await ask(agent, "q", options={"temperature": 0.9, "seed": UNSET, "metadata": {"b": "2"}, "top_p": None})
    assert client.requests[0].options == {"temperature": 0.9, "metadata": {"a": "1", "b": "2"}}


async def test_on_message_hears_each_whole_message_in_order(ask):
    heard = []
    agent = Agent(ScriptedChatClient([["a", "b", tool_call("add", a=1, b=2)], "3"]), tools=[add])
    response = await ask(agent, "q", on_message=heard.append)
    assert [m.message_id for m in heard] == [m.message_id for m in response.messages]


async def test_a_tool_can_tell_while_it_runs():
    @tool
    def walk(context: ToolContext) -> str:
        context.emit_delta("half way")
        context.emit_artifact("map", {"x": 1})
        return context.session.session_id

    agent = Agent(ScriptedChatClient([[tool_call("walk")], "ok"]), tools=[walk])
    session = agent.create_session("trip")
    events = [event async for event in agent.run("q", stream=True, session=session).events()]
    told = [(event.name, event.payload) for event in events if event.name in ("tool.delta", "artifact.emitted")]
    assert [(name, payload.get("text") or payload["payload"]) for name, payload in told] == [
        ("tool.delta", "half way"),
        ("artifact.emitted", {"x": 1}),
    ]
    assert next(e for e in events if e.name == "tool.succeeded").payload["result"] == "trip"
    assert "context" not in walk.definition.parameters["properties"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"messages": 3}, "int"),
        ({"options": {"temprature": 1}}, "'temperature'"),
        ({"session": "trip"}, "AgentSession"),
        ({"budget": 5}, "RunBudget"),
        ({"on_message": 5}, "on_message"),
        ({"tools": [object()]}, "no tool"),
    ],
)
def test_a_wrong_argument_is_an_error_at_the_call_that_names_the_fix(settings, named):
    agent = Agent(ScriptedChatClient(["x"]))
    settings = {"messages": "q"} | settings
    with pytest.raises(NBAgentsError, match=named):
        agent.run(settings.pop("messages"), **settings)


def assert_balanced(messages):
    """Each call is followed directly by its results, each result has its call."""
    open_calls = []
    for message in messages:
        if message.role == "tool":
            assert message.results[0].id == open_calls.pop(0)
        else:
            assert open_calls == []
            open_calls = [call.id for call in message.calls]
    assert open_calls == []


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"sesion": None}, "'session'"),
        ({"temperature": 0.2}, "options={'temperature'"),
        ({"colour": 1}, "There are: messages, stream, options, session"),
    ],
)
def test_a_mistyped_argument_of_a_run_names_the_one_that_was_meant(settings, fix):
    agent = Agent(ScriptedChatClient(["x"]))
    with pytest.raises(ConfigurationError) as caught:
        agent.run("q", **settings)
    assert fix in str(caught.value)


def test_a_notebook_shows_an_error_as_the_line_of_the_user_and_the_message():
    try:
        Agent(ScriptedChatClient(["x"])).run_sync("q", options={"temprature": 1})
    except NBAgentsError as error:
        shown = error._render_traceback_()
    assert len(shown) == 2
    assert 'options={"temprature": 1}' in shown[0]
    assert shown[1].startswith("ConfigurationError: Unknown option 'temprature'. Did you mean 'temperature'?")
