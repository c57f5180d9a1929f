"""The functions that a spec may list: those that the program passes, and those of modules that it allows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from importlib import import_module
from typing import Any, Literal

from pydantic import Field

from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.core.toolset import collect_tools
from nbagents.spec.checking import Collected, checked
from nbagents.spec.faults import Path, SpecFault, nearest
from nbagents.spec.fields import Part
from nbagents.spec.models import ToolSpec
from nbagents.spec.sources import remember_part

FUNCTION = "function"


class FunctionOptions(Part):
    """The settings of a function that a spec may change."""

    approval: Literal["never", "always"] | None = None
    timeout: float | None = Field(default=None, gt=0)
    strict: bool | None = None
    concurrency: int | None = Field(default=None, ge=1)


class Toolbox:
    """What the tools of a spec are looked up in.

    Args:
        tools: what the program passes, as for an agent.
        allowed_modules: the modules that `package.module:function` may name.

    Raises:
        ConfigurationError: something that is no tool.
    """

    def __init__(self, tools: Iterable[Any] | Any | None, allowed_modules: Collection[str] = ()) -> None:
        if isinstance(allowed_modules, str):
            raise ConfigurationError("allowed_modules is a list of names.", hint=f"Pass [{allowed_modules!r}].")
        self._functions = [one for one in collect_tools(tools) if isinstance(one, FunctionTool)]
        self._modules = frozenset(allowed_modules)

    def __len__(self) -> int:
        return len(self._functions)

    def chosen(self, listed: Sequence[Any], path: Path) -> tuple[list[FunctionTool], list[SpecFault]]:
        """Return the functions of a list of tools, in order, and what is wrong; entries that are no tools are left out.

        Args:
            listed: the tools of a spec: models, dicts or texts.
            path: where the list stands.
        """
        collected = Collected()
        found: list[FunctionTool] = []
        seen: set[str] = set()
        for place, given in enumerate(listed):
            tool = _as_tool(given)
            if tool is None or tool.type != FUNCTION:
                continue
            with collected.at(place):
                one = self._function(tool)
                if one.tool_id in seen:
                    raise ConfigurationError(f"the tool {tool.id!r} is there twice.")
                seen.add(one.tool_id)
                found.append(one)
        return found, [fault.under(path) for fault in collected.faults]

    def _function(self, tool: ToolSpec) -> FunctionTool:
        if not tool.id:
            raise ConfigurationError(
                "the field 'id' is missing.", hint="It names a function, or type names a tool of the service."
            )
        found = self._imported(tool.id) if ":" in tool.id else self._passed(tool.id)
        options, faults = checked(FunctionOptions, tool.options, ("options",))
        if options is None:
            fault = faults[0]
            raise ConfigurationError(f"{fault.path[-1]}: {fault.message}", hint=fault.hint)
        settings = options.model_dump(exclude_none=True)
        if tool.description is not None:
            settings["description"] = tool.description
        chosen = found.with_settings(**settings) if settings else found
        if ":" in tool.id:
            remember_part(chosen, tool.id)
        return chosen

    def _passed(self, tool_id: str) -> FunctionTool:
        found = next((one for one in self._functions if one.tool_id == tool_id), None)
        named = [one for one in self._functions if tool_id in (one.name, one.function_name)]
        if found is None and len(named) == 1:
            found = named[0]
        if found is not None:
            return found
        if named:
            ids = " and ".join(one.tool_id for one in named)
            raise ConfigurationError(f"{tool_id!r} is the name of several tools.", hint=f"Write one of {ids}.")
        known = [one.tool_id for one in self._functions]
        raise ConfigurationError(
            f"there is no tool {tool_id!r}.",
            hint=nearest(tool_id, known) or "The program passes none: pass tools=[...] with it.",
        )

    def _imported(self, tool_id: str) -> FunctionTool:
        module, _, name = tool_id.partition(":")
        if module not in self._modules:
            raise ConfigurationError(
                f"the program does not allow tools of the module {module!r}.",
                hint=f"If it should, pass allowed_modules=[{module!r}].",
            )
        try:
            function = getattr(import_module(module), name)
        except ImportError as error:
            raise ConfigurationError(f"the module {module!r} cannot be imported: {error}") from error
        except AttributeError as error:
            raise ConfigurationError(f"the module {module!r} has no function {name!r}.") from error
        tools = collect_tools([function])
        if len(tools) != 1 or not isinstance(tools[0], FunctionTool):
            raise ConfigurationError(f"{tool_id!r} is not one function.", hint="Name a function or a @tool.")
        return copy(tools[0])  # what is remembered of it holds for this agent only


def _as_tool(given: Any) -> ToolSpec | None:
    """Return an entry as a model; None if it is none, which is a fault already."""
    if isinstance(given, ToolSpec):
        return given
    tool, _ = checked(ToolSpec, {"id": given} if isinstance(given, str) else given, ())
    return tool
