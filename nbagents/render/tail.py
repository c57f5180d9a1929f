"""The end of a text that is still being written: what to wait for, what to close for the eye."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.token import Token

from nbagents.render.maths import closing_dollar

WAIT_LIMIT = 200
"""Characters of a link or formula that are waited for; after that it is shown as it is."""

# For short lines only: on hostile ones it is quadratic.
_UNDECIDED = re.compile(
    r"""[ \t]*(?:(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))[ \t]*)*   # quotes and list items that hold
    (?: `{1,2} | `{3,}[^`\n]* | ~{1,2} | ~{3,}[^\n]*                 # a fence, its language
      | \#{1,6} | [-+*_=][-+*_= \t]* | \d{1,9}[.)]? | \$ | \\        # a heading, list, rule or underline
      | \[[^\]\n]{0,200}(?:\](?::[^\n]*)?)?                          # a definition, a task, a link
    )?[ \t]*\Z""",
    re.VERBOSE,
)
_DELIMITER_ROW = re.compile(r"[ \t]*\|?[ \t:|-]*\Z")


def held_back(source: str) -> int:
    """Return how many characters at the end of `source` are better not drawn yet: they may become anything."""
    start = source.rfind("\n") + 1
    last = source[start:]
    if len(last) <= WAIT_LIMIT * 2 and _UNDECIDED.match(last):
        held = len(last)
    elif last.lstrip().startswith("|") and not _is_row(source, start):
        return len(last)
    else:
        held = 0
    if _DELIMITER_ROW.match(last) and start:  # also where the line after a first row is still empty
        header = source.rfind("\n", 0, start - 1) + 1
        if source[header:start].lstrip().startswith("|") and not _is_row(source, header):
            return len(source) - header
    return held


def _is_row(source: str, start: int) -> bool:
    """Whether the line before the one at `start` looks like a part of the same table."""
    before = source.rfind("\n", 0, max(start - 1, 0)) + 1
    return source[before:start].lstrip().startswith("|")


def complete(tokens: Sequence[Token], source: str) -> None:
    """Close what is open at the end of `tokens`: inline text by its markers, code by `open` in its meta."""
    at = last_leaf(tokens)
    while at >= 0 and tokens[at - 1].tag == "td" and not tokens[at].content:
        at -= 3  # cells of the row that are still to come
    if at >= 0 and tokens[at].type == "inline":
        tokens[at].content = complete_inline(tokens[at].content)
    elif at >= 0 and tokens[at].type == "code_block":
        tokens[at].meta = {"open": True}
        tokens[at].content = tokens[at].content.rstrip("\n")  # its last line may go on
    elif at >= 0 and tokens[at].type == "fence" and is_open_fence(tokens[at], source):
        tokens[at].meta = {"open": True}


def mark_end(tokens: Sequence[Token]) -> None:
    """Put the attribute `data-tail` on the element that further text goes into; open code has it anyway."""
    at = last_leaf(tokens)
    if at < 0 or tokens[at].type != "inline":
        return
    holder = at - 1
    if tokens[holder].hidden:
        level = tokens[holder].level - 1
        while tokens[holder].type != "list_item_open" or tokens[holder].level != level:
            holder -= 1
    if tokens[holder].tag not in ("td", "th"):
        tokens[holder].attrSet("data-tail", "")


def last_leaf(tokens: Sequence[Token]) -> int:
    """Return the position of the text or code that ends `tokens`; -1 where an empty element does."""
    at = next((n for n in range(len(tokens) - 1, -1, -1) if tokens[n].nesting >= 0), -1)
    return at if at >= 0 and tokens[at].nesting == 0 else -1


def is_open_fence(fence: Token, source: str) -> bool:
    """Whether a fence that ends `source` lacks its closing line."""
    begin, end = fence.map or (0, 0)
    last = source.split("\n")[end - 1].expandtabs(4)
    bare = last.strip(" >")
    too_far_in = fence.level == 0 and last.startswith("    ")
    return end - begin < 2 or too_far_in or len(bare) < len(fence.markup) or set(bare) != {fence.markup[0]}


_MARKS = re.compile(r"\\.?|`+|\*+|_+|~~|!?\[|\]\(|\]|\$\$?|<|&", re.DOTALL)


def complete_inline(text: str) -> str:
    """Return the text of an unfinished paragraph so that it shows no stray marker.

    Open emphasis, strikethrough and code are closed; links and formulas that have only begun are left out, or reduced
    to their text.

    Example:
        >>> complete_inline("a **bold wo"), complete_inline("see [the docs](https://exa")
        ('a **bold wo**', 'see the docs')
    """
    return _Completion(text).result()


class _Completion:
    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[str] = []
        self.brackets: list[tuple[int, int]] = []
        self.code = ""

    def result(self) -> str:
        at = 0
        while at < len(self.text) and (match := _MARKS.search(self.text, at)):
            at = self._take(match[0], match.start(), match.end())
        self._resolve_bracket(len(self.text))
        if self.open or self.code:
            return self.text.rstrip() + self.code + "".join(reversed(self.open))
        return self.text

    def _take(self, mark: str, start: int, end: int) -> int:
        """Handle one mark; return where to go on."""
        match mark[0]:
            case "`":
                return self._code(mark, start, end)
            case "*" | "_" | "~":
                return self._emphasis(mark, start, end)
            case "[" | "!":
                self.brackets.append((start, end))
            case "]":
                return self._bracket_end(mark, start, end)
            case "\\" if mark == "\\":
                return self._cut(start, end)
            case "\\" if mark in ("\\(", "\\["):
                return self._formula(start, end, "\\)" if mark == "\\(" else "\\]")
            case "$" if mark == "$$":
                return self._formula(start, end, "$$")
            case "$":
                return self._dollar(start, end)
            case "<" if re.compile(r"<(?:[A-Za-z][^\s<>]*)?\Z").match(self.text, start):
                return self._cut(start, end)
            case "&" if re.compile(r"&#?\w{0,20}\Z").match(self.text, start):
                return self._cut(start, end)
        return end

    def _cut(self, start: int, end: int) -> int:
        """Leave out what begins at `start`, unless much has followed it."""
        if len(self.text) - start > WAIT_LIMIT:
            return end
        self.text = self.text[:start]
        return start

    def _code(self, mark: str, start: int, end: int) -> int:
        closing = re.compile(rf"(?<!`){mark}(?!`)").search(self.text, end)
        if closing is not None:
            return closing.end()
        if not self.text[end:].strip(" `"):
            return self._cut(start, end)
        self.text = self.text.rstrip("`")
        self.code = mark
        return len(self.text)

    def _emphasis(self, mark: str, start: int, end: int) -> int:
        before, after = self.text[start - 1 : start], self.text[end : end + 1]
        if mark[0] == "_" and before.isalnum() and after.isalnum():
            return end
        left = len(mark)
        if before.strip():
            while left and self.open and self.open[-1][0] == mark[0]:
                closed = min(left, len(self.open[-1]))
                left -= closed
                rest = self.open.pop()[closed:]
                if rest:
                    self.open.append(rest)
                    break
        if left and not after:
            return self._cut(end - left, end)
        if left and after.strip() and not (mark[0] == "_" and before.isalnum()):
            self.open.append(mark[:left])
        return end

    def _bracket_end(self, mark: str, start: int, end: int) -> int:
        if not self.brackets:
            return start + 1
        if mark == "](":
            closing = self.text.find(")", end)
            if closing < 0:
                self._resolve_bracket(start)
                return len(self.text)
            end = closing + 1
        self.brackets.pop()
        return end

    def _resolve_bracket(self, label_end: int) -> None:
        """Reduce a link that has only begun to its text, and drop an image that has."""
        if not self.brackets or len(self.text) - self.brackets[-1][0] > WAIT_LIMIT * 2:
            return
        start, end = self.brackets.pop()
        label = self.text[end:label_end] if end - start == 1 else ""
        self.text = self.text[:start] + label

    def _formula(self, start: int, end: int, closing: str) -> int:
        at = self.text.find(closing, end, end + WAIT_LIMIT * 20)
        return at + 2 if at >= 0 else self._cut(start, end)

    def _dollar(self, start: int, end: int) -> int:
        closing = closing_dollar(self.text, start)
        if closing >= 0:
            return closing + 1
        before, rest = self.text[start - 1 : start], self.text[end:]
        undecided = not before.isalnum() and "$" not in rest and "\n" not in rest and "`" not in rest
        if undecided and not rest[:1].isspace() and not rest[:1].isdigit():
            return self._cut(start, end)
        return end
