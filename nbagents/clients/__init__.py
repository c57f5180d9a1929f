"""Chat clients: one module for each kind of endpoint, imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagents.clients.anthropic_chat import AnthropicChatClient as AnthropicChatClient
    from nbagents.clients.default import ClientChoice as ClientChoice
    from nbagents.clients.default import choose_client as choose_client
    from nbagents.clients.default import default_client as default_client
    from nbagents.clients.demo import DemoChatClient as DemoChatClient
    from nbagents.clients.local import LocalChatClient as LocalChatClient
    from nbagents.clients.openai_chat import OpenAIChatClient as OpenAIChatClient
    from nbagents.clients.openai_embeddings import OpenAIEmbeddingClient as OpenAIEmbeddingClient
    from nbagents.clients.openai_responses import OpenAIResponsesClient as OpenAIResponsesClient
    from nbagents.clients.openai_threads import OpenAIConversationThread as OpenAIConversationThread
    from nbagents.clients.openai_threads import OpenAIResponseThread as OpenAIResponseThread
    from nbagents.clients.recorded import RecordedChatClient as RecordedChatClient
    from nbagents.clients.scripted import ScriptedChatClient as ScriptedChatClient
    from nbagents.clients.scripted import tool_call as tool_call
    from nbagents.clients.tape import recording as recording

_HOMES = {
    "AnthropicChatClient": "anthropic_chat",
    "ClientChoice": "default",
    "DemoChatClient": "demo",
    "LocalChatClient": "local",
    "OpenAIChatClient": "openai_chat",
    "OpenAIResponsesClient": "openai_responses",
    "OpenAIEmbeddingClient": "openai_embeddings",
    "OpenAIConversationThread": "openai_threads",
    "OpenAIResponseThread": "openai_threads",
    "RecordedChatClient": "recorded",
    "ScriptedChatClient": "scripted",
    "choose_client": "default",
    "default_client": "default",
    "recording": "tape",
    "tool_call": "scripted",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nbagents.clients' has no attribute {name!r}")
    value = getattr(import_module(f"nbagents.clients.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
