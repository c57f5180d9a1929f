"""What the tables say of runs, however they went."""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest
from pydantic import BaseModel

from nbagents import (
    Agent,
    BaseChatClient,
    Message,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.core.content import FunctionCall, TextContent, UsageContent
from nbagents.core.errors import ConfigurationError, NBAgentsError, ServerError
from nbagents.core.history import InMemoryHistoryProvider
from nbagents.core.middleware import CallNext
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage
from tests.analysis.runs import (
    Gate,
    agent,
    reported,
    run_over_budget,
    run_that_fails,
    run_that_is_cancelled,
)


def only(frame: pd.DataFrame) -> pd.Series:
    assert len(frame) == 1
    return frame.iloc[0]


class PricedClient(BaseChatClient):
    """Answers as a model of a known price; the usage of each reply is given."""

    provider = "openai"
    model = "gpt-4o-mini"

    def __init__(self, *usages: Usage | None) -> None:
        self.usages = list(usages)

    async def generate(self, request):
        usage = self.usages.pop(0)
        yield ChatResponseUpdate([TextContent("Hi.")], role="assistant", model=self.model)
        yield ChatResponseUpdate((UsageContent(usage),) if usage else (), finish_reason="stop")


async def test_a_run_says_what_it_was_and_how_it_went() -> None:
    helper = agent([tool_call("add", a=1, b=2)], "It is 3.", options={"temperature": 0.5})
    session = helper.create_session("trip")
    before = pd.Timestamp.now("UTC")
    response = await helper.run("1+2?", session=session, stream=True).get_final_response()
    run = only(runs_df(response))
    assert (run.run_id, run.session_id, run.agent) == (response.run_id, "trip", "helper")
    assert (run.model, run.provider) == ("scripted", "scripted")
    assert json.loads(run.params) == {"temperature": 0.5}
    assert (run.stop_reason, run.status) == ("completed", "ok")
    assert (run.n_requests, run.n_turns, run.n_tool_calls) == (2, 1, 1)
    assert (run.input_text, run.output_text, run.tags) == ("1+2?", "It is 3.", "{}")
    assert before <= run.started_at <= run.ended_at <= pd.Timestamp.now("UTC")
    assert run.duration_s == pytest.approx((run.ended_at - run.started_at).total_seconds(), abs=1e-5)
    assert 0 <= run.ttft_s <= run.duration_s
    assert run[["parent_run_id", "team", "error_type", "error_message", "cost_usd"]].isna().all()
    requests = requests_df(response)
    assert (run.input_tokens, run.output_tokens) == (requests.input_tokens.sum(), requests.output_tokens.sum())
    assert requests.step.tolist() == [1, 2]
    assert requests.finish_reason.tolist() == ["tool_calls", "stop"]
    assert requests.replayed.tolist() == [False, False]


async def test_the_output_of_a_run_is_the_text_of_its_response() -> None:
    """Not what did not fit the format that was asked for, nor what middleware has replaced."""

    class Answer(BaseModel):
        number: int

    async def censored(context: RunContext, call_next: CallNext) -> None:
        await call_next()
        context.answer("No comment.")

    fitted = await agent("three", '{"number": 3}').run("1+2?", options={"response_format": Answer})
    replaced = await agent("It is secret.").run("Tell me", middleware=[censored])
    assert runs_df().output_text.tolist() == [fitted.text, replaced.text] == ['{"number": 3}', "No comment."]


async def test_a_plain_reply_has_no_time_to_first_token() -> None:
    response = await agent("Hello.").run("Hi")
    assert pd.isna(only(runs_df(response)).ttft_s)
    assert pd.isna(only(requests_df(response)).ttft_s)
    assert only(requests_df(response)).latency_s > 0


async def test_runs_stand_in_their_order_and_every_end_is_there() -> None:
    await agent("Hello.").run("Hi")
    await run_that_fails()
    await run_that_is_cancelled()
    await run_over_budget()
    await agent([tool_call("remove", path="x")]).run("Clean up")
    frame = runs_df()
    assert frame.status.tolist() == ["ok", "error", "cancelled", "limit", "approval"]
    assert frame.stop_reason.tolist() == [
        *("completed", "failed", "cancelled", "budget_exhausted", "approval_required"),
    ]
    assert frame.started_at.is_monotonic_increasing
    assert frame.output_text[:3].tolist() == ["Hello.", "Half ", "One "]
    assert frame.error_type.tolist()[1:4] == ["ConnectionError", pd.NA, "BudgetExceededError"]
    assert frame.error_message[1] == "ConnectionError: gone"
    assert messages_df().interrupted.sum() == 2
    assert requests_df().error_type.notna().sum() == 2


async def test_a_run_that_is_still_going_has_no_end() -> None:
    gate = Gate()
    task = asyncio.ensure_future(agent([tool_call("wait")], "Done.").run("Wait", tools=[gate]))
    await gate.begun.wait()
    run = only(runs_df())
    assert run[["ended_at", "duration_s", "stop_reason", "status", "error_type"]].isna().all()
    assert (run.n_requests, run.n_tool_calls) == (1, 1)
    call = only(tool_calls_df())
    assert call[["status", "duration_s", "result", "truncated"]].isna().all()
    assert call.started_at >= run.started_at
    gate.opened.set()
    await task
    assert only(runs_df()).status == "ok"
    assert only(tool_calls_df()).result == "open"


async def test_a_run_that_fails_before_its_first_request_is_a_row() -> None:
    """C110: a run that failed before the first request."""

    class Broken(InMemoryHistoryProvider):
        async def get_messages(self, session):
            raise OSError("disk")

    with pytest.raises(NBAgentsError):
        await agent("Hello.", history=Broken()).run("Hi")
    run = only(runs_df())
    assert (run.status, run.error_type, run.n_requests) == ("error", "OSError", 0)
    assert pd.isna(run.input_tokens)
    assert pd.isna(run.cost_usd)
    assert requests_df().empty
    usage = only(usage_df())
    assert (usage.n_runs, usage.n_requests) == (1, 0)
    assert pd.isna(usage.total_tokens)


async def test_usage_that_some_requests_did_not_report_is_marked() -> None:
    """C90: cached 100, missing, 50 is a sum of what was reported, and not complete."""
    replies = [
        [reported(cached_input_tokens=100), tool_call("add", a=1, b=2)],
        [tool_call("add", a=1, b=2)],
        [reported(cached_input_tokens=50), "3"],
    ]
    run = only(runs_df(await agent(*replies).run("1+2")))
    assert run.cached_input_tokens == 150
    assert not run.usage_complete
    assert not only(usage_df()).usage_complete
    assert requests_df().cached_input_tokens.tolist() == [100, pd.NA, 50]
    complete = only(runs_df(await agent([reported(cached_input_tokens=100), "3"]).run("1+2")))
    assert complete.usage_complete
    assert pd.isna(complete.reasoning_tokens)


async def test_cost_is_missing_where_it_is_unknown() -> None:
    priced = await Agent(PricedClient(Usage(1_000_000, 100_000))).run("Hi")
    assert only(runs_df(priced)).cost_usd == pytest.approx(0.15 + 0.06)
    assert only(runs_df(priced)).cost_complete
    unreported = await Agent(PricedClient(None)).run("Hi")
    assert pd.isna(only(runs_df(unreported)).cost_usd)
    assert not only(runs_df(unreported)).cost_complete
    both = only(usage_df(by="model"))
    assert both.cost_usd == pytest.approx(0.21)
    assert not both.cost_complete


async def test_a_scripted_model_has_no_cost_and_no_warning(recwarn) -> None:
    await agent("Hello.").run("Hi")
    assert runs_df().cost_usd.isna().all()
    assert [str(warning.message) for warning in recwarn] == []


async def test_each_attempt_is_a_request_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.core.retries._FIRST_BACKOFF_SECONDS", 0.0)
    client = ScriptedChatClient([ServerError("overloaded"), "Hello."])
    client.max_retries = 1
    response = await Agent(client).run("Hi")
    frame = requests_df(response)
    assert frame[["step", "attempt"]].to_numpy().tolist() == [[1, 1], [1, 2]]
    assert frame.error_type.tolist() == ["ServerError", pd.NA]
    assert frame.model_returned.tolist() == [pd.NA, "scripted"]
    run = only(runs_df(response))
    assert (run.status, run.n_requests, run.usage_complete) == ("ok", 2, False)


async def test_messages_know_their_turn_and_place() -> None:
    helper = agent([tool_call("add", a=1, b=2)], "3", "Yes.")
    session = helper.create_session()
    await helper.run("1+2?", session=session)
    await agent("Something else.").run("Elsewhere")
    last = await helper.run([Message("user", "Look,"), "are you sure?"], session=session)
    frame = messages_df(session)
    assert frame.role.tolist() == ["user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    assert frame.turn.tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert frame["index"].tolist() == list(range(7))
    assert frame.content.tolist() == ["1+2?", pd.NA, "3", "3", "Look,", "are you sure?", "Yes."]
    assert frame.n_chars.tolist() == [4, 0, 1, 1, 5, 13, 4]
    assert messages_df(last)["index"].tolist() == [4, 5, 6]
    assert messages_df(last).turn.tolist() == [2, 2, 2]
    call = json.loads(frame.tool_calls[1])[0]
    assert (call["name"], call["arguments"]) == ("add", {"a": 1, "b": 2})
    assert call["id"] == frame.tool_call_id[2] == only(tool_calls_df()).tool_call_id


async def test_a_message_id_that_comes_again_stays_a_unique_row_id() -> None:
    """C113: some providers give every reply the same id."""

    class Repeating(PricedClient):
        async def generate(self, request):
            yield ChatResponseUpdate([TextContent("Hi.")], role="assistant", message_id="msg", finish_reason="stop")

    helper = Agent(Repeating())
    for _ in range(3):
        await helper.run("Hi")
    answers = messages_df().query("role == 'assistant'")
    assert answers.message_id.tolist() == ["msg", "msg#2", "msg#3"]


async def test_a_correction_by_the_loop_is_no_turn() -> None:
    class Answer(BaseModel):
        a: int

    response = await agent("no json", '{"a": 1}').run("Give a", options={"response_format": Answer})
    assert response.value == Answer(a=1)
    assert messages_df(response).role.tolist() == ["user", "assistant", "user", "assistant"]
    assert set(messages_df(response).turn) == {1}
    assert only(runs_df(response)).n_turns == 1


async def test_tool_calls_say_what_became_of_them() -> None:
    broken = FunctionCall("c9", "add", '{"a": 1,', invalid=True)
    calls = [tool_call("add", a=1, b=2), tool_call("fail", reason="no luck"), tool_call("nope"), broken]
    response = await agent(calls, "Done.").run("Go")
    frame = tool_calls_df(response)
    assert frame.tool.tolist() == ["add", "fail", "nope", "add"]
    assert frame.status.tolist() == ["ok", "error", "invalid", "invalid"]
    assert frame.result.tolist() == ["3", pd.NA, pd.NA, pd.NA]
    assert frame.truncated.tolist() == [False, pd.NA, pd.NA, pd.NA]
    assert frame.error_type.tolist()[:3] == [pd.NA, "ValueError", pd.NA]
    assert "no luck" in frame.error_message[1]
    assert frame.arguments.tolist() == ['{"a":1,"b":2}', '{"reason":"no luck"}', "{}", '{"a": 1,']
    assert frame.approval.isna().all()
    assert only(runs_df(response)).n_tool_calls == 4


async def test_a_long_result_is_marked_as_cut() -> None:
    def much() -> str:
        """Say much."""
        return "x" * 30_000

    call = only(tool_calls_df(await agent([tool_call("much")], "ok").run("Go", tools=[much])))
    assert call.truncated
    assert 20_000 < call.result_chars < 20_100


async def test_a_call_that_waits_belongs_to_the_run_that_made_it() -> None:
    helper = agent([tool_call("remove", path="a"), tool_call("remove", path="b")], "Done.")
    session = helper.create_session()
    asked = await helper.run("Clean up", session=session)
    assert tool_calls_df().approval.tolist() == ["waiting", "waiting"]
    assert tool_calls_df()[["status", "started_at"]].isna().all(axis=None)
    yes, no = asked.approvals
    answered = await helper.run([yes.approve(), no.deny("not b")], session=session)
    frame = tool_calls_df(asked)
    assert frame.approval.tolist() == ["approved", "denied"]
    assert frame.status.tolist() == ["ok", "denied"]
    assert frame.result.tolist() == ["removed a", pd.NA]
    assert tool_calls_df(answered).empty
    assert len(tool_calls_df()) == 2
    assert runs_df().n_turns.tolist() == [1, 0]
    assert set(messages_df(session).turn) == {1}


async def test_a_run_inside_a_tool_is_a_child() -> None:
    inner = agent("42", name="inner")

    @tool
    async def ask_inner() -> str:
        """Ask."""
        return (await inner.run("deep?")).text

    outer = await agent([tool_call("ask_inner")], "42.", name="outer").run("Go", tools=[ask_inner])
    frame = runs_df().set_index("agent")
    assert frame.parent_run_id["inner"] == outer.run_id
    assert pd.isna(frame.parent_run_id["outer"])
    assert frame.n_requests.to_dict() == {"outer": 2, "inner": 1}


async def test_usage_is_summed_by_what_is_asked_for() -> None:
    one, two = agent("a", "b", name="one"), agent("c", name="two")
    for text in ("Hi", "Hi again"):
        await one.run(text)
    await two.run("Hello")
    frame = usage_df(by="agent")
    assert frame.agent.tolist() == ["one", "two"]
    assert frame.n_runs.tolist() == [2, 1]
    assert frame.total_tokens.sum() == runs_df().total_tokens.sum()
    total = only(usage_df(by=[]))
    assert (total.n_runs, total.input_tokens) == (3, runs_df().input_tokens.sum())
    assert len(usage_df(by=["run_id"])) == 3
    assert usage_df(by=["agent", "status"]).status.dtype == runs_df().status.dtype
    for wrong in ("agnet", ["agent", "input_text"], ["agent", "agent"], 3, [["agent"]], None):
        with pytest.raises(ConfigurationError, match="summed by"):
            usage_df(by=wrong)


async def test_filters_take_ids_responses_sessions_and_lists() -> None:
    helper = agent(*"abcd")
    trip = helper.create_session("trip")
    first = await helper.run("1", session=trip)
    second = await helper.run("2", session=trip)
    third = await helper.run("3")
    ids = [response.run_id for response in (first, second, third)]
    for selection, expected in (
        (None, ids),
        (first, ids[:1]),
        (ids[1], ids[1:2]),
        (trip, ids[:2]),
        ("trip", ids[:2]),
        ([third, first], [ids[0], ids[2]]),
        ([trip, third], ids),
        (runs_df().run_id, ids),
    ):
        assert runs_df(selection).run_id.tolist() == expected
    assert runs_df(run_id=ids[:2]).run_id.tolist() == ids[:2]
    assert runs_df(session_id="trip").run_id.tolist() == ids[:2]
    assert runs_df(trip, run_id=ids[1:]).run_id.tolist() == ids[1:2]
    assert set(messages_df(run_id=ids[2]).run_id) == {ids[2]}


@pytest.mark.parametrize("wrong", [3, {"run": 1}, b"run", [None], [["run_1"]], object(), pd.DataFrame({"run_id": []})])
@pytest.mark.parametrize("table", [runs_df, messages_df, usage_df], ids=lambda table: table.__name__)
def test_a_wrong_filter_is_one_clear_error(table, wrong) -> None:
    with pytest.raises(ConfigurationError, match="filtered by run or session ids"):
        table(wrong)


def test_a_keyword_takes_ids_only() -> None:
    for wrong in (3, [None], [agent("a").create_session()]):
        with pytest.raises(ConfigurationError, match="run_id is an id or a list of ids"):
            runs_df(run_id=wrong)


async def test_a_response_that_is_from_no_run_is_an_error_and_not_everything() -> None:
    response = await agent("Hi.").run("Hello")
    response.run_id = None
    with pytest.raises(ConfigurationError, match="a response without a run"):
        runs_df(response)


async def test_a_run_over_its_steps_shows_the_calls_that_were_not_run() -> None:
    calls = [tool_call("add", a=1, b=2)]
    response = await agent(calls, calls, "Enough.").run("Go", budget=RunBudget(max_steps=2))
    assert tool_calls_df(response).status.tolist() == ["ok", "limit"]
    assert tool_calls_df(response).started_at.isna().tolist() == [False, True]
    assert run_log().runs()[-1].run_id == only(runs_df(response)).run_id
