"""YAML as specs have it: the plain values of YAML 1.2, no tags of any language, no key twice. Reading and writing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from nbagents.spec.documents import MAX_DEPTH, MAX_VALUES, Document, Tree, duplicate, read_text
from nbagents.spec.faults import Path, SpecError, SpecFault

_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"
_RULES = (
    ("null", r"|~|null|Null|NULL", ("", "~", "n", "N")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        tuple("-+0123456789."),
    ),
    ("merge", "<<", ("<",)),
)
"""What plain scalars mean. YAML 1.1 made `no` a boolean, `12:30` the number 750 and `2024-10-21` a date."""


class _Loader(yaml.SafeLoader):
    """Composes nodes; constructs nothing."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own place for them

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        self._nodes += 1
        line: int = self.line + 1  # of the reader, which is no more than a token ahead
        if self._depth > MAX_DEPTH + 2:  # a key is a level too
            raise SpecError([SpecFault((), f"it is nested more than {MAX_DEPTH} deep.", line=line)])
        if self._nodes > 2 * MAX_VALUES:  # and a node of its own
            raise SpecError([SpecFault((), f"it holds more than {MAX_VALUES:,} values.", line=line)])
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Dumper(yaml.SafeDumper):
    """Writes values so that readers of YAML 1.1 and of 1.2 read the same."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _pattern, _first in _RULES:
    _Loader.add_implicit_resolver(f"{_CORE}{_name}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
    if _name != "merge":
        _Dumper.add_implicit_resolver(f"{_CORE}{_name}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    return dumper.represent_scalar(f"{_CORE}str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def read_yaml(text: str, name: str | None = None) -> Document:
    """Read YAML.

    Raises:
        SpecError: it is none, holds several documents, or is too large.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        if node is None:
            raise SpecError([SpecFault((), "it is empty.")], name=name)
        reader = _Reader(name)
        root = reader.value(node, ())
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character: Any = error.character
        told = f"it holds the character {character:#06x}, which YAML does not allow."
        raise SpecError([SpecFault((), told, "Write it as an escape in double quotes.", line)], name=name) from None
    except yaml.MarkedYAMLError as error:
        raise SpecError([_yaml_fault(error)], name=name) from None  # its own text quotes lines, which may hold keys
    except RecursionError:
        raise SpecError([SpecFault((), "it is nested too deeply.")], name=name) from None
    except SpecError as error:
        raise SpecError(error.faults, name=name) from None
    return Document(root, reader.lines, name, faults=reader.tree.faults)


def write_yaml(root: Any) -> str:
    """Return values as YAML: long texts as blocks; as JSON, which is YAML too, where that would not come back alike."""
    text: str = yaml.dump(root, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    try:
        same = read_text(text, "yaml").root == root
    except SpecError:
        same = False
    return text if same else json.dumps(root, indent=2) + "\n"


class _Reader:
    """Turns nodes into values, with their lines."""

    def __init__(self, name: str | None) -> None:
        self.tree = Tree(name)
        self.lines: dict[Path, int] = {}

    def value(self, node: Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.tree.count(path, line)  # also what an alias repeats, and what holds itself
        self.lines.setdefault(path, line)
        if isinstance(node, MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == f"{_CORE}seq":
            return [self.value(item, (*path, place)) for place, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and node.tag.removeprefix(_CORE) in _SCALARS:
            return self._scalar(node, path)
        tag = node.tag.replace(_CORE, "!!", 1)
        self.tree.refuse(path, f"the tag {tag} is not allowed.", "A spec holds plain values only.")
        return None

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[tuple[Node, Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged += self._merged(value_node, path)
                continue
            key = key_node.value if isinstance(key_node, ScalarNode) else "a list or a mapping"
            is_text = key_node.tag == f"{_CORE}str"
            if not is_text:
                line = key_node.start_mark.line + 1
                self.tree.refuse(path, f"keys are texts, not {key}.", f'Write "{key}" in quotes.', line)
                continue
            line, place = key_node.start_mark.line + 1, (*path, key)
            if key in found:
                self.tree.refuse(place, duplicate(key, self.lines[place], line), line=line)
                continue
            self.lines[place] = line
            found[key] = self.value(value_node, place)
        for key_node, value_node in merged:
            if key_node.tag == f"{_CORE}str" and key_node.value not in found:
                found[key_node.value] = self.value(value_node, (*path, key_node.value))
        return found

    def _merged(self, node: Node, path: Path) -> list[tuple[Node, Node]]:
        """The pairs that `<<:` brings in; those that come first count."""
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        if not all(isinstance(one, MappingNode) for one in nodes):
            self.tree.refuse(path, "<<: takes a mapping, or a list of them.")
            return []
        return [pair for one in nodes for pair in one.value]

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        kind, text = node.tag.removeprefix(_CORE), node.value
        try:
            value = _SCALARS[kind](text)
        except (ValueError, KeyError):
            self.tree.refuse(path, f"{text!r} is no {kind}.")
            return None
        return self.tree.number(value, path) if isinstance(value, float) else value


def _integer(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(text: str) -> float:
    return float(
        text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").lower().replace(".nan", "nan")
    )


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _integer,
    "float": _float,
}


def _yaml_fault(error: yaml.MarkedYAMLError) -> SpecFault:
    mark = error.problem_mark or error.context_mark
    told = ", ".join(str(part) for part in (error.context, error.problem) if part)
    hint = None
    if "'\\t'" in told:
        hint = "Indent with spaces."
    elif "mapping values are not allowed" in told:
        hint = "A text with a colon and a space goes into quotes."
    return SpecFault((), f"it is no YAML: {told}.", hint, mark.line + 1 if mark is not None else None)
