"""Agents as files, seen from an agent: the room `spec` does the work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from nbagents.core.faces import face

if TYPE_CHECKING:
    from nbagents.core.agent import Agent


class WrittenAsSpec:
    """What can be made from a spec, and written as one."""

    @staticmethod
    def from_yaml(text: str, **settings: Any) -> Agent:
        """Return the agent that a text describes, YAML or JSON.

        Args:
            text: the spec.
            settings: `tools`, of which the agent gets those that the spec lists; `client`, instead of the one that the
                spec names; `settings`, for placeholders such as `${OpenAI:ChatModelId}`; and the others of
                `nbagents.spec.AgentRegistry`.

        Raises:
            SpecError: all that is wrong with it, each with its place.

        Example:
            >>> from nbagents import Agent, ScriptedChatClient
            >>> Agent.from_yaml("instructions: Be brief.", client=ScriptedChatClient(["Hi"])).instructions
            'Be brief.'
        """
        agent: Agent = face("agent.from_yaml")(text, **settings)
        return agent

    @staticmethod
    def from_dict(payload: Mapping[str, Any], **settings: Any) -> Agent:
        """Return the agent that a dict describes; as `from_yaml`."""
        agent: Agent = face("agent.from_dict")(payload, **settings)
        return agent

    def to_spec(
        self, path: str | os.PathLike[str] | None = None, *, format: Literal["yaml", "json"] | None = None
    ) -> str:
        """Return the agent as the text of a spec, and write it to `path` if there is one.

        `Agent.from_yaml(text, tools=...)` makes an agent that sends the same requests. Functions stand in it by their
        ids, keys as placeholders; a client that no file can make stands by its name: pass it as `client=`.

        Args:
            path: the file to write; one that ends in `.json` gets JSON.
            format: `yaml` or `json`; as the path says by default, else YAML.

        Raises:
            SpecError: the agent has parts that no file can hold, such as middleware; all of them are named.
        """
        text: str = face("agent.to_spec")(self, path, format=format)
        return text
