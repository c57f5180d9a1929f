"""What a run sends over Responses, and the client as an object."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from nbagents import (
    UNSET,
    Agent,
    LocalChatClient,
    NBAgentsError,
    OpenAIResponsesClient,
    RecordedChatClient,
    run_log,
    tool,
)
from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from nbagents.core.errors import (
    ConfigurationError,
)
from tests.clients.asking import KEY, Mode, ask, both_modes, fails
from tests.clients.responding import SEARCH, Service, add
from tests.support import require
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, said, thought

# --- what a run sends


@both_modes
async def test_options_go_out_under_the_services_names(service: Service, mode: Mode) -> None:
    service.say("Hello")
    options = {"max_tokens": 50, "temperature": 0.2, "reasoning_effort": "low", "metadata": {"a": "b"}, "store": True}
    agent = service.agent(client={"reasoning_summary": "auto"})
    await ask(agent, "Hi", mode, options={**options, "model": "other"})
    sent = service.requests[0]
    assert (sent["max_output_tokens"], sent["temperature"], sent["metadata"]) == (50, 0.2, {"a": "b"})
    assert (sent["reasoning"], sent["store"], sent["model"]) == ({"effort": "low", "summary": "auto"}, True, "other")


async def test_an_option_that_openai_does_not_have_is_an_error_before_anything_is_sent() -> None:
    agent = OpenAIResponsesClient("m", api_key="k-12345678").as_agent(options={"seed": 1})
    error = await fails(agent, "Hi", "plain")
    assert isinstance(error, ConfigurationError)
    assert "'seed'" in error.message
    assert "seed=UNSET" in str(error.hint)


async def test_unset_removes_a_default_that_responses_does_not_have(service: Service) -> None:
    service.say("Hello")
    await ask(service.agent(options={"seed": 1}), "Hi", "plain", options={"seed": UNSET})
    assert "seed" not in service.requests[0]


@both_modes
async def test_client_kwargs_reach_the_provider_and_add_to_what_is_ours(service: Service, mode: Mode) -> None:
    class Answer(BaseModel):
        number: int

    service.say('{"number":4}')
    kwargs = {
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "concise"},
        "include": ["message.output_text.logprobs"],
        "truncation": "auto",
        "extra_body": {"service_tier": "flex"},
        "extra_headers": {"x-a": "1"},
    }
    given = copy.deepcopy(kwargs)
    agent = service.agent(client={"stores_by_default": False})
    options = {"response_format": Answer, "reasoning_effort": "high"}
    answer = await ask(agent, "2+2?", mode, options=options, client_kwargs=kwargs)
    sent = service.requests[0]
    assert answer.value == Answer(number=4)
    assert (sent["text"]["verbosity"], sent["text"]["format"]["name"]) == ("low", "Answer")
    assert sent["reasoning"] == {"effort": "high", "summary": "concise"}
    assert sent["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (sent["truncation"], sent["service_tier"]) == ("auto", "flex")
    assert service.server.headers[0]["x-a"] == "1"
    assert kwargs == given


@both_modes
async def test_structured_output_is_the_last_message(service: Service, mode: Mode) -> None:
    class Answer(BaseModel):
        number: int

    service.say(said("Let me count.", id="m1", phase="commentary"), said('{"number":4}', id="m2", phase="final_answer"))
    answer = await ask(service.agent(), "2+2?", mode, options={"response_format": Answer})
    assert answer.value == Answer(number=4)
    assert service.requests[0]["text"]["format"].keys() == {"type", "name", "schema", "strict"}


@both_modes
async def test_a_refusal_is_asked_only_once(service: Service, mode: Mode) -> None:
    """C42"""
    service.say(wire.refused("I cannot help"))
    answer = await ask(service.agent(), "Harm", mode, options={"response_format": {"type": "object"}})
    assert (answer.stop_reason, len(service.requests)) == ("refused", 1)
    assert answer.usage is not None


@both_modes
async def test_a_null_that_a_strict_schema_asks_for_is_the_default(service: Service, mode: Mode) -> None:
    """C58"""
    service.say(called("c1", "add", {"a": 1, "b": None})).say("Eleven.")
    answer = await ask(service.agent(add), "Add", mode)
    assert answer.messages[1].results[0].result == "11"
    (function,) = service.requests[0]["tools"]
    assert (function["strict"], function["parameters"]["required"]) == (True, ["a", "b"])


@both_modes
async def test_broken_arguments_are_answered_and_go_back_as_an_empty_object(service: Service, mode: Mode) -> None:
    """C37, C48"""
    for text in ("query = x", "[1,2]", "null", '{"a": "unfinished'):
        service.say(called("c1", "add", text))
    service.say("Sorry.")
    agent = service.agent(add, client={"stores_by_default": False})
    answer = await ask(agent, "Go", mode)
    results = [result for message in answer.messages for result in message.results]
    assert (answer.text, len(results), all(result.error for result in results)) == ("Sorry.", 4, True)
    sent = [item["arguments"] for item in service.requests[-1]["input"] if item["type"] == "function_call"]
    assert sent == ["{}"] * 4


@both_modes
async def test_half_a_surrogate_pair_does_not_block_the_session(service: Service, mode: Mode) -> None:
    """C47"""

    @tool
    def cut() -> str:
        """Cut."""
        return "a\ud83d"

    service.say(called("c1", "cut", "{}")).say("Done.").say("Still here.")
    agent = service.agent(cut, client={"stores_by_default": False})
    session = agent.create_session()
    await ask(agent, "Go \ud83d", mode, session)
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    json.dumps(session.to_dict()).encode()


@both_modes
async def test_instructions_alone_are_the_input(service: Service, mode: Mode) -> None:
    service.say("Once upon a time.")
    agent = service.agent(instructions="Tell a story.")
    assert (await ask(agent, None, mode)).text == "Once upon a time."
    assert "instructions" not in service.requests[0]
    assert service.brought() == [("system", "Tell a story.")]


@both_modes
async def test_an_approved_call_is_followed_by_its_result_only(service: Service, mode: Mode) -> None:
    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove."""
        return f"removed {path}"

    service.say(called("c1", "remove", {"path": "x"})).say("Gone.")
    agent = service.agent(remove)
    session = agent.create_session()
    asked = await ask(agent, "Remove x", mode, session)
    assert asked.stop_reason == "approval_required"
    done = await ask(agent, [request.approve() for request in asked.approvals], mode, session)
    assert done.text == "Gone."
    assert service.brought() == [("function_call_output", "removed x")]
    assert service.requests[1]["previous_response_id"] == "resp_1"


