"""The summary of a docstring and what it says of each parameter, in Google, NumPy and Sphinx layout."""

from __future__ import annotations

import inspect
import re

_GOOGLE_SECTION = re.compile(
    r"^(args|arguments|parameters|params|keyword args|keyword arguments|other parameters):\s*$", re.I
)
_ANY_SECTION = re.compile(
    r"^(args|arguments|parameters|params|keyword args|keyword arguments|other parameters|returns?|yields?|raises?"
    r"|examples?|notes?|attributes|see also|warnings?|warns|references|todo):\s*$",
    re.I,
)
_NUMPY_SECTIONS = frozenset(
    {
        *("parameters", "other parameters", "returns", "yields", "receives", "raises", "warns", "warnings"),
        *("see also", "notes", "references", "examples", "attributes", "methods"),
    }
)
_UNDERLINE = re.compile(r"^[-=]{3,}\s*$")
_GOOGLE_ENTRY = re.compile(r"^(?:[-*+]\s+)?`{0,2}\*{0,2}(\w+)\*{0,2}`{0,2}\s*(?:\(.*?\))?\s*:(?!:)\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD = re.compile(r"^:(\w+)\b\s*([^:]*):\s*(.*)$")


def parse_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the description without its sections, and the description of each parameter by name."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    summary: list[str] = []
    parameters: dict[str, str] = {}
    i = 0
    while i < len(lines):
        line = lines[i]
        underlined = _is_underlined(lines, i) and line.strip().lower() in _NUMPY_SECTIONS
        if _ANY_SECTION.match(line) or underlined:
            start = i + (2 if underlined else 1)
            end = _section_end(lines, start, underlined=underlined)
            if underlined and line.strip().lower() in {"parameters", "other parameters"}:
                _read_numpy(lines[start:end], parameters)
            elif _GOOGLE_SECTION.match(line):
                _read_google(lines[start:end], parameters)
            i = end
        elif line.startswith(":") and _SPHINX_FIELD.match(line):
            i = _read_sphinx(lines, i, parameters)
        else:
            summary.append(line)
            i += 1
    return "\n".join(summary).strip(), parameters


def _is_underlined(lines: list[str], i: int) -> bool:
    return i + 1 < len(lines) and bool(_UNDERLINE.match(lines[i + 1]) and lines[i].strip())


def _section_end(lines: list[str], start: int, *, underlined: bool) -> int:
    """Return where the section ends. One whose entries stand at the margin ends with the first blank line."""
    first = next((line for line in lines[start:] if line.strip()), "")
    at_margin = not underlined and bool(_GOOGLE_ENTRY.match(first)) and not _ANY_SECTION.match(first)
    for i in range(start, len(lines)):
        line = lines[i]
        if not line.strip():
            if at_margin and i > start:
                return i
            continue
        if _is_underlined(lines, i) or (line.startswith(":") and _SPHINX_FIELD.match(line)):
            return i
        if not underlined and not line[0].isspace() and (not at_margin or _ANY_SECTION.match(line)):
            return i
    return len(lines)


def _read_google(lines: list[str], parameters: dict[str, str]) -> None:
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    if not indents:
        return
    name = ""
    for line in lines:
        text = line.strip()
        entry = _GOOGLE_ENTRY.match(text) if len(line) - len(line.lstrip()) == min(indents) else None
        if entry:
            name = entry.group(1)
            parameters[name] = entry.group(2).strip()
        elif text and name:
            parameters[name] = f"{parameters[name]} {text}".strip()


def _read_numpy(lines: list[str], parameters: dict[str, str]) -> None:
    names: list[str] = []
    for line in lines:
        text = line.strip()
        if text and not line[0].isspace():
            entry = _NUMPY_ENTRY.match(text)
            names = [name.strip(" *") for name in entry.group(1).split(",")] if entry else []
            parameters.update(dict.fromkeys(names, ""))
        elif text:
            for name in names:
                parameters[name] = f"{parameters[name]} {text}".strip()


def _read_sphinx(lines: list[str], i: int, parameters: dict[str, str]) -> int:
    match = _SPHINX_FIELD.match(lines[i])
    assert match is not None
    kind, words, text = match.group(1), match.group(2).split(), match.group(3)
    i += 1
    while i < len(lines) and lines[i].strip() and lines[i][0].isspace():
        text = f"{text} {lines[i].strip()}"
        i += 1
    if kind in {"param", "parameter", "arg", "argument", "key", "keyword"} and words:
        parameters[words[-1].lstrip("\\*")] = text.strip()
    return i
