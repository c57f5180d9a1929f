"""What can be asked of anything that is called: functions, methods, partials, callable objects."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any


def without_partials(function: Any) -> Any:
    """Return what stands inside `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Any) -> str:
    """Return the function's name, or that of the callable object's class."""
    target = without_partials(function)
    name: str = getattr(target, "__name__", None) or type(target).__name__
    return name.strip("<>")


def origin_of(function: Any) -> tuple[str, str]:
    """Return module and qualified name of where it was defined; two lambdas have different ones."""
    target = without_partials(function)
    target = getattr(target, "__func__", target)
    name = getattr(target, "__qualname__", type(target).__qualname__)
    return getattr(target, "__module__", None) or "", name if name != "<lambda>" else f"<lambda {id(target)}>"


def is_async(function: Any) -> bool:
    """Tell whether calling it gives something to await or to iterate asynchronously."""
    call = _called(function)
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def docstring_of(function: Any) -> str | None:
    """Return its docstring: that of `__call__` or of the class for a callable object."""
    target = without_partials(function)
    if inspect.isroutine(target):
        return inspect.getdoc(target)
    return inspect.getdoc(type(target).__call__) or inspect.getdoc(type(target))


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that are still open: without `self` and what a partial has bound, by place or by name."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [p for p in inspect.signature(function).parameters.values() if p.name not in bound]


def hints_of(function: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hints of its parameters by name, those that are text resolved with the local `names`."""
    return typing.get_type_hints(_called(function), localns=dict(names) or None, include_extras=True)


def local_names(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """Return the local names, seen from `frame` outwards, that its hints mention; none where no hint is text."""
    hints = getattr(_called(function), "__annotations__", None) or {}
    wanted = {word for hint in hints.values() if isinstance(hint, str) for word in _words(hint)}
    names: dict[str, Any] = {}
    while wanted and frame is not None:
        names = {name: value for name, value in frame.f_locals.items() if name in wanted} | names
        if wanted <= names.keys() or frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back
    return names


def caller(depth: int) -> FrameType:
    """Return the frame `depth` calls above the one that asks."""
    return sys._getframe(depth + 1)


_NOT_THE_USERS = ("nbagents.", "tqdm.", "contextlib", "functools")
"""Beginnings of the names of modules that stand between a line of the user and one of this package."""


def depth_of_caller() -> int:
    """Return the `stacklevel` of a warning, in the function that asks, that shows the line outside this package."""
    depth = 1
    while caller(depth).f_globals.get("__name__", "").startswith(_NOT_THE_USERS):
        depth += 1
    return depth


def _called(function: Any) -> Any:
    target = without_partials(function)
    return target if inspect.isroutine(target) else type(target).__call__


def _words(hint: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in hint).split()
