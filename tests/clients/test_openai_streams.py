"""What providers send, in chunks or whole, becomes the right calls, texts and counts, and goes back right."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from nbagents import Usage, tool
from nbagents.core.content import FunctionCall, TextContent
from tests.clients.asking import (
    Mode,
    agent_on,
    answered,
    ask,
    both_modes,
    called,
    goes_on,
    last_messages,
)
from tests.support.chunks import call, delta, finish, message, usage
from tests.support.raw_server import RawServer


class Recorder:
    """Tools that remember how they were called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def _noted(self, name: str, **arguments: Any) -> str:
        self.calls.append((name, arguments))
        return f"{name} {len(self.calls)}"

    @tool
    def lookup(self, bird: str) -> str:
        """Look up."""
        return self._noted("lookup", bird=bird)

    @tool
    def find(self, term: str) -> str:
        """Find."""
        return self._noted("find", term=term)

    @tool
    def weather(self, city: str) -> str:
        """Tell the weather."""
        return self._noted("weather", city=city)

    @tool
    def now(self) -> str:
        """Tell the time."""
        return self._noted("now")


@pytest.fixture
def server(raw_server: RawServer) -> RawServer:
    raw_server.strict = True
    return raw_server


async def stream_once(server: RawServer, recorder: Recorder, *chunks: Any) -> list[tuple[str, dict[str, Any]]]:
    """One streamed reply with calls, then an answer, then a second turn; returns the calls that were run."""
    server.reply(*chunks).reply_text("Done").reply_text("Still here")
    agent = agent_on(server, recorder)
    session = agent.create_session()
    assert (await ask(agent, "Go", "streamed", session)).text == "Done"
    await goes_on(agent, server, "streamed", session)
    return recorder.calls


async def test_fragments_without_an_index_continue_the_last_open_call(server: RawServer) -> None:
    """C20"""
    run = await stream_once(
        server,
        Recorder(),
        call(None, "c1", "lookup", '{"bird":'),
        call(None, args='"owl"}'),
        finish("tool_calls"),
    )
    assert run == [("lookup", {"bird": "owl"})]
    assert called(server) == [("c1", "lookup", '{"bird":"owl"}')]
    assert answered(server) == [("c1", "lookup 1")]


async def test_calls_without_an_id_get_one_that_is_unique_in_the_conversation(server: RawServer) -> None:
    """C22"""
    recorder = Recorder()
    chunks = [call(0, name="lookup", args='{"bird":'), call(0, args='"a"}'), finish("tool_calls")]
    server.reply(*chunks).reply_text("One").reply(*chunks).reply_text("Two")
    agent = agent_on(server, recorder)
    session = agent.create_session()
    for expected in ("One", "Two"):
        assert (await ask(agent, "Go", "streamed", session)).text == expected
    ids = [id for id, _, _ in called(server)]
    assert len(set(ids)) == 2
    assert [id for id, _ in answered(server)] == ids
    assert len(recorder.calls) == 2


@pytest.mark.parametrize("summary", ['{"term":"owl"}', '"{\\"term\\":\\"owl\\"}"'], ids=["again", "encoded twice"])
async def test_the_whole_arguments_once_more_are_no_second_call(server: RawServer, summary: str) -> None:
    """C23"""
    run = await stream_once(
        server,
        Recorder(),
        call(0, "c1", "find", '{"te'),
        call(0, "c1", args='rm":"owl"}'),
        call(0, "c1", "find", summary),
        finish("tool_calls"),
    )
    assert run == [("find", {"term": "owl"})]
    assert called(server) == [("c1", "find", '{"term":"owl"}')]


async def test_a_whole_call_in_the_first_chunk_counts_once(server: RawServer) -> None:
    """C25"""
    chunks = [call(0, "c1", "weather", '{"city":"Oslo"}'), finish("tool_calls")]
    assert await stream_once(server, Recorder(), *chunks) == [("weather", {"city": "Oslo"})]


@both_modes
@pytest.mark.parametrize("arguments", [None, "", {}], ids=["null", "empty", "object"])
async def test_a_call_without_arguments_runs(server: RawServer, mode: Mode, arguments: Any) -> None:
    """C27"""
    whole = message(None, [("c1", "now", "")])
    whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    if mode == "streamed":
        server.reply(call(0, "c1", "now", arguments), finish("tool_calls"))
    else:
        server.reply_json(whole)
    server.reply_text("Noon")
    recorder = Recorder()
    assert (await ask(agent_on(server, recorder), "Time?", mode)).text == "Noon"
    assert recorder.calls == [("now", {})]
    assert called(server) == [("c1", "now", "{}")]


