"""A model on this machine: llama.cpp's server inside this process, without a key."""

from __future__ import annotations

import atexit
import re
import secrets
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from nbagents.clients.prompted_tools import generate_with_prompted_tools
from nbagents.clients.weights import check_weights, find_weights
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate
from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import BadRequestError, ConfigurationError
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.secrets import register_secret

MAX_TOKENS = 256
"""Output tokens where the option `max_tokens` is not set: a small model can ramble for minutes."""
_PROMPT_CACHE_MIB = 256
_TOO_LONG = "exceed_context_size_error"


class LocalChatClient(BaseChatClient):
    """Runs a GGUF model in this process; the first request loads it, in about 2 seconds for the default model.

    The server listens on a free loopback port and asks for a key that only this process knows. All clients of one file
    and size share it; it ends with the last of them. Requests run one after another.

    Unset options are `temperature=0` and `max_tokens=256`. The chat templates of small models have no tools, so tools
    go by a grammar: the model makes one call in a reply or answers, and the answer still streams.

    Args:
        model_path: a `.gguf` file; by default `NBAGENTS_LOCAL_MODEL`, or what `nbagents local install` has fetched.
        n_ctx: tokens that prompt and reply may have together.
        n_threads: threads for the computation. More than one is slower on busy cores.
        tool_rounds: so many replies with calls in a row, then the model must answer: small models never stop calling
            by themselves. None for no limit.

    Raises:
        ConfigurationError: the extra `local` or the weights are missing.

    Example:
        >>> LocalChatClient().as_agent().run_sync("Say hello.").text  # doctest: +SKIP
        'Hello! How can I help you today?'
    """

    provider = "local"

    @exact_arguments()
    def __init__(
        self,
        model_path: str | Path | None = None,
        *,
        n_ctx: int = 4096,
        n_threads: int = 1,
        tool_rounds: int | None = 1,
    ) -> None:
        if not local_extra_installed():
            raise ConfigurationError(
                "A local model needs llama.cpp, which is not installed.",
                hint="Run: pip install xllamacpp (the extra `local`)",
            )
        path = check_weights(Path(model_path).expanduser()) if model_path is not None else find_weights()
        if path is None:
            raise ConfigurationError(
                "There are no weights of a local model.",
                hint="Run `nbagents local install`, or pass model_path= with a .gguf file.",
            )
        if n_ctx < 1 or n_threads < 1:
            raise ConfigurationError(f"n_ctx and n_threads are at least 1, not {n_ctx!r} and {n_threads!r}.")
        self.model_path = path.resolve()
        self.model: str = path.stem
        self.tool_rounds = tool_rounds
        self._settings = _Settings(self.model_path, n_ctx, n_threads)
        self._server: _Server | None = None
        self._wire: BaseChatClient | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"LocalChatClient({str(self.model_path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """What is unpickled is a new client of the same server; in another process it starts a server of its own."""
        return _unpickled, (self._settings, self.tool_rounds)

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply of the local model.

        Raises:
            ConfigurationError: the option `model` names another one. llama.cpp would answer in its name.
        """
        asked_model = request.options.get("model")
        if asked_model not in (None, self.model):
            raise ConfigurationError(
                f"This client runs {self.model!r} and no {asked_model!r}.",
                hint="Leave the option model out, or make a LocalChatClient with model_path= for the other one.",
            )
        wire = self._wire or await run_in_thread(self._connected)
        options = {"temperature": 0, "max_tokens": MAX_TOKENS, **request.options}
        asked = replace(request, options=options)
        reply = generate_with_prompted_tools(wire, asked, tool_rounds=self.tool_rounds)
        try:
            async with aclosing(reply) as updates:
                async for update in updates:
                    yield update
        except BadRequestError as error:
            if _TOO_LONG not in (error.body_text or ""):
                raise
            raise self._too_long(error) from error

    def _too_long(self, error: BadRequestError) -> BadRequestError:
        counted = re.search(r"(\d+) tokens", error.message)
        return BadRequestError(
            f"The conversation is too long for the local model {self.model!r}:"
            f" {counted.group(1) if counted else 'its'} tokens, and there is room for {self._settings.n_ctx}.",
            hint="Make room with LocalChatClient(n_ctx=...), shorten it, or use a new session.",
            status=error.status,
            headers=error.headers,
            body_text=error.body_text,
        )

    def _connected(self) -> BaseChatClient:
        """Return a client of the server, which is started if it is not running."""
        from nbagents.clients.openai_chat import OpenAIChatClient

        with self._lock:
            if self._wire is None:
                self._server = _server(self._settings)
                self._wire = OpenAIChatClient(
                    self.model, base_url=f"{self._server.address}/v1", api_key=self._server.key, max_retries=0
                )
            return self._wire


def local_extra_installed() -> bool:
    """Tell whether llama.cpp is there, without loading it."""
    return find_spec("xllamacpp") is not None


def _unpickled(settings: _Settings, tool_rounds: int | None) -> LocalChatClient:
    return LocalChatClient(settings.path, n_ctx=settings.n_ctx, n_threads=settings.n_threads, tool_rounds=tool_rounds)


@dataclass(frozen=True, slots=True)
class _Settings:
    path: Path
    n_ctx: int
    n_threads: int


class _Server:
    """llama.cpp's server in threads of this process; it ends when this object does."""

    def __init__(self, settings: _Settings) -> None:
        import xllamacpp

        self.key = secrets.token_urlsafe(24)
        register_secret(self.key)
        engine: Any = xllamacpp  # its names come from a compiled module
        params = engine.CommonParams()
        params.model.path = str(settings.path)
        params.model_alias = {settings.path.stem}  # else replies name the path
        params.n_ctx = settings.n_ctx
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.n_threads
        params.api_keys = [self.key]
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        params.ui = params.endpoint_slots = params.warmup = False
        params.verbosity = -1
        try:
            self._running = engine.Server(params)
        except RuntimeError as error:
            raise ConfigurationError(
                f"llama.cpp cannot load {settings.path}: {error}",
                hint="Is it a whole .gguf file? `nbagents local install` fetches one that works.",
            ) from error
        self.address: str = self._running.listening_address

    def stop(self) -> None:
        """Free the port, the threads and the memory."""
        self._running = None


_servers: WeakValueDictionary[_Settings, _Server] = WeakValueDictionary()
_starting = threading.Lock()


def _server(settings: _Settings) -> _Server:
    with _starting:
        running = _servers.get(settings)
        if running is None:
            running = _servers[settings] = _Server(settings)
        return running


@atexit.register
def _stop_all() -> None:
    """Stop while the interpreter is whole: llama.cpp's threads print when they outlive it."""
    for running in list(_servers.values()):
        running.stop()
