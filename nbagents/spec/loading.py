"""From a document to agents: placeholders replaced, everything checked, then each agent made by its type."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from nbagents.core.agent import Agent
from nbagents.core.clients import BaseChatClient, SupportsChatGetResponse
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.spec.checking import checked
from nbagents.spec.documents import Document
from nbagents.spec.faults import Path, SpecError, SpecFault
from nbagents.spec.models import (
    DEFAULT_SKILLS,
    DEFAULT_TYPE,
    AgentSpec,
    ConfigSpec,
    EventsSpec,
    RuntimeSpec,
    SessionSpec,
    SkillsSpec,
    is_config,
)
from nbagents.spec.placeholders import Placeholders
from nbagents.spec.registry import AGENT_TYPES, BUILT_IN_PATTERNS, PATTERNS, ChatClient, HasOwnFields
from nbagents.spec.sources import one_default, remember_key, remember_part
from nbagents.spec.toolbox import Toolbox

_MODEL_WORDS = ("model", "llm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What the program gives beside a spec.

    Attributes:
        tools: the tools that specs may list.
        client: the client of the agents, instead of what their models say.
        settings: what `${Section:Key}` names.
        expand_instructions: replace placeholders in instructions too.
        allowed_modules: modules whose functions specs may name as tools.
        checks_only: there is no program: the functions that specs list are taken for granted, and settings if there
            are none.
        complete: placeholders without a value are faults.
    """

    tools: Iterable[Any] | Any | None = None
    client: ChatClient | None = None
    settings: Mapping[str, Any] | None = None
    expand_instructions: bool = False
    allowed_modules: Collection[str] = ()
    checks_only: bool = False
    complete: bool = True

    def __post_init__(self) -> None:
        client, settings = self.client, self.settings
        if client is not None and (
            isinstance(client, type) or not isinstance(client, BaseChatClient | SupportsChatGetResponse)
        ):
            raise ConfigurationError(f"client must be a chat client, not {type(client).__name__}.")
        if settings is not None and not isinstance(settings, Mapping):
            raise ConfigurationError(
                f"settings is a dict of sections, not {type(settings).__name__}.",
                hint='Pass settings={"OpenAI": {"ChatModelId": "..."}}.',
            )


@dataclass(frozen=True, slots=True)
class LoadedAgents:
    """What a file or payload gave.

    Attributes:
        agents: the agents, in the order of the file.
        runtime: what it says of the runtime.
        events: what it says of its events.
        name: the file's name, for texts; None for a dict.
    """

    agents: tuple[Agent, ...]
    runtime: RuntimeSpec
    events: EventsSpec
    name: str | None = None


@dataclass(slots=True)
class Checked:
    """A document that was checked: the agents that it has, and what is wrong with it.

    Attributes:
        document: the document.
        specs: each agent's place, spec and functions.
        config: what stands around the agents.
        faults: what is wrong.
        hidden: puts placeholders in the place of their values in a fault.
    """

    document: Document
    specs: list[tuple[Path, AgentSpec, list[FunctionTool]]] = field(default_factory=list)
    config: ConfigSpec | AgentSpec | None = None
    faults: list[SpecFault] = field(default_factory=list)
    hidden: Callable[[SpecFault], SpecFault] = lambda fault: fault

    def error(self) -> SpecError:
        """Return the error that names all that is wrong."""
        return self.document.error(*map(self.hidden, self.faults))