@pytest.mark.parametrize("stores", [True, False])
async def test_a_stream_that_is_left_keeps_the_partial_text_and_the_session_goes_on(
    service: Service, stores: bool
) -> None:
    """C75, C93: the service, which has not stored the broken turn, gets it with the next one."""
    begun = wire.item_events(0, said("one two"))[:3]
    service.server.reply(*wire.opening(), *begun, end="stall")
    service.say("Still here.")
    agent = service.agent(client={"stores_by_default": stores})
    session = agent.create_session()
    async with agent.run("Count", stream=True, session=session) as stream:
        async for update in stream:
            if update.text:
                break
    service.server.wait_until(lambda: service.server.hang_ups == 1)
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here."
    assert service.brought() == [("user", "Count"), ("assistant", "one "), ("user", "And now?")]


@both_modes
@pytest.mark.parametrize("stores", [True, False])
async def test_a_recording_replays_without_the_service(
    service: Service, mode: Mode, stores: bool, tmp_path: Path
) -> None:
    cited = wire.text_part("Let me see.", {"type": "url_citation", "url": "https://x.test"})
    service.say(thought("Hm.", encrypted="s"), said(cited, phase="commentary"), SEARCH, called("c1", "add", {"a": 2}))
    service.say("It is 12.").say(said("One.", id="m1"), said("Two.", id="m2"))
    told = []
    for inner in (service.client(stores_by_default=stores), None):
        agent = Agent(RecordedChatClient(tmp_path / "r.jsonl", inner), tools=[add])
        session = agent.create_session()
        answers = [await ask(agent, prompt, mode, session) for prompt in ("Add", "Bye")]
        contents = [content for answer in answers for message in answer.messages for content in message.contents]
        kept = [(type(one), getattr(one, "text", ""), one.extra) for one in contents]
        told.append((kept, session.service_session_id, [answer.text for answer in answers]))
    assert told[0] == told[1]
    assert len(service.requests) == 3


