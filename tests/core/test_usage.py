"""Tokens: counted once, unknown never 0, and told apart by run and by attempt."""

import json

import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    OpenAIChatClient,
    RunBudget,
    ScriptedChatClient,
    Usage,
    requests_df,
    runs_df,
    tool_call,
    usage_df,
)
from nbagents.core import ChatResponseUpdate
from nbagents.core.content import TextContent, UsageContent
from nbagents.core.errors import BudgetExceededError, ConfigurationError, ServerError
from nbagents.core.usage import COUNTS, total_usage, usage_complete
from tests.support.chunks import message
from tests.support.raw_server import RawServer


class Reporting(BaseChatClient):
    """Gives each reply with these reports of tokens; an exception is raised after its reports."""

    model = "reporting"
    provider = "scripted"
    max_retries = 1

    def __init__(self, *replies):
        self.replies = list(replies)

    async def generate(self, request):
        said, *reports = self.replies.pop(0)
        for usage in reports:
            yield ChatResponseUpdate((UsageContent(usage),))
        if isinstance(said, Exception):
            raise said
        yield ChatResponseUpdate((TextContent(said) if isinstance(said, str) else said,))
        yield ChatResponseUpdate(finish_reason="stop" if isinstance(said, str) else "tool_calls")


async def test_running_totals_within_a_request_are_not_summed(ask):
    """C85"""
    reports = [Usage(10, 1), Usage(10, 5), Usage(10, 9), Usage(10, 9, reasoning_tokens=4)]
    response = await ask(Agent(Reporting(("x", *reports))), "q")
    assert response.usage == Usage(10, 9, 19, reasoning_tokens=4)
    response = await ask(Agent(Reporting(("x", Usage(10, 9), Usage(0, None)))), "q")
    assert response.usage == Usage(0, 9, 9)


async def test_requests_of_a_run_are_summed_in_every_count(ask):
    counts = dict(zip(COUNTS, (10, 2, 12, 5, 1, 1, 3, 2), strict=True))
    reports = Usage(**counts)
    client = Reporting((tool_call("f"), reports), ("x", reports))
    response = await ask(Agent(client, tools=[f]), "q")
    assert response.usage == Usage(**{name: 2 * count for name, count in counts.items()})


def f() -> int:
    """Count."""
    return 1


def test_a_total_that_was_not_reported_is_added_up():
    assert Usage(10, 2).total_tokens == 12
    assert Usage(10, 2, 15).total_tokens == 15
    assert Usage(10).total_tokens is None
    assert Usage(10, 1).updated(Usage(output_tokens=5)) == Usage(10, 5, 15)
    assert Usage(10, 1, 20).updated(Usage(cached_input_tokens=5)).total_tokens == 20


async def test_a_token_limit_holds_where_no_total_is_reported(ask):
    client = Reporting((tool_call("f"), Usage(60, 50)), ("never", Usage(1, 1)))
    with pytest.raises(BudgetExceededError, match="110 tokens"):
        await ask(Agent(client, tools=[f]), "q", budget=RunBudget(max_tokens=100))


async def test_a_failed_attempt_counts_once_and_has_a_row_of_its_own(ask):
    client = Reporting((ServerError("down"), Usage(10, 1)), ("x", Usage(10, 5)))
    response = await ask(Agent(client), "q")
    assert response.usage == Usage(20, 6, 26)
    rows = requests_df(run_id=response.run_id)
    assert list(rows.attempt) == [1, 2]
    assert list(rows.input_tokens) == [10, 10]
    assert list(rows.error_type.fillna("")) == ["ServerError", ""]
    assert runs_df(run_id=response.run_id).total_tokens[0] == 26


async def test_tokens_of_sub_agents_are_in_the_sum_once_and_can_be_told_apart(ask):
    """C88"""
    child = Agent(Reporting(("done", Usage(1000, 500))), name="child", description="Works.")
    parent = Agent(Reporting((tool_call("child", messages="go"), Usage(10, 2)), ("x", Usage(10, 2))), tools=[child])
    response = await ask(parent, "q")
    assert response.usage == Usage(1020, 504, 1524)
    by_run = usage_df(by="run_id").set_index("run_id").total_tokens
    assert by_run[response.run_id] == 24
    assert by_run.sum() == response.usage.total_tokens
    assert dict(usage_df(by="agent").set_index("agent").total_tokens) == {"agent": 24, "child": 1500}


async def test_what_nobody_reported_is_missing_and_never_0(ask):
    response = await ask(Agent(Reporting(("x",))), "q")
    assert response.usage is None
    for frame in (runs_df(), requests_df(), usage_df(by="agent")):
        assert frame[[*COUNTS[:6]]].isna().all(axis=None)
        assert frame.cost_usd.isna().all()
    assert not runs_df().usage_complete[0]


async def test_a_sum_of_which_a_part_is_unknown_says_so(ask):
    """C90"""
    client = Reporting(
        (tool_call("f"), Usage(1, 1, cached_input_tokens=100)),
        (tool_call("f"), Usage(1, 1)),
        ("x", Usage(1, 1, cached_input_tokens=50)),
    )
    response = await ask(Agent(client, tools=[f]), "q")
    assert (response.usage.cached_input_tokens, response.usage.partial) == (150, ("cached_input_tokens",))
    assert not runs_df().usage_complete[0]


async def test_a_server_tells_cached_written_reasoning_and_sound(ask, raw_server: RawServer):
    counts = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10, "audio_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 5},
    }
    raw_server.reply_with(lambda body: {**message("x"), "usage": counts})
    client = OpenAIChatClient("m", base_url=raw_server.base_url, streaming=False)
    assert (await ask(Agent(client), "q")).usage == Usage(100, 50, 150, 40, 10, 30, 20, 5)


def test_nothing_summed_is_unknown_and_not_complete():
    assert total_usage([]) is None
    assert total_usage([None, Usage()]) is None
    assert not usage_complete([None])
    assert total_usage([Usage(0, 0)]) == Usage(0, 0, 0)


@pytest.mark.parametrize(
    "usage", [Usage(), Usage(1, 2, 3, 1, 0, 1, 1, 1), Usage(1, 2, partial=("cached_input_tokens",))]
)
def test_a_usage_survives_json(usage):
    assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage
    with pytest.raises(ConfigurationError):
        Usage.from_dict({"tokens": 1})


def test_the_scripted_client_reports_counts():
    assert Agent(ScriptedChatClient(["four"])).run_sync("q").usage == Usage(1, 1, 2)