def check_document(document: Document, around: Surrounding) -> Checked:
    """Check all that can be checked before an agent is made."""
    result = Checked(document)
    root = document.root
    if not isinstance(root, dict):
        result.faults = list(document.faults) or [SpecFault((), "a spec is a mapping of fields, such as `name: ...`.")]
        return result
    if around.client is not None:
        root = _without_connections(root)
    placeholders = Placeholders(
        around.settings,
        leaves=lambda path: _is_left(path, around),
        needs_environment=around.complete,
        needs_settings=around.complete and not (around.checks_only and around.settings is None),
    )
    tree = placeholders.resolved(root)
    result.hidden = placeholders.hidden
    result.faults = [*document.faults, *placeholders.faults]
    unresolved = placeholders.unresolved | {fault.path for fault in document.faults}
    toolbox = Toolbox(around.tools, around.allowed_modules)
    if is_config(tree):
        result.config, faults = checked(ConfigSpec, tree, (), unresolved)
        result.faults += faults
        listed = tree["agents"] if isinstance(tree["agents"], list) else []
        places: list[tuple[Path, Any]] = [(("agents", number), one) for number, one in enumerate(listed)]
    else:
        places = [((), tree)]
    for path, one in places:
        if isinstance(one, dict):
            _check_agent(result, one, path, unresolved, None if around.checks_only else toolbox)
    if not is_config(tree) and result.specs:
        result.config = result.specs[0][1]
    if len(toolbox) and not any(isinstance(one, dict) and "tools" in one for _, one in places):
        warnings.warn(
            "Tools were passed, but no agent of the spec has a list `tools`, so none may use them.",
            UserWarning,
            stacklevel=2,
        )
    return result


def build(document: Document, around: Surrounding) -> LoadedAgents:
    """Make the agents of a document.

    Raises:
        SpecError: all that is wrong.
    """
    result = check_document(document, around)
    if result.faults or result.config is None:
        raise result.error()
    agents: list[Agent] = []
    with one_default():
        for path, spec, tools in result.specs:
            placed = _placed(spec, result.config, document.folder)
            try:
                agents.append(_made(placed, tools, around))
            except SpecError as error:
                result.faults += [fault.under(path) for fault in error.faults]
            except ConfigurationError as error:
                result.faults.append(SpecFault(path, error.message, error.hint))
    if result.faults:
        raise result.error()
    ids: set[str] = set()
    for (path, _, _), agent in zip(result.specs, agents, strict=True):
        if agent.id in ids:
            result.faults.append(SpecFault(path, f"two agents have the id {agent.id!r}.", "Give one another id."))
        ids.add(agent.id)
        if around.client is None and (key := _key_source(document.root, path)) is not None:
            remember_key(agent.client, key)
    if result.faults:
        raise result.error()
    return LoadedAgents(tuple(agents), result.config.runtime, result.config.events, document.name)


def build_one(document: Document, around: Surrounding) -> Agent:
    """Make the agent of a document that has one.

    Raises:
        SpecError: all that is wrong, or it has several.
    """
    root = document.root
    if is_config(root) and isinstance(root["agents"], list) and len(root["agents"]) > 1:
        told = f"it holds {len(root['agents'])} agents, and one is wanted."
        raise document.error(
            SpecFault(("agents",), told, "load_agents(...) and Runtime.from_config(...) take several.")
        )
    return build(document, around).agents[0]


def _check_agent(
    result: Checked, tree: dict[str, Any], path: Path, unresolved: Collection[Path], toolbox: Toolbox | None
) -> None:
    kind: type[AgentSpec] = AgentSpec
    name = tree.get("type", DEFAULT_TYPE)
    if isinstance(name, str):
        try:
            found = AGENT_TYPES.find(name)
            kind = found.spec_model if isinstance(found, HasOwnFields) else AgentSpec
        except ConfigurationError as error:
            result.faults.append(SpecFault((*path, "type"), error.message, error.hint))
    pattern = tree.get("pattern")
    wanted = pattern.get("type") if isinstance(pattern, dict) else pattern
    if isinstance(wanted, str):
        try:
            PATTERNS.find(wanted)
        except ConfigurationError as error:
            result.faults.append(SpecFault((*path, "pattern"), error.message, error.hint))
    spec, faults = checked(kind, tree, path, unresolved)
    result.faults += faults
    tools: list[FunctionTool] = []
    if toolbox is not None and isinstance(listed := tree.get("tools"), list):
        tools, faults = toolbox.chosen(listed, (*path, "tools"))
        result.faults += [fault for fault in faults if (*fault.path, "id") not in unresolved]
    if spec is not None:
        result.specs.append((path, spec, tools))


