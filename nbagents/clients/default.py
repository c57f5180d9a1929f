"""`default_client()`: the chat client that can be had here, and a line that says which it is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nbagents.core import BaseChatClient
from nbagents.core.errors import ConfigurationError
from nbagents.core.secrets import redact, register_secret

if TYPE_CHECKING:
    from nbagents.clients.openai_chat import OpenAIChatClient

DEFAULT_OPENAI_MODEL = "gpt-5-mini"
"""The model where OpenAI itself is asked and `NBAGENTS_MODEL` is not set."""
CHOICES = ("openai", "local", "demo", "replay:PATH")
"""The values of `NBAGENTS_CLIENT`."""

_OPENAI_HOST = "api.openai.com"
_NO_KEY = "unused"  # servers of one's own want no key; the openai package does
_LIST_SECONDS = 10.0


@dataclass(frozen=True)
class ClientChoice:
    """A client, and why it is that one.

    Attributes:
        client: the client.
        text: one line for people: which client it is and how to change it.
    """

    client: BaseChatClient
    text: str


def default_client(*, quiet: bool = False) -> BaseChatClient:
    """Return the chat client that can be had here, and say on stderr which it is.

    `NBAGENTS_CLIENT` decides: `openai`, `local`, `demo` or `replay:PATH`. Unset, it is OpenAI, or the compatible server
    of `OPENAI_BASE_URL`, where `OPENAI_API_KEY` or `OPENAI_BASE_URL` is set; else an installed local model; else a
    scripted demo. `NBAGENTS_MODEL` names the model for `openai`; unset, a server of one's own is asked for its first.

    Args:
        quiet: say nothing; `choose_client()` gives the text.

    Raises:
        ConfigurationError: an unknown `NBAGENTS_CLIENT`, what it asks for is missing, or the server lists no model.

    Example:
        >>> default_client(quiet=True)  # doctest: +SKIP
        DemoChatClient(delay=0.02)
    """
    choice = choose_client()
    if not quiet:
        sys.stderr.write(f"{choice.text}\n")
    return choice.client


def choose_client() -> ClientChoice:
    """Return what `default_client` chooses, with the line that says so.

    Raises:
        ConfigurationError: as for `default_client`.
    """
    wanted = os.environ.get("NBAGENTS_CLIENT", "").strip()
    kind, _, path = wanted.partition(":")
    if wanted == "openai" or (not wanted and _openai_is_set()):
        return _openai()
    if wanted == "local" or (not wanted and _local_is_installed()):
        return _local()
    if wanted in ("", "demo"):
        return _demo()
    if kind == "replay" and path:
        return _replay(path)
    raise ConfigurationError(
        f"NBAGENTS_CLIENT={wanted!r} is no known client.", hint=f"Use one of: {', '.join(CHOICES)}."
    )


def _openai_is_set() -> bool:
    return bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))


def _local_is_installed() -> bool:
    from nbagents.clients.local import local_extra_installed
    from nbagents.clients.weights import find_weights

    return local_extra_installed() and find_weights() is not None


def _openai() -> ClientChoice:
    from nbagents.clients.openai_chat import OpenAIChatClient

    if not _openai_is_set():
        raise ConfigurationError(
            "NBAGENTS_CLIENT is openai, and neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.",
            hint="Set one of them, or another NBAGENTS_CLIENT: " + ", ".join(CHOICES[1:]) + ".",
        )
    key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
    url = os.environ.get("OPENAI_BASE_URL")
    model = os.environ.get("NBAGENTS_MODEL")
    host = urlsplit(url).hostname if url else _OPENAI_HOST
    if not model:
        model = DEFAULT_OPENAI_MODEL if host == _OPENAI_HOST else _first_model(str(url), key)
    client: OpenAIChatClient = OpenAIChatClient(model, api_key=key, base_url=url)
    return _choice(client, f"{model} at {url or 'OpenAI'}", "set NBAGENTS_MODEL or NBAGENTS_CLIENT")


def _first_model(url: str, key: str) -> str:
    """Ask the server for its models and return the first one's name."""
    from openai import OpenAI, OpenAIError

    register_secret(key)
    try:
        with OpenAI(api_key=key, base_url=url, max_retries=0, timeout=_LIST_SECONDS) as server:
            listed: Any = server.get("/models", cast_to=object)
        names = [str(model["id"]) for model in listed["data"]]
    except (OpenAIError, ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{url} does not tell its models: {type(error).__name__}: {error}",
            hint="Set NBAGENTS_MODEL, or another OPENAI_BASE_URL.",
        ) from error
    if not names:
        raise ConfigurationError(f"{url} has no models.", hint="Load one there, or set NBAGENTS_MODEL.")
    return names[0]


def _local() -> ClientChoice:
    from nbagents.clients.local import LocalChatClient

    client = LocalChatClient()
    return _choice(client, f"the local model {client.model}", "set OPENAI_API_KEY or NBAGENTS_CLIENT")


def _demo() -> ClientChoice:
    from nbagents.clients.demo import DemoChatClient

    what = "the scripted demo, without a model"
    return _choice(
        DemoChatClient(), what, "set OPENAI_API_KEY, or run `nbagents local install`, or set NBAGENTS_CLIENT"
    )


def _replay(path: str) -> ClientChoice:
    from nbagents.clients.recorded import RecordedChatClient

    return _choice(RecordedChatClient(path, mode="replay"), f"the recording {path}", "set NBAGENTS_CLIENT")


def _choice(client: BaseChatClient, what: str, change: str) -> ClientChoice:
    values = f" ({', '.join(CHOICES)})"
    return ClientChoice(client, redact(f"nbagents uses {what}. To change that, {change}{values}."))
