"""One request for JSON, as threads that live at a service and embeddings send it."""

from __future__ import annotations

import pytest

from nbagents.core.errors import (
    ConnectionFailedError,
    InvalidReplyError,
    ModelNotFoundError,
    ModelTimeoutError,
    RateLimitError,
)
from tests.clients.asking import KEY, client_of
from tests.support.raw_server import RawServer


async def test_ask_sends_one_request_and_returns_the_json(raw_server: RawServer) -> None:
    raw_server.reply_json({"id": "conv_1", "items": [1]})
    client = client_of(raw_server, api_key=KEY)
    kwargs = {"extra_headers": {"x-a": "1"}, "extra_query": {"q": "2"}, "extra_body": {"more": 3}}
    answer = await client.ask("POST", "/conversations", body={"a": "ż"}, query={"after": "x y"}, client_kwargs=kwargs)
    assert answer == {"id": "conv_1", "items": [1]}
    assert raw_server.paths == ["/v1/conversations?after=x+y&q=2"]
    assert raw_server.requests == [{"a": "ż", "more": 3}]
    assert (raw_server.headers[0]["authorization"], raw_server.headers[0]["x-a"]) == (f"Bearer {KEY}", "1")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_ask_without_a_body_sends_none(raw_server: RawServer, method: str) -> None:
    assert (await client_of(raw_server).ask(method, "/models"))["data"][0]["id"] == "test-model"
    assert (raw_server.paths, raw_server.requests) == (["/v1/models"], [])


async def test_a_status_is_one_error_with_status_headers_and_body_and_is_not_tried_again(raw_server: RawServer) -> None:
    body = {"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}
    raw_server.reply_json(body, 429, headers={"retry-after": "7"})
    with pytest.raises(RateLimitError, match="Slow down") as raised:
        await client_of(raw_server, max_retries=3).ask("POST", "/embeddings", body={"model": "m"})
    assert (raised.value.status, raised.value.headers["retry-after"]) == (429, "7")
    assert "rate_limit_exceeded" in str(raised.value.body_text)
    assert len(raw_server.requests) == 1


@pytest.mark.parametrize(
    ("body", "says"), [({"model": "m"}, "knows no model 'm'"), ({}, "has nothing at this address")]
)
async def test_what_is_not_there_is_told_apart_from_an_unknown_model(
    raw_server: RawServer, body: dict[str, str], says: str
) -> None:
    raw_server.reply_json({"error": {"message": "No conv_9 here"}}, 404)
    with pytest.raises(ModelNotFoundError, match=f"{says}.*No conv_9 here"):
        await client_of(raw_server).ask("POST", "/conversations/conv_9", body=body)


@pytest.mark.parametrize(("data", "says"), [("<html><title>Sign in</title>", "Sign in"), ("", "nothing")])
async def test_what_is_no_json_is_no_answer(raw_server: RawServer, data: str, says: str) -> None:
    raw_server.reply_raw(data)
    with pytest.raises(InvalidReplyError, match=f"{says}.* instead of JSON"):
        await client_of(raw_server).ask("POST", "/embeddings", body={})


async def test_failures_of_the_network_are_errors_of_our_tree(raw_server: RawServer, unused_port: int) -> None:
    raw_server.reply(end="stall")
    with pytest.raises(ModelTimeoutError):
        await client_of(raw_server).ask("POST", "/x", body={}, client_kwargs={"timeout": 0.2})
    nowhere = client_of(raw_server, base_url=f"http://127.0.0.1:{unused_port}/v1")
    with pytest.raises(ConnectionFailedError):
        await nowhere.ask("GET", "/x")
