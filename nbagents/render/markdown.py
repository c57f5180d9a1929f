"""Markdown to safe HTML, block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.footnote.index import footnote_tail

from nbagents.render import maths
from nbagents.render.highlight import highlight
from nbagents.render.maths import MathForm
from nbagents.render.sanitize import LINK, RASTER_IMAGE, sanitize
from nbagents.render.tail import complete
from nbagents.render.text import clean_text

MAX_DEPTH = 20
"""Levels of quotes, lists and their items in each other; what is deeper is shown as it is written."""


def render_markdown(text: str, *, maths: MathForm = "mathml") -> str:
    """Return `text` as safe HTML.

    CommonMark without HTML, and tables, strikethrough, task lists, footnotes and maths (`nbagents.render.maths` has the
    rule that tells maths from money). Links lead to http, https or mailto; an image from elsewhere is a link to it, for
    it is not fetched unasked; code has classes for colours.

    Args:
        text: any text; lone surrogates and NUL become U+FFFD.
        maths: `mathml`, which needs no script, or `tex` for pages that may strip MathML and run MathJax.

    Example:
        >>> render_markdown("Costs *$5* to $10")
        '<p dir="auto">Costs <em>$5</em> to $10</p>'
    """
    return "\n".join(block.html for block in render_blocks(clean_text(text), {"maths": maths}))


@dataclass(frozen=True, slots=True)
class Block:
    """One top-level block of a text. A list has its items apart, a table its rows; else all is in `head`."""

    head: str
    items: tuple[str, ...] = ()
    foot: str = ""

    @property
    def html(self) -> str:
        """The whole."""
        return self.head + "".join(self.items) + self.foot


def parse(source: str, env: MutableMapping[str, Any]) -> list[Token]:
    """Return the tokens of `source`.

    Keys of `env`, besides what the parser keeps there: `maths` (a `MathForm`); `part`: this is a part of a text, its
    footnotes come later; `open`: its end is still being written.
    """
    return _parser().parse(source, env)


def parse_structure(source: str) -> list[Token]:
    """Return the tokens of blocks only, which is enough to see where each begins and ends."""
    tokens: list[Token] = []
    parser = _parser()
    parser.block.parse(source, parser, {}, tokens)
    return tokens


def top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each element that stands at the top of `tokens`."""
    start = depth = 0
    for at, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : at + 1]
            start = at + 1


def render_blocks(source: str, env: MutableMapping[str, Any]) -> list[Block]:
    """Return the blocks of clean `source` that show anything; see `parse` for `env`."""
    blocks = (to_block(tokens, env) for tokens in top_level(parse(source, env)))
    return [block for block in blocks if block.head]


def to_block(tokens: Sequence[Token], env: MutableMapping[str, Any]) -> Block:
    """Return the HTML of one top-level block."""
    first = tokens[0]
    if first.type in ("bullet_list_open", "ordered_list_open"):
        start = f' start="{int(first.attrs["start"])}"' if "start" in first.attrs else ""
        head, foot = f'<{first.tag} dir="auto"{start}>', f"</{first.tag}>"
        items = top_level(tokens[1:-1])
        return Block(head, tuple(_clean_within(f"<{first.tag}>", _html(i, env), foot) for i in items), foot)
    if first.type == "table_open":
        body = next((n for n, token in enumerate(tokens) if token.type == "tbody_open"), len(tokens) - 1)
        foot = "</tbody></table>"
        head = sanitize(f"{_html(tokens[:body], env)}<tbody>{foot}").removesuffix(foot)
        rows = top_level(tokens[body + 1 : -2])
        return Block(head, tuple(_clean_within("<table><tbody>", _html(r, env), foot) for r in rows), foot)
    return Block(sanitize(_html(tokens, env)).strip())


def _html(tokens: Sequence[Token], env: MutableMapping[str, Any]) -> str:
    parser = _parser()
    return str(parser.renderer.render(tokens, parser.options, env)).strip()


def _clean_within(before: str, html: str, after: str) -> str:
    """Sanitise a piece that is only legal inside `before` and `after`."""
    return sanitize(before + html + after).removeprefix(before).removesuffix(after)


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return True  # `_harden` takes links that lead nowhere good away and leaves their text


@cache
def _parser() -> MarkdownIt:
    parser = _Parser("commonmark", {"html": False, "maxNesting": MAX_DEPTH + 4}, renderer_cls=_Renderer)
    assert isinstance(parser.renderer, _Renderer)
    parser.enable(["table", "strikethrough"])
    maths.maths_plugin(parser)
    own_rules = dict(parser.renderer.rules)
    footnote_plugin(parser, inline=False)
    parser.renderer.rules.update(own_rules)
    parser.core.ruler.at("footnote_tail", _place_footnotes)
    parser.core.ruler.after("block", "complete", _complete_end)
    parser.core.ruler.push("harden", _harden)
    parser.block.ruler.before("table", "too_deep", _too_deep)
    return parser


