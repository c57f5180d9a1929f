"""What the tests of this room share: a group of tools, a way to read faults, servers that answer for ever."""

from __future__ import annotations

from typing import Any

import pytest

from nbagents import tool
from nbagents.spec import AgentRegistry, SpecError


class MenuPlugin:
    """A group of tools."""

    @tool
    def get_specials(self) -> str:
        """List the specials of the day."""
        return "Clam Chowder"

    @tool
    def get_price(self, item: str) -> str:
        """Tell a price."""
        return "9.99"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def faults_of(text: str | dict[str, Any], **settings: Any) -> list[tuple[str, int | None, str]]:
    """Return place, line and text of all that is wrong with a spec."""
    create: Any = AgentRegistry.create_from_dict if isinstance(text, dict) else AgentRegistry.create_from_yaml
    with pytest.raises(SpecError) as caught:
        create(text, **settings)
    return [
        (str(fault).split(": ")[0].split(", ")[-1], fault.line, f"{fault.message} {fault.hint or ''}".strip())
        for fault in caught.value.faults
    ]


def places(text: str | dict[str, Any], **settings: Any) -> list[str]:
    """Return the places of all that is wrong with a spec."""
    return [place for place, _, _ in faults_of(text, **settings)]
