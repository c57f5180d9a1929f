"""`%nbagents status` and `config`: what the magics use here. A key is said to be set or not, never shown."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any, get_args

from nbagents.core.errors import ConfigurationError
from nbagents.core.sessions import MESSAGES_KEY
from nbagents.loop import Mode, mode, set_mode
from nbagents.notebook.state import NotebookState

USAGE = """\
%nbagents status               what the magics use here
%nbagents config               the settings
%nbagents config loop=thread   runs live on their own thread (the default)
%nbagents config loop=same-thread   blocking runs stay on the thread that calls: for tools that need the main one"""

_KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "AZURE_OPENAI_API_KEY", "NBAGENTS_CLIENT")
_PACKAGES = ("nbagents", "ipykernel", "ipython", "ipywidgets", "anywidget", "openai")


def status_text(state: NotebookState) -> str:
    """Return client, model, sessions, keys, loop mode and versions, one line each."""
    agent = state.default_agent
    client = "chosen at the first use of %%agent" if agent is None else _client_text(agent.client)
    rows = [
        ("client", client),
        ("sessions", ", ".join(_session_text(name, one) for name, one in state.sessions.items()) or "none"),
        ("keys", ", ".join(f"{name} {'set' if os.environ.get(name) else 'not set'}" for name in _KEYS)),
        ("loop", mode()),
        ("versions", ", ".join([f"Python {sys.version.split()[0]}", *filter(None, map(_version, _PACKAGES))])),
    ]
    return "\n".join(f"{name:<9} {value}" for name, value in rows)


def configure(setting: str) -> str:
    """Apply `key=value`, or nothing if it is empty, and return the settings as a text.

    Raises:
        ConfigurationError: an unknown key or value; the message lists the known ones.
    """
    if setting:
        key, _, value = (part.strip() for part in setting.partition("="))
        if key != "loop":
            raise ConfigurationError(f"There is no setting {key!r}.", hint="The settings are: loop.")
        chosen = next((one for one in get_args(Mode) if one == value), None)
        if chosen is None:
            raise ConfigurationError(f"loop cannot be {value!r}.", hint=f"It is one of: {', '.join(get_args(Mode))}.")
        set_mode(chosen)
    return f"loop={mode()}"


def _client_text(client: Any) -> str:
    model = getattr(client, "model", None)
    return f"{type(client).__name__}{f', model {model}' if model else ''}"


def _session_text(name: str, session: Any) -> str:
    return f"{name} ({len(session.state.get(MESSAGES_KEY, ()))} messages)"


def _version(package: str) -> str | None:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None
