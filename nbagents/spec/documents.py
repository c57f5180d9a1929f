"""Reading a spec: YAML, JSON or a dict becomes one tree of plain values, with the line of each. Nothing is run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nbagents.core.errors import ConfigurationError
from nbagents.spec.faults import Path, SpecError, SpecFault, sorted_faults

MAX_BYTES = 1_000_000
"""The largest file."""
MAX_VALUES = 20_000
"""The most values in one, those that aliases repeat included."""
MAX_DEPTH = 40
"""How deeply they may be nested."""

Format = Literal["yaml", "json", "any"]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass
class Document:
    """A spec as it was written.

    Attributes:
        root: its values: dicts with texts as keys, lists, texts, numbers, booleans and None.
        lines: the line of each value, by its path; empty for a dict.
        name: what it is called in errors: the file.
        folder: what relative paths in it begin with.
        faults: what is wrong so far.
    """

    root: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    name: str | None = None
    folder: str = field(default_factory=os.getcwd)
    faults: list[SpecFault] = field(default_factory=list)

    def error(self, *more: SpecFault) -> SpecError:
        """Return the error that names all faults."""
        return SpecError(sorted_faults([*self.faults, *more], self.lines), name=self.name)


def read_file(path: str | os.PathLike[str]) -> Document:
    """Read a file: `.json` is JSON, anything else YAML (or JSON, which begins with a brace).

    Raises:
        ConfigurationError: there is no such file, or it cannot be read.
        SpecError: it is no YAML or JSON.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigurationError(f"path must be the path of a file, not {type(path).__name__}.")
    place = os.path.abspath(os.path.expanduser(os.fspath(path)))
    name = os.path.basename(place)
    try:
        with open(place, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError as error:
        raise ConfigurationError(f"{path} is a folder.", hint="Name a file in it.") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"{path} cannot be read: {why}.") from error
    document = read_text(content, "json" if name.lower().endswith(".json") else "yaml", name=name)
    document.folder = os.path.dirname(place)
    return document


def read_text(text: str | bytes, format: Format = "any", *, name: str | None = None) -> Document:
    """Read a text that is YAML or JSON.

    Raises:
        SpecError: it is neither, or too large.
    """
    if not isinstance(text, str | bytes):
        hint = "Use create_from_dict or from_dict for a dict." if isinstance(text, Mapping) else None
        raise ConfigurationError(f"A spec is a text here, not {type(text).__name__}.", hint=hint)
    if len(text) > MAX_BYTES:
        raise _refusal(f"it is larger than {MAX_BYTES:,} bytes.", name)
    if isinstance(text, bytes):
        text = _decoded(text, name)
    text = text.removeprefix("\ufeff")
    if format == "json" or text.lstrip()[:1] in ("{", "["):
        try:
            return _read_json(text, name)
        except json.JSONDecodeError as error:
            if format == "json":
                raise _refusal(f"it is no JSON: {error.msg}.", name, error.lineno) from error
    from nbagents.spec.yamltext import read_yaml

    return read_yaml(text, name)


def read_dict(payload: Mapping[str, Any]) -> Document:
    """Take a spec that is a dict already; it is copied.

    Raises:
        ConfigurationError: it is no dict.
    """
    if not isinstance(payload, Mapping):
        hint = "Use create_from_yaml or from_yaml for a text." if isinstance(payload, str | bytes) else None
        raise ConfigurationError(f"A spec is a dict here, not {type(payload).__name__}.", hint=hint)
    tree = Tree()
    root = tree.copied(payload, ())
    return Document(root, faults=tree.faults)


