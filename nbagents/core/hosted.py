"""Tools that a service runs itself: how they are asked for, and how their calls and results come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from nbagents.core.errors import ConfigurationError
from nbagents.core.media import DataContent
from nbagents.core.records import Piece
from nbagents.core.secrets import register_header_secrets

HOSTED_KINDS = ("code_interpreter", "file_search", "image_generation", "mcp", "shell", "web_search")
"""The kinds that clients have methods for; a service may have more."""


def method_for(kind: str) -> str:
    """Return the name of the method by which a client offers a tool of this kind."""
    return f"get_{kind}_tool"


def can_send(client: Any, tool: HostedTool) -> bool:
    """Whether the service behind `client` runs `tool`: the client has the method for it.

    For a type that is not one of `HOSTED_KINDS` it is enough that the client has one of those methods. A client that
    passes requests on asks the one behind it, in a method `can_send` of its own.
    """
    if isinstance(client, PassesToolsOn):
        return client.can_send(tool)
    methods = [tool.method] if tool.method else [method_for(kind) for kind in HOSTED_KINDS]
    return any(callable(getattr(client, method, None)) for method in methods)


@runtime_checkable
class PassesToolsOn(Protocol):
    """A client that stands before another one."""

    def can_send(self, tool: HostedTool) -> bool:
        """Whether the one behind can send `tool`."""
        ...


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that the service runs: a client's `get_*_tool()` makes it, an agent takes it among its `tools`.

    Attributes:
        type: the service's word for it, such as `web_search`.
        options: its settings, in the service's words. Keys in them (of an MCP server, say) are masked wherever they
            would show.

    Raises:
        ConfigurationError: no type, or options that are no mapping.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or not self.type:
            raise ConfigurationError(f"The type of a hosted tool is a word of its service, not {self.type!r}.")
        if not isinstance(self.options, Mapping):
            raise ConfigurationError(f"The options of a hosted tool are a mapping, not {self.options!r}.")
        headers = self.options.get("headers")
        register_header_secrets(headers if isinstance(headers, Mapping) else None)
        register_header_secrets({"authorization": self.options.get("authorization")})

    @property
    def name(self) -> str:
        """What it is called among other tools: its type, and the server where there may be several of one type."""
        label = self.options.get("server_label")
        return f"{self.type}-{label}" if label else self.type

    @property
    def method(self) -> str | None:
        """The method of the clients that can send it; None for a type that only its service knows."""
        kinds = (kind for kind in HOSTED_KINDS if self.type == kind or self.type.startswith(f"{kind}_"))
        return next((method_for(kind) for kind in kinds), None)


@dataclass(frozen=True, slots=True)
class HostedToolCall(Piece):
    """A call that the service makes and answers itself; nothing is run for it here.

    Attributes:
        kind: one of `HOSTED_KINDS`, or the service's own word.
        id: the service's id of the call; its result has the same.
        arguments: what the tool was given (a query, an action, code, commands), as JSON values.
        name: which tool, where `kind` has several: the one of an MCP server.
        server: the MCP server.
    """

    type: ClassVar[str] = "hosted_tool_call"
    kind: str
    id: str
    arguments: Any = None
    name: str | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class HostedToolResult(Piece):
    """What came of a `HostedToolCall`.

    Attributes:
        kind: that of the call.
        id: that of the call.
        result: what the tool gave, as JSON values; None where the service tells nothing.
        items: images and files among it.
        error: what went wrong, if something did.
    """

    type: ClassVar[str] = "hosted_tool_result"
    kind: str
    id: str
    result: Any = None
    items: tuple[DataContent, ...] = ()
    error: str | None = None