@both_modes
@pytest.mark.parametrize("ids", [("a", "b"), ("a", "a")], ids=["two ids", "one id"])
async def test_equal_calls_both_run(server: RawServer, mode: Mode, ids: tuple[str, str]) -> None:
    """C28, C68"""
    server.reply_calls(*[(id, "now", {}) for id in ids]).reply_text("Done")
    recorder = Recorder()
    await ask(agent_on(server, recorder), "Go", mode)
    assert len(recorder.calls) == 2
    sent = answered(server)
    assert sorted(text for _, text in sent) == ["now 1", "now 2"]
    assert [id for id, _ in sent] == [id for id, _, _ in called(server)]
    assert len({id for id, _ in sent}) == 2


async def test_chunks_without_choices_or_without_a_delta_are_read_over(server: RawServer) -> None:
    """C30"""
    server.reply(
        {"choices": [], "prompt_filter_results": [], "model": ""},
        delta(role="assistant"),
        delta("A"),
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 1}}]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {**finish("stop"), "model": "late-name"},
    )
    response = await ask(agent_on(server), "Hi", "streamed")
    assert (response.text, response.model, response.finish_reason) == ("A", "test-model", "stop")


@both_modes
async def test_blank_text_before_a_call_is_no_answer(server: RawServer, mode: Mode) -> None:
    """C32"""
    if mode == "streamed":
        server.reply(delta("\n\n"), call(0, "c1", "now", "{}"), finish("tool_calls"))
    else:
        server.reply_json(message("\n\n", [("c1", "now", "{}")]))
    server.reply_text("It was heads")
    recorder = Recorder()
    response = await ask(agent_on(server, recorder), "Flip", mode)
    assert (response.text, len(recorder.calls), len(server.requests)) == ("It was heads", 1, 2)


async def test_text_around_a_call_keeps_its_order_and_goes_out_joined(server: RawServer) -> None:
    """C33"""
    server.reply(delta("Checking"), call(0, "c1", "now", "{}"), delta(" done"), finish("tool_calls")).reply_text("Noon")
    response = await ask(agent_on(server, Recorder()), "Go", "streamed")
    kinds = [type(content) for content in response.messages[0].contents]
    assert kinds == [TextContent, FunctionCall, TextContent]
    assert last_messages(server)[1]["content"] == "Checking done"
    assert called(server) == [("c1", "now", "{}")]


@both_modes
async def test_announced_calls_that_are_not_there_end_the_run_with_a_warning(server: RawServer, mode: Mode) -> None:
    """C35: the run stops at once with the text."""
    server.reply_text("Opening the report now.", finish_reason="tool_calls")
    response = await ask(agent_on(server, Recorder()), "Go", mode)
    assert response.text == "Opening the report now."
    assert response.warnings
    assert len(server.requests) == 1


@both_modes
async def test_broken_arguments_are_answered_and_go_back_as_an_empty_object(server: RawServer, mode: Mode) -> None:
    """C37"""
    server.reply_calls(("c1", "lookup", '{"bird": "unfinished')).reply_text("Sorry").reply_text("Still here")
    recorder = Recorder()
    agent = agent_on(server, recorder)
    session = agent.create_session()
    response = await ask(agent, "Go", mode, session)
    assert (response.text, recorder.calls) == ("Sorry", [])
    assert called(server) == [("c1", "lookup", "{}")]
    ((_, result),) = answered(server)
    assert '{"bird": "unfinished' in result
    (kept,) = response.messages[0].calls
    assert (kept.arguments, kept.invalid) == ('{"bird": "unfinished', True)
    await goes_on(agent, server, mode, session)


async def test_reasoning_is_kept_apart_and_goes_back_with_the_calls_of_its_turn(server: RawServer) -> None:
    """C40"""
    server.reply(
        delta(reasoning_content="think "),
        delta(reasoning_content="more"),
        call(0, "c1", "now", "{}"),
        finish("tool_calls"),
    ).reply_text("Noon").reply_text("Still here")
    agent = agent_on(server, Recorder())
    session = agent.create_session()
    response = await ask(agent, "Go", "streamed", session)
    assert response.text == "Noon"
    assert last_messages(server)[1]["reasoning_content"] == "think more"
    await goes_on(agent, server, "streamed", session)
    assert not any("reasoning_content" in sent for sent in last_messages(server))


