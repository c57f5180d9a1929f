"""What an object can do, asked with `isinstance`: no base class needed, and no claim that does not hold."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nbagents.core.hosted import HostedTool
from nbagents.core.messages import AgentRunInputs

if TYPE_CHECKING:
    from nbagents.core.embeddings import Embeddings
    from nbagents.core.sessions import AgentSession


@runtime_checkable
class SupportsAgentRun(Protocol):
    """Anything that answers messages as an agent does, whatever stands behind it."""

    id: str
    name: str
    description: str | None

    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        **settings: Any,
    ) -> Any:
        """Return an awaitable `AgentResponse`, or with `stream=True` a `ResponseStream`."""
        ...

    def create_session(self, session_id: str | None = None) -> AgentSession:
        """Return a new session, for `run`."""
        ...


@runtime_checkable
class SupportsGetEmbeddings(Protocol):
    """A client that turns texts into vectors."""

    def get_embeddings(
        self, values: str | Sequence[str], *, options: Mapping[str, Any] | None = None
    ) -> Awaitable[Embeddings]:
        """Return one vector for each of `values`, in their order."""
        ...


# Below: the tools that the service behind a chat client runs itself. Each method takes the service's own settings and
# returns what an agent has among its `tools`.


@runtime_checkable
class SupportsCodeInterpreterTool(Protocol):
    """A chat client whose service runs code that the model writes."""

    def get_code_interpreter_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...


@runtime_checkable
class SupportsFileSearchTool(Protocol):
    """A chat client whose service searches files that it stores."""

    def get_file_search_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...


@runtime_checkable
class SupportsImageGenerationTool(Protocol):
    """A chat client whose service draws images."""

    def get_image_generation_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...


@runtime_checkable
class SupportsMCPTool(Protocol):
    """A chat client whose service talks to MCP servers."""

    def get_mcp_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...


@runtime_checkable
class SupportsShellTool(Protocol):
    """A chat client whose service runs shell commands."""

    def get_shell_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...


@runtime_checkable
class SupportsWebSearchTool(Protocol):
    """A chat client whose service searches the web."""

    def get_web_search_tool(self, **settings: Any) -> HostedTool:
        """Return the tool."""
        ...
