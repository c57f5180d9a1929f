"""Hostile text in Markdown that others will render: no HTML, no image, no link but to http, https and mailto."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from nbagents.render.markdown import parse_structure, top_level
from nbagents.render.sanitize import LINK
from nbagents.render.text import clean_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~$&])")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
_PLAIN_FENCE = re.compile(r"[\s>*+\-\d.)]*(?:`{3,}|~{3,})[\w+#.-]*\s*\Z")
_PROSE = re.compile(
    r"""\\(?P<escaped>.?)
      | (?P<ticks>`+)
      | (?P<autolink><https?://[^\s<>"'`\\]+>)
      | (?P<tag><(?=[A-Za-z/!?]))
      | (?P<image>!(?=\[))
      | (?P<link>\](?:\(|:)\s*<?)(?P<target>[^\s)>]*)""",
    re.VERBOSE | re.DOTALL,
)


def escape_markdown(text: str) -> str:
    """Return `text` so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", clean_text(text)).replace("\n", "  \n")


def as_entities(text: str) -> str:
    """Return `text` on one line, safe inside HTML tags that stand in Markdown: no dialect finds markup in it."""
    return _PUNCTUATION.sub(lambda match: f"&#{ord(match[0])};", " ".join(clean_text(text).split()))


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a code block that nothing in it can close."""
    text = clean_text(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def safe_markdown(text: str) -> str:
    """Return Markdown with its HTML shown as text, its images as links and foreign schemes cut; code is as it was.

    Markdown has many dialects, so the result is parsed again with HTML allowed: where anything but text, code and good
    links is left, the whole text becomes a code block.
    """
    source = clean_text(text)
    lines = source.split("\n")
    parts: list[str] = []
    at = 0
    for block in top_level(parse_structure(source)):
        first = block[0]
        if first.map is None:
            continue
        start, end = first.map
        parts += _safe_lines(lines[at:start])
        if first.type in ("fence", "code_block"):
            parts.append(fenced(first.content.removesuffix("\n"), _language(first)))
        else:
            parts += _safe_block(lines[start:end], block, start)
        at = end
    result = "\n".join([*parts, *_safe_lines(lines[at:])])
    return result if _is_inert(result) else fenced(source)


def _language(fence: Token) -> str:
    found = re.match(r"\s*([\w+#.-]{1,20})", fence.info)
    return found[1] if found else ""


def _safe_block(lines: Sequence[str], block: Sequence[Token], offset: int) -> Iterable[str]:
    """Make the lines of a block safe, but for the lines of fences in it that every dialect takes for code."""
    out: list[str] = []
    at = 0
    for token in block:
        if token.type != "fence" or token.map is None:
            continue
        start, end = token.map[0] - offset, token.map[1] - offset
        if start >= at and _PLAIN_FENCE.match(lines[start]):
            out += [*_safe_lines(lines[at:start]), *lines[start:end]]
            at = end
    return [*out, *_safe_lines(lines[at:])]


def _safe_lines(lines: Sequence[str]) -> list[str]:
    return _safe_prose("\n".join(lines)).split("\n") if lines else []


def _safe_prose(text: str) -> str:
    out: list[str] = []
    at = 0
    while (match := _PROSE.search(text, at)) is not None:
        out.append(text[at : match.start()])
        at = match.end()
        if match["ticks"]:
            code, at = _code_span(text, match["ticks"], at)
            out.append(code)
        elif match["tag"] or match["escaped"] == "<":
            out.append("&lt;")
        elif match["link"]:
            out.append(match[0] if _is_good(match["target"]) else f"{match['link']}#")
        elif not match["image"]:
            out.append(match[0])
    return "".join([*out, text[at:]])


def _code_span(text: str, ticks: str, start: int) -> tuple[str, int]:
    """Return the code span that `ticks` open before `start`, and its end; only the ticks where it never closes."""
    closing = re.compile(rf"(?<!`){ticks}(?!`)").search(text, start)
    body = text[start : closing.start()] if closing is not None else ""
    if closing is None or "\n\n" in body:
        return ticks, start
    if re.search(r"<[A-Za-z/!?]|!\[|\][(:]", body):
        return f"<code>{as_entities(body)}</code>", closing.end()
    return text[start - len(ticks) : closing.end()], closing.end()


def _is_good(target: str) -> bool:
    bare = re.sub(r"[\x00-\x20\\]", "", unescape(target))
    return not _SCHEME.match(bare) or bool(LINK.match(bare))


def _is_inert(markdown: str) -> bool:
    for token in _strict_parser().parse(markdown):
        for inner in (token, *(token.children or ())):
            if inner.type == "html_inline" and inner.content in ("<code>", "</code>"):
                continue
            if inner.type in ("html_block", "html_inline", "image"):
                return False
            if inner.type == "link_open" and not _is_good(str(inner.attrs["href"])):
                return False
    return True


class _AnyLink(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return True  # it shall be found


@cache
def _strict_parser() -> MarkdownIt:
    return _AnyLink("commonmark", {"html": True}).enable("table")
