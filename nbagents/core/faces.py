"""The one table of conveniences that sit on a core class and live in an upper room, found when they are called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

FACES = {
    "agent.from_dict": "nbagents.spec.agents:create_from_dict",
    "agent.from_yaml": "nbagents.spec.agents:create_from_yaml",
    "agent.to_spec": "nbagents.spec.writing:spec_text",
    "response.mimebundle": "nbagents.render.bundle:response_bundle",
}


def face(name: str) -> Callable[..., Any]:
    """Return the function behind `name`."""
    module, _, function = FACES[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
