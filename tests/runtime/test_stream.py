"""The chunks of a run: every kind, in order, with exactly one end whatever happens."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncGenerator
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    RunBudget,
    ScriptedChatClient,
    ToolContext,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, TextContent
from nbagents.core.errors import ConfigurationError, ServerError
from nbagents.core.events import OTHER_EVENTS
from nbagents.runtime import (
    EVENT_TO_CHUNK_KIND,
    RunRequest,
    RunStreamChunk,
    RunStreamChunkKind,
    Runtime,
    payload_schemas,
)
from tests.runtime.runs import Weather, all_chunks, asking, checked_end, every_kind, measure, scripted

pytestmark = pytest.mark.usefixtures("no_leaks")


async def test_an_ordinary_run_has_every_kind_of_chunk() -> None:
    runtime, request = every_kind()
    chunks = await all_chunks(runtime, request)
    assert checked_end(chunks).stop_reason == "approval_required"
    kinds = [chunk.kind for chunk in chunks]
    assert set(kinds) == set(RunStreamChunkKind)
    first = kinds.index(RunStreamChunkKind.TOOL_STARTED)
    assert [str(kind) for kind in kinds[:first]] == [
        "run.started",
        "retry",
        "llm.reasoning_delta",
        "llm.delta",
        "llm.finished",
    ]
    assert all(chunk.kind is RunStreamChunkKind(chunk.kind) for chunk in chunks)
    assert {(chunk.session_id, chunk.agent_id, chunk.run_id) for chunk in chunks} == {
        ("s1", "assistant", chunks[-1].result.run_id)
    }


async def test_every_payload_fits_its_schema_and_comes_back_from_json() -> None:
    runtime, request = every_kind()
    schemas = payload_schemas()
    for chunk in await all_chunks(runtime, request):
        jsonschema.validate(chunk.payload, schemas[chunk.kind.value])
        read = RunStreamChunk.model_validate_json(chunk.model_dump_json())
        assert read == chunk
        assert isinstance(read.kind, RunStreamChunkKind)


async def test_a_chunk_is_a_model_like_any_other_and_never_changes() -> None:
    chunks = await all_chunks(scripted("Hello."), asking())
    for chunk in chunks:
        assert chunk == RunStreamChunk(**dict(chunk))
        assert pickle.loads(pickle.dumps(chunk)) == chunk
        assert chunk.model_copy(update={"sequence": 9}).model_dump() == {**chunk.model_dump(), "sequence": 9}
        assert chunk.model_fields_set == set(RunStreamChunk.model_fields)
        with pytest.raises(ValidationError):
            chunk.sequence = 3  # type: ignore[misc]


async def test_the_payloads_say_what_happened() -> None:
    runtime, request = every_kind()
    told: dict[str, list[dict[str, Any]]] = {}
    for chunk in await all_chunks(runtime, request):
        told.setdefault(chunk.kind.value, []).append(chunk.payload)
    assert told["run.started"][0]["input"][0]["contents"] == [{"type": "text", "text": "Weather?"}]
    assert told["run.started"][0]["budget"] == {"max_steps": 25, "max_validation_retries": 1}
    assert told["llm.reasoning_delta"] == [{"text": "Where to?"}]
    assert {name: told["retry"][0][name] for name in ("attempt", "retracts")} == {"attempt": 1, "retracts": False}
    assert told["retry"][0]["error"]["code"] == "rate_limit"
    assert {one["tool_id"]: one["params"] for one in told["tool.started"][:2]} == {
        "measure": {"place": "Rome"},
        "fail": {},
    }
    assert [one["text"] for one in told["tool.delta"]] == ["going there"]
    finished = {one["tool_id"]: one for one in told["tool.finished"]}
    assert finished["measure"]["result"] == "21 degrees"
    assert "error" not in finished["measure"]
    assert "the bridge is out" in finished["fail"]["error"]
    assert "result" not in finished["fail"]
    assert {one["call_id"] for one in told["tool.started"]} == {one["call_id"] for one in told["tool.finished"]}
    assert told["artifact"] == [{"name": "photo", "kind": "image", "payload": {"place": "Rome"}}]
    assert told["validation.retry"][0]["attempt"] == 1
    assert "JSON" in told["validation.retry"][0]["error"]
    assert told["approval.requested"][0]["arguments"] == {"text": "21"}
    assert told["llm.finished"][0]["model"] == "scripted"


async def test_events_outside_the_table_reach_no_stream_and_all_kinds_come_from_it() -> None:
    runtime, request = every_kind()
    chunks = await all_chunks(runtime, request)
    record = run_log().get(chunks[0].run_id)
    assert record is not None
    assert OTHER_EVENTS & {event.name for event in record.events}
    assert {*EVENT_TO_CHUNK_KIND.values(), "run.finished"} == set(RunStreamChunkKind)
    assert OTHER_EVENTS.isdisjoint({chunk.kind.value for chunk in chunks})


async def test_validation_retries_give_a_new_sequence_and_the_correction_reaches_the_model() -> None:
    client = ScriptedChatClient(["warm", '{"degrees": 21}'])
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    chunks = await all_chunks(runtime, asking(output_type=Weather))
    kinds = [chunk.kind.value for chunk in chunks]
    retry = kinds.index("validation.retry")
    assert "llm.delta" in kinds[retry:]
    assert "llm.finished" in kinds[retry:]
    assert checked_end(chunks).final_output == Weather(degrees=21)
    assert chunks[retry].payload["error"].splitlines()[0] in client.requests[1].messages[-1].text


async def test_used_up_validation_retries_end_without_an_output() -> None:
    runtime = scripted("warm", "hot", "cold")
    budget = RunBudget(max_validation_retries=2)
    result = checked_end(await all_chunks(runtime, asking(output_type=Weather, budget=budget)))
    assert result.final_output is None
    assert (result.stop_reason, result.error.code) == ("failed", "output_validation")


@tool
async def cancelled_by_itself() -> str:
    """Raise CancelledError."""
    raise asyncio.CancelledError


@tool
async def endless() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


def broken_template() -> Agent:
    return Agent(ScriptedChatClient([]), "{{ 1 / 0 }}", name="assistant", template="jinja2")


ENDS: dict[str, tuple[Any, dict[str, Any], str, str | None]] = {
    "success": (lambda: scripted("Hello."), {}, "completed", None),
    "a tool that raises CancelledError": (
        lambda: scripted([tool_call("cancelled_by_itself")], "Never mind.", tools=[cancelled_by_itself]),
        {},
        "completed",
        None,
    ),
    "a tool that fails": (
        lambda: scripted([tool_call("measure")], "Never mind.", tools=[measure]),
        {},
        "completed",
        None,
    ),
    "the client fails": (lambda: scripted(["Hel", ServerError("Down.")]), {}, "failed", "server"),
    "the client fails with anything": (lambda: scripted(ValueError("odd")), {}, "failed", "run"),
    "an unknown agent": (lambda: scripted(), {"agent_id": "asistant"}, "failed", "unknown_agent"),
    "instructions that cannot be rendered": (
        lambda: Runtime(agents=[broken_template()]),
        {},
        "failed",
        None,
    ),
    "no type": (lambda: scripted("Hello."), {"output_type": 3}, "failed", "configuration"),
    "time is up": (
        lambda: scripted([tool_call("endless")], tools=[endless]),
        {"budget": RunBudget(max_duration_ms=50)},
        "timeout",
        "timeout",
    ),
    "tokens are used up": (
        lambda: scripted([tool_call("measure", place="Rome")], "No.", tools=[measure]),
        {"budget": RunBudget(max_tokens=1)},
        "budget_exhausted",
        "budget_exhausted",
    ),
    "steps are used up": (
        lambda: scripted([tool_call("measure", place="Rome")], "So far.", tools=[measure]),
        {"budget": RunBudget(max_steps=1)},
        "max_steps",
        None,
    ),
}


@pytest.mark.parametrize("how", ENDS)
async def test_run_finished_is_one_and_last(how: str) -> None:
    make, fields, stop_reason, code = ENDS[how]
    runtime = make()
    chunks = await all_chunks(runtime, asking(**fields))
    result = checked_end(chunks)
    assert result.stop_reason == stop_reason
    assert (result.error is None) == (stop_reason in ("completed", "max_steps"))
    assert code is None or result.error.code == code
    assert chunks[0].kind == "run.started"
    record = run_log().get(result.run_id)
    assert record is not None
    assert record.ended
    assert record.events[-1].payload["stop_reason"] == stop_reason


async def test_a_run_id_that_was_used_is_an_error_and_the_first_run_keeps_its_log() -> None:
    runtime = scripted("One.", "Two.")
    first = await runtime.run(request=asking(run_id="mine"))
    chunks = await all_chunks(runtime, asking(run_id="mine"))
    result = checked_end(chunks)
    assert first.run_id == result.run_id == "mine"
    assert (result.stop_reason, result.error.code) == ("failed", "duplicate_run_id")
    assert run_log().get("mine").events[-1].payload["output_text"] == "One."
    unread = runtime.run_stream(request=asking(run_id="mine"))
    await unread.aclose()
    assert (await unread.get_final_response()).error.code == "duplicate_run_id"
    assert run_log().get("mine").events[-1].payload["output_text"] == "One."
    async for _ in (stream := runtime.run_stream(request=asking(run_id="going"))):
        again = await runtime.run(request=asking(run_id="going"))
        assert again.error.code == "duplicate_run_id"
    assert (await stream.get_final_response()).final_output == "Two."


async def test_a_request_that_cannot_be_run_leaves_the_log_of_the_run_whose_id_it_has_taken() -> None:
    runtime = scripted("One.")
    await runtime.run(request=asking(run_id="first"))
    for agent_id in ("nobody", "assistant"):
        again = await runtime.run(request=asking(run_id="first", agent_id=agent_id))
        assert again.error.code == "duplicate_run_id"
    assert run_log().get("first").events[-1].payload["output_text"] == "One."
    assert (await runtime.run(request=asking(run_id="second", agent_id="nobody"))).error.code == "unknown_agent"
    assert (await runtime.run(request=asking(run_id="second"))).error.code == "duplicate_run_id"


@tool
async def say_what_json_cannot_hold(context: ToolContext) -> str:
    """Say it."""
    context.emit_delta("\ud800")
    context.emit_artifact("\ud800", {"nan": float("nan"), "bytes": b"\xff"}, kind="\udfff")
    return "\ud800"


async def test_names_that_json_cannot_hold_are_streamed_all_the_same() -> None:
    call = FunctionCall(call_id="\ud800", name="say_what_json_cannot_hold", arguments="{}")
    runtime = scripted([call], "Done.", tools=[say_what_json_cannot_hold])
    chunks = await all_chunks(runtime, asking())
    assert checked_end(chunks).artifacts[0].name == "?"
    for chunk in chunks:
        written = chunk.model_dump_json()
        assert RunStreamChunk.model_validate_json(written).model_dump_json() == written
    assert len({chunk.payload["call_id"] for chunk in chunks if "call_id" in chunk.payload}) == 1


async def test_calls_without_an_id_of_the_provider_have_one_of_ours() -> None:
    calls = [FunctionCall(None, "measure", {"place": "Rome"}), FunctionCall(None, "measure", {"place": "Oslo"})]
    chunks = await all_chunks(scripted([*calls], "Warm.", tools=[measure]), asking())
    started = {c.payload["call_id"]: c.payload["params"]["place"] for c in chunks if c.kind == "tool.started"}
    finished = {c.payload["call_id"] for c in chunks if c.kind == "tool.finished"}
    assert sorted(started.values()) == ["Oslo", "Rome"]
    assert finished == set(started)
    assert None not in started


class Stepwise(BaseChatClient):
    """Notes when it is asked for each piece."""

    provider = "test"
    model = "stepwise"

    def __init__(self) -> None:
        self.made: list[str] = []

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        for text in ("one ", "two ", "three"):
            self.made.append(text)
            yield ChatResponseUpdate([TextContent(text)], "assistant")
        yield ChatResponseUpdate(finish_reason="stop")


async def test_a_delta_reaches_the_consumer_before_the_next_one_is_made() -> None:
    client = Stepwise()
    seen: list[tuple[str, int]] = []
    async for chunk in Runtime(agents=[Agent(client, name="assistant")]).run_stream(request=asking()):
        if chunk.kind is RunStreamChunkKind.LLM_DELTA:
            seen.append((chunk.payload["text"], len(client.made)))
    assert seen == [("one ", 1), ("two ", 2), ("three", 3)]


async def test_text_that_json_cannot_hold_is_streamed_all_the_same() -> None:
    runtime = scripted(["half \ud83d", "é"], tools=[])
    for chunk in await all_chunks(runtime, asking("\udc00?")):
        json.loads(chunk.model_dump_json())


async def test_the_stream_is_a_response_stream_too() -> None:
    runtime = scripted([tool_call("measure", place="Rome")], "Warm.", "Again.", tools=[measure])
    stream = runtime.run_stream(request=asking())
    roles = [message.role async for message in stream.messages()]
    assert roles == ["assistant", "tool", "assistant"]
    assert (await stream.get_final_response()).final_output == "Warm."
    unread = runtime.run_stream(request=asking())
    await unread.aclose()
    assert (await unread.get_final_response()).stop_reason == "cancelled"


async def test_request_must_be_a_request() -> None:
    runtime = scripted("Hello.")
    with pytest.raises(ConfigurationError, match=r"RunRequest\(\*\*payload\)"):
        runtime.run_stream(request={"agent_id": "assistant"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="run_stream"):
        runtime.run_stream(RunRequest(agent_id="assistant", input_text="Hi"))  # type: ignore[misc]