# --- the client as an object


def test_making_a_client_imports_no_openai() -> None:
    script = (
        "import sys; from nbagents import OpenAIResponsesClient; OpenAIResponsesClient('m', api_key='k-12345678'); "
        "print([m for m in ('openai', 'pandas', 'matplotlib', 'IPython', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_pickled_client_keeps_its_settings_and_not_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    client = OpenAIResponsesClient("m", api_key=KEY, stores_by_default=False, reasoning_summary="auto", timeout=9.0)
    pickled = pickle.dumps(client)
    assert KEY not in pickled.decode("latin-1")
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-1234")
    again = pickle.loads(pickled)
    assert (again.stores_by_default, again.reasoning_summary, again.timeout) == (False, "auto", 9.0)
    assert repr(again) == "OpenAIResponsesClient('m', host='api.openai.com')"


@both_modes
async def test_a_client_of_the_users_sends_and_is_not_closed(service: Service, mode: Mode) -> None:
    """C03"""
    service.say("Hello")
    async with openai.AsyncOpenAI(base_url=service.server.base_url, api_key=KEY) as own:
        agent = Agent(OpenAIResponsesClient("m", client=own))
        assert (await ask(agent, "Hi", mode)).text == "Hello"
        assert not own.is_closed()
    assert service.server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "wrong", [{"max_retries": -1}, {"api_key": KEY, "base_url": "x"}, {"reasoning_summary": "long"}]
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(NBAgentsError) as raised:
        OpenAIResponsesClient("m", **{"base_url": "http://x/v1", **wrong})
    assert KEY not in str(raised.value)


@both_modes
def test_the_key_shows_in_no_error(raw_server: RawServer, mode: Mode) -> None:
    """C108"""
    raw_server.reply_json({"error": {"message": f"Bad key {KEY}", "key": KEY}}, 401, headers={"x-echo": KEY})
    agent = Service(raw_server).agent(client={"api_key": KEY})
    error = asyncio.run(fails(agent, "Hi", mode))
    events = run_log().get(error.response.run_id).events  # type: ignore[union-attr]
    told = f"{error!r} {error} {error.headers} {error.body_text} {error.__cause__!r} {events!r}"  # type: ignore[attr-defined]
    assert KEY not in told


@both_modes
@pytest.mark.parametrize("version", [None, "preview"])
async def test_azure_is_asked_at_its_v1_address_with_a_token(service: Service, mode: Mode, version: str | None) -> None:
    service.say("Hello").say("Bye")
    client = OpenAIResponsesClient(
        "my-gpt",
        azure_endpoint=f"http://127.0.0.1:{service.server.port}/openai/v1/",
        api_version=version,
        azure_ad_token_provider=lambda: KEY,
    )
    agent = Agent(client)
    session = agent.create_session()
    for prompt in ("Hi", "Bye"):
        await ask(agent, prompt, mode, session)
    query = f"?api-version={version}" if version else ""
    assert service.server.paths == [f"/openai/v1/responses{query}"] * 2
    assert [sent["authorization"] for sent in service.server.headers] == [f"Bearer {KEY}"] * 2
    assert (client.provider, service.requests[1]["previous_response_id"]) == ("azure", "resp_1")


@pytest.mark.slow
@both_modes
async def test_llama_cpp_answers(mode: Mode) -> None:
    """A server that others wrote and a real model: what it says is its own."""
    require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
    require(find_weights(), "the weights (nbagents local install)")
    keeper = LocalChatClient()
    await keeper.get_response("Hi", options={"max_tokens": 1})
    server = keeper._server
    assert server is not None
    client = OpenAIResponsesClient(
        "local", base_url=f"{server.address}/v1", api_key=server.key, stores_by_default=False
    )
    agent = Agent(client, "Be brief.")
    session = agent.create_session()
    for prompt in ("Say hello.", "Again."):
        answer = await ask(agent, prompt, mode, session, options={"max_tokens": 8})
        assert answer.text
        assert answer.usage is not None
        assert answer.usage.output_tokens == 8
