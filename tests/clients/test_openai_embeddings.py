"""`OpenAIEmbeddingClient`: texts out, vectors back, in the order of the texts."""

from __future__ import annotations

import asyncio
import base64
import pickle
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbagents import OpenAIEmbeddingClient, SupportsChatGetResponse, SupportsGetEmbeddings
from nbagents.core import retries
from nbagents.core.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    InvalidReplyError,
    LoopError,
    ModelTimeoutError,
    NBAgentsError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import KEY
from tests.support.chunks import error_body
from tests.support.raw_server import RawServer, Refuse
from tests.support.servers import AIMock, LLMock


def client_of(server: RawServer, model: str = "text-embedding-3-small", **settings: Any) -> OpenAIEmbeddingClient:
    return OpenAIEmbeddingClient(model, **{"base_url": server.base_url, "max_retries": 0, **settings})


def vector_of(text: str) -> list[float]:
    """What the server makes of a text: numbers that tell one text from another."""
    return [float(len(text)), float(sum(text.encode()) % 1000), 0.1]


def packed(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()


def answer_to(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The reply of OpenAI: vectors in the asked form, here with the last first."""
    texts = body["input"]
    form = packed if body.get("encoding_format") == "base64" else list
    entries = [{"object": "embedding", "index": n, "embedding": form(vector_of(t))} for n, t in enumerate(texts)]
    usage = {"prompt_tokens": 2 * len(texts), "total_tokens": 2 * len(texts)}
    return {"object": "list", "data": entries[::-1], "model": body["model"], "usage": usage, **more}


@pytest.fixture
def embedder(raw_server: RawServer) -> RawServer:
    return raw_server.reply_with(answer_to)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.001)


async def test_vectors_come_in_the_order_of_the_texts(embedder: RawServer) -> None:
    client = client_of(embedder, api_key=KEY)
    made = await client.get_embeddings(["a", "żółw", "ccc"], options={"dimensions": 3, "user": "ada"})
    assert np.array(made).shape == (3, 3)
    assert np.allclose(np.array(made), [vector_of(text) for text in ("a", "żółw", "ccc")])
    assert made[0].dtype == np.float32  # type: ignore[attr-defined]
    assert embedder.paths == ["/v1/embeddings"]
    expected = {"model": client.model, "input": ["a", "żółw", "ccc"], "dimensions": 3, "user": "ada"}
    assert embedder.requests == [{**expected, "encoding_format": "base64"}]
    assert embedder.headers[0]["authorization"] == f"Bearer {KEY}"
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.total_tokens) == (6, 6)
    assert (len(await client.get_embeddings("word")), isinstance(client, SupportsGetEmbeddings)) == (1, True)
    assert not isinstance(client, SupportsChatGetResponse)


async def test_the_cost_is_known_where_the_price_is(embedder: RawServer) -> None:
    made = await client_of(embedder, max_batch=2).get_embeddings(["a"] * 5)
    assert made.cost_usd == pytest.approx(10 * 0.02 / 1_000_000)
    assert (await client_of(embedder, "my-own").get_embeddings("a")).cost_usd is None


async def test_the_cost_is_missing_where_a_part_of_the_usage_is(raw_server: RawServer) -> None:
    raw_server.reply_with(lambda body: answer_to(body, usage=None) if "z" in body["input"] else answer_to(body))
    made = await client_of(raw_server, max_batch=1).get_embeddings(["a", "z"])
    assert made.usage is not None
    assert (made.usage.input_tokens, made.cost_usd) == (2, None)
    assert "input_tokens" in made.usage.partial


@pytest.mark.parametrize("values", [[], ()])
async def test_no_texts_make_no_request(embedder: RawServer, values: Any) -> None:
    made = await client_of(embedder).get_embeddings(values)
    assert (len(made), made.usage, made.cost_usd, embedder.requests) == (0, None, None, [])


@pytest.mark.parametrize(
    "values",
    [
        pd.DataFrame({"text": ["a", "b"]})["text"],
        pd.Series(["a", "b"], dtype="category"),
        np.array(["a", "b"]),
        (letter for letter in "ab"),
    ],
)
async def test_a_column_of_a_table_and_all_that_gives_texts_is_taken(embedder: RawServer, values: Any) -> None:
    assert len(await client_of(embedder).get_embeddings(values)) == 2
    assert embedder.requests[0]["input"] == ["a", "b"]


async def test_embeddings_can_be_compared(embedder: RawServer) -> None:
    one, other = [await client_of(embedder).get_embeddings(["a", "b"]) for _ in range(2)]
    assert (one == one, one == other, len({one, other})) == (True, False, 2)


# Bad input


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["a", "", "c"], r"values\[1\] is empty"),
        ("", r"values\[0\] is empty"),
        (["a", "word " * 12_000], r"values\[1\] has about 12,000 tokens; a text may have 8,192"),
        (["鳥" * 11_000], r"values\[0\] has about 11,000 tokens"),
        ([None], r"values\[0\] is of type NoneType"),
        (None, "values are texts, not NoneType"),
        (pd.Series(["a", np.nan, "c"]), r"values\[1\] is of type float\. .*dropna"),
        (pd.Series(["a", pd.NA], dtype="string"), r"values\[1\] is of type NAType"),
        (pd.DataFrame({"text": ["a", "b"]}), r"not DataFrame\. .*df\["),
        (np.array("a"), "values are texts, not ndarray"),
        ({"a": 1}, "values are texts, not dict"),
    ],
)
async def test_a_text_that_cannot_be_embedded_is_named_before_any_request(
    embedder: RawServer, values: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await client_of(embedder).get_embeddings(values)
    assert embedder.requests == []


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
async def test_wrong_dimensions_are_an_error(embedder: RawServer, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="dimensions is a whole number from 1"):
        await client_of(embedder).get_embeddings("a", options={"dimensions": wrong})


async def test_a_text_near_the_limit_is_left_to_the_service_unless_it_was_counted(raw_server: RawServer) -> None:
    raw_server.reply_json(error_body("This model's maximum context length is 8192 tokens"), 400)
    near = "word " * 9_000  # as many tokens by the estimate
    with pytest.raises(BadRequestError, match="8192 tokens"):
        await client_of(raw_server).get_embeddings(near)
    with pytest.raises(ConfigurationError, match=r"values\[0\] has 8,193 tokens; a text may have 8,192"):
        await client_of(raw_server, count_tokens=lambda text: 8_193).get_embeddings("short")
    assert len(raw_server.requests) == 1


async def test_half_a_surrogate_pair_can_be_sent(embedder: RawServer) -> None:
    await client_of(embedder).get_embeddings("a\ud83d")
    assert embedder.requests[0]["input"] == ["a\ufffd"]


@pytest.mark.parametrize("name", ["max_batch", "max_batch_tokens", "max_text_tokens"])
@pytest.mark.parametrize("wrong", [0, 1.5, True])
def test_a_limit_that_is_no_whole_number_is_an_error(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is a whole number from 1"):
        OpenAIEmbeddingClient("m", api_key="k", **{name: wrong})


# Batches


def sizes(server: RawServer) -> list[int]:
    return sorted((len(body["input"]) for body in server.requests), reverse=True)


async def test_many_texts_go_in_several_requests_and_come_back_in_order(embedder: RawServer) -> None:
    texts = [f"{'x' * (n % 50)}{n}" for n in range(4_100)]
    made = await client_of(embedder).get_embeddings(texts)
    assert sizes(embedder) == [2048, 2048, 4]
    assert np.allclose(np.array(made), [vector_of(text) for text in texts])
    assert made.usage is not None
    assert made.usage.input_tokens == 8_200


async def test_a_request_takes_no_more_tokens_than_it_may(embedder: RawServer) -> None:
    texts = ["word " * 7_000] * 60  # 7,000 tokens each by the estimate: 28 of them are two thirds of 300,000
    await client_of(embedder).get_embeddings(texts)
    assert sizes(embedder) == [28, 28, 4]
    embedder.requests.clear()
    await client_of(embedder, count_tokens=list, max_batch_tokens=10, max_text_tokens=20).get_embeddings(
        ["aaaa", "bbbb", "cc", "d", "e" * 15, "ff"]
    )
    assert sizes(embedder) == [3, 1, 1, 1]


async def test_few_requests_go_at_once_and_as_few_as_the_client_allows(raw_server: RawServer) -> None:
    raw_server.reply_with(answer_to)
    await client_of(raw_server, max_batch=1).get_embeddings([str(n) for n in range(9)])
    assert raw_server.connections <= 4
    before = raw_server.connections
    client = client_of(raw_server, max_batch=1, max_concurrency=1)
    both = await asyncio.gather(client.get_embeddings(["a", "b", "c"]), client.get_embeddings(["d", "e"]))
    assert [len(made) for made in both] == [3, 2]
    assert raw_server.connections == before + 1


async def test_the_first_batch_that_fails_ends_the_others(raw_server: RawServer) -> None:
    def decide(body: dict[str, Any]) -> Any:
        if body["input"] == ["3"]:
            raise Refuse("not this one")
        return answer_to(body)

    raw_server.reply_with(decide)
    with pytest.raises(BadRequestError, match="not this one") as caught:
        await client_of(raw_server, max_batch=1).get_embeddings([str(n) for n in range(40)])
    assert caught.value.status == 400
    assert len(raw_server.requests) < 20


async def test_cancelling_ends_all_requests(raw_server: RawServer) -> None:
    raw_server.reply(end="stall")
    client = client_of(raw_server, max_batch=1)
    task = asyncio.ensure_future(client.get_embeddings(["a", "b", "c"]))
    await asyncio.to_thread(raw_server.wait_until, lambda: len(raw_server.requests) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(raw_server.wait_until, lambda: raw_server.hang_ups == 3)


async def test_tokens_per_minute_hold_for_embeddings_too(embedder: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbagents.core.rates.MINUTE", 0.3)
    client = client_of(embedder, tokens_per_minute=100)
    begun = time.monotonic()
    for _ in range(2):
        await client.get_embeddings("word " * 100)  # 100 tokens by the estimate, 2 as reported
    assert time.monotonic() - begun >= 0.3


# What the server sends back


@pytest.mark.parametrize("indices", [True, False], ids=["numbered", "not numbered"])
async def test_a_server_that_sends_plain_numbers_is_understood(raw_server: RawServer, indices: bool) -> None:
    def decide(body: dict[str, Any]) -> dict[str, Any]:
        entries = [
            {"embedding": vector_of(text), **({"index": n} if indices else {})} for n, text in enumerate(body["input"])
        ]
        return {"data": entries}

    raw_server.reply_with(decide)
    made = await client_of(raw_server, "own").get_embeddings(["a", "bb"])
    assert np.allclose(np.array(made), [vector_of("a"), vector_of("bb")])
    assert (made.model, made.usage, made.cost_usd) == ("own", None, None)


async def test_a_server_that_refuses_the_short_form_is_asked_for_plain_numbers_once_and_for_all(
    raw_server: RawServer,
) -> None:
    def decide(body: dict[str, Any]) -> Any:
        if "encoding_format" in body:
            raise Refuse("encoding_format: only float is supported")
        return answer_to(body)

    raw_server.reply_with(decide)
    client = client_of(raw_server)
    for _ in range(2):
        assert np.allclose(np.array(await client.get_embeddings("a")), [vector_of("a")])
    assert ["encoding_format" in body for body in raw_server.requests] == [True, False, False]


def numbered(*vectors: Any) -> list[dict[str, Any]]:
    return [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"data": numbered([1.0, 2.0])}, "1 vectors for 2 texts"),
        ({"data": numbered([1.0], [2.0], [3.0])}, "3 vectors for 2 texts"),
        ({"data": numbered([1.0, 2.0], [1.0])}, r"different lengths came back: \[1, 2\]"),
        ({"data": numbered([1.0, float("nan")], [1.0, 2.0])}, "no finite numbers"),
        ({"data": numbered([1.0, 1e300], [1.0, 2.0])}, "no finite numbers"),
        ({"data": numbered(packed([1.0, float("inf")]), packed([1.0, 2.0]))}, "no finite numbers"),
        ({"data": numbered([1.0, None], [1.0, 2.0])}, "no finite numbers"),
        ({"data": numbered([10**400], [1.0])}, "no vector"),
        ({"data": numbered([], [])}, "no vector"),
        ({"data": numbered([[1.0]], [[2.0]])}, "no vector"),
        ({"data": numbered("?", "?")}, "no vector"),
        ({"data": numbered("AAA=", "AAA=")}, "no vector"),
        ({"data": numbered({"a": 1}, None)}, "no vector"),
        ({"data": [1, 2]}, "no vector"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]}, "numbered from 0 to 1"),
        ({"data": [{"index": 1, "embedding": [1.0]}, {"index": 2, "embedding": [2.0]}]}, "numbered from 0 to 1"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": "1", "embedding": [2.0]}]}, "numbered from 0 to 1"),
        ({"data": None}, "JSON without embeddings"),
        ({"vectors": []}, "JSON without embeddings"),
        ([1], "JSON without embeddings"),
    ],
)
async def test_a_reply_that_is_none_says_what_it_is(raw_server: RawServer, reply: Any, says: str) -> None:
    raw_server.reply_json(reply)
    with pytest.raises(InvalidReplyError, match=says) as caught:
        await client_of(raw_server, max_retries=2).get_embeddings(["a", "b"])
    assert len(raw_server.requests) == 1
    assert not caught.value.retryable


async def test_counts_that_cannot_be_are_unknown(raw_server: RawServer) -> None:
    raw_server.reply_with(lambda body: answer_to(body, usage={"prompt_tokens": -5, "total_tokens": True}))
    made = await client_of(raw_server).get_embeddings("a")
    assert (made.usage, made.cost_usd) == (None, None)


async def test_vectors_of_another_length_than_asked_for_are_an_error(embedder: RawServer) -> None:
    with pytest.raises(InvalidReplyError, match="3 dimensions came back, and 256 were asked for"):
        await client_of(embedder).get_embeddings("a", options={"dimensions": 256})


async def test_an_error_in_a_reply_is_one(raw_server: RawServer) -> None:
    raw_server.reply_json({"error": {"message": "overloaded", "type": "server_error"}})
    with pytest.raises(ServerError, match="overloaded"):
        await client_of(raw_server).get_embeddings("a")


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
async def test_a_fault_on_the_way_is_tried_again(raw_server: RawServer, soon: None, status: int) -> None:
    raw_server.reply_json(error_body("Not now"), status).reply_with(answer_to)
    assert len(await client_of(raw_server, max_retries=1).get_embeddings("a")) == 1
    assert len(raw_server.requests) == 2


async def test_the_last_error_tells_the_number_of_attempts_and_shows_no_key(raw_server: RawServer, soon: None) -> None:
    raw_server.reply_json(error_body(f"Slow down, {KEY}"), 429, headers={"x-request-id": "r1"})
    with pytest.raises(RateLimitError, match=r"Tried 3 times\.") as caught:
        await client_of(raw_server, api_key=KEY, max_retries=2).get_embeddings("a")
    assert (caught.value.attempts, caught.value.status, caught.value.headers["x-request-id"]) == (3, 429, "r1")
    assert KEY not in f"{caught.value} {caught.value.body_text} {caught.value.headers}"


@pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationError), (400, BadRequestError)])
async def test_what_cannot_help_is_not_sent_again(
    raw_server: RawServer, status: int, kind: type[NBAgentsError]
) -> None:
    raw_server.reply_json(error_body("No"), status)
    with pytest.raises(kind):
        await client_of(raw_server, max_retries=3).get_embeddings("a")
    assert len(raw_server.requests) == 1


async def test_a_server_that_does_not_answer_in_time_is_an_error(raw_server: RawServer) -> None:
    raw_server.reply(end="stall")
    with pytest.raises(ModelTimeoutError):
        await client_of(raw_server, timeout=0.2).get_embeddings("a")


# Without await, elsewhere


def test_it_works_without_await(embedder: RawServer) -> None:
    client = client_of(embedder)
    assert len(client.get_embeddings_sync(["a", "b"])) == 2
    with pytest.raises(ConfigurationError, match=r"values\[0\] is empty"):
        client.get_embeddings_sync("")


async def test_it_works_without_await_in_a_running_loop_and_beside_it(embedder: RawServer) -> None:
    client = client_of(embedder)
    assert len(client.get_embeddings_sync("a")) == 1
    assert len(await client.get_embeddings("a")) == 1

    async def inside() -> None:
        client.get_embeddings_sync("a")

    from nbagents.loop import run_sync

    with pytest.raises(LoopError, match="await"):
        await asyncio.to_thread(run_sync, inside)


async def test_azure_has_the_deployment_in_the_address(raw_server: RawServer) -> None:
    raw_server.reply_with(lambda body: answer_to(body, model="text-embedding-3-small"))
    client = OpenAIEmbeddingClient(
        "my-deployment",
        azure_endpoint=f"http://127.0.0.1:{raw_server.port}",
        api_version="2024-10-21",
        api_key=KEY,
    )
    made = await client.get_embeddings("a")
    assert raw_server.paths == ["/openai/deployments/my-deployment/embeddings?api-version=2024-10-21"]
    assert raw_server.headers[0]["api-key"] == KEY
    assert (made.model, made.cost_usd) == ("text-embedding-3-small", pytest.approx(2 * 0.02 / 1_000_000))


def test_a_pickled_client_has_its_settings_and_no_key() -> None:
    client = OpenAIEmbeddingClient(
        "m", api_key=KEY, base_url="http://localhost:1/v1", max_batch=7, max_text_tokens=None, count_tokens=len
    )
    data = pickle.dumps(client)
    assert KEY.encode() not in data
    again = pickle.loads(data)
    assert (again.model, again.host, again.max_batch, again.max_text_tokens) == ("m", "localhost:1", 7, None)
    assert (again.exact_counts, again.count_tokens("abc"), repr(again)) == (True, 3, repr(client))


async def test_llmock(llmock: LLMock) -> None:
    client = OpenAIEmbeddingClient("text-embedding-3-small", base_url=llmock.base_url, api_key="k")
    made = await client.get_embeddings(["red", "green", "red"])
    assert np.array(made).shape == (3, 1536)
    assert np.array_equal(made[0], made[2])
    assert not np.array_equal(made[0], made[1])
    assert made.usage is not None
    assert made.usage.input_tokens
    llmock.scenario([{"type": "fail", "status": 429, "retry_after": 0, "times": 1}])
    assert len(await client.get_embeddings("again")) == 1
    assert llmock.verdict()["passed"]


async def test_aimock(aimock: AIMock) -> None:
    client = OpenAIEmbeddingClient("text-embedding-3-small", base_url=aimock.base_url, api_key="k")
    assert np.array(await client.get_embeddings(["embed me", "embed me too"])).tolist() == [[0.5, -0.25, 1.0]] * 2
