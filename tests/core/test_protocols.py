"""What `isinstance` says of clients and agents, and what a class of one's own has to write."""

import asyncio
import threading

import numpy as np
import pytest

from nbagents import (
    Agent,
    AgentResponse,
    BaseAgent,
    BaseChatClient,
    BaseEmbeddingClient,
    Embeddings,
    HostedTool,
    LocalChatClient,
    Message,
    OpenAIChatClient,
    RecordedChatClient,
    ResponseStream,
    ScriptedChatClient,
    SupportsAgentRun,
    SupportsChatGetResponse,
    SupportsCodeInterpreterTool,
    SupportsFileSearchTool,
    SupportsGetEmbeddings,
    SupportsImageGenerationTool,
    SupportsMCPTool,
    SupportsShellTool,
    SupportsWebSearchTool,
    Usage,
)
from nbagents.core.errors import ConfigurationError, InvalidReplyError, LoopError, RunCancelledError

HOSTED = {
    "get_code_interpreter_tool": SupportsCodeInterpreterTool,
    "get_file_search_tool": SupportsFileSearchTool,
    "get_image_generation_tool": SupportsImageGenerationTool,
    "get_mcp_tool": SupportsMCPTool,
    "get_shell_tool": SupportsShellTool,
    "get_web_search_tool": SupportsWebSearchTool,
}
CLIENTS = [OpenAIChatClient, LocalChatClient, RecordedChatClient, ScriptedChatClient]


@pytest.mark.parametrize("client", CLIENTS)
def test_isinstance_tells_the_truth_of_our_chat_clients(client):
    one = client.__new__(client)
    assert isinstance(one, SupportsChatGetResponse)
    assert not isinstance(one, SupportsGetEmbeddings | SupportsAgentRun)
    assert not [name for name, protocol in HOSTED.items() if isinstance(one, protocol) or hasattr(one, name)]


@pytest.mark.parametrize(("method", "protocol"), HOSTED.items())
def test_a_client_of_ones_own_supports_the_hosted_tools_that_it_has_methods_for(method, protocol):
    def get_tool(self, **settings):
        return HostedTool("its_word", settings)

    client = type("Client", (ScriptedChatClient,), {method: get_tool})([])
    assert [name for name, other in HOSTED.items() if isinstance(client, other)] == [method]
    assert isinstance(client, protocol)
    made = getattr(client, method)(size=1)
    assert (made.type, made.name, made.options) == ("its_word", "its_word", {"size": 1})


@pytest.mark.parametrize(
    ("base", "method"), [(BaseAgent, "run"), (BaseChatClient, "generate"), (BaseEmbeddingClient, "embed")]
)
def test_a_base_class_names_the_one_method_to_write(base, method):
    for kind in (base, type("Mine", (base,), {})):
        with pytest.raises(TypeError, match=rf"{kind.__name__} with.* abstract method '?{method}\b"):
            kind()
    assert base.__abstractmethods__ == {method}
    assert type("Whole", (base,), {method: lambda self: None})()


class Parrot(BaseAgent):
    """An agent without a model."""

    started = threading.Event()

    def run(self, messages=None, *, stream=False, session=None, **settings):
        if settings:
            raise ConfigurationError(f"A parrot takes no {min(settings)}.")
        reply = self._answer(messages)
        return ResponseStream.from_awaitable(reply) if stream else reply

    async def _answer(self, text):
        if text == "wait":
            self.started.set()
            await asyncio.Event().wait()
        return AgentResponse([Message("assistant", text, self.name)], stop_reason="completed")


def test_agents_of_both_kinds_support_run_and_other_things_do_not():
    parrot = Parrot(name="polly", description="Says it again.")
    assert isinstance(parrot, SupportsAgentRun)
    assert (parrot.id, parrot.name, parrot.description) == ("polly", "polly", "Says it again.")
    assert Parrot().name == Parrot().id == "agent"
    assert isinstance(Agent(ScriptedChatClient([])), SupportsAgentRun)
    assert not isinstance(ScriptedChatClient([]), SupportsAgentRun)


def test_an_agent_of_ones_own_has_sessions_and_the_blocking_calls(no_leaks):
    parrot = Parrot()
    assert parrot.create_session("trip").session_id == "trip"
    session = parrot.get_session("conv_1", session_id="trip")
    assert (session.session_id, session.service_session_id) == ("trip", "conv_1")
    assert parrot.run_sync("hi").text == "hi"
    stream = parrot.stream_sync("hi")
    assert "".join(update.text for update in stream) == "hi"
    assert stream.get_final_response().text == "hi"
    assert parrot.start("hi").result(5).text == "hi"
    handle = parrot.start("wait")
    assert Parrot.started.wait(5)
    handle.stop()
    with pytest.raises(RunCancelledError):
        handle.result(5)


async def test_blocking_calls_of_an_agent_of_ones_own_work_in_a_running_loop_and_check_arguments():
    assert Parrot().run_sync("hi").text == "hi"
    for call in (Parrot().run_sync, Parrot().stream_sync, Parrot().start):
        with pytest.raises(ConfigurationError, match="no tools"):
            call("hi", tools=[])


def test_a_blocking_call_on_the_loop_thread_says_to_await():
    class Nested(Parrot):
        async def _answer(self, text):
            return Parrot().run_sync(text)

    with pytest.raises(LoopError, match="await"):
        Nested().run_sync("hi")


class Lengths(BaseEmbeddingClient):
    model = "lengths"
    max_batch = 2

    def __init__(self):
        self.requests = []

    async def embed(self, texts, options):
        self.requests.append((list(texts), dict(options)))
        return Embeddings([[len(text), 1.0] for text in texts], usage=Usage(input_tokens=len(texts)))


async def test_an_embedding_client_is_one_method():
    client = Lengths()
    assert isinstance(client, SupportsGetEmbeddings)
    made = await client.get_embeddings(["a", "bb", "ccc"], options={"dimensions": 2, "user": None})
    assert client.requests == [(["a", "bb"], {"dimensions": 2}), (["ccc"], {"dimensions": 2})]
    assert np.array(made).tolist() == [[1, 1], [2, 1], [3, 1]]
    assert (len(made), made[1], made.model, made.usage.input_tokens) == (3, [2, 1.0], "lengths", 3)
    assert [*(await client.get_embeddings("word"))] == [[4, 1.0]]
    assert (await client.get_embeddings("x", options={"model": "other"})).model == "other"


async def test_no_texts_make_no_request():
    client = Lengths()
    made = await client.get_embeddings([])
    assert (len(made), made.usage, client.requests) == (0, None, [])


async def test_the_repr_of_many_vectors_is_short():
    made = await Lengths().get_embeddings(["a", "bb"])
    assert repr(made) == f"Embeddings(2 vectors of 2, model={made.model!r})"


@pytest.mark.parametrize("values", [3, None, [3], ["a", None], b"x", {"a": 1}, {"a", "b"}])
async def test_what_is_no_text_cannot_be_embedded(values):
    with pytest.raises(ConfigurationError, match="values are texts"):
        await Lengths().get_embeddings(values)


async def test_wrong_embedding_options_and_replies_are_errors():
    with pytest.raises(ConfigurationError, match=r"'dimension'.*'dimensions'"):
        await Lengths().get_embeddings("x", options={"dimension": 2})

    class Short(Lengths):
        async def embed(self, texts, options):
            return Embeddings([])

    with pytest.raises(InvalidReplyError, match="1 texts were sent and 0 vectors"):
        await Short().get_embeddings("x")
