"""The agent core: values, the run loop, its log. It knows no notebook, no table and no provider."""

from nbagents.core.agent import Agent
from nbagents.core.budget import RunBudget
from nbagents.core.clients import BaseChatClient, ChatRequest, SupportsChatGetResponse
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    Content,
    ErrorContent,
    FunctionCall,
    FunctionResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
    UsageContent,
)
from nbagents.core.errors import NBAgentsError, ToolError
from nbagents.core.events import EVENT_TO_CHUNK_KIND, RunEvent
from nbagents.core.history import HistoryProvider, InMemoryHistoryProvider
from nbagents.core.hosted import HostedTool, HostedToolCall, HostedToolResult
from nbagents.core.media import DataContent
from nbagents.core.messages import AgentRunInputs, Message, normalize_messages
from nbagents.core.middleware import ChatContext, FunctionContext, StopRun
from nbagents.core.notes import note
from nbagents.core.options import UNSET, merge_options
from nbagents.core.prices import set_price
from nbagents.core.providers import ContextProvider, HistoryCopy
from nbagents.core.rates import RateLimits
from nbagents.core.responses import AgentResponse, ChatResponse
from nbagents.core.run import RunContext
from nbagents.core.runlog import RunLog, RunRecord, run_log
from nbagents.core.sessions import AgentSession
from nbagents.core.state import register_state_type
from nbagents.core.streams import ResponseStream
from nbagents.core.tagging import tags
from nbagents.core.templates import PromptTemplate
from nbagents.core.tools import FunctionTool, ToolContext, tool
from nbagents.core.updates import AgentResponseUpdate, ChatResponseUpdate
from nbagents.core.usage import Usage

__all__ = [
    "EVENT_TO_CHUNK_KIND",
    "UNSET",
    "Agent",
    "AgentResponse",
    "AgentResponseUpdate",
    "AgentRunInputs",
    "AgentSession",
    "ApprovalRequest",
    "ApprovalResponse",
    "BaseChatClient",
    "ChatContext",
    "ChatRequest",
    "ChatResponse",
    "ChatResponseUpdate",
    "Content",
    "ContextProvider",
    "DataContent",
    "ErrorContent",
    "FunctionCall",
    "FunctionContext",
    "FunctionResult",
    "FunctionTool",
    "HistoryCopy",
    "HistoryProvider",
    "HostedTool",
    "HostedToolCall",
    "HostedToolResult",
    "InMemoryHistoryProvider",
    "Message",
    "NBAgentsError",
    "PromptTemplate",
    "RateLimits",
    "ReasoningContent",
    "RefusalContent",
    "ResponseStream",
    "RunBudget",
    "RunContext",
    "RunEvent",
    "RunLog",
    "RunRecord",
    "StopRun",
    "SupportsChatGetResponse",
    "TextContent",
    "ToolContext",
    "ToolError",
    "Usage",
    "UsageContent",
    "merge_options",
    "normalize_messages",
    "note",
    "register_state_type",
    "run_log",
    "set_price",
    "tags",
    "tool",
]
