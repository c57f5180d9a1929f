"""The part of the contract of chat clients that is about calls of tools, and what is left of them in a session."""

from __future__ import annotations

import asyncio
import copy

import pytest

from nbagents import Message, RunBudget
from tests.clients.asking import Mode, ask, both_modes
from tests.clients.endpoints import Endpoint, Say
from tests.clients.marking import needs
from tests.clients.talks import Talk, both


class ToolCallContract:
    """Tests of `endpoint`; part of `ChatClientContract`."""

    @needs("words")
    async def test_a_call_without_arguments_runs(self, endpoint: Endpoint) -> None:
        """C27"""
        ran = []

        def now() -> str:
            """Tell the time."""
            ran.append(1)
            return "noon"

        script = [Say(calls=(("now", {}),)), Say("It is noon."), Say("Bye.")]
        for response, after in (await both(endpoint, script, "What time is it?", "Bye", tools=[now])).values():
            (call,) = response.messages[0].calls
            assert (call.arguments, call.invalid, response.text, after.text) == ({}, False, "It is noon.", "Bye.")
        assert len(ran) == 2

    @needs("words", "several calls")
    async def test_equal_calls_all_run(self, endpoint: Endpoint) -> None:
        """C28"""
        drawn = []

        def draw() -> int:
            """Draw a card."""
            drawn.append(len(drawn) % 2)
            return drawn[-1]

        script = [Say(calls=(("draw", {}), ("draw", {}))), Say("Two cards."), Say("Bye.")]
        for response, _ in (await both(endpoint, script, "Two cards", "Bye", tools=[draw])).values():
            results = [result for message in response.messages for result in message.results]
            assert sorted(result.result for result in results) == ["0", "1"]
            assert len({result.id for result in results}) == 2
        assert len(drawn) == 4

    @needs("words")
    async def test_blank_text_before_a_call_is_no_answer(self, endpoint: Endpoint) -> None:
        """C32"""

        def flip() -> str:
            """Flip a coin."""
            return "heads"

        script = [Say("\n\n", calls=(("flip", {}),)), Say("It was heads."), Say("Bye.")]
        for response, after in (await both(endpoint, script, "Flip", "Bye", tools=[flip])).values():
            assert [result.result for message in response.messages for result in message.results] == ["heads"]
            assert (response.messages[-1].text, after.text) == ("It was heads.", "Bye.")

    @needs("words")
    async def test_half_a_surrogate_in_a_result_does_not_block_the_session(self, endpoint: Endpoint) -> None:
        """C47"""

        def look() -> str:
            """Look."""
            return "a\ud83d 鳥🐙"

        script = [Say(calls=(("look", {}),)), Say("A bird."), Say("Bye.")]
        for response, after in (await both(endpoint, script, "Look", "Bye", tools=[look])).values():
            assert (response.text, after.text) == ("A bird.", "Bye.")

    @both_modes
    @needs("words", "several calls")
    async def test_cancelling_in_a_tool_keeps_what_is_done_and_the_session_goes_on(
        self, endpoint: Endpoint, mode: Mode
    ) -> None:
        """C53"""
        under_way = asyncio.Event()

        async def work(name: str) -> str:
            """Work."""
            if name == "slow":
                under_way.set()
                await asyncio.sleep(60)
            return f"{name} is done"

        script = [Say(calls=(("work", {"name": "fast"}), ("work", {"name": "slow"}))), Say("Still here.")]
        talk = Talk(endpoint, mode, endpoint.agent(*script, tools=[work]))
        run = asyncio.ensure_future(talk.ask("Go"))
        await under_way.wait()
        await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        told = [content for message in await talk.transcript() for content in message["contents"]]
        results = [shown for kind, shown in told if kind == "function_result"]
        assert [text for _, text, _, _ in results[:1]] == ["fast is done"]
        assert [failed for _, _, failed, _ in results] == [False, True]
        if endpoint.can("request"):  # a recording was made of the turns that ended
            assert (await talk.ask("And now?")).text == "Still here."

    @both_modes
    @needs("words")
    async def test_calls_at_the_step_limit_are_answered(self, endpoint: Endpoint, mode: Mode) -> None:
        """C67"""
        ran = []

        def work() -> str:
            """Work."""
            ran.append(1)
            return "done"

        script = [Say(calls=(("work", {}),)), Say("Not done."), Say("Still here.")]
        agent = endpoint.agent(*script, tools=[work])
        session = agent.create_session()
        limited = await ask(agent, "Go", mode, session, budget=RunBudget(max_steps=1))
        assert (limited.stop_reason, limited.text, ran) == ("max_steps", "Not done.", [])
        assert (await ask(agent, "And now?", mode, session)).text == "Still here."

    @both_modes
    @needs("words")
    async def test_runs_at_once_on_one_session_are_whole_turns(self, endpoint: Endpoint, mode: Mode) -> None:
        """C72"""

        async def work(name: str) -> str:
            """Work."""
            await asyncio.sleep(0.01)
            return f"{name} is done"

        script = [
            Say(calls=(("work", {"name": "one"}),)),
            Say("One is done."),
            Say(calls=(("work", {"name": "two"}),)),
            Say("Two is done."),
        ]
        talk = Talk(endpoint, mode, endpoint.agent(*script, tools=[work]))
        first, second = await asyncio.gather(talk.ask("Do one"), talk.ask("Do two"))
        assert (first.text, second.text) == ("One is done.", "Two is done.")
        told = [
            (message["role"], [content[0] for content in message["contents"]]) for message in await talk.transcript()
        ]
        turn = [
            ("user", ["text"]),
            ("assistant", ["function_call"]),
            ("tool", ["function_result"]),
            ("assistant", ["text"]),
        ]
        assert told == turn * 2

    @both_modes
    async def test_what_the_caller_passes_is_not_changed(self, endpoint: Endpoint, mode: Mode) -> None:
        """C78"""
        messages = [Message("user", "I am Ada."), Message("user", "Say hello.", extra={"kept": [1]})]
        options = {**endpoint.options, "metadata": {"a": "1"}} if endpoint.can("request") else dict(endpoint.options)
        before = copy.deepcopy((messages, options))
        response = await ask(endpoint.agent(Say("Hello.")), messages, mode, options=options)
        assert (messages, options) == before
        assert [message.role for message in response.messages] == ["assistant"]
