"""What somebody above an agent settles about one run goes to that run and to no other."""

from __future__ import annotations

from nbagents import Agent, ScriptedChatClient, run_log
from nbagents.core.origins import RunOrigin, originating


def agent() -> Agent:
    return Agent(ScriptedChatClient(["One.", "Two.", "Three."]), name="assistant")


async def test_an_origin_is_that_of_the_next_run_only() -> None:
    helper, origin = agent(), RunOrigin("r1", "r0", {"user": "ada"})
    with originating(origin):
        first, second = helper.run("a", stream=True), helper.run("b", stream=True)
    assert (await first.get_final_response()).run_id == "r1"
    assert (await second.get_final_response()).run_id != "r1"
    assert origin.run is not None
    started = run_log().get("r1").events[0].payload
    assert (started["parent_run_id"], started["metadata"]) == ("r0", {"user": "ada"})


async def test_an_origin_ends_with_its_block() -> None:
    with originating(RunOrigin("r1")):
        pass
    response = await agent().run("a")
    assert response.run_id != "r1"
    assert "metadata" not in run_log().get(response.run_id).events[0].payload
