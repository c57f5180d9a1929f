"""Hostile text in Markdown that others will render: no HTML, no image, no link but to http, https and mailto."""

from __future__ import annotations

import re
from html import unescape

from nbagents.render.sanitize import LINK
from nbagents.render.text import clean_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~$&])")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_TARGET = re.compile(r"(\]\(\s*<?|^ {0,3}\[[^\]]+\]:\s*<?)([^\s)>]*)", re.M)
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.I)


def escape_markdown(text: str) -> str:
    """Return `text` so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", clean_text(text)).replace("\n", "  \n")


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a code block that nothing in it can close."""
    text = clean_text(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def safe_markdown(text: str) -> str:
    """Return Markdown with its HTML shown as text, its images as links and foreign schemes cut; code is as it was."""
    parts: list[str] = []
    prose: list[str] = []
    fence = ""
    for line in clean_text(text).split("\n"):
        marker = _FENCE.match(line)
        if fence:
            parts.append(line)
            if marker and marker[1][0] == fence[0] and len(marker[1]) >= len(fence) and line.strip() == marker[1]:
                fence = ""
        elif marker:
            parts += [*_flush(prose), line]
            fence = marker[1]
        else:
            prose.append(line)
    return "\n".join([*parts, *_flush(prose), *([fence] if fence else [])])


def _flush(prose: list[str]) -> list[str]:
    if not prose:
        return []
    text, out, end = "\n".join(prose), [], 0
    prose.clear()
    for span in _CODE_SPAN.finditer(text):
        out += [_safe_prose(text[end : span.start()]), span[0]]
        end = span.end()
    return ["".join([*out, _safe_prose(text[end:])])]


def _safe_prose(text: str) -> str:
    return _TARGET.sub(_safe_target, text.replace("<", "&lt;").replace("![", "["))


def _safe_target(match: re.Match[str]) -> str:
    target = re.sub(r"[\x00-\x20\\]", "", unescape(match[2]))
    return match[0] if not _SCHEME.match(target) or LINK.match(target) else f"{match[1]}#"
