"""Agents of files in a real kernel: the functions without `await` work in a cell, and the stream comes as it is."""

from __future__ import annotations

from tests.support.kernels import Kernel

SETUP = """
from pathlib import Path
from nbagents import ScriptedChatClient
from nbagents.runtime import RunRequest
from nbagents.runtime.sync import run_agent_with_config, stream_agent_with_dict
asked = RunRequest(agent_id="assistant", input_text="Hi")
"""
STREAM = """
client = ScriptedChatClient([["one ", "two"]])
stream = stream_agent_with_dict({"agents": [{"id": "assistant"}]}, request=asked, client=client)
print(*[chunk.kind.value for chunk in stream])
"""
FILE = """
Path("agent.yaml").write_text("id: assistant\\ninstructions: Be brief.")
print(run_agent_with_config("agent.yaml", request=asked, client=ScriptedChatClient(["Hello!"])).final_output)
"""
BROKEN = """
Path("agent.yaml").write_text("id: assistant\\ninstrctions: Be brief.")
run_agent_with_config("agent.yaml", request=asked)
"""


def test_functions_without_await_run_agents_of_files_in_a_cell(kernel: Kernel) -> None:
    assert kernel.run(SETUP).ok
    assert kernel.run(STREAM).stdout.split() == [
        *("run.started", "llm.delta", "llm.delta", "llm.finished", "run.finished"),
    ]
    assert kernel.run(FILE).stdout == "Hello!\n"
    error = kernel.run(BROKEN).error
    assert error is not None
    assert "line 2, instrctions: there is no field 'instrctions'. Did you mean 'instructions'?" in error.value
