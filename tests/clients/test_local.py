"""The local model. What it says is not asserted: a model of 135M parameters says what it likes."""

import asyncio
import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import psutil
import pytest

from nbagents import Agent, AgentSession, LocalChatClient, ScriptedChatClient, TokenBudgetReducer, run_log, tool
from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from nbagents.core.errors import BadRequestError, ConfigurationError
from tests.support import require


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def model():
    """A client of the real model."""
    require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
    require(find_weights(), "the weights (nbagents local install)")
    return LocalChatClient()


@pytest.fixture
def file(tmp_path):
    """Something that looks like weights."""
    require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
    path = tmp_path / "small.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


def listening():
    return {(c.laddr.ip, c.laddr.port) for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"}


def test_a_missing_extra_names_the_pip_install(monkeypatch):
    monkeypatch.setattr("nbagents.clients.local.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install xllamacpp"):
        LocalChatClient()


def test_missing_weights_name_both_ways_out(file, tmp_path, monkeypatch):
    monkeypatch.setattr("nbagents.clients.weights.find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"nbagents local install.*model_path="):
        LocalChatClient()


def test_a_file_that_is_no_model_is_refused_at_once(file, tmp_path):
    file.write_text("hello")
    with pytest.raises(ConfigurationError, match="no GGUF file"):
        LocalChatClient(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LocalChatClient(tmp_path / "none.gguf")
    file.write_bytes(b"GGUF")
    with pytest.raises(ConfigurationError, match="at least 1"):
        LocalChatClient(file, n_ctx=0)


def test_nothing_is_loaded_before_the_first_request(file):
    before = listening()
    client = LocalChatClient(file)
    assert (client.model, client.provider, listening()) == ("small", "local", before)


def test_a_broken_model_is_one_clear_error(file):
    with pytest.raises(ConfigurationError, match=r"cannot load .*small\.gguf"):
        LocalChatClient(file).as_agent().run_sync("Hello")


def test_a_small_model_is_kept_short_and_on_its_best_guess_unless_told_otherwise(file, monkeypatch):
    scripted = ScriptedChatClient(["a", "b"])
    monkeypatch.setattr(LocalChatClient, "_connected", lambda self: scripted)
    agent = LocalChatClient(file).as_agent()
    agent.run_sync("Hello")
    agent.run_sync("Hello", options={"max_tokens": 9, "temperature": 0.7, "seed": 5})
    assert [request.options for request in scripted.requests] == [
        {"temperature": 0, "max_tokens": 256},
        {"temperature": 0.7, "max_tokens": 9, "seed": 5},
    ]


def test_copies_keep_the_settings(file):
    client = LocalChatClient(file, n_ctx=512, tool_rounds=None)
    for twin in (copy.copy(client), pickle.loads(pickle.dumps(client))):
        assert (twin.model_path, twin.tool_rounds, twin._settings) == (file, None, client._settings)


def test_another_model_is_refused_and_not_pretended(file, monkeypatch):
    monkeypatch.setattr(LocalChatClient, "_connected", lambda self: ScriptedChatClient(["Hi"], model=self.model))
    agent = LocalChatClient(file).as_agent()
    with pytest.raises(ConfigurationError, match=r"runs 'small' and no 'gpt-5'.*model_path="):
        agent.run_sync("Hello", options={"model": "gpt-5"})
    assert agent.run_sync("Hello", options={"model": "small"}).text == "Hi"


@pytest.mark.parametrize("streams", [False, True])
def test_a_conversation_that_is_too_long_names_the_local_model_and_its_room(file, monkeypatch, streams):
    refused = {"type": "exceed_context_size_error", "message": "request (9016 tokens) exceeds the available ..."}
    error = BadRequestError(f"refused: {refused['message']}", status=400, body_text=json.dumps({"error": refused}))
    other = BadRequestError("refused: no grammar", status=400, body_text="{}")
    wire = ScriptedChatClient([error, other])
    monkeypatch.setattr(LocalChatClient, "_connected", lambda self: wire)
    agent = LocalChatClient(file, n_ctx=512).as_agent()
    ask = (lambda: list(agent.stream_sync("Hi"))) if streams else (lambda: agent.run_sync("Hi"))
    with pytest.raises(
        BadRequestError, match=r"local model 'small': 9016 tokens, .* room for 512\. .*n_ctx="
    ) as caught:
        ask()
    assert caught.value.status == 400
    assert "127.0.0.1" not in str(caught.value)
    with pytest.raises(BadRequestError, match="no grammar"):
        ask()


@pytest.mark.slow
def test_the_real_model_streams_text_with_its_usage(model):
    stream = Agent(model).stream_sync("Say hello.", options={"max_tokens": 12})
    texts = [update.text for update in stream if update.text]
    response = stream.get_final_response()
    assert len(texts) > 2
    assert "".join(texts) == response.text
    assert response.finish_reason in ("stop", "length")
    assert response.usage.input_tokens > 0
    assert 0 < response.usage.output_tokens <= 12
    (requested,) = (e for e in run_log().get(response.run_id).events if e.name == "llm.succeeded")
    assert requested.payload["model"] == model.model
    assert os.sep not in requested.payload["model"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
async def test_the_real_model_calls_a_tool_and_answers(model, stream):
    agent, session = Agent(model, tools=[add]), AgentSession()
    run = agent.run("What is 2 and 3?", session=session, stream=stream, options={"tool_choice": "required"})
    response = await (run.get_final_response() if stream else run)
    (call,) = response.messages[0].calls
    assert call.name == "add"
    assert not call.invalid
    assert set(call.arguments) == {"a", "b"}
    assert response.messages[1].results[0].result == str(call.arguments["a"] + call.arguments["b"])
    assert response.messages[-1].calls == []
    assert response.stop_reason == "completed"
    assert (await agent.run("Thanks", session=session, options={"max_tokens": 8})).stop_reason == "completed"


@pytest.mark.slow
def test_the_real_model_keeps_to_a_schema(model):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    value = Agent(model).run_sync("Give a number.", options={"response_format": schema, "max_tokens": 40}).value
    assert isinstance(value["n"], int)


@pytest.mark.slow
def test_one_server_serves_all_clients_loops_and_threads(model):
    """C93: it listens on loopback only, and to nobody without its key."""
    before = listening()
    options = {"max_tokens": 3}
    first, twin = LocalChatClient(n_ctx=640), LocalChatClient(n_ctx=640)
    replies = [asyncio.run(one.as_agent().run("Hi", options=options)).text for one in (first, twin)]
    worker = threading.Thread(target=lambda: replies.append(first.as_agent().run_sync("Hi", options=options).text))
    worker.start()
    worker.join()
    assert len(replies) == 3
    assert len(set(replies)) == 1
    ((ip, port),) = listening() - before
    assert ip == "127.0.0.1"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/chat/completions", b"{}")


@pytest.mark.slow
async def test_loading_leaves_the_loop_alive(model):
    ticks = 0
    reply = asyncio.ensure_future(LocalChatClient(n_ctx=1024).as_agent().run("Hi", options={"max_tokens": 2}))
    while not reply.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert (await reply).finish_reason == "length"
    assert ticks > 5


@pytest.mark.slow
async def test_breaking_off_frees_the_model(model):
    agent = Agent(model)
    async with agent.run("Tell me a long story.", stream=True) as stream:
        async for update in stream:
            if update.text:
                break
    async with asyncio.timeout(60):
        assert (await agent.run("Hi", options={"max_tokens": 2})).finish_reason == "length"


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_one_clear_error(model):
    with pytest.raises(BadRequestError, match=r"local model.* room for 4096\. .*n_ctx="):
        Agent(model).run_sync("word " * 5000)


@pytest.mark.slow
def test_the_server_ends_with_its_last_client(model):
    before = listening()
    client = LocalChatClient(n_ctx=768)
    asyncio.run(client.as_agent().run("Hi", options={"max_tokens": 1}))
    assert len(listening() - before) == 1
    del client
    gc.collect()
    assert listening() - before == set()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["agent.run_sync('Hi', options=few)", "asyncio.run(agent.run('Hi', options=few))"])
def test_a_script_ends_without_noise(model, line):
    script = (
        "import asyncio; from nbagents import LocalChatClient\n"
        f"few = {{'max_tokens': 2}}; agent = LocalChatClient().as_agent(); print({line}.finish_reason)"
    )
    ran = subprocess.run([sys.executable, "-W", "default", "-c", script], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "length\n", "")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
async def test_a_long_conversation_stays_in_its_budget_in_order_and_answerable(model):
    turns, ask_for = 500, {"max_tokens": 1, "temperature": 0}
    agent = Agent(model, reducer=TokenBudgetReducer(120), options=ask_for)
    session = agent.create_session()
    questions = [f"Question {number} of many?" for number in range(turns)]
    read = []
    for question in questions:
        response = await agent.run(question, session=session)
        assert response.stop_reason == "completed"
        assert response.text
        read.append(response.usage.input_tokens)
    assert 60 < max(read) < 180  # as the model counts, what its template adds included
    assert [message.text for message in await agent.thread(session).get_messages()][::2] == questions
