"""`${ENV}`, `${ENV:-default}` and `${Section:Key}` in the texts of a spec; `$${...}` stands for `${...}` itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from nbagents.spec.faults import Path, SpecFault, nearest

_PLACEHOLDER = re.compile(r"\$(\$?)\{([^{}]*)\}")
_NESTED = re.compile(r"\$\{[^{}]*(?<!\$)\$\{[^{}]*\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_SETTING = re.compile(r"[^\s:${}][^:${}]*(?::[^:${}]+)+\Z")
_MISSING = object()
MIN_HIDDEN = 4
"""Shorter values are no keys, and stand in ordinary text."""


class Placeholders:
    """Puts values in the place of placeholders.

    Args:
        settings: what `${Section:Key}` names: dicts in dicts, or a dict with `Section:Key` as its keys.
        leaves: tells of a path that its texts stay as they are.
        needs_environment: a variable without a value is a fault.
        needs_settings: a setting without a value is a fault.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None,
        *,
        leaves: Callable[[Path], bool] = lambda _: False,
        needs_environment: bool = True,
        needs_settings: bool = True,
    ) -> None:
        self._settings = settings
        self._leaves = leaves
        self._needs_environment, self._needs_settings = needs_environment, needs_settings
        self.faults: list[SpecFault] = []
        self.unresolved: set[Path] = set()
        """The places with a placeholder that has no value; it is still there."""
        self._values: list[tuple[Path, str, str]] = []

    def resolved(self, value: Any, path: Path = ()) -> Any:
        """Return `value` with the placeholders in its texts replaced; keys stay as they are."""
        if isinstance(value, str):
            return value if "${" not in value or self._leaves(path) else self._text(value, path)
        if isinstance(value, dict):
            return {key: self.resolved(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolved(item, (*path, place)) for place, item in enumerate(value)]
        return value

    def hidden(self, fault: SpecFault) -> SpecFault:
        """Return a fault with placeholders in the place of their values, which may be keys."""
        message, hint = fault.message, fault.hint
        for path, value, written in self._values:
            length = min(len(path), len(fault.path))
            if path[:length] == fault.path[:length] and len(value) >= MIN_HIDDEN:
                message = message.replace(value, written)
                hint = hint.replace(value, written) if hint else hint
        return replace(fault, message=message, hint=hint)

    def _text(self, text: str, path: Path) -> Any:
        if _NESTED.search(text):
            self._fault(path, "a placeholder stands in another one.", "A default is plain text: ${NAME:-text}.")
            return text
        whole = _PLACEHOLDER.fullmatch(text)
        if whole and not whole[1]:
            return self._value_of(whole[2], path, text)  # a number or a boolean of the settings stays one
        return _PLACEHOLDER.sub(lambda match: self._replaced(match, text, path), text)

    def _replaced(self, match: re.Match[str], text: str, path: Path) -> str:
        if match[1]:
            return match[0][1:]
        value = self._value_of(match[2], path, match[0])
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _value_of(self, inside: str, path: Path, written: str) -> Any:
        """Return the value of one placeholder; what is `written` where there is none, which is a fault."""
        name, has_default, default = inside.partition(":-")
        if _VARIABLE.match(name):
            value: Any = os.environ.get(name, _MISSING)
            if has_default and value == "":
                return default  # as in a shell
        elif _SETTING.match(name):
            value = _looked_up(self._settings or {}, name)
        else:
            self._fault(
                path,
                f"{written!r} is no placeholder.",
                "Write ${NAME}, ${NAME:-default} or ${Section:Key}; $${...} is the text itself.",
            )
            return written
        if value is not _MISSING:
            self._values.append((path, str(value), written))
            return value
        if has_default:
            return default
        if self._needs_settings if ":" in name else self._needs_environment:
            self._missing(name, path)
        self.unresolved.add(path)
        return written

    def _missing(self, name: str, path: Path) -> None:
        if ":" not in name:
            near = get_close_matches(name, os.environ, n=1, cutoff=0.8)
            named = f" Did you mean {near[0]!r}?" if near else ""
            hint = f"Set it, or write ${{{name}:-default}}.{named}"
            self._fault(path, f"the environment variable {name} is not set.", hint)
        else:
            known = _names_of(self._settings or {})
            given = nearest(name, known) or "Pass settings={...}."
            self._fault(path, f"there is no setting {name!r}.", given)

    def _fault(self, path: Path, message: str, hint: str) -> None:
        self.unresolved.add(path)
        self.faults.append(SpecFault(path, message, hint))


def escaped(value: Any) -> Any:
    """Return `value` with what would be read as a placeholder escaped."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: f"${match[0]}", value)
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list) else value


def _looked_up(settings: Mapping[str, Any], name: str) -> Any:
    if name in settings:
        found = settings[name]
    else:
        found = settings
        for part in name.split(":"):
            if not isinstance(found, Mapping) or part not in found:
                return _MISSING
            found = found[part]
    return found if isinstance(found, str | int | float) else _MISSING


def _names_of(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            names += _names_of(value, f"{prefix}{key}:")
        else:
            names.append(f"{prefix}{key}")
    return names
