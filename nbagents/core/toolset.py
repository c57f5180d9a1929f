"""The tools of an agent: what may stand in its list, what each is called, and which of them a client can send."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from nbagents.core import callables
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool, can_send
from nbagents.core.names import safe_name
from nbagents.core.tools import FunctionTool, ToolDefinition

Tool = FunctionTool | HostedTool


def collect_tools(tools: Iterable[Any] | Any | None) -> list[Tool]:
    """Return `tools` as a list of tools: functions are wrapped, objects give their `@tool` methods.

    A function from the same place as an earlier one of its name (its cell was run again) replaces it, and so does a
    hosted tool. Methods of different objects live together: `FunctionTool` tells what they are called.

    Raises:
        ConfigurationError: something that is no tool, or two different tools of one name.
    """
    if tools is None:
        return []
    if not isinstance(tools, list | tuple) and _is_one_tool(tools):
        tools = [tools]
    found: dict[str, Tool] = {}
    owners: dict[str, FunctionTool] = {}
    for one in (one for item in tools for one in _tools_of(item)):
        if isinstance(one, FunctionTool) and one.group:
            one = _in_free_group(one, owners)
        key = one.tool_id if isinstance(one, FunctionTool) else one.name
        known = found.get(key)
        if known is not None and _origin(known) != _origin(one):
            raise _clash(key, known, one)
        found[key] = one
    return _named_apart(list(found.values()))


def tools_of_run(own: Iterable[Tool], more: Iterable[Any] | Any | None) -> dict[str, Tool]:
    """Return the tools that a run begins with by name: the agent's `own`, and `more` that are given for it."""
    own = list(own)
    if more is None and all(isinstance(one, FunctionTool | HostedTool) for one in own):
        return {one.name: one for one in own}
    return {one.name: one for one in collect_tools([*own, *collect_tools(more)])}


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
            stacklevel=_depth_of_caller(),
        )
    return bool(unused)


def _depth_of_caller() -> int:
    """The `stacklevel` of `warn_of_unused`'s warning that shows the line outside this package."""
    depth = 1
    while callables.caller(depth).f_globals.get("__name__", "").startswith("nbagents."):
        depth += 1
    return depth


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


def _methods_of(item: Any) -> list[str]:
    """The names of the `@tool` methods of an object, in the order in which its class and bases define them."""
    if isinstance(item, type):
        return []
    names = dict.fromkeys(name for kind in type(item).__mro__[::-1] for name in vars(kind))
    return [name for name in names if isinstance(getattr(type(item), name, None), FunctionTool)]


def _in_free_group(one: FunctionTool, owners: dict[str, FunctionTool]) -> FunctionTool:
    """Return `one` in the first group of its name, `Menu`, `Menu_2`, ..., that is free or of the same object."""
    group, number = one.group or "", 1
    while (first := owners.setdefault(group, one)) is not one and not _same_owner(first.owner, one.owner):
        number += 1
        group = f"{one.group}_{number}"
    return one if group == one.group else one.in_group(group)


def _same_owner(one: Any, other: Any) -> bool:
    """Whether both are one object, or the class of the other has been defined again in its cell."""
    return one is other or (type(one) is not type(other) and _place_of(type(one)) == _place_of(type(other)))


def _place_of(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _origin(one: Tool) -> tuple[str, str]:
    return one.origin if isinstance(one, FunctionTool) else ("", "a hosted tool")


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
    places = [".".join(part for part in _origin(tool) if part) for tool in (one, other)]
    return ConfigurationError(
        f"Two tools are called {name!r}: {places[0]} and {places[1]}.", hint="Rename one with @tool(name=...)."
    )
