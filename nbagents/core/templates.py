"""Instructions as templates: rendered for each run, never stored, never cached."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nbagents.core import callables
from nbagents.core.errors import ConfigurationError

TemplateFormat = Literal["nbagents", "jinja2"]
Missing = Literal["error", "empty"]

_VARIABLE = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """How instructions are rendered with the arguments of a run.

    Args:
        format: `nbagents` replaces `{{$name}}` and nothing else; `jinja2` is Jinja2 without escaping, in a sandbox that
            reads arguments, calls methods of plain values only (texts, numbers, lists, dates) and limits loops.
        missing: a name without an argument is an `error`, or `empty` text.

    Raises:
        ConfigurationError: another format or policy.

    Example:
        >>> PromptTemplate("nbagents").render("Help {{$customer}} with {JSON}.", {"customer": "Ada"})
        'Help Ada with {JSON}.'
    """

    format: TemplateFormat
    missing: Missing = "error"

    def __post_init__(self) -> None:
        if self.format not in get_args(TemplateFormat) or self.missing not in get_args(Missing):
            raise ConfigurationError(
                f"There is no template format {self.format!r} with missing={self.missing!r}.",
                hint="Use 'nbagents' or 'jinja2', and missing='error' or 'empty'.",
            )

    def render(self, text: str, arguments: Mapping[str, Any]) -> str:
        """Return `text` with the arguments in their places; values are not looked through again.

        Raises:
            ConfigurationError: an argument is missing, or the template is broken.
        """
        return self._jinja2(text, arguments) if self.format == "jinja2" else self._nbagents(text, arguments)

    def _nbagents(self, text: str, arguments: Mapping[str, Any]) -> str:
        wanted = dict.fromkeys(_VARIABLE.findall(text))
        absent = [name for name in wanted if name not in arguments]
        if absent and self.missing == "error":
            raise _missing(", ".join(absent), arguments)
        return _VARIABLE.sub(lambda match: _as_text(arguments.get(match.group(1), "")), text)

    def _jinja2(self, text: str, arguments: Mapping[str, Any]) -> str:
        from jinja2 import TemplateSyntaxError, UndefinedError

        from nbagents.core.sandbox import Sandbox

        try:
            return Sandbox(strict=self.missing == "error").rendered(text, arguments)
        except UndefinedError as error:
            raise _missing(str(error), arguments) from error
        except TemplateSyntaxError as error:
            raise ConfigurationError(f"The instructions are no valid Jinja2 template: {error}") from error
        except Exception as error:  # whatever a template calculates with: its author's mistake
            raise ConfigurationError(
                f"The instructions cannot be rendered: {type(error).__name__}: {error}",
                hint="A template reads values and calls nothing of theirs: pass what it shows as arguments.",
            ) from error


def as_template(template: PromptTemplate | str | None) -> PromptTemplate | None:
    """Return what an agent's argument `template` means; None leaves instructions as they are.

    Raises:
        ConfigurationError: no such format.
    """
    if template is None or isinstance(template, PromptTemplate):
        return template
    return PromptTemplate(template)  # type: ignore[arg-type]  # checked there


def warn_of_no_template(text: str | None, arguments: Mapping[str, Any]) -> bool:
    """Warn of instructions that name an argument as a template does, and are none; tell whether they do."""
    if not text or not arguments:
        return False
    named = next((name for name in _VARIABLE.findall(text) if name in arguments), None)
    if named is not None:
        warnings.warn(
            f'The instructions are sent as they are, with {{{{${named}}}}} in them: pass template="nbagents" to the '
            "agent to put the argument there.",
            UserWarning,
            stacklevel=callables.depth_of_caller(),
        )
    return named is not None


def check_arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the arguments of an agent or a run.

    Raises:
        ConfigurationError: no mapping with names as keys.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ConfigurationError(
            f"arguments is a mapping of names to values, not {type(arguments).__name__}.",
            hint="Pass arguments={'customer': 'Ada'}.",
        )
    wrong = next((name for name in arguments if not isinstance(name, str)), None)
    if wrong is not None:
        raise ConfigurationError(f"The names of arguments are texts, not {wrong!r}.")
    return dict(arguments)


def _missing(names: str, arguments: Mapping[str, Any]) -> ConfigurationError:
    given = ", ".join(sorted(arguments)) or "none"
    return ConfigurationError(
        f"The instructions need arguments that are missing: {names}.",
        hint=f"Pass them as arguments={{...}} to the agent or the run. Given: {given}.",
    )


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list | tuple) else str(value)
