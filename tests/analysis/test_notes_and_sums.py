"""What people and prices say of runs: notes, thumbs, usage and cost, each counted once."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from pydantic import BaseModel

import nbagents
from nbagents import (
    Agent,
    BaseChatClient,
    RunBudget,
    ScriptedChatClient,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    set_price,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis import use_store
from nbagents.core.content import FunctionCall, TextContent, UsageContent
from nbagents.core.errors import BudgetExceededError, ConfigurationError, OutputValidationError
from nbagents.core.updates import ChatResponseUpdate
from tests.analysis.runs import agent, reported


class ReportingClient(BaseChatClient):
    """Answers with the pieces of each reply as they stand: texts, calls, usage or an error."""

    provider = "scripted"
    model = "reporting"

    def __init__(self, *replies: list[object]) -> None:
        self.replies = list(replies)

    async def generate(self, request):
        for piece in self.replies.pop(0):
            if isinstance(piece, Exception):
                raise piece
            content = TextContent(piece) if isinstance(piece, str) else piece
            yield ChatResponseUpdate((content,), role="assistant", model=self.model)
        yield ChatResponseUpdate((), finish_reason="stop")


def spent(read: int, written: int) -> UsageContent:
    return reported(input_tokens=read, output_tokens=written)


class Answer(BaseModel):
    a: int


async def test_notes_and_thumbs_are_columns() -> None:
    first, second = await agent("Hi.").run("1"), await agent("Ho.").run("2")
    first.note("too short")
    first.note("sk-verysecret-0123456789 was in it", thumbs="down")
    nbagents.note(first, thumbs="up")
    frame = runs_df()
    assert frame.notes.tolist() == ["too short\n[redacted] was in it", pd.NA]
    assert frame.thumbs.tolist()[0] == "up"
    assert pd.isna(frame.thumbs[1])
    assert frame.status.tolist() == ["ok", "ok"]
    second.note("fine")
    assert runs_df().notes[1] == "fine"


async def test_running_totals_of_one_request_are_not_summed() -> None:
    """C85: 10/1, 10/5, 10/9 and 10/9 again are 10/9; an explicit 0 counts; requests are summed."""
    totals = [spent(10, count) for count in (1, 5, 9, 9)]
    helper = Agent(ReportingClient([totals[0], "Hel", totals[1], "lo", *totals[2:]], [*totals, spent(0, 9), "x"]))
    one = requests_df(await helper.run("1", stream=True).get_final_response())
    assert one[["input_tokens", "output_tokens"]].to_numpy().tolist() == [[10, 9]]
    other = requests_df(await helper.run("2"))
    assert other[["input_tokens", "output_tokens"]].to_numpy().tolist() == [[0, 9]]
    assert usage_df(by=[])[["input_tokens", "output_tokens"]].to_numpy().tolist() == [[10, 18]]


@pytest.mark.parametrize("last", ['{"a": 1}', "no"])
async def test_tokens_of_rejected_answers_are_counted(last: str) -> None:
    """C87: 50/10, 50/10, 60/10 are 160/30 over 3 requests, on success and on failure alike."""
    helper = Agent(ReportingClient([spent(50, 10), "no"], [spent(50, 10), "no"], [spent(60, 10), last]))
    run = helper.run("Give a", options={"response_format": Answer}, budget=RunBudget(max_validation_retries=2))
    if last == "no":
        with pytest.raises(OutputValidationError):
            await run
    else:
        await run
    row = runs_df().iloc[0]
    assert (row.n_requests, row.input_tokens, row.output_tokens) == (3, 160, 30)
    assert len(requests_df()) == 3
    assert usage_df(by="agent")[["n_runs", "n_requests", "input_tokens"]].to_numpy().tolist() == [[1, 3, 160]]


@pytest.mark.parametrize("last", ["42", ConnectionError("gone")], ids=["succeeds", "fails"])
async def test_a_sub_agents_tokens_stand_in_its_own_row(last: object) -> None:
    """C88: totals include the child once, the rows are separable, and the parent's limit counts the child."""
    asking = [[spent(10, 2), FunctionCall("c1", "think", {"messages": "?"})], [spent(10, 2), "42."]]
    inner = Agent(ReportingClient([spent(1000, 500), last]), name="inner")
    tools = [inner.as_tool(name="think", description="Thinks.")]
    await Agent(ReportingClient(*asking), name="outer", tools=tools).run("Go")
    frame = runs_df().set_index("agent")
    assert frame.input_tokens.to_dict() == {"outer": 20, "inner": 1000}
    assert frame.parent_run_id["inner"] == frame.run_id["outer"]
    assert usage_df(by=[]).total_tokens.tolist() == [1524]
    apart = usage_df(by="parent_run_id")
    assert apart.total_tokens.tolist() == [24, 1500]
    assert apart.parent_run_id.isna().tolist() == [True, False]


async def test_a_limit_on_tokens_counts_sub_agents() -> None:
    """C88: the limit of the parent stops the run that its child made expensive."""
    inner = Agent(ReportingClient([spent(1000, 500), "42"]), name="inner")
    asking = ReportingClient([spent(10, 2), FunctionCall("c1", "think", {"messages": "?"})], [spent(10, 2), "42."])
    outer = Agent(asking, name="outer", tools=[inner.as_tool(name="think", description="Thinks.")])
    with pytest.raises(BudgetExceededError):
        await outer.run("Go", budget=RunBudget(max_tokens=100))
    assert runs_df(agent="outer").status.tolist() == ["limit"]
    assert runs_df().total_tokens.sum() == 1512


async def test_usage_is_summed_by_tags() -> None:
    helper = agent(*"abcd", name="x")
    for fold in (1, 2, 1):
        with nbagents.tags(fold=fold, name=f"n{fold}"):
            await helper.run("Hi")
    await helper.run("Hi")
    frame = usage_df(by=["tags.fold", "tags.name"])
    assert frame["tags.fold"].tolist() == ["1", "2", pd.NA]
    assert frame["tags.name"].tolist() == ["n1", "n2", pd.NA]
    assert frame.n_runs.tolist() == [2, 1, 1]
    assert str(usage_df([], by="tags.fold").dtypes["tags.fold"]) == "string"
    with pytest.raises(ConfigurationError, match=r"'tags\.'"):
        usage_df(by="tags.")


async def test_a_price_that_is_set_later_counts() -> None:
    helper = Agent(ScriptedChatClient(["a"], model="own-model"))
    await helper.run("Hi")
    assert runs_df().cost_usd.isna().all()
    set_price("own-model", input=1_000_000, output=0)
    assert runs_df().cost_usd.tolist() == [float(runs_df().input_tokens[0])]
    assert runs_df().cost_complete.tolist() == [True]
    assert json.loads(runs_df().tags[0]) == {}


async def test_tables_of_a_store_are_those_of_the_log() -> None:
    """Notes and tags too: each once, in memory and in the store."""
    with use_store("sqlite://") as store:
        with nbagents.tags(experiment="a"):
            response = await agent([tool_call("add", a=1, b=2)], "3").run("1+2")
        response.note("good", thumbs="up")
        store.flush()
        for table in (runs_df, requests_df, messages_df, tool_calls_df, events_df, usage_df):
            pd.testing.assert_frame_equal(table(store), table())
        run_log().clear()
        nbagents.note(response.run_id, "later")
        assert runs_df(tag={"experiment": "a"}).notes.tolist() == ["good\nlater"]
        assert runs_df(store, status="ok", agent="helper", model="scripted").run_id.tolist() == [response.run_id]
