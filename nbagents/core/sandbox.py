"""The Jinja2 in which instructions are rendered: it reads values, calls nothing of theirs, and comes to an end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from types import BuiltinMethodType
from typing import Any

from jinja2 import ChainableUndefined, StrictUndefined, Template, nodes, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 100_000
"""Rounds of loops and calls in one rendering."""
MAX_CHARACTERS = 1_000_000
"""Of a text that a template makes, and items of a list."""
MAX_EXPONENT = 1_000

_PLAIN = (str, int, float, list, tuple, dict, set, frozenset, date, time, timedelta, Decimal)
_STEP, _JOIN = "_step", "_join"
_WIDTHS = {"center": (int,), "indent": (int,), "format": (str,)}
"""Filters whose arguments say how wide their text becomes: by a number, or by a format."""
_WIDE = re.compile(r"\d{7}|%[-+ #0]*\*|\{[^{}]*:[^{}]*\{")
"""What makes a format wide: a number in it, or one that is an argument."""


class SandboxLimitError(SecurityError):
    """A template goes on for too long, or makes too much text."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, and three rules more.

    Only methods of plain values (texts, numbers, lists, dates, ...) are called: what an argument is able to do, such as
    to write a file, is not for a template. Loops and calls are counted, and texts are bounded. Each renders once.
    """

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, *, strict: bool) -> None:
        undefined = StrictUndefined if strict else ChainableUndefined
        super().__init__(undefined=undefined, autoescape=False, keep_trailing_newline=True)
        self.globals.pop("lipsum")
        self.filters |= {_STEP: _step, _JOIN: _join} | {
            name: _bounded(self.filters[name], kinds) for name, kinds in _WIDTHS.items()
        }
        self._steps = 0

    def rendered(self, text: str, arguments: Mapping[str, Any]) -> str:
        """Return `text`, a template, with `arguments` in their places."""
        tree = self.parse(text)
        for loop in tree.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, _STEP)  # type: ignore[arg-type]  # what is iterated is an expression
        for node in [tree, *tree.find_all(nodes.Node)]:
            _replace_joins(node)
        template = Template.from_code(self, self.compile(tree), self.make_globals(None))
        pieces: list[str] = []
        length = 0
        for piece in template.generate(dict(arguments)):
            length += len(piece)
            _check_length(length)
            pieces.append(piece)
        return "".join(pieces)

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call `obj`: what belongs to Jinja2, and the built-in methods of plain values."""
        if type(obj).__module__.startswith("jinja2.") or any(obj is own for own in self.globals.values()):
            return True
        method = getattr(obj, "__wrapped__", obj)  # `format` is wrapped by the sandbox
        owner = getattr(method, "__self__", None)
        of_jinja = type(owner).__module__.startswith("jinja2.")
        return of_jinja or (isinstance(method, BuiltinMethodType) and isinstance(owner, _PLAIN))

    def take_step(self) -> None:
        """Count a round of a loop or a call.

        Raises:
            SandboxLimitError: it was one too many.
        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SandboxLimitError(f"more than {MAX_STEPS:,} rounds of loops and calls")

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `obj` for a template."""
        self.take_step()
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        if isinstance(owner, str):
            formats = getattr(obj, "__name__", "").startswith("format")
            _check_widths([owner] if formats else args, (str,) if formats else (int,))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate for a template."""
        if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
            raise SandboxLimitError(f"an exponent above {MAX_EXPONENT}")
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
                    _check_length(len(sequence) * times)
        if operator == "%":
            _check_widths([left], (str,))
        result = super().call_binop(context, operator, left, right)
        _check_length(len(result) if isinstance(result, str | list | tuple) else 0)
        return result


@pass_environment
def _step(environment: Sandbox, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        environment.take_step()
        yield item


@pass_environment
def _join(environment: Sandbox, parts: list[Any]) -> str:
    joined = "".join(map(str, parts))
    _check_length(len(joined))
    return joined


def _bounded(filter_: Callable[..., Any], kinds: tuple[type, ...]) -> Callable[..., Any]:
    def bounded(value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_widths([value] if str in kinds else [*args, *kwargs.values()], kinds)
        return filter_(value, *args, **kwargs)

    return bounded


def _check_widths(values: Iterable[Any], kinds: tuple[type, ...]) -> None:
    for value in values:
        if isinstance(value, kinds) and isinstance(value, int):
            _check_length(value)
        elif isinstance(value, kinds) and isinstance(value, str) and _WIDE.search(value):
            raise SandboxLimitError("a format with a very large number, or one that is not known")


def _check_length(length: int) -> None:
    if length > MAX_CHARACTERS:
        raise SandboxLimitError(f"a text of more than {MAX_CHARACTERS:,} characters")


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _replace_joins(node: nodes.Node) -> None:
    """Put the bounded join in the place of each `~` below `node`."""
    for field, value in node.iter_fields():
        if isinstance(value, nodes.Concat):
            setattr(node, field, _filtered(nodes.List(value.nodes, lineno=value.lineno), _JOIN))
        elif isinstance(value, list):
            value[:] = [
                _filtered(nodes.List(one.nodes, lineno=one.lineno), _JOIN) if isinstance(one, nodes.Concat) else one
                for one in value
            ]
