r"""What counts as maths in Markdown, and LaTeX to MathML.

The rule. `\(x\)`, `\[x\]` and `$$x$$` are maths wherever they close within their paragraph, so never over a blank
line; `$x$` is maths if all of this holds, and text otherwise:

- the opening `$` has no letter, digit, `$` or backslash before it and no space after it;
- the next `$` that is not escaped is on the same line, has no space before it and no letter or digit after it;
- there is no backtick between the two;
- what begins with a digit also has one of `\ ^ _ { =`, or a letter and no space: `$2x$` and `$10^3$` are maths, but
  not `$5 or 10$`.

So `from $5 to $10`, `US$5`, `$HOME/$USER` and `\$7` are text, and code is never looked at.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape, unescape
from typing import TYPE_CHECKING, Literal
from xml.etree.ElementTree import tostring

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

MathForm = Literal["mathml", "tex"]
"""MathML, or the LaTeX source between delimiters that MathJax of a notebook page typesets."""

LATEX_LIMIT = 4_000
"""Characters of a formula above which its source is shown."""

_NESTING_LIMIT = 60
_ENTITY = re.compile(r"&#x[0-9A-Fa-f]{1,6};")
_DELIMITERS = {"$$": "$$", "\\(": "\\)", "\\[": "\\]"}


def maths_plugin(md: MarkdownIt) -> None:
    """Teach `md` formulas: tokens `math_inline` and `math_block`, whose `content` is LaTeX."""
    md.block.ruler.before("fence", "math_block", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    md.inline.ruler.before("escape", "math_inline", _inline)


def to_html(latex: str, *, display: bool, form: MathForm = "mathml") -> str:
    r"""Return `latex` as HTML; its source where it cannot be converted.

    Example:
        >>> to_html("x", display=False, form="tex")
        '<span class="nbagents-math mathjax_process tex2jax_process">\\(x\\)</span>'
    """
    source = rf"\[{latex}\]" if display else rf"\({latex}\)"
    if form == "tex":
        return f'<span class="nbagents-math mathjax_process tex2jax_process">{escape(source, quote=False)}</span>'
    return _mathml(latex, display) or f'<code dir="ltr">{escape(source, quote=False)}</code>'


@lru_cache(maxsize=512)
def _mathml(latex: str, display: bool) -> str | None:
    if len(latex) > LATEX_LIMIT or _depth(latex) > _NESTING_LIMIT:
        return None
    from latex2mathml.converter import convert_to_element

    try:
        root = convert_to_element(latex, display="block" if display else "inline")
        for element in root.iter():
            # The converter writes symbols as references and escapes nothing: `tostring` does both right.
            for part in ("text", "tail"):
                value: str | None = getattr(element, part)
                if value:
                    setattr(element, part, _ENTITY.sub(lambda match: unescape(match[0]), value))
        return tostring(root, encoding="unicode")
    except Exception:  # noqa: BLE001  a parser of another project on text of a model: any failure means "show the source"
        return None


def _depth(latex: str) -> int:
    depth = deepest = 0
    for match in re.finditer(r"\\.|[{}]", latex, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


def closing_dollar(text: str, start: int) -> int:
    """Return where the `$` is that closes the formula opened at `start`, by the rule above; -1 if it is text."""
    before = text[start - 1] if start else ""
    after = text[start + 1 : start + 2]
    if before.isalnum() or before in {"$", "\\"} or not after or after.isspace() or after == "$":
        return -1
    end = start + 1
    while True:
        end = text.find("$", end)
        if end < 0 or end - start > LATEX_LIMIT:
            return -1
        if not _is_escaped(text, end):
            break
        end += 1
    body = text[start + 1 : end]
    following = text[end + 1 : end + 2]
    if "\n" in body or "`" in body or body[-1].isspace() or following.isalnum() or following == "$":
        return -1
    if body[0].isdigit() and not re.search(r"[\\^_{=]", body):
        return end if re.fullmatch(r"\S*[^\W\d_]\S*", body) else -1
    return end


def _is_escaped(text: str, at: int) -> bool:
    run = at
    while run and text[run - 1] == "\\":
        run -= 1
    return (at - run) % 2 == 1


def _inline(state: StateInline, silent: bool) -> bool:
    text, start = state.src, state.pos
    opening = text[start : start + 2]
    if opening in _DELIMITERS:
        closing = _DELIMITERS[opening]
        end = text.find(closing, start + 2, min(state.posMax, start + LATEX_LIMIT))
        body = text[start + 2 : end] if end >= 0 else ""
        if not body.strip() or "\n\n" in body:
            return False
        return _push(state, body.strip(), end + 2, silent, display=opening != "\\(")
    if text[start] != "$":
        return False
    end = closing_dollar(text, start)
    if end < 0 or end >= state.posMax:
        return False
    return _push(state, text[start + 1 : end], end + 1, silent, display=False)


def _push(state: StateInline, latex: str, end: int, silent: bool, *, display: bool) -> bool:
    if not silent:
        token = state.push("math_inline", "", 0)
        token.content = latex
        token.meta = {"display": display}
    state.pos = end
    return True


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A formula that begins a line. It ends on the line that ends with its delimiter.

    Without one before the next blank line it is text; while a text is still being written, it is left out.
    """
    if state.is_code_block(start_line):
        return False
    first = _line(state, start_line)
    closing = _DELIMITERS.get(first[:2], "\\)")
    body = first[2:].rstrip()
    closed_at = body.find(closing)
    if closing == "\\)" or (closed_at >= 0 and (closed_at != len(body) - 2 or not body[:closed_at].strip())):
        return False
    if silent:
        return True
    lines, line = [body], start_line
    while not lines[-1].endswith(closing):
        line += 1
        if line >= end_line or state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return _unclosed(state, start_line, line)
        lines.append(_line(state, line).rstrip())
    token = state.push("math_block", "", 0)
    token.content = "\n".join(lines)[:-2].strip()
    token.map = [start_line, line + 1]
    state.line = line + 1
    return True


def _unclosed(state: StateBlock, start_line: int, end_line: int) -> bool:
    state.line = end_line
    source = "\n".join(_line(state, line) for line in range(start_line, end_line))
    if state.env.get("open") and end_line >= state.lineMax and len(source) <= LATEX_LIMIT:
        return True
    opening = state.push("paragraph_open", "p", 1)
    text = state.push("inline", "", 0)
    opening.map = text.map = [start_line, end_line]
    text.content = source.strip()
    text.children = []
    state.push("paragraph_close", "p", -1)
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