def _made(spec: AgentSpec, tools: list[FunctionTool], around: Surrounding) -> Agent:
    kind = AGENT_TYPES.find(spec.type)
    agent: Any = kind.from_spec(spec, tools=tools, client=around.client, settings=around.settings)
    if not isinstance(agent, Agent):
        raise ConfigurationError(f"the type {spec.type!r} made a {type(agent).__name__} instead of an Agent.")
    if spec.pattern is None:
        return agent
    try:
        changed: Any = PATTERNS.find(spec.pattern.type)(agent, **(spec.pattern.model_extra or {}))
    except ConfigurationError as error:
        raise SpecError([SpecFault(("pattern",), error.message, error.hint)]) from error
    if not isinstance(changed, Agent):
        raise ConfigurationError(f"the pattern {spec.pattern.type!r} gave no Agent.")
    if spec.pattern.type not in BUILT_IN_PATTERNS:
        remember_part(changed, spec.pattern.model_dump())
    return changed


def _placed(spec: AgentSpec, config: ConfigSpec | AgentSpec, folder: str) -> AgentSpec:
    """Return the spec with what it shares with others, and with paths that begin at the root."""
    session, skills = spec.session or config.session, spec.skills or config.skills
    changes: dict[str, Any] = {}
    if session is not None:
        changes["session"] = _placed_session(session, folder)
    if skills is not None:
        default = FilePath(folder, DEFAULT_SKILLS)
        paths = skills.paths if skills.paths is not None else [DEFAULT_SKILLS] if default.is_dir() else []
        changes["skills"] = SkillsSpec(type=skills.type, paths=[_from_folder(path, folder) for path in paths])
    return spec.model_copy(update=changes) if changes else spec


def _placed_session(session: SessionSpec, folder: str) -> SessionSpec:
    default = {"jsonl_file": "sessions", "sqlite": "chat.db"}.get(session.type)
    path = session.path or default
    return session if path is None else SessionSpec(type=session.type, path=_from_folder(path, folder))


def _from_folder(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _inner(path: Path) -> Path:
    """Return a path as one inside its agent."""
    return path[2:] if path[:1] == ("agents",) else path


def _is_left(path: Path, around: Surrounding) -> bool:
    """Whether the text of a place stays as it is."""
    inner = _inner(path)
    if inner in (("instructions",), ("template", "text")):
        return not around.expand_instructions
    # With a client of the program, the spec's model is only its options.
    return around.client is not None and inner[:1] in [(word,) for word in _MODEL_WORDS] and "options" not in inner[:2]


def _without_connections(root: dict[str, Any]) -> dict[str, Any]:
    """Return the tree without what a client of the program stands in for."""
    return _each_model(root, lambda model: {key: value for key, value in model.items() if key != "connection"})


def _each_model(root: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    if is_config(root) and isinstance(root["agents"], list):
        agents = [_each_model(one, change) if isinstance(one, dict) else one for one in root["agents"]]
        return {**root, "agents": agents}
    return {
        key: change(value) if key in _MODEL_WORDS and isinstance(value, dict) else value for key, value in root.items()
    }


def _key_source(root: Any, path: Path) -> str | None:
    """Return the placeholder that has the key of an agent's connection, as the document has it."""
    for part in path:
        root = root[part]
    model: dict[str, Any] = next((root[word] for word in _MODEL_WORDS if isinstance(root.get(word), dict)), {})
    connection = model.get("connection") or {}
    if variable := connection.get("api_key_env"):
        return f"${{{variable}}}"
    key = connection.get("api_key")
    return key if isinstance(key, str) and key.startswith("${") else None
