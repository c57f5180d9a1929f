"""What a request takes, and what of it reaches the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nbagents import (
    Agent,
    Message,
    RunBudget,
    ScriptedChatClient,
    ToolContext,
    run_log,
    tags,
    tool,
    tool_call,
    use_store,
)
from nbagents.core.errors import ConfigurationError
from nbagents.runtime import RunRequest, Runtime
from tests.runtime.runs import asking, scripted


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"agent_id": "a", "input_text": "Hi", "sesion_id": "s"}, "no field 'sesion_id'. Did you mean 'session_id'?"),
        ({"agent_id": "a", "input_text": "Hi", "api": "s"}, "There are: agent_id, session_id"),
        ({"input_text": "Hi"}, "RunRequest.agent_id"),
        ({"agent_id": "a"}, "input_text or messages, not none"),
        ({"agent_id": "a", "input_text": "Hi", "messages": "Hi"}, "not both"),
        ({"agent_id": "a", "input_text": "Hi", "budget": {"max_stepss": 1}}, "budget.max_stepss"),
        ({"agent_id": "a", "input_text": "Hi", "budget": {"max_steps": 0}}, "at least 1"),
        ({"agent_id": "a", "messages": [3]}, "not int"),
    ],
)
def test_a_field_that_does_not_fit_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        RunRequest(**fields)
    assert told in str(error.value)


def test_a_payload_is_read_and_errors_quote_no_values() -> None:
    payload = {
        "agent_id": "assistant",
        "messages": [{"role": "user", "contents": [{"type": "text", "text": "Hi"}]}],
        "budget": {"max_steps": 3},
    }
    request = RunRequest.model_validate(payload)
    assert request.messages == (Message("user", "Hi"),)
    assert request.budget == RunBudget(max_steps=3)
    with pytest.raises(ValidationError) as error:
        RunRequest.model_validate({**payload, "sesion_id": "very private"})
    assert "Did you mean 'session_id'" in str(error.value)
    assert "very private" not in str(error.value)


def test_a_request_never_changes() -> None:
    request = asking()
    with pytest.raises(ValidationError):
        request.agent_id = "other"  # type: ignore[misc]
    assert request.model_copy(update={"session_id": "s2"}).session_id == "s2"


async def test_what_the_caller_settles_reaches_run_log_and_tools() -> None:
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append((context.run_id, context.deps, dict(context.run.metadata), context.run.budget.max_steps))
        return "ok"

    helper = Agent(ScriptedChatClient([[tool_call("look")], "Seen."]), name="helper", description="d", tools=[look])
    agent = Agent(
        ScriptedChatClient([[tool_call("look"), tool_call("helper", messages="x")], "Done."]),
        name="assistant",
        tools=[look, helper],
    )
    deps = object()
    with tags(case="c1"):
        stream = Runtime(agents=[agent]).run_stream(
            request=asking(
                run_id="r1", parent_run_id="r0", metadata={"user": "ada"}, deps=deps, budget=RunBudget(max_steps=7)
            )
        )
    result = await stream.get_final_response()
    assert result.metadata == {"user": "ada"}
    assert seen[0] == ("r1", deps, {"user": "ada"}, 7)
    assert seen[1][0] != "r1"
    assert seen[1][1] is deps
    started = run_log().get("r1").events[0].payload
    assert (started["parent_run_id"], started["metadata"], started["tags"]) == ("r0", {"user": "ada"}, {"case": "c1"})
    child = next(record for record in run_log().runs() if record.run_id == seen[1][0])
    assert child.events[0].payload["parent_run_id"] == "r1"


async def test_a_key_in_the_metadata_is_stored_nowhere(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    path = tmp_path / "runs.db"
    with use_store(f"sqlite:///{path}") as store:
        await scripted("Hello.").run(request=asking(metadata={"inner": [{"api_key": secret}], "user": "ada"}))
        store.flush()
        (record,) = store.records()
        assert record.events[0].payload["metadata"]["user"] == "ada"
    use_store(None)
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


async def test_runs_of_one_session_go_on_with_each_other_and_close_session_ends_that() -> None:
    client = ScriptedChatClient(["One.", "Two.", "Three.", "Four."])
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    for text in ("a", "b"):
        await runtime.run(request=asking(text, session_id="s1"))
    await runtime.run(request=asking("c", session_id="s2"))
    assert [len(request.messages) for request in client.requests] == [1, 3, 1]
    closed = []
    runtime.subscribe("session.closed", lambda event: closed.append((event.session_id, event.payload["why"])))
    assert await runtime.close_session("s1") is True
    assert await runtime.close_session("s1") is False
    await runtime.run(request=asking("d", session_id="s1"))
    assert len(client.requests[-1].messages) == 1
    assert closed == [("s1", "closed")]


async def test_a_run_without_a_session_id_begins_one_that_can_be_gone_on_with() -> None:
    client = ScriptedChatClient(["One.", "Two."])
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    first = await runtime.run(request=asking("a"))
    await runtime.run(request=asking("b", session_id=first.session_id))
    assert len(client.requests[1].messages) == 3


async def test_sessions_are_bounded_and_the_longest_unused_one_goes() -> None:
    client = ScriptedChatClient(["."] * 6)
    runtime = Runtime(agents=[Agent(client, name="assistant")], max_sessions=2)
    for session_id in ("s1", "s2", "s1", "s3", "s1", "s2"):
        await runtime.run(request=asking("a", session_id=session_id))
    assert [len(request.messages) for request in client.requests] == [1, 1, 3, 1, 5, 1]
    assert [event.session_id for event in runtime.events.history("session.closed")] == ["s2", "s3"]


async def test_a_session_that_a_run_has_is_not_forgotten() -> None:
    client = ScriptedChatClient(["One.", "Two.", "Three."])
    runtime = Runtime(agents=[Agent(client, name="assistant")], max_sessions=1)
    async for chunk in runtime.run_stream(request=asking("a", session_id="s1")):
        if chunk.kind == "llm.finished":
            await runtime.run(request=asking("b", session_id="s2"))
    await runtime.run(request=asking("c", session_id="s1"))
    assert [len(request.messages) for request in client.requests] == [1, 1, 3]


def test_max_sessions_is_a_number_from_one() -> None:
    with pytest.raises(ConfigurationError, match="max_sessions"):
        Runtime(agents=[], max_sessions=0)


@pytest.mark.parametrize(
    "fields",
    [
        {"input_text": "Hi", "budget": RunBudget(max_steps=2), "output_type": {"type": "object"}},
        {"messages": [Message("user", "Hi"), "there"]},
    ],
    ids=str,
)
def test_a_request_comes_back_from_json(fields: dict[str, Any]) -> None:
    request = RunRequest(agent_id="assistant", **fields)
    assert RunRequest.model_validate_json(request.model_dump_json()) == request


def test_metadata_that_json_cannot_hold_are_written_as_far_as_it_can() -> None:
    request = asking(metadata={"nan": float("nan"), "bytes": b"\xff"})
    written = request.model_dump_json()
    assert RunRequest.model_validate_json(written).model_dump_json() == written
