"""The tools of an agent: what may stand in its list, what each is called, and which of them a client can send."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbagents.core import callables
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HOSTED_KINDS, HostedTool, can_send, method_for
from nbagents.core.names import safe_name
from nbagents.core.tools import FunctionTool, ToolDefinition

Tool = FunctionTool | HostedTool


def collect_tools(tools: Iterable[Any] | Any | None) -> list[Tool]:
    """Return `tools` as a list of tools: functions are wrapped, objects give their `@tool` methods.

    Methods of different objects live together: `FunctionTool` tells what they are called. What is given twice is there
    once, and the later of two hosted tools of one name counts.

    Raises:
        ConfigurationError: something that is no tool, or two different tools of one name.
    """
    return _named_apart(_joined([_listed(tools)]))


def tools_of_run(
    present: Iterable[Tool], more: Iterable[Any] | Any | None, own: Iterable[Tool] = ()
) -> dict[str, Tool]:
    """Return the tools of a run by name: those that are `present`, and `more`.

    A function or object of `more` from the same place as one of the agent's `own` replaces it: its cell was run again.
    """
    present = list(present)
    if more is None and all(isinstance(one, FunctionTool | HostedTool) for one in present):
        named = {one.name: one for one in present}
        if len(named) == len(present):
            return named
    known = [one for one in own if isinstance(one, FunctionTool)]
    replaceable = [one for one in present if any(_is_same(one, other) for other in known)]
    others = [one for one in present if not any(one is other for other in replaceable)]
    joined = _joined([replaceable, [*others, *collect_tools(more)]])
    return {one.name: one for one in _named_apart(joined)}


def find_tool(tools: Mapping[str, Tool], name: str) -> FunctionTool | None:
    """Return the function that a model means by `name`: its name, its id, or the two joined as services allow it."""
    known = tools.get(name)
    if isinstance(known, FunctionTool):
        return known
    functions = [one for one in tools.values() if isinstance(one, FunctionTool) and one.group]
    return next((one for one in functions if name in (one.tool_id, _qualified(one))), None)


def check_tools(client: Any, tools: Iterable[Tool]) -> None:
    """Raise ConfigurationError for a tool without a schema, and for a hosted one that `client` cannot send."""
    for one in tools:
        if isinstance(one, FunctionTool):
            _ = one.definition
        elif not can_send(client, one):
            raise ConfigurationError(
                f"{type(client).__name__} cannot send the hosted tool {one.name!r}: its service does not run it.",
                hint=f"Use a client that has {one.method or 'methods for hosted tools'}, or leave the tool out.",
            )


def offered(tools: Iterable[Tool]) -> list[ToolDefinition | HostedTool]:
    """Return what a request offers the model."""
    return [one.definition if isinstance(one, FunctionTool) else one for one in tools]


def usable(client: Any, tools: dict[str, Tool]) -> dict[str, Tool]:
    """Return `tools` without functions, where the model of `client` cannot call any."""
    if getattr(client, "supports_tools", True):
        return tools
    return {name: one for name, one in tools.items() if not isinstance(one, FunctionTool)}


def warn_of_unused(client: Any, tools: Iterable[Tool], agent_name: str) -> bool:
    """Warn of functions that `client` cannot offer its model; tell whether there was something to warn of."""
    if getattr(client, "supports_tools", True):
        return False
    unused = [one.name for one in tools if isinstance(one, FunctionTool)]
    if unused:
        warnings.warn(
            f"{type(client).__name__} does not support tools, so the agent {agent_name!r} runs without its tools: "
            f"{', '.join(unused)}. Use a client whose model can call functions, or leave the tools out.",
            UserWarning,
            stacklevel=callables.depth_of_caller(),
        )
    return bool(unused)


def named_choice(choice: Mapping[str, Any], tools: Mapping[str, Tool]) -> Mapping[str, Any]:
    """Return the option `tool_choice` with the name that is sent, where it names a tool by its id.

    Raises:
        ConfigurationError: it names a function that there is not.
    """
    function = choice.get("function")
    if not isinstance(function, Mapping):
        return choice
    named = find_tool(tools, function.get("name", ""))
    if named is None:
        raise ConfigurationError(
            f"tool_choice names {function.get('name')!r}, which is no tool of this run.",
            hint=f"There are: {', '.join(tools) or 'none'}.",
        )
    return {**choice, "function": {**function, "name": named.name}}


def _listed(tools: Iterable[Any] | Any | None) -> list[Any]:
    """The items of `tools`, each once; one tool alone is a list of one."""
    if tools is None:
        return []
    if not isinstance(tools, list | tuple) and _is_one_tool(tools):
        return [tools]
    items = list(tools)
    return list({id(item): item for item in items}.values())


def _joined(lists: Sequence[Iterable[Any]]) -> list[Tool]:
    """The tools of all `lists`, by their ids; those of a later list replace what was defined in the same place."""
    found: dict[str, Tool] = {}
    owners: dict[str, object] = {}
    for items in lists:
        earlier = dict(found)
        earlier_owners = dict(owners)
        for one in (one for item in items for one in _tools_of(item)):
            if isinstance(one, FunctionTool) and one.group:
                one = _in_free_group(one, owners, earlier_owners)
            key = one.tool_id if isinstance(one, FunctionTool) else one.name
            known = found.get(key)
            replaces = known is not None and earlier.get(key) is known and _origin(known) == _origin(one)
            if known is not None and not replaces and not _is_same(known, one):
                raise _clash(key, known, one)
            found[key] = one
    return list(found.values())


def _is_one_tool(item: Any) -> bool:
    """Whether it is meant as one tool; what is no tool at all is named as a whole too."""
    if isinstance(item, FunctionTool | str | bytes | Mapping) or not isinstance(item, Iterable):
        return True
    return bool(_methods_of(item))


def _tools_of(item: Any) -> list[Any]:
    if isinstance(item, FunctionTool | HostedTool):
        return [item]
    if callable(getattr(item, "as_tool", None)) and not isinstance(item, type):
        return [item.as_tool()]
    if inspect.ismethod(item) and item.__name__ in _HOSTED_METHODS:
        raise ConfigurationError(
            f"{item.__name__} makes a tool, and is none itself.", hint=f"Call it: {item.__name__}()."
        )
    if inspect.isroutine(item) or isinstance(item, functools.partial):
        return [FunctionTool(item)]
    if methods := _methods_of(item):
        return [one if one.group else one.of(item) for one in (getattr(item, name) for name in methods)]
    if callable(item) and not isinstance(item, type):
        return [FunctionTool(item)]
    raise ConfigurationError(
        f"{item!r} is no tool.",
        hint="Pass a function, a @tool, an agent, a hosted tool of the client, or an object that has @tool methods.",
    )


_HOSTED_METHODS = frozenset(map(method_for, HOSTED_KINDS))


def _methods_of(item: Any) -> list[str]:
    """The names of the `@tool` methods of an object, in the order in which its class and bases define them."""
    if isinstance(item, type):
        return []
    names = dict.fromkeys(name for kind in type(item).__mro__[::-1] for name in vars(kind))
    return [name for name in names if isinstance(getattr(type(item), name, None), FunctionTool)]


def _in_free_group(one: FunctionTool, owners: dict[str, object], earlier: Mapping[str, object]) -> FunctionTool:
    """Return `one` in the first group of its name, `Menu`, `Menu_2`, ..., that is free or of the same object.

    The group of an object of an `earlier` list, whose class has been defined again in its cell, is free.
    """
    group, number = one.group or "", 1
    while (owner := owners.get(group, one.owner)) is not one.owner and not (
        owner is earlier.get(group) and _is_defined_again(owner, one.owner)
    ):
        number += 1
        group = f"{one.group}_{number}"
    owners[group] = one.owner
    return one if group == one.group else one.in_group(group)


def _is_defined_again(owner: object, later: object) -> bool:
    """Whether the class of `later` has been defined where that of `owner` was."""
    return type(owner) is not type(later) and _place_of(type(owner)) == _place_of(type(later))


def _place_of(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _origin(one: Tool) -> tuple[str, str]:
    return one.origin if isinstance(one, FunctionTool) else ("", "a hosted tool")


def _is_same(one: Tool, other: Tool) -> bool:
    """Whether both call one function and treat it alike; hosted tools of one name do."""
    if not isinstance(one, FunctionTool) or not isinstance(other, FunctionTool):
        return type(one) is type(other)
    routines = inspect.isroutine(one.function) and inspect.isroutine(other.function)
    is_one_function = one.function is other.function or (routines and one.function == other.function)
    is_one_method = one.owner is not None and one.owner is other.owner and one.origin == other.origin
    return (is_one_function or is_one_method) and one.settings == other.settings


def _named_apart(tools: list[Tool]) -> list[Tool]:
    """Give each tool a name of its own: methods whose name is taken are called by their group too."""
    wanted = Counter(one.function_name if isinstance(one, FunctionTool) else one.name for one in tools)
    named: dict[str, Tool] = {}
    for one in tools:
        if isinstance(one, FunctionTool) and one.group:
            name = one.function_name if wanted[one.function_name] == 1 else _qualified(one)
            one = one if one.name == name else one.named(name)
        if one.name in named:
            raise _clash(one.name, named[one.name], one)
        named[one.name] = one
    return list(named.values())


def _qualified(one: FunctionTool) -> str:
    return safe_name(f"{one.group}-{one.function_name}", fallback="tool")


def _clash(name: str, one: Tool, other: Tool) -> ConfigurationError:
    first, second = (".".join(part for part in _origin(tool) if part) for tool in (one, other))
    places = f"{first} and {second}" if first != second else f"both are {first}, but not the same or not set alike"
    return ConfigurationError(
        f"Two tools are called {name!r}: {places}.", hint="Rename one with @tool(name=...), or leave one out."
    )
