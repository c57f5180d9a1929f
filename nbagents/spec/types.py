"""The types of agents that are built in: chat agents of each service, and two that are no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbagents.core.agent import Agent
from nbagents.core.errors import ConfigurationError
from nbagents.core.providers import ContextProvider
from nbagents.core.tools import FunctionTool
from nbagents.core.toolset import Tool
from nbagents.spec.checking import Collected
from nbagents.spec.models import AgentSpec
from nbagents.spec.parts import (
    InputCheck,
    Service,
    arguments_of,
    client_of,
    history_of,
    hosted_tool,
    reducer_of,
    response_format,
    template_of,
)
from nbagents.spec.registry import ChatClient
from nbagents.spec.skills import LocalSkills


@dataclass(frozen=True, slots=True)
class ChatAgentType:
    """Agents of one service, or, without one, of whatever the spec's model names."""

    service: Service | None = None

    def from_spec(
        self,
        spec: AgentSpec,
        *,
        tools: Sequence[FunctionTool],
        client: ChatClient | None,
        settings: Mapping[str, Any] | None,
    ) -> Agent:
        """Return the agent.

        Raises:
            SpecError: everything that does not fit.
        """
        collected = Collected()
        parts: dict[str, Any] = {}
        with collected.at("llm" if spec.llm is not None else "model"):
            client = client or client_of(spec.chosen_model, self.service)
        if client is not None:
            parts["tools"] = _in_order(spec, tools, client, collected)
        with collected.at("memory"):
            parts["reducer"] = reducer_of(spec.memory)
        with collected.at("session"):
            parts["history"] = history_of(spec.session)
        with collected.at("inputs"):
            parts["arguments"] = arguments_of(spec.inputs)
        with collected.at("skills"):
            parts["context_providers"] = _providers(spec)
        with collected.at("outputs"):
            parts["options"] = _options(spec)
        collected.check()
        assert client is not None
        return Agent(
            client,
            spec.instructions if spec.template is None or spec.template.text is None else spec.template.text,
            id=spec.id,
            name=spec.name or spec.id,
            description=spec.description,
            budget=spec.budget,
            template=template_of(spec),
            **parts,
        )


@dataclass(frozen=True, slots=True)
class RetiredType:
    """A type that its service does not run any more."""

    successor: str

    def from_spec(
        self,
        spec: AgentSpec,
        *,
        tools: Sequence[FunctionTool],
        client: ChatClient | None,
        settings: Mapping[str, Any] | None,
    ) -> Agent:
        """Raise ConfigurationError: it says what to use instead."""
        raise ConfigurationError(
            f"OpenAI has retired the Assistants API, so there are no agents of the type {spec.type!r} any more.",
            code="retired",
            hint=f"Conversations have taken its place: write type: {self.successor}.",
        )


CHAT_COMPLETION_AGENT = ChatAgentType()
OPENAI_RESPONSES = ChatAgentType(("openai", "responses"))
AZURE_CHAT_COMPLETION_AGENT = ChatAgentType(("azure", "chat"))
AZURE_RESPONSES = ChatAgentType(("azure", "responses"))
OPENAI_CONVERSATION = ChatAgentType(("openai", "conversations"))
ANTHROPIC = ChatAgentType(("anthropic", "messages"))
OPENAI_ASSISTANT = RetiredType("openai_conversation")
AZURE_ASSISTANT = RetiredType("azure_responses")


def _in_order(
    spec: AgentSpec, functions: Sequence[FunctionTool], client: ChatClient, collected: Collected
) -> list[Tool]:
    """Return functions and hosted tools as the spec lists them."""
    waiting = iter(functions)
    found: list[Tool] = []
    for place, tool in enumerate(spec.tools or ()):
        with collected.at("tools", place):
            found.append(next(waiting) if tool.type == "function" else hosted_tool(tool, client))
    return found


def _providers(spec: AgentSpec) -> list[ContextProvider]:
    providers: list[ContextProvider] = []
    if any((one.required and one.default is None) or one.type for one in spec.inputs.values()):
        providers.append(InputCheck(spec.inputs))
    if spec.skills is not None and (skills := LocalSkills(spec.skills.paths or [])).skills:
        providers.append(skills)
    return providers


def _options(spec: AgentSpec) -> dict[str, Any]:
    model, answer = spec.chosen_model, response_format(spec)
    options = model.options.to_options() if model is not None else {}
    if answer is not None and "response_format" in options:
        raise ConfigurationError("outputs and the option response_format both give the form of the answer.")
    return options if answer is None else {**options, "response_format": answer}