@both_modes
@pytest.mark.parametrize(
    ("field", "setting", "goes_back"),
    [
        ("reasoning_content", None, True),
        ("reasoning_content", False, False),
        ("reasoning", None, False),
        ("reasoning", True, True),
    ],
)
async def test_replay_of_reasoning_is_automatic_and_can_be_switched(
    server: RawServer, mode: Mode, field: str, setting: bool | None, goes_back: bool
) -> None:
    """C40"""
    thought: dict[str, Any] = {field: "hm"}
    if mode == "streamed":
        server.reply(delta(**thought), call(0, "c1", "now", "{}"), finish("tool_calls"))
    else:
        server.reply_json(message(None, [("c1", "now", "{}")], **thought))
    server.reply_text("Noon")
    await ask(agent_on(server, Recorder(), replay_reasoning=setting), "Go", mode)
    assert last_messages(server)[1].get("reasoning_content") == ("hm" if goes_back else None)


async def test_reasoning_of_a_whole_reply_to_a_request_for_a_stream_goes_back_too(server: RawServer) -> None:
    """C40"""
    server.reply_json(message(None, [("c1", "now", "{}")], reasoning_content="hm")).reply_text("Noon")
    assert (await ask(agent_on(server, Recorder()), "Go", "streamed")).text == "Noon"
    assert last_messages(server)[1].get("reasoning_content") == "hm"


class Answer(BaseModel):
    number: int


@both_modes
async def test_a_refusal_is_told_apart_and_asked_only_once(server: RawServer, mode: Mode) -> None:
    """C42"""
    if mode == "streamed":
        server.reply(delta(refusal="I cannot"), delta(refusal=" help"), finish("stop"), usage(10, 5))
    else:
        server.reply_json(message(None, refusal="I cannot help"))
    server.reply_text("Still here")
    agent = agent_on(server)
    session = agent.create_session()
    response = await ask(agent, "Go", mode, session, options={"response_format": Answer})
    assert response.stop_reason == "refused"
    assert [c.text for c in response.messages[0].contents] == ["I cannot help"]
    assert response.usage == Usage(10, 5, 15)
    assert len(server.requests) == 1
    await goes_on(agent, server, mode, session)
    assert last_messages(server)[1]["content"] == "I cannot help"


@both_modes
async def test_only_the_first_choice_is_read(server: RawServer, mode: Mode) -> None:
    """C43: others are ignored."""
    if mode == "streamed":
        server.reply(
            delta("B", choice=1),
            delta("A"),
            delta("b", choice=1),
            delta("a"),
            finish("length", choice=1),
            finish("stop"),
        )
    else:
        body, other = message("Aa"), message("Bb")["choices"][0]
        server.reply_json({**body, "choices": [{**other, "index": 1}, *body["choices"]]})
    response = await ask(agent_on(server), "Hi", mode, client_kwargs={"n": 2})
    assert (response.text, response.finish_reason) == ("Aa", "stop")
    assert server.requests[0]["n"] == 2


async def test_characters_cut_at_network_boundaries_stay_whole(server: RawServer) -> None:
    """C45"""
    server.reply(delta("żółw 鳥🐙"), call(0, "c1", "weather", '{"city":"東京"}'), finish("tool_calls"), split=1)
    server.reply(delta("żółw 鳥🐙"), finish("stop"), split=1)
    recorder = Recorder()
    response = await ask(agent_on(server, recorder), "Hi", "streamed")
    assert recorder.calls == [("weather", {"city": "東京"})]
    assert response.messages[0].text == response.messages[-1].text == "żółw 鳥🐙"
    assert last_messages(server)[1]["content"] == "żółw 鳥🐙"
    assert called(server)[0][2] == '{"city":"東京"}'


