"""The ways to make an agent from a spec: from a text, a dict or a file; one agent, or all that a file has."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypedDict, Unpack

from nbagents.core.agent import Agent
from nbagents.core.arguments import exact_arguments
from nbagents.spec.documents import Document, read_dict, read_file, read_text
from nbagents.spec.faults import SpecError, SpecFault, sorted_faults
from nbagents.spec.loading import LoadedAgents, Surrounding, build, build_one, check_document
from nbagents.spec.registry import AGENT_TYPES, ChatClient


class SpecSettings(TypedDict, total=False):
    """What the program gives beside a spec; `AgentRegistry` says what each is for."""

    tools: Iterable[Any] | Any | None
    client: ChatClient | None
    settings: Mapping[str, Any] | None
    expand_instructions: bool
    allowed_modules: Collection[str]


@exact_arguments(SpecSettings)
def create_from_yaml(text: str, **settings: Unpack[SpecSettings]) -> Agent:
    """Return the agent of a text, YAML or JSON. Relative paths in it begin at the working directory.

    Raises:
        SpecError: all that is wrong with it.
    """
    return build_one(read_text(text), Surrounding(**settings))


@exact_arguments(SpecSettings)
def create_from_dict(payload: Mapping[str, Any], **settings: Unpack[SpecSettings]) -> Agent:
    """Return the agent of a dict, which stays as it is.

    Raises:
        SpecError: all that is wrong with it.
    """
    return build_one(read_dict(payload), Surrounding(**settings))


@exact_arguments(SpecSettings)
def create_from_file(path: str | os.PathLike[str], **settings: Unpack[SpecSettings]) -> Agent:
    """Return the agent of a file, YAML or JSON. Relative paths in it begin at its folder.

    Raises:
        ConfigurationError: the file cannot be read.
        SpecError: all that is wrong with it.
    """
    return build_one(read_file(path), Surrounding(**settings))


class AgentRegistry:
    """Makes agents from specs. `register_agent_type` adds types.

    A spec says which keys go to which server: load only those that you would trust with your environment. It runs
    nothing by itself, and its agent gets no tool that the program has not passed or allowed.

    All ways take, by name:

    - `tools`: functions, `@tool`s, objects with `@tool` methods, agents. An agent gets those that its list `tools`
      names, and no others.
    - `client`: a chat client, instead of what the spec's model says; of the model only the options count then.
    - `settings`: dicts in dicts, for placeholders such as `${OpenAI:ChatModelId}`.
    - `expand_instructions`: replace placeholders in instructions too.
    - `allowed_modules`: names of modules whose functions a spec may list as `package.module:function`.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> agent = AgentRegistry.create_from_yaml("name: greeter", client=ScriptedChatClient(["Hello!"]))
        >>> agent.run_sync("Hi").text
        'Hello!'
    """

    create_from_yaml = staticmethod(create_from_yaml)
    create_from_dict = staticmethod(create_from_dict)
    create_from_file = staticmethod(create_from_file)

    @staticmethod
    def list_types() -> list[str]:
        """Return the names of the types that specs may have."""
        return AGENT_TYPES.names()


@exact_arguments(SpecSettings)
def load_agents(
    payload_or_path: Mapping[str, Any] | str | os.PathLike[str], **settings: Unpack[SpecSettings]
) -> LoadedAgents:
    """Make all agents of a dict or a file, and tell what it says of the runtime around them.

    What the dict or file has: `agents`, a list, with `runtime`, `events`, `session` and `skills` beside it (the latter
    two are for agents that have none of their own); or one agent alone, whose fields may be those too.

    Args:
        payload_or_path: a dict, or the path of a file.
        settings: as for `AgentRegistry`.

    Returns:
        `LoadedAgents`: `agents`, a tuple of Agents with different ids, in order; `runtime`, a `RuntimeSpec` (`type`,
        `max_sessions` or None); `events`, an `EventsSpec` (`type`); `name`, the file's name or None. Nothing has been
        started, and no file been written.

    Raises:
        ConfigurationError: the file cannot be read.
        SpecError: all that is wrong with it.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> loaded = load_agents({"agents": [{"name": "a"}, {"name": "b"}]}, client=ScriptedChatClient(["Hi"]))
        >>> [agent.id for agent in loaded.agents]
        ['a', 'b']
    """
    return build(_document(payload_or_path), Surrounding(**settings))


@exact_arguments()
def validate_file(
    path: str | os.PathLike[str], *, settings: Mapping[str, Any] | None = None, complete: bool = True
) -> list[SpecFault]:
    """Check a file without a program around it, and return what is wrong; no client is made.

    The functions that it lists are taken for granted, since the program passes them.

    Args:
        path: the file.
        settings: what `${Section:Key}` names; without them, settings are taken for granted.
        complete: every placeholder needs a value; else those without one are taken for granted too.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        document = read_file(path)
    except SpecError as error:
        return list(error.faults)
    result = check_document(document, Surrounding(settings=settings, checks_only=True, complete=complete))
    return sorted_faults(map(result.hidden, result.faults), document.lines)


@exact_arguments()
def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings of a file, YAML or JSON: dicts in dicts, for `settings=`. Nothing in it is replaced.

    Raises:
        ConfigurationError: the file cannot be read.
        SpecError: it is no mapping of plain values.
    """
    document = read_file(path)
    if document.faults or not isinstance(document.root, dict):
        raise document.error(*([] if document.faults else [SpecFault((), "settings are a mapping of sections.")]))
    return document.root


def _document(payload_or_path: Mapping[str, Any] | str | os.PathLike[str]) -> Document:
    return read_dict(payload_or_path) if isinstance(payload_or_path, Mapping) else read_file(payload_or_path)