def _too_deep(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    if silent or state.level < MAX_DEPTH:
        return False
    token = state.push("code_block", "code", 0)
    token.content = state.getLines(start_line, end_line, state.blkIndent, True)
    token.map = [start_line, end_line]
    state.line = end_line
    return True


def _place_footnotes(state: StateCore) -> None:
    if not state.env.get("part"):
        footnote_tail(state)
        return
    depth = 0
    kept = []
    for token in state.tokens:
        depth += token.type == "footnote_reference_open"
        if not depth:
            kept.append(token)
        depth -= token.type == "footnote_reference_close"
    state.tokens = kept


def _complete_end(state: StateCore) -> None:
    if state.env.get("open"):
        complete(state.tokens, state.src)


def _harden(state: StateCore) -> None:
    for at, token in enumerate(state.tokens):
        if token.type == "inline":
            token.children = list(_safe_links(token.children or ()))
            if at > 1 and state.tokens[at - 2].type == "list_item_open":
                _mark_task(state.tokens[at - 2], token)
        elif token.type in ("td_open", "th_open") and "style" in token.attrs:
            token.attrs = {"align": str(token.attrs["style"]).removeprefix("text-align:")}
        if token.nesting == 1 and token.tag in _DIRECTED:
            token.attrs = {"dir": "auto", **token.attrs}


_DIRECTED = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "ul", "ol", "blockquote", "table", "td", "th"}


def _safe_links(children: Sequence[Token]) -> Iterator[Token]:
    """Drop the tags of links that lead nowhere good, and tell images whether they stand in a link."""
    kept: list[bool] = []
    for token in children:
        if token.type == "link_open":
            kept.append(bool(LINK.match(str(token.attrs.get("href", "")))))
            if kept[-1]:
                yield token
        elif token.type == "link_close":
            if kept.pop():
                yield token
        else:
            if token.type == "image":
                token.meta = {"in_link": any(kept)}
            yield token


def _mark_task(item: Token, text: Token) -> None:
    first = text.children[0] if text.children else None
    box = re.match(r"\[([ xX])\][ \t]", first.content) if first is not None and first.type == "text" else None
    if first is not None and box is not None:
        first.content = ("☐ " if box[1] == " " else "☑ ") + first.content[box.end() :]
        item.attrs = {"class": "nbagents-task", **item.attrs}


class _Renderer(RendererHTML):
    """HTML of the tokens that differ from the library's; `_html` sanitises all of it."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        words = token.info.split(maxsplit=1)
        language = words[0] if words and re.fullmatch(r"[\w+#.-]{1,20}", words[0]) else ""
        is_open = bool(token.meta.get("open"))
        code = escape(token.content, quote=False) if is_open else highlight(token.content, language)
        label = f' data-lang="{language}"' if language else ""
        return f'<pre dir="ltr"{label}><code{_tail(is_open)}>{code}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        code = escape(token.content, quote=False)
        return f'<pre dir="ltr"><code{_tail(bool(token.meta.get("open")))}>{code}</code></pre>\n'

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f'<code dir="ltr">{escape(tokens[idx].content, quote=False)}</code>'

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        source = str(token.attrs.get("src", ""))
        alt = self.renderInlineAsText(token.children, options, env)
        if RASTER_IMAGE.match(source):
            return f'<img src="{escape(source)}" alt="{escape(alt)}">'
        host = _host(source)
        label = escape(f"🖼 {alt or 'image'} (image at {host})" if host else f"🖼 {alt or 'image'}", quote=False)
        if host and not token.meta.get("in_link"):
            return f'<a class="nbagents-image" href="{escape(source)}">{label}</a>'
        return label

    def math_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        return maths.to_html(token.content, display=token.meta["display"], form=env.get("maths", "mathml"))

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        formula = maths.to_html(tokens[idx].content, display=True, form=env.get("maths", "mathml"))
        return f'<div class="nbagents-math">{formula}</div>'

    def footnote_ref(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<sup>[{tokens[idx].meta['id'] + 1}]</sup>"

    def footnote_anchor(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return ""

    def footnote_block_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<section class="nbagents-footnotes"><ol dir="auto">'

    def footnote_block_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</ol></section>"

    def footnote_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<li dir="auto">'

    def footnote_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</li>"


def _tail(is_open: bool) -> str:
    return ' data-tail=""' if is_open else ""


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return parts.hostname or "" if parts.scheme in ("http", "https") else ""
    except ValueError:  # a bracketed host that is no IPv6 address
        return ""