@both_modes
async def test_half_a_surrogate_pair_does_not_block_the_session(server: RawServer, mode: Mode) -> None:
    """C47"""

    def cut() -> str:
        """Cut."""
        return "a\ud83d"

    escaped = '{"choices":[{"index":0,"delta":{"content":"b\\ud83d 東 🐙"}}]}'
    if mode == "streamed":
        server.reply(call(0, "c1", "cut", "{}"), finish("tool_calls"))
        server.reply(f"data: {escaped}\n\n", finish("stop"))
    else:
        whole = escaped.replace('"delta":{', '"finish_reason":"stop","message":{"role":"assistant",')
        server.reply_json(message(None, [("c1", "cut", {})])).reply_raw(whole, content_type="application/json")
    server.reply_text("Still here")
    agent = agent_on(server, [cut])
    session = agent.create_session()
    await ask(agent, "Go", mode, session)
    await goes_on(agent, server, mode, session)
    assert last_messages(server)[3]["content"] == "b\ufffd 東 🐙"
    assert "\ud83d" not in answered(server)[0][1]


@both_modes
async def test_bad_arguments_are_answered_and_their_siblings_run(server: RawServer, mode: Mode) -> None:
    """C48"""
    given: list[Any] = ["query = x", "[1,2]", "null", {"bird": "owl"}]
    ids = ["a", "b", "c", "d"]
    if mode == "streamed":
        chunks = [call(place, id, "lookup", args) for place, (id, args) in enumerate(zip(ids, given, strict=True))]
        server.reply(*chunks, finish("tool_calls"))
    else:
        whole = message(None, [(id, "lookup", "") for id in ids])
        for entry, args in zip(whole["choices"][0]["message"]["tool_calls"], given, strict=True):
            entry["function"]["arguments"] = args
        server.reply_json(whole)
    server.reply_text("Done")
    recorder = Recorder()
    await ask(agent_on(server, recorder), "Go", mode)
    assert recorder.calls == [("lookup", {"bird": "owl"})]
    results = dict(answered(server))
    assert list(results) == ids
    assert all(text in results[id] for id, text in (("a", "query = x"), ("b", "[1,2]"), ("c", "null")))
    assert results["d"] == "lookup 1"
    assert [arguments for _, _, arguments in called(server)] == ["{}", "{}", "{}", '{"bird":"owl"}']


@both_modes
async def test_ids_that_come_again_are_told_apart(server: RawServer, mode: Mode) -> None:
    """C68"""
    recorder = Recorder()
    server.reply_calls(("run:0", "weather", {"city": "A"})).reply_text("One")
    server.reply_calls(("run:0", "weather", {"city": "B"})).reply_text("Two")
    server.reply_calls(("x", "weather", {"city": "C"}), ("x", "weather", {"city": "D"})).reply_text("Three")
    agent = agent_on(server, recorder)
    session = agent.create_session()
    for expected in ("One", "Two", "Three"):
        assert (await ask(agent, "Go", mode, session)).text == expected
    assert [arguments["city"] for _, arguments in recorder.calls] == ["A", "B", "C", "D"]
    ids = [id for id, _, _ in called(server)]
    assert len(set(ids)) == 4
    assert (ids[0], ids[2]) == ("run:0", "x")
    assert answered(server) == list(zip(ids, ["weather 1", "weather 2", "weather 3", "weather 4"], strict=True))


@both_modes
async def test_the_old_form_of_a_call_runs(server: RawServer, mode: Mode) -> None:
    """`function_call` of the years before `tool_calls`, which some servers still send."""
    if mode == "streamed":
        server.reply(
            delta(function_call={"name": "weather", "arguments": '{"ci'}),
            delta(function_call={"arguments": 'ty":"Oslo"}'}),
            finish("function_call"),
        )
    else:
        old = {"name": "weather", "arguments": '{"city":"Oslo"}'}
        server.reply_json(message(None, function_call=old, finish_reason="function_call"))
    server.reply_text("Done")
    recorder = Recorder()
    assert (await ask(agent_on(server, recorder), "Go", mode)).text == "Done"
    assert recorder.calls == [("weather", {"city": "Oslo"})]


async def test_text_in_parts_is_text_and_thinking_is_reasoning(server: RawServer) -> None:
    """As Mistral's reasoning models send it."""
    server.reply(
        delta([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
        delta([{"type": "text", "text": "Four"}, {"type": "reference"}]),
        finish("stop"),
    )
    response = await ask(agent_on(server), "2+2?", "streamed")
    assert [(c.type, c.text) for c in response.messages[0].contents] == [("reasoning", "hm"), ("text", "Four")]
