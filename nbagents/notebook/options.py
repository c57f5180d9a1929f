"""The options line of `%agent` and `%%agent`: options first, then free text that is left exactly as it was typed."""

from __future__ import annotations

import re
from dataclasses import dataclass

USAGE = """\
%agent  [options] [--] the question          (blocks; gives the response)
%%agent [options]                            (the cell's text is the question; streams)

  -n NAME        the agent: a variable that holds one, or its name
  -s SESSION     the conversation to go on with, by a name of your own
  --new          begin the conversation anew
  --model NAME   another model for this question
  --vars         replace {name} in the text by the variable of exactly that name
  --no-wait      (%%agent) return at once, answer in the background
  --             what follows is text"""

_WITH_VALUE = {"-n": "name", "-s": "session", "--model": "model"}
_FLAGS = {"--new": "new", "--vars": "vars", "--no-wait": "no_wait"}
_OPTION = re.compile(r"\s*(--?[A-Za-z][\w-]*)(=|(?=\s|$))")
_SEPARATOR = re.compile(r"\s*--(?=\s|$)\s?")
_QUOTED = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)')(?=\s|$)""")
_BARE = re.compile(r"""\s*([^\s"']\S*)""")


class OptionError(ValueError):
    """An options line that cannot be read; the message ends with the usage."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\n\n{USAGE}")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What an options line asks for."""

    name: str | None = None
    session: str | None = None
    model: str | None = None
    new: bool = False
    vars: bool = False
    no_wait: bool = False


def parse_options(line: str) -> tuple[AgentOptions, str]:
    """Split `line` into its options and the free text after them.

    Options end at the first word that is none, or at `--`. A value may be quoted; backslashes are characters.

    Raises:
        OptionError: an unknown option, or a value that is missing, repeated or not closed.

    Example:
        >>> options, text = parse_options("--new -s trip what's --model for?")
        >>> options.session, text
        ('trip', "what's --model for?")
    """
    found: dict[str, str | bool] = {}
    rest = line
    while match := _OPTION.match(rest):
        option, has_value = match.group(1), match.group(2) == "="
        rest = rest[match.end() :]
        field = _WITH_VALUE.get(option) or _FLAGS.get(option)
        if field is None:
            raise OptionError(f"There is no option {option}. Write -- before text that begins like one.")
        if field in found:
            raise OptionError(f"{option} is given twice.")
        if option in _WITH_VALUE:
            found[field], rest = _value(option, rest)
        elif has_value:
            raise OptionError(f"{option} takes no value.")
        else:
            found[field] = True
    if separator := _SEPARATOR.match(rest):
        return AgentOptions(**found), rest[separator.end() :]  # type: ignore[arg-type]
    return AgentOptions(**found), rest.strip()  # type: ignore[arg-type]


def _value(option: str, rest: str) -> tuple[str, str]:
    if quoted := _QUOTED.match(rest):
        value = quoted.group(1) if quoted.group(1) is not None else quoted.group(2)
        end = quoted.end()
    elif rest.lstrip()[:1] in ('"', "'"):
        raise OptionError(f"The value of {option} has no closing quotation mark.")
    elif (bare := _BARE.match(rest)) and not bare.group(1).startswith("-"):
        value, end = bare.group(1), bare.end()
    else:
        raise OptionError(f"{option} needs a value.")
    if not value:
        raise OptionError(f"{option} needs a value that is not empty.")
    return value, rest[end:]
