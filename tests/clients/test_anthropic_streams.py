"""Replies of Anthropic's API, streamed and plain: what becomes of them, and that they go back as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import Agent, AgentSession, AnthropicChatClient, Message, OpenAIChatClient, tool
from nbagents.clients.anthropic_replies import MessageReader
from nbagents.clients.server_events import EventReader
from nbagents.core.content import (
    FunctionCall,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.folding import UpdateFolder
from tests.clients.asking import Mode, ask, both_modes
from tests.support import anthropic_events as wire
from tests.support.raw_server import RawServer

Block = dict[str, Any]


def play(server: RawServer, mode: Mode, *blocks: Block, reason: str = "end_turn", **more: Any) -> RawServer:
    """Have the server say these blocks as it is asked; in a stream each text in pieces of three characters."""
    if mode == "plain":
        return server.reply_json(wire.message(*blocks, reason=reason, **more))
    events = [event for place, block in enumerate(blocks) for event in streamed(place, block)]
    return server.reply(wire.start(), *events, *wire.end(reason, **more), done=False)


def streamed(index: int, block: Block) -> list[wire.Event]:
    kind = block["type"]
    if kind == "text":
        return wire.text(index, *cut(block["text"]), citations=block.get("citations") or ())
    if kind == "thinking":
        return wire.thinking(index, *cut(block["thinking"]), signature=block["signature"])
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        pieces = cut(json.dumps(block["input"])) if block["input"] else ("",)
        deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
        return wire.block(index, {**block, "input": {}}, *deltas)
    return wire.block(index, block)


def cut(text: str) -> tuple[str, ...]:
    return tuple(text[start : start + 3] for start in range(0, len(text), 3))


def agent_on(server: RawServer, *tools: Any, **more: Any) -> Agent:
    client = AnthropicChatClient("claude-sonnet-4-6", base_url=server.base_url, max_retries=0)
    return Agent(client, tools=list(tools), **more)


def text(words: str, **more: Any) -> Block:
    return {"type": "text", "text": words, **more}


def thought(words: str, signature: str) -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def use(id: str, name: str, **given: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def last_turns(server: RawServer) -> list[tuple[str, list[Block]]]:
    assert wire.refusal(server.requests[-1]) is None
    return [(turn["role"], turn["content"]) for turn in server.requests[-1]["messages"]]


@tool
def look(at: str = "") -> str:
    """Look."""
    return f"{at} seen"


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


# --- tools


@both_modes
async def test_calls_of_one_reply_are_answered_in_one_message_right_after_them(
    raw_server: RawServer, mode: Mode
) -> None:
    calls = [text("I look."), use("t1", "look", at="a"), use("t2", "now"), use("t3", "look", at='"ü{')]
    play(raw_server, mode, *calls, reason="tool_use")
    play(raw_server, mode, text("Seen."))
    response = await ask(agent_on(raw_server, look, now), "Look", mode)
    assert response.text == "I look.\nSeen."
    results = [("t1", "a seen"), ("t2", "noon"), ("t3", '"ü{ seen')]
    assert last_turns(raw_server) == [
        ("user", [text("Look")]),
        ("assistant", calls),
        ("user", [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in results]),
    ]


@both_modes
@pytest.mark.parametrize("given", [{}, None, ""])
async def test_a_call_without_arguments_runs(raw_server: RawServer, mode: Mode, given: Any) -> None:
    """C27"""
    block = {**use("t1", "now"), "input": given}
    play(raw_server, mode, block, reason="tool_use")
    play(raw_server, mode, text("Noon."))
    response = await ask(agent_on(raw_server, now), "Time?", mode)
    assert [(r.result, r.error) for m in response.messages for r in m.results] == [("noon", None)]
    assert last_turns(raw_server)[1] == ("assistant", [use("t1", "now")])


@both_modes
async def test_a_failed_tool_says_so_and_bad_arguments_go_back_as_an_object(raw_server: RawServer, mode: Mode) -> None:
    """C37, C48: one call has arguments that are no JSON, one a tool that there is not."""

    @tool
    def fail() -> None:
        """Fail."""
        raise ValueError("no luck")

    if mode == "plain":
        bad = {**use("t1", "look"), "input": [1]}
        raw_server.reply_json(wire.message(bad, use("t2", "nothing"), use("t3", "fail"), reason="tool_use"))
    else:
        calls = wire.call(0, "t1", "look", '{"at": '), wire.call(1, "t2", "nothing"), wire.call(2, "t3", "fail", "{}")
        raw_server.reply(*wire.stream(*calls, reason="tool_use"))
    play(raw_server, mode, text("Well."))
    response = await ask(agent_on(raw_server, look, fail), "Look", mode)
    assert response.text == "Well."
    _, (_, calls_sent), (_, results) = last_turns(raw_server)
    assert [call["input"] for call in calls_sent] == [{}, {}, {}]
    assert [result["is_error"] for result in results] == [True, True, True]
    assert "no luck" in results[2]["content"]


async def test_ids_that_come_again_or_are_missing_are_told_apart(raw_server: RawServer) -> None:
    """C22, C68"""
    for _ in range(2):
        raw_server.reply_json(wire.message(use("t1", "now"), use("t1", "now"), use("", "now"), reason="tool_use"))
        raw_server.reply_json(wire.message(text("Noon.")))
    agent = agent_on(raw_server, now)
    session = agent.create_session()
    await ask(agent, "Time?", "plain", session)
    await ask(agent, "Time?", "plain", session)
    turns = last_turns(raw_server)
    ids = [block["id"] for _, blocks in turns for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == 6


# --- thinking


@both_modes
async def test_thoughts_go_back_with_their_signatures_as_they_came(raw_server: RawServer, mode: Mode) -> None:
    """C40"""
    blocks = [
        thought("Let me sée.", "sig1"),
        {"type": "redacted_thinking", "data": "secret=="},
        {"type": "redacted_thinking", "data": "more=="},
        thought("", "sig2"),
        thought("Now.", "sig3"),
        use("t1", "now"),
    ]
    play(raw_server, mode, *blocks, reason="tool_use")
    play(raw_server, mode, thought("So.", "sig4"), text("Noon."))
    play(raw_server, mode, text("Bye."))
    agent = agent_on(raw_server, now)
    session = agent.create_session()
    response = await ask(agent, "Time?", mode, session)
    assert response.text == "Noon."
    assert last_turns(raw_server)[1] == ("assistant", blocks)
    told = [c for c in response.messages[0].contents if isinstance(c, ReasoningContent)]
    assert [c.text for c in told] == ["Let me sée.", "", "", "", "Now."]
    stored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    await ask(agent, "Bye", mode, stored)
    turns = last_turns(raw_server)
    assert turns[1] == ("assistant", blocks)
    assert turns[3] == ("assistant", [thought("So.", "sig4"), text("Noon.")])


async def test_thoughts_that_were_cut_or_are_of_others_do_not_go_back(raw_server: RawServer) -> None:
    """The service refuses a thought without its signature, and one that it did not sign."""
    play(raw_server, "plain", text("Hello"))
    others = [ReasoningContent("Hm."), ReasoningContent("", "rs_1", "theirs"), TextContent("Well.")]
    history = [Message("user", "Hi"), Message("assistant", others), Message("user", "Go on")]
    await ask(agent_on(raw_server), history, "plain")
    assert last_turns(raw_server)[1] == ("assistant", [text("Well.")])


# --- what a text rests on, and what the service ran


@both_modes
async def test_citations_are_kept_and_go_back_with_their_text(raw_server: RawServer, mode: Mode) -> None:
    source = {"type": "char_location", "cited_text": "Grass is green.", "document_index": 0, "start_char_index": 0}
    other = {**source, "cited_text": "Sky."}
    blocks = [
        text("So "),
        text("grass is green", citations=[source, other]),
        text(" and "),
        text("x", citations=[other]),
    ]
    play(raw_server, mode, *blocks)
    play(raw_server, mode, text("Bye."))
    agent = agent_on(raw_server)
    session = agent.create_session()
    response = await ask(agent, "Grass?", mode, session)
    assert response.text == "So grass is green and x"
    kept = [c.extra for c in response.messages[0].contents if c.extra]
    assert kept == [{"citations": [source, other], "cited_chars": 14}, {"citations": [other], "cited_chars": 1}]
    await ask(agent, "Bye", mode, AgentSession.from_dict(json.loads(json.dumps(session.to_dict()))))
    assert last_turns(raw_server)[1] == ("assistant", blocks)


SEARCH = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "bees"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv1",
    "content": [{"type": "web_search_result", "url": "https://example.org", "title": "Bees", "encrypted_content": "e"}],
}
RUN = {"type": "server_tool_use", "id": "srv2", "name": "bash_code_execution", "input": {"command": "ls"}}
RAN = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "srv2",
    "content": {"type": "bash_code_execution_result", "stdout": "x", "stderr": "", "return_code": 0, "content": []},
}
BUSY = {"type": "web_search_tool_result_error", "error_code": "too_many_requests"}
FAILED = {"type": "web_search_tool_result", "tool_use_id": "srv3", "content": BUSY, "caller": {"type": "direct"}}


@both_modes
async def test_what_the_service_ran_is_content_and_goes_back(raw_server: RawServer, mode: Mode) -> None:
    again = {**SEARCH, "id": "srv3"}
    blocks = [text("I look."), SEARCH, FOUND, RUN, RAN, again, FAILED, text("Bees buzz.")]
    play(raw_server, mode, *blocks)
    play(raw_server, mode, text("Bye."))
    agent = agent_on(raw_server)
    session = agent.create_session()
    response = await ask(agent, "Bees?", mode, session)
    assert response.text == "I look.Bees buzz."
    calls = [c for c in response.messages[0].contents if isinstance(c, HostedToolCall)]
    results = [c for c in response.messages[0].contents if isinstance(c, HostedToolResult)]
    assert [(c.kind, c.id, c.name, c.arguments) for c in calls] == [
        ("web_search", "srv1", "web_search", {"query": "bees"}),
        ("code_interpreter", "srv2", "bash_code_execution", {"command": "ls"}),
        ("web_search", "srv3", "web_search", {"query": "bees"}),
    ]
    assert [(r.kind, r.id, r.error) for r in results] == [
        ("web_search", "srv1", None),
        ("code_interpreter", "srv2", None),
        ("web_search", "srv3", "too_many_requests"),
    ]
    await ask(agent, "Bye", mode, AgentSession.from_dict(json.loads(json.dumps(session.to_dict()))))
    assert last_turns(raw_server)[1] == ("assistant", blocks)


@pytest.mark.parametrize("places", [range(6), [0] * 6])
async def test_blocks_that_never_end_are_whole_when_the_next_begins_or_the_reply_ends(
    raw_server: RawServer, places: Any
) -> None:
    """Without its signature a thought could not go back, and the service would refuse the results of its calls."""

    def endless(events: list[wire.Event]) -> list[wire.Event]:
        return [event for event in events if b"content_block_stop" not in event]

    cited = text("Noon", citations=[{"cited_text": "12"}])
    blocks = [thought("Hm.", "sig1"), cited, SEARCH, FOUND, thought("So.", "sig2"), use("toolu_1", "now")]
    events = [event for place, block in zip(places, blocks, strict=True) for event in endless(streamed(place, block))]
    raw_server.reply(wire.start(), *events, *wire.end("tool_use"), done=False)
    play(raw_server, "streamed", text("Noon"))
    await ask(agent_on(raw_server, now), "Time?", "streamed")
    assert last_turns(raw_server)[1] == ("assistant", blocks)


@both_modes
async def test_numbers_that_are_no_json_do_not_block_the_session(raw_server: RawServer, mode: Mode) -> None:
    """Python reads NaN and infinity, and does not send them."""
    found = {**FOUND, "content": [{"type": "web_search_result", "rank": float("nan"), "at": [float("-inf")]}]}
    play(raw_server, mode, {**SEARCH, "input": {"query": "time", "least": float("inf")}}, found, text("Noon"))
    play(raw_server, mode, text("Still noon"))
    agent = agent_on(raw_server)
    session = agent.create_session()
    await ask(agent, "Time?", mode, session)
    await ask(agent, "And now?", mode, session)
    call, result, _ = last_turns(raw_server)[1][1]
    assert call["input"] == {"query": "time", "least": None}
    assert result["content"] == [{"type": "web_search_result", "rank": None, "at": [None]}]


@both_modes
async def test_a_reply_that_pauses_goes_on_by_itself(raw_server: RawServer, mode: Mode) -> None:
    play(raw_server, mode, text("I look."), SEARCH, reason="pause_turn")
    play(raw_server, mode, FOUND, reason="pause_turn")
    play(raw_server, mode, text("Bees buzz."))
    play(raw_server, mode, text("Bye."))
    client = AnthropicChatClient("m", base_url=raw_server.base_url)
    agent = Agent(client, tools=[client.get_web_search_tool()])
    session = agent.create_session()
    response = await ask(agent, "Bees?", mode, session)
    assert (response.text, response.finish_reason) == ("I look.Bees buzz.", "stop")
    assert raw_server.requests[1]["messages"][1:] == [{"role": "assistant", "content": [text("I look."), SEARCH]}]
    await ask(agent, "Bye", mode, session)
    assert last_turns(raw_server)[1] == ("assistant", [text("I look."), SEARCH, FOUND, text("Bees buzz.")])


async def test_a_reply_pauses_also_for_tools_that_were_asked_for_untouched(raw_server: RawServer) -> None:
    play(raw_server, "plain", text("I look."), SEARCH, reason="pause_turn")
    play(raw_server, "plain", FOUND, text("Bees buzz."))
    servers = {"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "bees"}]}
    response = await ask(agent_on(raw_server), "Bees?", "plain", client_kwargs={"extra_body": servers})
    assert (response.text, response.finish_reason) == ("I look.Bees buzz.", "stop")
    assert [request["mcp_servers"] for request in raw_server.requests] == [servers["mcp_servers"]] * 2


async def test_a_reply_that_pauses_for_ever_ends(raw_server: RawServer) -> None:
    play(raw_server, "plain", text("."), reason="pause_turn")
    client = AnthropicChatClient("m", base_url=raw_server.base_url)
    response = await ask(Agent(client, tools=[client.get_code_interpreter_tool()]), "Go", "plain")
    assert response.finish_reason == "pause_turn"
    assert len(raw_server.requests) == 11


@both_modes
async def test_a_conversation_goes_on_at_another_provider_and_comes_back(raw_server: RawServer, mode: Mode) -> None:
    blocks = [thought("Hm.", "sig1"), text("I look."), SEARCH, FOUND, use("toolu_1", "now")]
    play(raw_server, mode, *blocks, reason="tool_use")
    play(raw_server, mode, text("Noon", citations=[{"cited_text": "12"}]))
    agent = agent_on(raw_server, now)
    session = agent.create_session()
    await ask(agent, "Time?", mode, session)
    raw_server.strict = True
    raw_server.reply_calls(("call_1", "now", {}))
    raw_server.reply_text("Still noon")
    other = Agent(OpenAIChatClient("m", base_url=raw_server.base_url, max_retries=0), tools=[now])
    assert (await ask(other, "And now?", mode, session)).text == "Still noon"
    raw_server.strict = False
    play(raw_server, mode, text("Bye."))
    assert (await ask(agent, "Bye", mode, session)).text == "Bye."
    turns = last_turns(raw_server)
    assert turns[1] == ("assistant", blocks)
    assert [block["type"] for _, turn in turns[4:7] for block in turn] == ["text", "tool_use", "tool_result"]


# --- how replies end


@both_modes
@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "something_new"),
    ],
)
async def test_the_reason_of_the_end_is_told_in_our_words(
    raw_server: RawServer, mode: Mode, said: str, means: str
) -> None:
    play(raw_server, mode, text("Hello"), reason=said)
    assert (await ask(agent_on(raw_server), "Hi", mode)).finish_reason == means


@both_modes
async def test_a_refusal_in_the_middle_is_told_apart(raw_server: RawServer, mode: Mode) -> None:
    """C42"""
    play(raw_server, mode, text("First you"), reason="refusal", stop_details=None)
    play(raw_server, mode, text("Still here."))
    agent = agent_on(raw_server)
    session = agent.create_session()
    refused = await ask(agent, "Harm.", mode, session)
    assert (refused.stop_reason, refused.finish_reason) == ("refused", "content_filter")
    assert [type(c) for c in refused.messages[0].contents] == [TextContent, RefusalContent]
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    assert wire.refusal(raw_server.requests[-1]) is None


async def test_what_is_not_known_is_read_over(raw_server: RawServer) -> None:
    odd = [wire.event("ping"), wire.event("news", x=1), *wire.block(0, {"type": "picture", "x": 1}, {"type": "y"})]
    raw_server.reply(*odd, wire.start(), *odd, *wire.text(1, "Hello"), *odd, *wire.end(), done=False)
    raw_server.reply_json(wire.message({"type": "picture"}, text("Hello")))
    agent = agent_on(raw_server)
    for mode in ("streamed", "plain"):
        response = await ask(agent, "Hi", mode)  # type: ignore[arg-type]
        assert [m.contents for m in response.messages] == [(TextContent("Hello"),)]


async def test_a_server_that_streams_no_beginnings_of_blocks_is_read(raw_server: RawServer) -> None:
    delta = wire.event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
    raw_server.reply(wire.start(), delta, *wire.end(), done=False)
    assert (await ask(agent_on(raw_server), "Hi", "streamed")).text == "Hello"


@both_modes
async def test_an_empty_reply_does_not_block_the_session(raw_server: RawServer, mode: Mode) -> None:
    for words in ("", " \n", "Still here."):
        play(raw_server, mode, text(words))
    agent = agent_on(raw_server)
    session = agent.create_session()
    texts = [(await ask(agent, prompt, mode, session)).text.strip() for prompt in ("Hi", "Hello?", "And now?")]
    assert texts == ["", "", "Still here."]
    assert last_turns(raw_server) == [("user", [text("Hi"), text("Hello?"), text("And now?")])]


async def test_a_stream_that_is_left_leaves_a_session_that_goes_on(raw_server: RawServer) -> None:
    """C93: a thought without a signature and a call of the service without a result do not go back."""
    events = [*wire.thinking(0, "Hm")[:2], *wire.text(1, "Once "), *streamed(2, SEARCH)]
    raw_server.reply(wire.start(), *events, end="stall")
    play(raw_server, "streamed", text("Still here."))
    agent = agent_on(raw_server)
    session = agent.create_session()
    async with agent.run("Hi", stream=True, session=session) as stream:
        async for update in stream:
            if any(isinstance(c, HostedToolCall) and c.arguments for c in update.contents):
                break
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here."
    assert last_turns(raw_server)[1] == ("assistant", [text("Once ")])


# --- every way of cutting gives the same message

WORDS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12)
BLOCKS = st.one_of(
    WORDS.map(text),
    st.builds(lambda words, source: text(words, citations=[{"cited_text": source}]), WORDS, WORDS),
    st.builds(thought, WORDS, WORDS),
    WORDS.map(lambda data: {"type": "redacted_thinking", "data": data}),
    st.builds(lambda name, at: use(f"t_{name}", "look", at=at), WORDS, WORDS),
    st.sampled_from([SEARCH, FOUND, RUN, RAN]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(BLOCKS, max_size=6), st.integers(1, 60))
def test_a_stream_cut_anywhere_says_what_the_plain_reply_says(blocks: list[Block], size: int) -> None:
    """C45"""
    plain = MessageReader().read_reply(wire.message(*blocks))
    assert plain is not None
    data = b"".join([wire.start(), *(e for i, b in enumerate(blocks) for e in streamed(i, b)), *wire.end()])
    reader, events, folder, whole = MessageReader(), EventReader(), UpdateFolder(), UpdateFolder()
    whole.add(plain)
    for begin in range(0, len(data), size):
        for event in events.feed(data[begin : begin + size]):
            if (update := reader.read_chunk(event)) is not None:
                folder.add(update)
    assert reader.ended
    assert without_ids(folder) == without_ids(whole)
    assert (folder.usage, folder.finish_reason) == (whole.usage, whole.finish_reason)


def without_ids(folder: UpdateFolder) -> list[Any]:
    return [
        (c.name, c.arguments, c.call_id) if isinstance(c, FunctionCall) else c
        for message in folder.messages()
        for c in message.contents
    ]