class Tree:
    """Takes values over one by one, within the limits; what cannot be taken is a fault, and None in the tree."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.faults: list[SpecFault] = []
        self._values = 0

    def count(self, path: Path, line: int | None = None) -> None:
        """Count one more value.

        Raises:
            SpecError: they are too many, or nested too deeply.
        """
        self._values += 1
        if self._values > MAX_VALUES:
            raise _refusal(f"it holds more than {MAX_VALUES:,} values, aliases counted out.", self.name, line)
        if len(path) > MAX_DEPTH:
            raise _refusal(f"it is nested more than {MAX_DEPTH} deep.", self.name, line)

    def refuse(self, path: Path, message: str, hint: str | None = None, line: int | None = None) -> None:
        """Note a fault; its line is that of the path unless it is given."""
        self.faults.append(SpecFault(path, message, hint, line))

    def copied(self, value: Any, path: Path) -> Any:
        """Return a copy of what a program gave."""
        self.count(path)
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float):
            return self.number(value, path)
        if isinstance(value, Mapping):
            pairs = ((key, item) for key, item in value.items() if self.is_key(key, path))
            return {key: self.copied(item, (*path, key)) for key, item in pairs}
        if isinstance(value, list | tuple):
            return [self.copied(item, (*path, place)) for place, item in enumerate(value)]
        self.refuse(
            path,
            f"a spec holds texts, numbers, booleans, lists and dicts, not {type(value).__name__}.",
            "Objects are passed beside it, such as tools= and client=.",
        )
        return None

    def number(self, value: float, path: Path) -> float | None:
        """Return a number that can be sent."""
        if math.isfinite(value):
            return value
        self.refuse(path, "this is no number that can be sent.", "Use a finite one, or null.")
        return None

    def is_key(self, key: Any, path: Path) -> bool:
        """Whether something may be a key."""
        if isinstance(key, str):
            return True
        self.refuse(path, f"keys are texts, not {key!r}.", f'Write "{key}" in quotes.')
        return False


def _decoded(content: bytes, name: str | None) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal("it is not UTF-8.", name, line) from error


def _read_json(text: str, name: str | None) -> Document:
    """Read JSON; where it is none, JSONDecodeError."""
    try:
        json.loads(text, parse_constant=lambda _: 0)
    except RecursionError as error:
        raise _refusal("it is nested too deeply.", name) from error
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise _refusal(f"it holds a number that is too long: {error}", name) from error
    reader = _JSONReader(text, name)
    root = reader.value(())
    return Document(root, reader.lines, name, faults=reader.tree.faults)


class _JSONReader:
    """Walks through a text that is known to be JSON, and notes the line of each value."""

    def __init__(self, text: str, name: str | None) -> None:
        self.tree = Tree(name)
        self.lines: dict[Path, int] = {}
        self._tokens = _tokens(text)

    def value(self, path: Path, token: tuple[str, int] | None = None) -> Any:
        text, line = token or next(self._tokens)
        self.tree.count(path, line)
        self.lines.setdefault(path, line)
        if text == "{":
            return self._object(path)
        if text == "[":
            return self._array(path)
        if text in ("NaN", "Infinity", "-Infinity"):
            return self.tree.number(math.nan, path)
        found = json.loads(text)
        return self.tree.number(found, path) if isinstance(found, float) else found

    def _object(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text, line in self._tokens:
            if text == "}":
                break
            if text == ",":
                continue
            key = json.loads(text)
            place = (*path, key)
            next(self._tokens)  # the colon
            if key in found:
                self.tree.refuse(place, duplicate(key, self.lines[place], line), line=line)
                self.value(place)
            else:
                self.lines[place] = line
                found[key] = self.value(place)
        return found

    def _array(self, path: Path) -> list[Any]:
        found: list[Any] = []
        for token in self._tokens:
            if token[0] == "]":
                break
            if token[0] != ",":
                found.append(self.value((*path, len(found)), token))
        return found


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, at = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        yield match[0], line


def duplicate(key: str, first: int | None, second: int) -> str:
    """Return what is said of a key that is there twice."""
    return f"the key {key!r} is there twice, in line {first} and line {second}."


def _refusal(message: str, name: str | None, line: int | None = None) -> SpecError:
    return SpecError([SpecFault((), message, line=line)], name=name)
