"""What a person passes by mistake is named, with what was meant, before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest

from nbagents import (
    Agent,
    AnthropicChatClient,
    OpenAIChatClient,
    OpenAIEmbeddingClient,
    OpenAIResponsesClient,
    ScriptedChatClient,
    SummarizationReducer,
    tags,
)
from nbagents.core.errors import ConfigurationError

CHAT = {"chat": OpenAIChatClient, "responses": OpenAIResponsesClient, "anthropic": AnthropicChatClient}


@pytest.mark.parametrize("kind", CHAT)
@pytest.mark.parametrize("name", ["streaming", "retry_streams"])
def test_a_text_is_no_switch(kind: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is True or False, not 'no'"):
        CHAT[kind]("m", api_key="k", **{name: "no"})


@pytest.mark.parametrize("name", ["stores_by_default", "conversations"])
def test_what_leaves_data_at_the_service_is_no_text_either(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is True or False"):
        OpenAIResponsesClient("m", api_key="k", **{name: "no"})


def test_keeping_conversations_where_nothing_is_kept_is_a_contradiction() -> None:
    with pytest.raises(ConfigurationError, match="keeps nothing there"):
        OpenAIResponsesClient("m", api_key="k", conversations=True, stores_by_default=False)


@pytest.mark.parametrize("make", [*CHAT.values(), OpenAIEmbeddingClient])
@pytest.mark.parametrize("timeout", ["5", 0, -1, float("nan")])
def test_a_timeout_is_a_number_above_zero(make: Any, timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout is a number of seconds above 0"):
        make("m", api_key="k", timeout=timeout)


def test_thinking_is_a_mapping() -> None:
    with pytest.raises(ConfigurationError, match="thinking is a mapping, not 'adaptive'"):
        AnthropicChatClient("m", api_key="k", thinking="adaptive")  # type: ignore[arg-type]


def test_a_method_that_makes_a_tool_is_to_be_called() -> None:
    client = OpenAIResponsesClient("m", api_key="k")
    with pytest.raises(ConfigurationError, match=r"Call it: get_web_search_tool\(\)"):
        Agent(client, tools=[client.get_web_search_tool])


def test_a_thread_is_that_of_a_session() -> None:
    agent = Agent(ScriptedChatClient(["Hello."]))
    response = agent.run_sync("Hi")
    for given, hint in ((response, "response.session"), (response.session.to_dict(), "from_dict"), ("x", "create_")):
        with pytest.raises(ConfigurationError, match="session must be an AgentSession") as caught:
            agent.thread(given)  # type: ignore[arg-type]
        assert hint in str(caught.value.hint)


def test_what_only_a_provider_knows_is_an_argument_of_the_run() -> None:
    agent = Agent(ScriptedChatClient(["Hello."]))
    with pytest.raises(ConfigurationError) as caught:
        agent.run_sync("Hi", options={"top_k": 5})
    assert "client_kwargs={...}" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match="client_kwargs is a mapping"):
        agent.run_sync("Hi", client_kwargs="top_k")


def test_a_client_is_no_limit_of_a_reducer() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SummarizationReducer(ScriptedChatClient([]))  # type: ignore[arg-type]
    assert "client=" in str(caught.value.hint)


def test_tags_without_names_are_one_error(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(TypeError):
        tags("short")  # type: ignore[misc]
    assert not recwarn.list
