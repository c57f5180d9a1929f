"""A chat client that records what another one answers, and replays it: the same notebook runs again without a key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from nbagents.clients.tape import AnyChatClient, RecordingMode, Tape
from nbagents.core import AgentSession, BaseChatClient, ChatRequest, ChatResponseUpdate
from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool, can_send
from nbagents.core.threads import OffersThreads, Thread


class RecordedChatClient(BaseChatClient):
    """Replays the replies of a file, and records those that it asks another client for.

    Requests are the same if model, messages, options and tools are; our ids, times, `metadata`, `user` and whether the
    reply streams do not count. The same request made several times gets its replies in the order in which they were
    recorded; a new client begins at the first again. Only complete replies are recorded, secrets never.

    Modes:
        `auto`: replay what the file holds; ask `client` for the rest and record it.
        `record`: always ask, and record; the first reply to a request replaces those that the file holds for it.
        `replay`: never ask. After the last reply to a request comes the first again, so a cell can be run twice.

    Args:
        path: a JSON Lines file, one exchange in each line; it can be edited.
        client: the client to record; without one, `auto` only replays.
        mode: see above.
        timing: let the pieces of a replayed stream come as slowly as they were recorded.

    Raises:
        ConfigurationError: an unknown mode, no client to record, no file to replay, or a file that is no recording.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "hello.jsonl")
        >>> RecordedChatClient(path, ScriptedChatClient(["Hi."])).as_agent().run_sync("Hello").text
        'Hi.'
        >>> RecordedChatClient(path, mode="replay").as_agent().run_sync("Hello").text
        'Hi.'
    """

    provider = "recorded"

    @exact_arguments()
    def __init__(
        self,
        path: str | Path,
        client: AnyChatClient | None = None,
        mode: RecordingMode = "auto",
        *,
        timing: bool = False,
    ) -> None:
        if mode == "record" and client is None:
            raise ConfigurationError("mode='record' needs a client to record.", hint="Pass it as client=.")
        self.tape = Tape(path, mode, timing=timing)
        if client is None and not self.tape.path.is_file():
            raise ConfigurationError(
                f"There is no recording {self.tape.path}.",
                hint="Pass client= to make it: what that answers is recorded.",
            )
        self.client = client
        self._take_traits_of(client)

    def __repr__(self) -> str:
        return f"RecordedChatClient({str(self.tape.path)!r}, {self.client!r}, mode={self.tape.mode!r})"

    def can_send(self, tool: HostedTool) -> bool:
        """Whether the recorded client can; without it, what it did is only told again."""
        return self.client is None or can_send(self.client, tool)

    def service_thread(self, session: AgentSession) -> Thread:
        """Return the thread of the recorded client; without it, a conversation goes on as it was recorded."""
        asks = self.client if self.tape.mode != "replay" else None
        return asks.service_thread(session) if isinstance(asks, OffersThreads) else super().service_thread(session)

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the recorded reply, or that of the client, which is recorded."""
        async with aclosing(self.tape.answer(self.client, request)) as updates:
            async for update in updates:
                yield update

    def _take_traits_of(self, client: AnyChatClient | None) -> None:
        """Look like the recorded client to the run and to the tables."""
        if client is None:
            recorded = self.tape.exchanges()
            first = recorded[0] if recorded else None
            self.model = first.model if first else None
            self.provider = (first.provider if first else None) or self.provider
            at_service = any(update.get("conversation_id") for one in recorded for update in one.updates)
            self.stores_by_default = self.supports_service_sessions = at_service
            return
        self.model = getattr(client, "model", None)
        self.provider = getattr(client, "provider", self.provider)
        self.streaming = getattr(client, "streaming", None)
        self.stores_by_default = getattr(client, "stores_by_default", False)
        self.supports_service_sessions = getattr(client, "supports_service_sessions", False)
        self.supports_tools = getattr(client, "supports_tools", True)
        self.max_retries = getattr(client, "max_retries", 0)
        self.retry_streams = getattr(client, "retry_streams", False)
