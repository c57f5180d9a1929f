"""The contract of chat clients: one suite that each passes in both modes, with the same transcripts stored.

A client takes part by an `Endpoint` (see `endpoints.py`). Where it is unable to do something, the endpoint says so and
why; a test that needs it is then not made for that client.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from nbagents import Message, TokenBudgetReducer, run_log, tool
from nbagents.core.content import DataContent, TextContent
from nbagents.core.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidReplyError,
    ModelError,
    ModelNotFoundError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.clients.endpoints import LONG, Endpoint, Fail, Say
from tests.clients.marking import needs
from tests.clients.talks import Talk, both, said, until
from tests.clients.tool_contract import ToolCallContract

UNICODE = "żółw 鳥🐙 \u202eabc\u0301"
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


class ChatClientContract(ToolCallContract):
    """Tests of `endpoint`. A test module subclasses it and gives the fixture."""

    async def test_a_text_is_the_reply(self, endpoint: Endpoint) -> None:
        for (response,) in (await both(endpoint, [Say("Hello you there.")], "Say hello.")).values():
            assert response.text == said(endpoint, "Hello you there.")
            assert response.stop_reason == "completed"
            assert response.finish_reason in (("stop",) if endpoint.can("words") else ("stop", "length"))

    async def test_a_stream_has_the_pieces_of_the_text(self, endpoint: Endpoint) -> None:
        stream = endpoint.agent(Say(LONG)).run("Count.", stream=True, options=endpoint.options)
        pieces = [update.text async for update in stream if update.text]
        assert "".join(pieces) == (await stream.get_final_response()).text == said(endpoint, LONG)
        assert len(pieces) > 1

    async def test_the_client_alone_answers_in_both_modes(self, endpoint: Endpoint) -> None:
        answers = {}
        for mode in endpoint.modes:
            client = endpoint.client(Say("Hello you."))
            if mode == "plain":
                answer = await client.get_response([Message("user", "Hi")], options=endpoint.options)
            else:
                stream = client.get_response([Message("user", "Hi")], stream=True, options=endpoint.options)
                assert "".join([update.text async for update in stream]) == said(endpoint, "Hello you.")
                answer = await stream.get_final_response()
            answers[mode] = (answer.text == said(endpoint, "Hello you."), answer.finish_reason, len(answer.messages))
        assert answers["plain"] == answers["streamed"]
        assert answers["plain"][0]

    async def test_a_session_remembers_its_turns(self, endpoint: Endpoint) -> None:
        script = [Say("Hello Ada."), Say("You are Ada."), Say("Bye.")]
        for responses in (await both(endpoint, script, "I am Ada.", "Who am I?", "Bye")).values():
            assert [response.text for response in responses] == [said(endpoint, turn.text) for turn in script]
        if endpoint.can("request"):
            sent = [(message["role"], message["content"]) for message in endpoint.asked()["messages"]]
            turns = ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada.", "Bye"]
            assert sent == list(zip(["user", "assistant"] * 3, turns, strict=False))

    async def test_a_tool_is_called_and_answered(self, endpoint: Endpoint) -> None:
        ran = []

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            ran.append((a, b))
            return a + b

        script = [Say("Let me see.", calls=(("add", {"a": 2, "b": 3}),)), Say("It is 5.")]
        if not endpoint.can("words"):
            script = [Say(calls=script[0].calls), script[1]]
        for (response,) in (
            await both(endpoint, script, "Add 2 and 3.", tools=[add], **endpoint.call_options)
        ).values():
            first, results, last = response.messages
            ((call,), (result,)) = (first.calls, results.results)
            assert (call.name, sorted(call.arguments), call.invalid) == ("add", ["a", "b"], False)
            assert (result.id, result.call_id, result.error) == (call.id, call.call_id, None)
            assert result.result == str(sum(call.arguments.values()))
            assert (last.calls, last.text) == ([], said(endpoint, "It is 5."))
            assert response.stop_reason == "completed"
        assert len(ran) == 2

    @needs("several calls")
    async def test_calls_of_one_reply_keep_their_order_and_their_results(self, endpoint: Endpoint) -> None:
        async def weather(city: str) -> str:
            """Tell the weather."""
            await asyncio.sleep({"Paris": 0.02, "Oslo": 0.01}.get(city, 0.0))
            return f"{city}: sunny"

        cities = ["Paris", "Oslo", "Rome", "Oslo"]
        script = [Say(calls=tuple(("weather", {"city": city}) for city in cities)), Say("Sunny."), Say("Bye.")]
        for response, _ in (await both(endpoint, script, "Weather?", "Bye", tools=[weather])).values():
            assert [call.arguments["city"] for call in response.messages[0].calls] == cities
            results = [result for message in response.messages for result in message.results]
            assert [result.result for result in results] == [f"{city}: sunny" for city in cities]
            assert len({result.id for result in results}) == 4

    async def test_structured_output_is_validated(self, endpoint: Endpoint) -> None:
        class Answer(BaseModel):
            number: int

        script = [Say('{"number": 4}')]
        options = {"response_format": Answer} | ({} if endpoint.can("words") else {"max_tokens": 40})
        for (response,) in (await both(endpoint, script, "Give a number.", **options)).values():
            assert isinstance(response.value, Answer)
            assert response.value.number == 4 or not endpoint.can("words")

    async def test_usage_is_reported_or_missing_and_never_zero(self, endpoint: Endpoint) -> None:
        for (response,) in (await both(endpoint, [Say("Hello you.")], "Say hello.")).values():
            counts = response.usage
            assert (counts is not None) is endpoint.can("usage")
            if counts is not None:
                assert counts.input_tokens is not None
                assert counts.output_tokens is not None
                assert counts.input_tokens > 0
                assert counts.output_tokens > 0
                assert counts.total_tokens == counts.input_tokens + counts.output_tokens
            (done,) = (e for e in run_log().get(response.run_id).events if e.name == "llm.succeeded")
            assert done.payload["usage"] == counts

    @needs("finish reasons")
    async def test_a_reply_that_is_cut_says_so(self, endpoint: Endpoint) -> None:
        script = [Say("Once upon a", finish_reason="length")]
        options = {} if endpoint.can("words") else {"max_tokens": 2}
        for (response,) in (await both(endpoint, script, "Tell me a story.", **options)).values():
            assert (response.finish_reason, response.stop_reason) == ("length", "completed")
            assert response.text == said(endpoint, "Once upon a")

    @needs("finish reasons", "words")
    async def test_a_call_that_is_cut_runs_no_tool(self, endpoint: Endpoint) -> None:
        ran = []

        def act(x: int) -> None:
            """Act."""
            ran.append(x)

        script = [Say(calls=(("act", {"x": 1}),), finish_reason="length"), Say("Still here.")]
        for cut, after in (await both(endpoint, script, "Go", "And now?", tools=[act])).values():
            assert (cut.finish_reason, after.text) == ("length", "Still here.")
        assert ran == []

    @needs("refusal")
    async def test_a_refusal_is_told_apart(self, endpoint: Endpoint) -> None:
        """C42"""
        script = [Say(refusal="I cannot help."), Say("Still here.")]
        for refused, after in (await both(endpoint, script, "Harm.", "And now?")).values():
            assert refused.stop_reason == "refused"
            assert [(c.type, c.text) for c in refused.messages[0].contents] == [("refusal", "I cannot help.")]
            assert after.text == "Still here."

    @needs("reasoning")
    async def test_reasoning_is_kept_apart_from_the_answer(self, endpoint: Endpoint) -> None:
        for (response,) in (await both(endpoint, [Say("Four.", reasoning="Two and two.")], "2+2?")).values():
            assert response.text == "Four."
            told = [(content.type, content.text) for content in response.messages[0].contents]
            assert told == [("reasoning", "Two and two."), ("text", "Four.")]

    @needs("status")
    @pytest.mark.parametrize(
        ("status", "kind", "retryable"),
        [
            (400, ModelError, False),
            (401, AuthenticationError, False),
            (404, ModelNotFoundError, False),
            (429, RateLimitError, True),
            (500, ServerError, True),
            (503, ServerError, True),
        ],
    )
    async def test_a_status_is_one_error_and_the_session_goes_on(
        self, endpoint: Endpoint, status: int, kind: type[ModelError], retryable: bool
    ) -> None:
        transcripts = {}
        for mode in endpoint.modes:
            talk = Talk(endpoint, mode, endpoint.agent(Fail(status), Say("Still here.")))
            error = await fails(talk.agent, "Hi", mode, talk.session)
            assert isinstance(error, kind)
            assert (error.status, error.retryable) == (status, retryable)
            assert f"Played {status}" in error.message
            assert (await talk.ask("And now?")).text == "Still here."
            transcripts[mode] = await talk.transcript()
        assert transcripts["plain"] == transcripts["streamed"]
        assert [shown["contents"] for shown in transcripts["plain"]] == [
            [("text", "And now?")],
            [("text", "Still here.")],
        ]

    @needs("status")
    @pytest.mark.parametrize("status", [429, 500])
    async def test_a_passing_fault_is_tried_again(self, endpoint: Endpoint, status: int) -> None:
        for mode in endpoint.modes:
            talk = Talk(endpoint, mode, endpoint.agent(Fail(status), Say("Hello."), client={"max_retries": 1}))
            response = await talk.ask("Hi")
            assert response.text == "Hello."
            names = [event.name for event in run_log().get(response.run_id).events if event.name.startswith("llm.re")]
            assert names == ["llm.requested", "llm.retried", "llm.requested"]

    @needs("page")
    async def test_a_page_is_no_reply(self, endpoint: Endpoint) -> None:
        for mode in endpoint.modes:
            page = "<!doctype html><title>Sign in</title>"
            talk = Talk(endpoint, mode, endpoint.agent(Fail(page=page), Say("Still here.")))
            error = await fails(talk.agent, "Hi", mode, talk.session)
            assert isinstance(error, InvalidReplyError)
            assert "Sign in" in error.message
            assert (await talk.ask("And now?")).text == "Still here."

    @needs("break")
    async def test_a_stream_that_breaks_keeps_its_text_and_the_session_goes_on(self, endpoint: Endpoint) -> None:
        """C92"""
        talk = Talk(endpoint, "streamed", endpoint.agent(Fail(text="Once"), Say("Still here.")))
        error = await fails(talk.agent, "Hi", "streamed", talk.session)
        assert isinstance(error, ModelError)
        assert error.partial_text.strip() == "Once"
        assert (await talk.ask("And now?")).text == "Still here."
        shown = await talk.transcript()
        assert [(message["role"], message["interrupted"]) for message in shown] == [
            ("user", False),
            ("assistant", True),
            ("user", False),
            ("assistant", False),
        ]

    @needs("break")
    async def test_a_stream_that_breaks_begins_again_where_that_is_asked_for(self, endpoint: Endpoint) -> None:
        """C92"""
        talk = Talk(endpoint, "streamed", endpoint.agent(Fail(text="Once"), Say("Once more."), Say("Still here.")))
        client: Any = talk.agent.client
        client.max_retries, client.retry_streams = 1, True
        stream = talk.agent.run("Hi", stream=True, session=talk.session, options=endpoint.options)
        updates = [update async for update in stream]
        response = await stream.get_final_response()
        (place,) = (number for number, update in enumerate(updates) if update.retracts)
        first, then = ("".join(update.text for update in part) for part in (updates[:place], updates[place:]))
        assert (first.strip(), then, response.text) == ("Once", "Once more.", "Once more.")
        assert (await talk.ask("And now?")).text == "Still here."
        assert [len(message["contents"]) for message in await talk.transcript()] == [1, 1, 1, 1]

    @pytest.mark.slow
    @needs("long talk")
    async def test_a_long_conversation_stays_in_its_budget_in_order_and_answerable(self, endpoint: Endpoint) -> None:
        turns = 500
        script = [Say(f"Answer {number} of many.") for number in range(turns)]
        agent = endpoint.agent(*script, reducer=TokenBudgetReducer(600))
        talk = Talk(endpoint, endpoint.modes[0], agent)
        for number in range(turns):
            assert (await talk.ask(f"Question {number} of many?")).text == f"Answer {number} of many."
        stores_locally = agent.thread(talk.session).stores_locally
        if endpoint.can("request"):
            sent = [(message["role"], message["content"]) for message in endpoint.asked()["messages"]]
            kept = len(sent) // 2 if stores_locally else turns - 1
            first = turns - 1 - kept
            told = [(f"Question {n} of many?", f"Answer {n} of many.") for n in range(first, turns)]
            said = [line for question, answer in told for line in (("user", question), ("assistant", answer))]
            assert sent == said[:-1]
            assert 10 < kept < 80 or not stores_locally
        stored = await endpoint.stored(agent, talk.session)
        assert [message.text for message in stored if message.role == "assistant"] == [turn.text for turn in script]

    @needs("slow stream")
    async def test_leaving_a_stream_ends_the_reply(self, endpoint: Endpoint) -> None:
        """C93"""
        talk = Talk(endpoint, "streamed", endpoint.agent(Say(LONG, slow=True), Say("Still here.")))
        options = {**endpoint.options, "max_tokens": 200}
        async with talk.agent.run("Count.", stream=True, session=talk.session, options=options) as stream:
            async for update in stream:
                if update.text:
                    assert endpoint.replies_under_way() == 1
                    break
        await until(lambda: endpoint.replies_under_way() == 0)
        assert (await talk.ask("And now?")).text == said(endpoint, "Still here.")
        shown = await talk.transcript()
        assert [message["interrupted"] for message in shown] == [False, True, False, False]

    @both_modes
    @needs("slow stream", "slow reply")
    async def test_cancelling_a_run_ends_the_reply(self, endpoint: Endpoint, mode: Mode) -> None:
        talk = Talk(endpoint, mode, endpoint.agent(Say(LONG, slow=True), Say("Still here.")))
        options = {**endpoint.options, "max_tokens": 200}
        run = asyncio.ensure_future(ask(talk.agent, "Count.", mode, talk.session, options=options))
        await until(lambda: endpoint.replies_under_way() == 1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: endpoint.replies_under_way() == 0)
        assert (await talk.ask("And now?")).text == said(endpoint, "Still here.")

    async def test_messages_have_an_author_an_id_and_a_time(self, endpoint: Endpoint) -> None:
        begun = time.time()
        for mode in endpoint.modes:
            talk = Talk(endpoint, mode, endpoint.agent(Say("One."), Say("Two.")))
            ids = []
            for prompt in ("Hi", "And now?"):
                response = await talk.ask(prompt)
                (message,) = response.messages
                assert (message.role, message.author_name) == ("assistant", "tester")
                assert message.created_at is not None
                assert begun - 1 <= message.created_at <= time.time() + 1
                ids.append(message.message_id)
            stored = await endpoint.stored(talk.agent, talk.session)
            assert [m.message_id for m in stored if m.role == "assistant"] == ids
            assert None not in ids
            assert len(set(ids)) == 2
            runs = [response.run_id for response in talk.responses]
            assert [m.run_id for m in stored if m.role == "assistant"] == runs
            assert {m.agent_id for m in stored if m.role == "assistant"} == {talk.agent.id}

    @needs("request")
    async def test_options_and_instructions_arrive(self, endpoint: Endpoint) -> None:
        options = {"temperature": 0.25, "max_tokens": 9, "stop": ["x"], "seed": 3, "top_p": 0.5, "user": "ada"}
        for mode in endpoint.modes:
            agent = endpoint.agent(Say("Hello."), instructions="Be brief.", options={"temperature": 1, "seed": 3})
            await ask(agent, "Hi", mode, options={**options, "seed": None})
            asked = endpoint.asked()
            assert {name: asked.get(name) for name in options} == options
            assert [(m["role"], m["content"]) for m in asked["messages"]] == [("system", "Be brief."), ("user", "Hi")]

    async def test_an_unknown_option_names_the_one_that_was_meant(self, endpoint: Endpoint) -> None:
        agent = endpoint.agent(Say("Hello."))
        for stream in (False, True):
            with pytest.raises(ConfigurationError, match="temperature"):
                agent.run("Hi", stream=stream, options={"temprature": 1})

    async def test_all_text_arrives_and_comes_back(self, endpoint: Endpoint) -> None:
        """C45, C47"""
        prompts = [UNICODE, "cut \ud83d here", ""]
        for responses in (await both(endpoint, [Say(UNICODE)] * 3, *prompts)).values():
            assert [response.text for response in responses] == [said(endpoint, UNICODE)] * 3
        if endpoint.can("request"):
            sent = [m["content"] for m in endpoint.asked()["messages"] if m["role"] == "user"]
            assert sent[0] == UNICODE
            assert sent[1].replace("\ufffd", "\ud83d") == "cut \ud83d here"

    @needs("images")
    async def test_an_image_is_taken(self, endpoint: Endpoint) -> None:
        prompt = Message("user", [TextContent("What is it?"), DataContent.from_bytes(PIXEL)])
        for first, _ in (await both(endpoint, [Say("A dot."), Say("Bye.")], prompt, "Bye")).values():
            assert first.text == "A dot."

    async def test_many_runs_at_once_do_not_meet(self, endpoint: Endpoint) -> None:
        options = {**endpoint.options, "max_tokens": 1}
        for mode in endpoint.modes:
            agent = endpoint.agent(*[Say("Hello.")] * 20)
            sessions = [agent.create_session() for _ in range(20)]
            runs = [ask(agent, "Hi", mode, session, options=options) for session in sessions]
            responses = await asyncio.gather(*runs)
            assert [response.text for response in responses] == [said(endpoint, "Hello.")] * 20
            assert len({response.run_id for response in responses}) == 20
            assert [len(await endpoint.stored(agent, session)) for session in sessions] == [2] * 20

    async def test_a_deep_copy_of_an_agent_answers_as_the_agent_does(self, endpoint: Endpoint) -> None:
        agent = endpoint.agent(Say("Hello."), Say("Hello."))
        for one in (agent, copy.deepcopy(agent)):
            assert (await ask(one, "Hi", "plain", options=endpoint.options)).text == said(endpoint, "Hello.")

    @pytest.mark.parametrize("order", ["scripts first", "threads first"])
    def test_one_client_serves_every_loop_and_thread(self, endpoint: Endpoint, order: str) -> None:
        """C02"""
        options = {**endpoint.options, "max_tokens": 1}
        agent = endpoint.agent(*[Say("Hello.")] * 7)
        texts: list[str] = []

        def in_thread(use: Callable[[], object]) -> None:
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()

        def blocking() -> None:
            texts.append(agent.run_sync("Hi", options=options).text)

        def own_loop() -> None:
            texts.append(asyncio.run(ask(agent, "Hi", "streamed", options=options)).text)

        def streamed() -> None:
            texts.append("".join(update.text for update in agent.stream_sync("Hi", options=options)))

        uses = [blocking, own_loop, streamed, own_loop]
        threads = [lambda: in_thread(blocking), lambda: in_thread(own_loop), lambda: in_thread(streamed)]
        for use in uses + threads if order == "scripts first" else threads + uses:
            use()
        assert texts == [said(endpoint, "Hello.")] * 7
