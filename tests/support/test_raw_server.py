"""The raw server sends what a test asked for, byte for byte, as the plain `openai` client sees it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.support.chunks import call, delta, finish, message, usage
from tests.support.raw_server import RawServer, Refuse
from tests.support.strict import refusal

USER: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def client(raw_server: RawServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=raw_server.base_url, api_key="k", max_retries=0) as client:
        yield client


async def ask(client: openai.AsyncOpenAI, messages: list[Any] = USER, model: str = "m", **more: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=messages, **more)


async def stream(client: openai.AsyncOpenAI, **more: Any) -> list[Any]:
    async with await ask(client, stream=True, **more) as chunks:
        return [chunk async for chunk in chunks]


async def test_chunks_arrive_in_order_on_one_connection(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    raw_server.reply(delta("Hel"), {"content": "lo"}, finish(), usage(3, 2))
    for _ in range(2):
        chunks = await stream(client)
        assert [c.choices[0].delta.content for c in chunks[:2]] == ["Hel", "lo"]
        assert chunks[2].choices[0].finish_reason == "stop"
        assert chunks[3].usage.total_tokens == 5
        assert chunks[0].model == "m"
    assert [request["messages"] for request in raw_server.requests] == [USER, USER]
    assert raw_server.headers[0]["authorization"] == "Bearer k"
    assert raw_server.connections == 1


async def test_one_byte_per_http_chunk_keeps_multibyte_text(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    raw_server.reply(delta("żółw 鳥🐙"), finish(), split=1)
    assert (await stream(client))[0].choices[0].delta.content == "żółw 鳥🐙"


async def test_call_fragments_hold_only_what_was_given(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    raw_server.reply(call(0, "c1", "add", '{"a":'), call(None, args="1}"), call(1, "c2", "now", None))
    first, second, third = [c.choices[0].delta.tool_calls[0] for c in await stream(client)]
    assert (first.index, first.id, first.function.name, first.function.arguments) == (0, "c1", "add", '{"a":')
    assert second.to_dict() == {"function": {"arguments": "1}"}}
    assert third.function.arguments is None


async def test_clean_end_without_done_looks_complete_to_the_client(
    raw_server: RawServer, client: openai.AsyncOpenAI
) -> None:
    raw_server.reply(": keep-alive\n\n" * 3, delta("Hel"), delta("lo"), done=False)
    assert len(await stream(client)) == 2


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_broken_connection_is_an_error(raw_server: RawServer, client: openai.AsyncOpenAI, end: Any) -> None:
    raw_server.reply(delta("Hel"), end=end)
    with pytest.raises(openai.APIConnectionError):
        await stream(client)


async def test_html_status_and_headers_pass_through(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    raw_server.reply_raw("<html>login</html>").reply_json({"error": {}}, status=429, headers={"retry-after": "1"})
    assert await ask(client) == "<html>login</html>"
    with pytest.raises(openai.RateLimitError) as caught:
        await ask(client)
    assert caught.value.response.headers["retry-after"] == "1"


async def test_a_gate_holds_the_stream_until_the_test_opens_it(
    raw_server: RawServer, client: openai.AsyncOpenAI
) -> None:
    gate = threading.Event()
    raw_server.reply(delta("a"), gate, delta("b"), finish())
    async with await ask(client, stream=True) as chunks:
        assert (await anext(chunks)).choices[0].delta.content == "a"
        gate.set()
        assert (await anext(chunks)).choices[0].delta.content == "b"


async def test_a_client_that_leaves_a_stalled_stream_is_counted(
    raw_server: RawServer, client: openai.AsyncOpenAI
) -> None:
    raw_server.reply(delta("a"), end="stall").reply_text("next")
    async with await ask(client, stream=True) as chunks:
        await anext(chunks)
        assert raw_server.hang_ups == 0
    raw_server.wait_until(lambda: raw_server.hang_ups == 1)
    assert (await ask(client)).choices[0].message.content == "next"


async def test_text_and_calls_answer_plain_and_streamed_requests(
    raw_server: RawServer, client: openai.AsyncOpenAI
) -> None:
    raw_server.reply_text("Hello you").reply_text("Hello you").reply_calls(("c1", "add", {"a": 1}))
    plain = await ask(client)
    chunks = await stream(client, stream_options={"include_usage": True})
    assert plain.choices[0].message.content == "Hello you"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello you"
    assert chunks[-1].usage == plain.usage
    called = await ask(client)
    assert called.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'


async def test_a_function_decides_by_the_request(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    def decide(body: dict[str, Any]) -> Any:
        if body["model"] != "m":
            raise Refuse("no such model")
        return [delta("x"), finish()] if body.get("stream") else message("x")

    raw_server.reply_with(decide)
    assert len(await stream(client)) == 2
    with pytest.raises(openai.BadRequestError, match="no such model"):
        await ask(client, model="other")


async def test_models_are_listed_without_using_up_a_reply(raw_server: RawServer, client: openai.AsyncOpenAI) -> None:
    raw_server.reply_text("hi")
    assert [model.id async for model in await client.models.list()] == ["test-model"]
    assert raw_server.requests == []


def assistant(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}", **more}} for id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "1"}


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([assistant("a", "b"), result("b"), result("a")], None),
        ([{"role": "assistant", "content": None}], "content must be a string"),
        ([{"role": "assistant"}], "content must be a string"),
        ([assistant("a", "b"), result("a")], "unanswered tool calls"),
        ([assistant("a"), *USER, result("a")], "no tool message directly after"),
        ([result("a")], "no open tool call"),
        ([assistant("a"), result("a"), result("a")], "no open tool call"),
        ([assistant("a"), result("a"), assistant("a"), result("a")], "used twice"),
        ([assistant("a", arguments='{"a": "unfin'), result("a")], "not JSON"),
        ([assistant("a", arguments={"q": 1}), result("a")], "not JSON"),
        ([assistant("a", name="Help Desk"), result("a")], "not allowed"),
        ([{"role": "user", "content": "a\ud83d"}], "lone surrogate"),
    ],
)
def test_the_strict_server_refuses_what_providers_refuse(history: list[Any], reason: str | None) -> None:
    said = refusal({"model": "m", "messages": [*USER, *history]})
    assert (said is None) if reason is None else reason in str(said)


async def test_a_strict_refusal_is_a_400_that_uses_up_no_reply(
    raw_server: RawServer, client: openai.AsyncOpenAI
) -> None:
    raw_server.strict = True
    raw_server.reply_text("fine")
    with pytest.raises(openai.BadRequestError, match="no open tool call"):
        await ask(client, [*USER, result("a")])
    assert (await ask(client)).choices[0].message.content == "fine"
