"""What is wrong with a spec: all of it at once, each fault with its place and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nbagents.core.errors import ConfigurationError
from nbagents.core.secrets import redact

Path = tuple[str | int, ...]
"""A place in a spec: the keys and positions that lead to it."""

MOST_SHOWN = 50
MAX_TEXT = 500
"""Longer messages are cut."""


@dataclass(frozen=True, slots=True)
class SpecFault:
    """One thing that is wrong with a spec.

    Attributes:
        path: where it is.
        message: what is wrong.
        hint: what to do about it.
        line: the line in the file or text, from 1; None for a spec that is a dict.
    """

    path: Path
    message: str
    hint: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        places = [f"line {self.line}" if self.line is not None else "", path_text(self.path)]
        place = ", ".join(filter(None, places))
        told = f"{self.message} {self.hint}" if self.hint else self.message
        return f"{place}: {told}" if place else told

    def under(self, prefix: Path) -> SpecFault:
        """Return the fault as one of a larger spec, in which this one stands at `prefix`."""
        return replace(self, path=(*prefix, *self.path))


class SpecError(ConfigurationError):
    """A spec that no agent can be made from.

    Attributes:
        faults: all that is wrong with it, in the order of the text.
    """

    default_code = "spec"

    def __init__(self, faults: Iterable[SpecFault], *, name: str | None = None) -> None:
        self.faults = tuple(_shown(fault) for fault in faults)
        self.name = name
        shown = [str(fault) for fault in self.faults[:MOST_SHOWN]]
        if len(self.faults) > MOST_SHOWN:
            shown.append(f"and {len(self.faults) - MOST_SHOWN} more")
        what = name or "The spec"
        one = len(shown) == 1
        super().__init__(f"{what}: {shown[0]}" if one else "\n  ".join([f"{what} has {len(shown)} faults:", *shown]))


def _shown(fault: SpecFault) -> SpecFault:
    """Return a fault that shows no key, and little of what is very long."""
    return replace(fault, message=_cut(redact(fault.message)), hint=_cut(redact(fault.hint)) if fault.hint else None)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def path_text(path: Path) -> str:
    """Return a place as people write it.

    Example:
        >>> path_text(("agents", 0, "model", "id"))
        'agents[0].model.id'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def nearest(wanted: object, known: Iterable[str]) -> str | None:
    """Return a hint that names what was probably meant, or else what there is."""
    names = list(known)
    near = difflib.get_close_matches(str(wanted), names, n=1, cutoff=0.5)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are: {', '.join(names)}." if names else None


def sorted_faults(faults: Iterable[SpecFault], lines: Mapping[Path, int]) -> list[SpecFault]:
    """Return the faults with their lines, each once, in the order of the text."""
    placed = dict.fromkeys(replace(fault, line=fault.line or line_of(fault.path, lines)) for fault in faults)
    return sorted(placed, key=lambda fault: fault.line or 0)


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """Return the line of a place, or of the nearest one around it that is known."""
    for end in range(len(path), -1, -1):
        if (line := lines.get(path[:end])) is not None:
            return line
    return None
