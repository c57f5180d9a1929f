"""Runtimes from files and dicts, and the functions that run one of their agents without `await`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from nbagents import BaseChatClient, ScriptedChatClient
from nbagents.core.content import TextContent
from nbagents.core.errors import ConfigurationError
from nbagents.core.updates import ChatResponseUpdate
from nbagents.runtime import RunStreamChunkKind, Runtime
from nbagents.runtime.sync import (
    run_agent_with_config,
    run_agent_with_dict,
    stream_agent_with_config,
    stream_agent_with_dict,
)
from nbagents.spec import SpecError
from tests.runtime.runs import all_chunks, asking, checked_end

PAYLOAD: dict[str, Any] = {
    "agents": [{"id": "assistant", "name": "Assistant", "memory": {"type": "noop"}, "pattern": {"type": "react"}}],
    "runtime": {"type": "default"},
    "session": {"type": "in_memory"},
    "events": {"type": "async"},
    "skills": {"type": "local"},
}


class Waiting(BaseChatClient):
    """Gives its second piece when it is told to."""

    provider = "test"
    model = "waiting"

    def __init__(self) -> None:
        self.go_on = threading.Event()

    async def generate(self, request: Any) -> Any:
        yield ChatResponseUpdate([TextContent("one ")], "assistant")
        await asyncio.get_running_loop().run_in_executor(None, self.go_on.wait, 30)
        yield ChatResponseUpdate([TextContent("two")], "assistant")
        yield ChatResponseUpdate(finish_reason="stop")


def test_the_payload_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBAGENTS_CLIENT", "demo")
    result = run_agent_with_dict(PAYLOAD, request=asking())
    assert (result.agent_id, result.stop_reason) == ("assistant", "completed")
    assert result.final_output
    checked_end(list(stream_agent_with_dict(PAYLOAD, request=asking())))


async def test_a_file_makes_a_runtime(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("agents:\n- id: assistant\n  instructions: Be brief.\n- id: other\nruntime: {max_sessions: 1}\n")
    client = ScriptedChatClient(["Hello!", "Again."])
    async with Runtime.from_config(path, client=client) as runtime:
        assert [agent.id for agent in runtime.list_agents()] == ["assistant", "other"]
        closed: list[str | None] = []
        runtime.subscribe("session.closed", lambda event: closed.append(event.session_id))
        chunks = await all_chunks(runtime, asking(session_id="s1"))
        assert checked_end(chunks).final_output == "Hello!"
        await runtime.run(request=asking(session_id="s2"))
        assert closed == ["s1"], "the file says that one session is remembered"
    assert client.requests[0].messages[0].text == "Be brief."


async def test_reload_reads_the_file_again_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("id: assistant\ninstructions: One.")
    client = ScriptedChatClient(["Hello!", "Again.", "And again."])
    runtime = Runtime.from_config(path, client=client)
    told: list[tuple[str, str | None]] = []
    runtime.subscribe("*", lambda event: told.append((event.name, event.agent_id)))
    path.write_text("agents: [{id: assistant, instructions: Two.}, {id: other}]")
    await runtime.reload()
    assert told == [("config.reloaded", None), ("agent.reloaded", "assistant"), ("agent.reloaded", "other")]
    await runtime.run(request=asking())
    path.write_text("agents: [{id: assistant, instrctions: Three.}]")
    with pytest.raises(SpecError, match="line 1"):
        await runtime.reload()
    await runtime.run(request=asking())
    assert [request.messages[0].text for request in client.requests] == ["Two.", "Two."]
    with pytest.raises(ConfigurationError, match="made from agents, not from a file"):
        await Runtime(agents=[]).reload()


def test_a_wrong_file_is_an_error_at_the_call(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"agents": [{"nam": "a"}]}')
    for call in (run_agent_with_config, stream_agent_with_config, Runtime.from_config):
        with pytest.raises(SpecError, match=r"config\.json: line 1, agents"):
            call(path, **({} if call == Runtime.from_config else {"request": asking()}))  # type: ignore[operator]
    with pytest.raises(ConfigurationError, match="Did you mean 'tools'"):
        Runtime.from_dict(PAYLOAD, tool=[])  # type: ignore[call-arg]


def test_an_unknown_agent_ends_the_stream_as_any_failure(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("id: assistent")
    chunks = list(stream_agent_with_config(path, request=asking(), client=ScriptedChatClient([])))
    error = checked_end(chunks).error
    assert error is not None
    assert (error.code, error.hint) == ("unknown_agent", "Did you mean 'assistent'?")


def _takes_pieces_as_they_come() -> None:
    client = Waiting()
    seen: list[str] = []
    for chunk in stream_agent_with_dict({"id": "assistant"}, request=asking(), client=client):
        if chunk.kind is RunStreamChunkKind.LLM_DELTA:
            seen.append(chunk.payload["text"])
            client.go_on.set()  # only now can the next piece be made
    assert seen == ["one ", "two"]
    assert run_agent_with_dict({"id": "assistant"}, request=asking(), client=client).final_output == "one two"


def test_the_stream_comes_as_it_is_made_in_a_script() -> None:
    _takes_pieces_as_they_come()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_it_does_so_inside_a_running_loop(run: Any) -> None:
    async def cell() -> None:
        _takes_pieces_as_they_come()

    run(cell())


def test_a_stream_that_is_left_ends_its_run(no_leaks: None) -> None:
    client = Waiting()
    client.go_on.set()
    with stream_agent_with_dict({"id": "assistant"}, request=asking(), client=client) as stream:
        next(iter(stream))
    assert stream.get_final_response().stop_reason == "cancelled"
