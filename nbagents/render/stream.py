"""Markdown that is still being written, as small changes to a page: what is closed is never sent again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markdown_it.token import Token

from nbagents.render.changes import Op, append_text, change, unmarked
from nbagents.render.markdown import Block, parse, parse_structure, render_blocks, to_block, top_level
from nbagents.render.maths import MathForm
from nbagents.render.tail import held_back, is_open_fence, last_leaf, mark_end
from nbagents.render.text import TextDecoder

LONG = 8_000
"""Characters of an open block above which it is drawn again only when it has grown by a sixteenth."""

SLOW = 0.1
"""CPU seconds of a draw after which the next one waits until the open block has grown by half."""

_LISTS = ("bullet_list_open", "ordered_list_open")
_NEVER_SURE = (*_LISTS, "footnote_reference_open", "code_block")
_ENDS_WITH_ITS_LINE = ("hr", "heading_open", "math_block")
_DELIMITER_ROW = re.compile(r"[ \t]*[-:|][ \t:|-]*\Z")


@dataclass
class _Container:
    """A list or table at the end of the text, with the items that are closed."""

    kind: str
    head: str
    prefix: str
    """What must stand before an item to parse it: the first two lines of a table."""
    source: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    loose: bool = False


@dataclass
class _OpenFence:
    """A code fence at the end of the text: its lines need no parser."""

    marker: str
    length: int
    indent: int
    floor: int
    """A line with less indentation ends the list item that the fence stands in."""
    shown: int
    """Characters of the tail that a page has."""

    def may_close(self, line: str) -> bool:
        """Whether `line` is, or may become, the closing one."""
        bare = line.strip()
        return set(bare) == {self.marker} and (len(bare) >= self.length or not line.endswith("\n"))


class MarkdownStream:
    """A growing Markdown text and the page that shows it.

    `feed` takes text as it comes, `flush` gives the changes since the last one (`nbagents.render.changes` says what
    they mean), `finish` those of the end. Traffic and time grow linearly with the text: blocks, list items and table
    rows that are closed are final, the open end grows by appended text, code is coloured when its fence closes. Only a
    text that defines link targets or footnotes may have blocks corrected when it finishes.

    After `finish`, `html()` equals `render_markdown` of the whole text, however it was cut.

    Example:
        >>> stream = MarkdownStream()
        >>> stream.feed("Hello *wor")
        >>> stream.flush()
        [{'op': 'block', 'i': 0, 'html': '<p dir="auto" data-tail="">Hello <em>wor</em></p>'}]
        >>> stream.feed("ld*")
        >>> stream.finish()
        [{'op': 'tail', 'i': 0, 'keep': 1, 'html': '<em>world</em>'}, {'op': 'close', 'i': 0}]
        >>> stream.html()
        '<p dir="auto">Hello <em>world</em></p>'
    """

    def __init__(self, *, maths: MathForm = "mathml") -> None:
        self._decoder = TextDecoder()
        self._pieces: list[str] = []
        self._incoming: list[str] = []
        self._tail = ""  # the source after the last closed block; in a container, after its last closed item
        self._dirty = False
        self._finished = False
        self._env: dict[str, Any] = {"part": True, "maths": maths}
        self._has_footnotes = False
        self._placed: list[Block] = []  # what a page has
        self._closed = 0
        self._container: _Container | None = None
        self._fence: _OpenFence | None = None
        self._drawn = 0  # length of the tail when it was last drawn
        self._draw_seconds = 0.0

    @property
    def text(self) -> str:
        """The source so far."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> None:
        """Add text.

        Raises:
            ValueError: the stream has finished.
        """
        if self._finished:
            raise ValueError("This stream has finished; make a new MarkdownStream for a new text.")
        self._take(self._decoder.feed(piece))

    def flush(self) -> list[Op]:
        """Return the changes since the last flush."""
        ops: list[Op] = []
        self._join()
        if not self._dirty or (self._fence is not None and self._grow_fence(ops)):
            return ops
        if not self._is_due():
            return ops
        self._dirty = False
        started = time.thread_time()
        self._settle(ops)
        self._draw_open(ops)
        self._draw_seconds = time.thread_time() - started
        return ops

    def finish(self) -> list[Op]:
        """Close the text and return the last changes."""
        ops: list[Op] = []
        if self._finished:
            return ops
        self._take(self._decoder.finish())
        self._join()
        self._finished = True
        self._close_blocks(self._whole(self._tail), ops)
        self._tail = ""
        self._cut(self._closed, ops)
        if self._has_footnotes or self._env.get("references"):
            self._closed = 0
            everything = render_blocks(self.text, {"maths": self._env["maths"]})
            for block in everything:
                self._place(self._closed, block, ops)
                self._closed += 1
            self._cut(self._closed, ops)
        self._dirty = False
        return ops

    def html(self) -> str:
        """Return what has been flushed, as HTML."""
        return "\n".join(unmarked(block.html) for block in self._placed)

    def blocks(self) -> list[str]:
        """Return the HTML of each block as a page has it now, marks included."""
        return [block.html for block in self._placed]

    def _take(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._incoming.append(text)

    def _join(self) -> None:
        if self._incoming:
            self._tail += "".join(self._incoming)
            self._incoming.clear()
            self._dirty = True

    def _is_due(self) -> bool:
        """Whether the open block has grown enough to be drawn again, for its length and for what a draw costs."""
        grown = len(self._tail) - self._drawn
        if self._draw_seconds > SLOW:
            return grown * 2 >= self._drawn
        return len(self._tail) <= LONG or grown * 16 >= len(self._tail)

    def _whole(self, tail: str) -> str:
        """The source of the open block, of which `tail` is the open part."""
        return "".join(self._container.source) + tail if self._container else tail

    def _settle(self, ops: list[Op]) -> None:
        """Close the blocks that no further text can change."""
        prefix = self._container.prefix if self._container else ""
        source = prefix + self._tail
        lines = _settled_lines(source)
        if not lines:
            return
        end = _offset(source, lines)
        self._close_blocks(self._whole(source[len(prefix) : end]), ops)
        self._tail = source[end:]

    def _close_blocks(self, source: str, ops: list[Op]) -> None:
        for block in render_blocks(source, self._env):
            self._place(self._closed, block, ops)
            self._closed += 1
        self._has_footnotes |= bool(self._env.pop("footnotes", {}).get("refs"))
        self._container = self._fence = None

    def _draw_open(self, ops: list[Op]) -> None:
        self._drawn = len(self._tail)
        self._fence = None
        prefix = self._container.prefix if self._container else ""
        source = prefix + self._tail
        held = held_back(source)
        source = source[: len(source) - held]
        env = self._open_env()
        tokens = parse(source, env)
        groups = list(top_level(tokens))
        if self._container:
            self._agree_on_spacing(self._container, groups[0])
        mark_end(tokens)
        blocks = [block for block in (to_block(group, env) for group in groups) if block.head]
        own_items = blocks[0].items if blocks else ()
        if self._container:
            blocks[0] = Block(self._container.head, (*self._container.items, *own_items), blocks[0].foot)
        for n, block in enumerate(blocks):
            self._place(self._closed + n, block, ops)
        self._cut(self._closed + len(blocks), ops)
        if len(groups) == 1 and len(own_items) > 1:
            self._close_items(groups[0], own_items, source)
        self._fence = _fence_to_grow(tokens, source, len(self._tail) - held)

    def _open_env(self) -> dict[str, Any]:
        # A definition that is still being written must not count as the first one of its name.
        return {**self._env, "open": True, "references": dict(self._env.get("references", {}))}

    def _agree_on_spacing(self, container: _Container, tokens: Sequence[Token]) -> None:
        """Make the open items as loose or tight as the list: one blank line between any two decides for all."""
        if container.kind not in _LISTS:
            return
        if container.loose:
            for token in tokens:
                if token.level == 2 and token.type.startswith("paragraph_"):
                    token.hidden = False
        elif _is_loose(tokens):
            container.loose = True
            env = self._open_env()
            whole = next(top_level(parse("".join(container.source) + self._tail, env)))
            container.items = list(to_block(whole, env).items[: len(container.items)])

    def _close_items(self, tokens: Sequence[Token], items: Sequence[str], source: str) -> None:
        """Keep the items whose successor has its first line: the tail begins at the last one from now on."""
        first = tokens[0]
        level, kind = (1, "list_item_open") if first.type in _LISTS else (2, "tr_open")
        starts = [t.map[0] for t in tokens if t.level == level and t.type == kind and t.map is not None][-len(items) :]
        lines = source.split("\n")
        is_sure = _can_come_first if kind == "list_item_open" else _is_decided
        last = max((n for n, line in enumerate(starts) if is_sure(lines, line)), default=0)
        if not last:
            return
        if self._container is None:
            start = first.map[0] if first.map is not None else 0
            prefix = source[_offset(source, start) : _offset(source, start + 2)] if kind == "tr_open" else ""
            block = self._placed[self._closed]
            self._container = _Container(first.type, block.head, prefix, loose=_is_loose(tokens))
            cut = _offset(source, starts[last])
        else:
            cut = _offset(source, starts[last]) - len(self._container.prefix)
        self._container.items.extend(unmarked(item) for item in items[:last])
        self._container.source.append(self._tail[:cut])
        self._tail = self._tail[cut:]
        self._drawn = len(self._tail)

    def _grow_fence(self, ops: list[Op]) -> bool:
        """Append the new lines of an open fence; return whether it is open still."""
        fence, tail = self._fence, self._tail
        assert fence is not None
        out: list[str] = []
        while fence.shown < len(tail):
            end = tail.find("\n", fence.shown) + 1 or len(tail)
            line = tail[fence.shown : end]
            if fence.shown == 0 or tail[fence.shown - 1] == "\n":
                ends = line.endswith("\n")
                bare = line.strip()
                if not ends and (fence.may_close(line) or (not bare and fence.indent)):
                    break
                indent = len(line) - len(line.lstrip(" "))
                if (
                    fence.may_close(line)
                    or (bare and indent < fence.floor)
                    or (fence.indent and "\t" in line[: indent + 1])
                ):
                    self._fence, self._drawn = None, 0
                    break
                line = line[min(indent, fence.indent) :]
            out.append(line)
            fence.shown = end
        if out:
            self._append(len(self._placed) - 1, "".join(out), ops)
        self._dirty = self._fence is None
        return self._fence is not None

    def _append(self, i: int, text: str, ops: list[Op]) -> None:
        block = self._placed[i]
        if block.items:
            items = (*block.items[:-1], append_text(block.items[-1], text))
            self._placed[i] = Block(block.head, items, block.foot)
        else:
            self._placed[i] = Block(append_text(block.head, text))
        ops.append({"op": "append", "i": i, "text": text})

    def _place(self, i: int, new: Block, ops: list[Op]) -> None:
        """Make block `i` of the page look like `new`."""
        if i == len(self._placed):
            self._placed.append(new)
            ops.append({"op": "block", "i": i, "html": new.html})
            return
        old, self._placed[i] = self._placed[i], new
        if not old.items and not new.items:
            ops.extend(change(i, None, old.html, new.html))
        elif (old.head, old.foot) != (new.head, new.foot) or len(new.items) < len(old.items):
            ops.append({"op": "block", "i": i, "html": new.html})
        else:
            for j, item in enumerate(new.items):
                before = old.items[j] if j < len(old.items) else None
                if before != item:
                    ops.extend(change(i, j, before, item))

    def _cut(self, n: int, ops: list[Op]) -> None:
        if n < len(self._placed):
            del self._placed[n:]
            ops.append({"op": "cut", "n": n})


def _settled_lines(source: str) -> int:
    """How many lines of `source` belong to blocks that stay as they are, whatever follows."""
    groups = [group for group in top_level(parse_structure(source)) if group[0].map is not None]
    lines = source.split("\n")
    complete = len(lines) - 1
    settled = 0
    for n, group in enumerate(groups):
        first = group[0]
        start, end = first.map or (0, 0)
        following = groups[n + 1][0].map if n + 1 < len(groups) else None
        if following is not None:
            sure = _is_decided(lines, following[0])
        elif first.type in _NEVER_SURE:
            sure = False
        elif end == complete:
            closed = first.type == "fence" and not is_open_fence(first, source)
            sure = (closed or first.type in _ENDS_WITH_ITS_LINE) and _is_decided(lines, start)
        else:
            sure = end < complete
        if not sure:
            break
        settled = end
    return settled


def _is_decided(lines: Sequence[str], n: int) -> bool:
    """Whether no further text changes what begins at line `n`: one with a bar may be the first of a table."""
    complete = len(lines) - 1
    return n < complete and ("|" not in lines[n] or n + 1 < complete)


def _can_come_first(lines: Sequence[str], n: int) -> bool:
    """Whether the item that begins at line `n` is still one when the text begins with it, and not a table."""
    return _is_decided(lines, n) and not ("|" in lines[n] and _DELIMITER_ROW.match(lines[n + 1]))


def _fence_to_grow(tokens: Sequence[Token], source: str, shown: int) -> _OpenFence | None:
    """Return the open fence that ends `tokens`, if its lines can be taken without the parser."""
    at = last_leaf(tokens)
    leaf = tokens[at] if at >= 0 else None
    if leaf is None or leaf.type != "fence" or not leaf.meta.get("open") or leaf.map is None:
        return None
    if any(token.type in ("blockquote_open", "footnote_reference_open") for token in tokens):
        return None
    lines = source.split("\n")
    line = lines[leaf.map[0]]
    indent = line.find(leaf.markup)
    if "\t" in line[:indent] or not _is_decided(lines, leaf.map[0]):
        return None
    return _OpenFence(leaf.markup[0], len(leaf.markup), indent, indent if leaf.level else 0, shown)


def _is_loose(tokens: Sequence[Token]) -> bool:
    return any(token.level == 2 and token.type == "paragraph_open" and not token.hidden for token in tokens)


def _offset(source: str, lines: int) -> int:
    """Return where the line after the first `lines` begins."""
    at = 0
    for _ in range(lines):
        at = source.find("\n", at) + 1 or len(source)
    return at
