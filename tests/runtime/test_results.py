"""What a run gives: answer, usage with cost, artifacts, error; as an object and as JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    NBAgentsError,
    ScriptedChatClient,
    ToolContext,
    Usage,
    set_price,
    tool,
    tool_call,
)
from nbagents.core.content import RefusalContent, TextContent, UsageContent
from nbagents.core.errors import ServerError
from nbagents.core.secrets import register_secret
from nbagents.runtime import RunBudget, RunErrorRecord, RunResult, Runtime
from tests.runtime.runs import Weather, asking, publish, scripted


async def test_the_answer_is_a_text_or_the_value_that_was_asked_for() -> None:
    runtime = scripted("Hello.", '{"degrees": 21}', [RefusalContent("I will not.")])
    said = await runtime.run(request=asking())
    assert (said.final_output, str(said), said.error) == ("Hello.", "Hello.", None)
    assert [message.text for message in said.messages] == ["Hello."]
    typed = await runtime.run_detailed(request=asking(output_type=Weather))
    assert typed.final_output == Weather(degrees=21)
    refused = await runtime.run(request=asking(output_type=Weather))
    assert refused.stop_reason == "refused"


async def test_a_text_is_no_value_where_a_value_was_asked_for() -> None:
    @tool
    def more() -> str:
        """Give more."""
        return "more"

    runtime = scripted([tool_call("more")], "So far.", [tool_call("more")], "So far.", tools=[more])
    typed = await runtime.run(request=asking(output_type=Weather, budget=RunBudget(max_steps=1)))
    assert (typed.stop_reason, typed.final_output) == ("max_steps", None)
    said = await runtime.run(request=asking(budget=RunBudget(max_steps=1)))
    assert (said.stop_reason, said.final_output) == ("max_steps", "So far.")


async def test_a_schema_that_the_agent_has_counts_too() -> None:
    runtime = scripted('{"degrees": 21}', options={"response_format": Weather})
    assert (await runtime.run(request=asking())).final_output == Weather(degrees=21)


async def test_plain_replies_are_asked_for_unless_the_run_is_detailed() -> None:
    client = ScriptedChatClient(["One.", "Two.", "Three."])
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    await runtime.run(request=asking())
    await runtime.run_detailed(request=asking())
    await runtime.run_stream(request=asking()).get_final_response()
    assert [request.stream for request in client.requests] == [False, True, True]


async def test_a_run_that_waits_for_a_person_goes_on_with_the_answer() -> None:
    runtime = scripted([tool_call("publish", text="x")], "Done.", tools=[publish])
    first = await runtime.run(request=asking(session_id="s1"))
    assert (first.stop_reason, first.final_output) == ("approval_required", None)
    (approval,) = [
        piece for message in first.messages for piece in message.contents if piece.type == "approval_request"
    ]
    again = RunResult.model_validate_json(first.model_dump_json())
    assert again.messages == first.messages
    answer = asking(session_id="s1").model_copy(update={"input_text": None, "messages": [approval.approve()]})
    assert (await runtime.run(request=answer)).final_output == "Done."


class Spending(BaseChatClient):
    """Gives replies and says what they used."""

    provider = "test"

    def __init__(self, model: str, *replies: tuple[Any, Usage]) -> None:
        self.model = model
        self.replies = list(replies)

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        content, usage = self.replies.pop(0)
        reason = "stop" if isinstance(content, TextContent) else "tool_calls"
        yield ChatResponseUpdate([content, UsageContent(usage)], "assistant", model=self.model, finish_reason=reason)


async def test_the_cost_is_the_sum_of_all_requests_and_missing_once_one_is_unknown() -> None:
    set_price("test-priced", input=1.0, output=10.0)
    said = TextContent("So.")
    priced, unpriced = (
        Spending("test-priced", (said, Usage(100_000, 0))),
        Spending("test-unpriced", (said, Usage(1, 1))),
    )
    helper = Agent(priced, name="helper", description="Helps.")
    odd = Agent(unpriced, name="odd", description="Helps.")

    async def cost(called: str) -> Any:
        asked = (tool_call(called, messages="x"), Usage(1_000_000, 100_000))
        client = Spending("test-priced", asked, (said, Usage(0, 0)))
        return (
            await Runtime(agents=[Agent(client, name="assistant", tools=[helper, odd])]).run(request=asking())
        ).usage

    assert (await cost("helper")).cost_usd == pytest.approx(1.0 + 1.0 + 0.1)
    unknown = await cost("odd")
    assert (unknown.cost_usd, unknown.input_tokens) == (None, 1_000_001)


async def test_a_run_that_reported_nothing_has_no_usage() -> None:
    silent = Spending("test", (TextContent("Hi."), Usage()))
    result = await Runtime(agents=[Agent(silent, name="assistant")]).run(request=asking())
    assert (result.final_output, result.usage) == ("Hi.", None)


async def test_an_error_says_what_was_wrong_where_it_began_and_what_to_do() -> None:
    failure = ServerError("The endpoint is down.", hint="Try later.", status=503)
    try:
        try:
            raise OSError("no route to host")
        except OSError as cause:
            raise failure from cause
    except ServerError:
        pass
    error = (await scripted(failure).run(request=asking())).error
    assert str(error) == error.message == "The endpoint is down."
    assert (error.code, error.hint, error.retryable, error.type) == ("server", "Try later.", True, "ServerError")
    assert (error.original_type, error.original_text) == ("OSError", "no route to host")
    assert [(cause.type, cause.message) for cause in error.causes] == [("OSError", "no route to host")]


async def test_whatever_is_raised_becomes_an_error_with_its_text_and_type() -> None:
    error = (await scripted(KeyError("missing")).run(request=asking())).error
    assert error.code == "run"
    assert (error.original_type, error.original_text) == ("KeyError", "'missing'")


def test_a_chain_of_causes_is_bounded_and_may_be_a_circle() -> None:
    errors = [ValueError(str(number)) for number in range(50)]
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    record = RunErrorRecord.of(errors[0])
    assert [cause.message for cause in record.causes] == [str(number) for number in range(1, 9)]
    assert record.original_text == "49"
    errors[3].__cause__ = errors[0]
    assert len(RunErrorRecord.of(errors[0]).causes) == 3


def test_an_error_shows_no_key_and_no_endless_text() -> None:
    register_secret("sk-very-private-key-0123456789")
    cause = ValueError("sk-very-private-key-0123456789")
    error = ServerError("sk-very-private-key-0123456789 " + "x" * 100_000)
    error.__cause__ = cause
    text = RunErrorRecord.of(error).model_dump_json()
    assert "very-private" not in text
    assert len(text) < 10_000


async def test_artifacts_are_the_things_themselves_and_in_json_what_it_can_hold() -> None:
    frame = pd.DataFrame({"a": [1, 2]})

    @tool
    async def tabulate(context: ToolContext) -> str:
        """Make a table."""
        context.emit_artifact("table", frame, kind="table")
        context.emit_artifact("odd", {"nan": float("nan"), "bytes": b"\x00", "self": object})
        return "made"

    result = await scripted([tool_call("tabulate")], "Done.", tools=[tabulate]).run(request=asking(metadata={"n": 1}))
    assert result.artifacts[0].payload is frame
    read = RunResult.model_validate_json(result.model_dump_json())
    assert "shape 2 x 1" in read.artifacts[0].payload
    assert read.artifacts[1].payload["nan"] is None
    assert RunResult.model_validate_json(read.model_dump_json()) == read
    assert read.messages == result.messages


async def test_an_output_of_any_type_is_written_as_json() -> None:
    runtime = scripted([TextContent('{"degrees": 21}')])
    result = await runtime.run(request=asking(output_type=Weather))
    assert RunResult.model_validate_json(result.model_dump_json()).final_output == {"degrees": 21}


@pytest.mark.parametrize(("code", "told"), [(42, "42"), ("\ud800", "?")])
async def test_a_code_is_a_text_whatever_an_error_has_for_one(code: Any, told: str) -> None:
    result = await scripted(NBAgentsError("Down.", code=code)).run(request=asking())
    assert (result.stop_reason, result.error.code) == ("failed", told)
