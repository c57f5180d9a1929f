"""Language-model agents for the notebook. The public names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagents.analysis import artifacts_df as artifacts_df
    from nbagents.analysis import events_df as events_df
    from nbagents.analysis import load_runs as load_runs
    from nbagents.analysis import messages_df as messages_df
    from nbagents.analysis import requests_df as requests_df
    from nbagents.analysis import runs_df as runs_df
    from nbagents.analysis import save_runs as save_runs
    from nbagents.analysis import tool_calls_df as tool_calls_df
    from nbagents.analysis import usage_df as usage_df
    from nbagents.analysis import use_store as use_store
    from nbagents.clients import AnthropicChatClient as AnthropicChatClient
    from nbagents.clients import LocalChatClient as LocalChatClient
    from nbagents.clients import OpenAIChatClient as OpenAIChatClient
    from nbagents.clients import OpenAIConversationThread as OpenAIConversationThread
    from nbagents.clients import OpenAIEmbeddingClient as OpenAIEmbeddingClient
    from nbagents.clients import OpenAIResponsesClient as OpenAIResponsesClient
    from nbagents.clients import OpenAIResponseThread as OpenAIResponseThread
    from nbagents.clients import RecordedChatClient as RecordedChatClient
    from nbagents.clients import ScriptedChatClient as ScriptedChatClient
    from nbagents.clients import default_client as default_client
    from nbagents.clients import recording as recording
    from nbagents.clients import tool_call as tool_call
    from nbagents.core import UNSET as UNSET
    from nbagents.core import Agent as Agent
    from nbagents.core import AgentResponse as AgentResponse
    from nbagents.core import AgentResponseUpdate as AgentResponseUpdate
    from nbagents.core import AgentRunInputs as AgentRunInputs
    from nbagents.core import AgentSession as AgentSession
    from nbagents.core import BaseChatClient as BaseChatClient
    from nbagents.core import ChatContext as ChatContext
    from nbagents.core import ChatRequest as ChatRequest
    from nbagents.core import ChatResponse as ChatResponse
    from nbagents.core import ChatResponseUpdate as ChatResponseUpdate
    from nbagents.core import ContextProvider as ContextProvider
    from nbagents.core import DataContent as DataContent
    from nbagents.core import FunctionContext as FunctionContext
    from nbagents.core import FunctionTool as FunctionTool
    from nbagents.core import HistoryCopy as HistoryCopy
    from nbagents.core import HistoryProvider as HistoryProvider
    from nbagents.core import HostedTool as HostedTool
    from nbagents.core import InMemoryHistoryProvider as InMemoryHistoryProvider
    from nbagents.core import Message as Message
    from nbagents.core import NBAgentsError as NBAgentsError
    from nbagents.core import PromptTemplate as PromptTemplate
    from nbagents.core import RateLimits as RateLimits
    from nbagents.core import ResponseStream as ResponseStream
    from nbagents.core import RunBudget as RunBudget
    from nbagents.core import RunContext as RunContext
    from nbagents.core import StopRun as StopRun
    from nbagents.core import SupportsChatGetResponse as SupportsChatGetResponse
    from nbagents.core import TextContent as TextContent
    from nbagents.core import ToolContext as ToolContext
    from nbagents.core import ToolError as ToolError
    from nbagents.core import Usage as Usage
    from nbagents.core import merge_options as merge_options
    from nbagents.core import normalize_messages as normalize_messages
    from nbagents.core import note as note
    from nbagents.core import register_state_type as register_state_type
    from nbagents.core import run_log as run_log
    from nbagents.core import set_price as set_price
    from nbagents.core import tags as tags
    from nbagents.core import tool as tool
    from nbagents.core.baseagent import BaseAgent as BaseAgent
    from nbagents.core.embeddings import BaseEmbeddingClient as BaseEmbeddingClient
    from nbagents.core.embeddings import Embeddings as Embeddings
    from nbagents.core.history_file import FileHistoryProvider as FileHistoryProvider
    from nbagents.core.history_sql import SQLHistoryProvider as SQLHistoryProvider
    from nbagents.core.protocols import SupportsAgentRun as SupportsAgentRun
    from nbagents.core.protocols import SupportsCodeInterpreterTool as SupportsCodeInterpreterTool
    from nbagents.core.protocols import SupportsFileSearchTool as SupportsFileSearchTool
    from nbagents.core.protocols import SupportsGetEmbeddings as SupportsGetEmbeddings
    from nbagents.core.protocols import SupportsImageGenerationTool as SupportsImageGenerationTool
    from nbagents.core.protocols import SupportsMCPTool as SupportsMCPTool
    from nbagents.core.protocols import SupportsShellTool as SupportsShellTool
    from nbagents.core.protocols import SupportsWebSearchTool as SupportsWebSearchTool
    from nbagents.core.reducers import Reducer as Reducer
    from nbagents.core.reducers import ReductionContext as ReductionContext
    from nbagents.core.reducers import SlidingWindowReducer as SlidingWindowReducer
    from nbagents.core.reducers import SummarizationReducer as SummarizationReducer
    from nbagents.core.reducers import TokenBudgetReducer as TokenBudgetReducer
    from nbagents.core.reducers import ToolResultReducer as ToolResultReducer
    from nbagents.core.reducers import TruncationReducer as TruncationReducer
    from nbagents.core.thread_copy import copy_thread as copy_thread
    from nbagents.core.threads import HostedThread as HostedThread
    from nbagents.core.threads import LocalThread as LocalThread
    from nbagents.core.threads import ReadOnlyThread as ReadOnlyThread
    from nbagents.core.threads import ServiceThread as ServiceThread
    from nbagents.core.threads import Thread as Thread
    from nbagents.core.tokens import estimate_tokens as estimate_tokens
    from nbagents.extension import load_ipython_extension as load_ipython_extension
    from nbagents.extension import unload_ipython_extension as unload_ipython_extension
    from nbagents.widgets import Chat as Chat

__version__ = "0.1.0"

_HOMES = {
    "nbagents.analysis": (
        "artifacts_df",
        "events_df",
        "load_runs",
        "messages_df",
        "requests_df",
        "runs_df",
        "save_runs",
        "tool_calls_df",
        "usage_df",
        "use_store",
    ),
    "nbagents.clients": (
        "AnthropicChatClient",
        "LocalChatClient",
        "OpenAIChatClient",
        "OpenAIConversationThread",
        "OpenAIResponseThread",
        "OpenAIResponsesClient",
        "OpenAIEmbeddingClient",
        "RecordedChatClient",
        "ScriptedChatClient",
        "default_client",
        "recording",
        "tool_call",
    ),
    "nbagents.core": (
        "UNSET",
        "Agent",
        "AgentResponse",
        "AgentResponseUpdate",
        "AgentRunInputs",
        "AgentSession",
        "BaseChatClient",
        "ChatContext",
        "FunctionContext",
        "FunctionTool",
        "RunContext",
        "StopRun",
        "ChatRequest",
        "ChatResponse",
        "ChatResponseUpdate",
        "HistoryCopy",
        "HistoryProvider",
        "InMemoryHistoryProvider",
        "Message",
        "NBAgentsError",
        "PromptTemplate",
        "RateLimits",
        "ContextProvider",
        "ResponseStream",
        "RunBudget",
        "SupportsChatGetResponse",
        "ToolContext",
        "ToolError",
        "Usage",
        "merge_options",
        "normalize_messages",
        "register_state_type",
        "note",
        "run_log",
        "set_price",
        "tags",
        "tool",
        "DataContent",
        "HostedTool",
        "TextContent",
    ),
    "nbagents.core.baseagent": ("BaseAgent",),
    "nbagents.core.embeddings": (
        "BaseEmbeddingClient",
        "Embeddings",
    ),
    "nbagents.core.protocols": (
        "SupportsAgentRun",
        "SupportsCodeInterpreterTool",
        "SupportsFileSearchTool",
        "SupportsGetEmbeddings",
        "SupportsImageGenerationTool",
        "SupportsMCPTool",
        "SupportsShellTool",
        "SupportsWebSearchTool",
    ),
    "nbagents.core.history_file": ("FileHistoryProvider",),
    "nbagents.core.history_sql": ("SQLHistoryProvider",),
    "nbagents.core.reducers": (
        "Reducer",
        "ReductionContext",
        "SlidingWindowReducer",
        "SummarizationReducer",
        "TokenBudgetReducer",
        "ToolResultReducer",
        "TruncationReducer",
    ),
    "nbagents.core.thread_copy": ("copy_thread",),
    "nbagents.core.tokens": ("estimate_tokens",),
    "nbagents.core.threads": ("HostedThread", "LocalThread", "ReadOnlyThread", "ServiceThread", "Thread"),
    "nbagents.extension": ("load_ipython_extension", "unload_ipython_extension"),
    "nbagents.widgets": ("Chat",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'nbagents' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]
