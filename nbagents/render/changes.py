"""The changes from one state of a block's HTML to the next, each small and applied without thinking.

A page holds one element per block. What it must do for each operation, by its `op`:

- `block`: the element of block `i` gets `html` as its content; it is made if `i` is the next one.
- `item`: in block `i`, take the first child, or its `tbody` if that is a table; its child `j` is replaced by `html`, or
  `html` is added if `j` is the next one.
- `append`: `text` goes to the end of the element marked `data-tail` in block `i`, as text.
- `tail`: the element marked `data-tail` in block `i` keeps its first `keep` child nodes; `html` follows them.
- `close`: the mark `data-tail` in block `i` goes.
- `cut`: blocks from `n` on go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from nbagents.render.text import escape_text

Op = dict[str, Any]
"""One operation; JSON-able."""

_MARK = ' data-tail="">'  # a bare `>` stands in no text and in no attribute, so no text can look like this
_CLOSERS = ("</code></pre>", "</p>", "</li>", "</ul>", "</ol>", "</blockquote>", *(f"</h{n}>" for n in range(1, 7)))
_NODE = re.compile(r'<(/?)([a-z0-9]+)(?: [a-z-]+="[^"]*")*>|[^<]+')
_VOID = frozenset(["br", "hr", "img"])


def unmarked(html: str) -> str:
    """Return `html` without the mark of the element that text is appended to."""
    return html.replace(_MARK, ">")


def change(i: int, j: int | None, old: str | None, new: str) -> Iterator[Op]:
    """Yield the operations that make `new` of `old` in block `i`, or in its item `j`."""
    edits = None if old is None else _edits(i, old, new)
    if edits is not None:
        yield from edits
    elif j is None:
        yield {"op": "block", "i": i, "html": new}
    else:
        yield {"op": "item", "i": i, "j": j, "html": new}


def append_text(html: str, text: str) -> str:
    """Return what a page has after `text` was appended to the marked element of `html`."""
    _, end = _span(html)
    return html[:end] + escape_text(text) + html[end:]


def _edits(i: int, old: str, new: str) -> list[Op] | None:
    """The operations inside the marked element of `old`, if those are enough."""
    if _MARK not in old:
        return [] if old == new else None
    start, end = _span(old)
    before, after = old[:start], old[end:]
    closes = _MARK not in new
    if closes:
        before = unmarked(before)
    if not (new.startswith(before) and new.endswith(after) and len(new) >= len(before) + len(after)):
        return None
    content = new[len(before) : len(new) - len(after)]
    edits = _content_edits(i, old[start:end], content)
    if edits is None or sum(len(edit.get("html", "")) for edit in edits) > len(new) * 0.8:
        return None
    return edits + [{"op": "close", "i": i}] * closes


def _content_edits(i: int, old: str, new: str) -> list[Op] | None:
    before, after = _nodes(old), _nodes(new)
    if before is None or after is None:
        return None
    if new.startswith(old) and "<" not in new[len(old) :]:
        return _append(i, new[len(old) :])
    shorter = min(len(before), len(after))
    keep = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    edits: list[Op] = []
    goes_on = keep == len(before) - 1 and keep < len(after) and after[keep].startswith(before[keep])
    if goes_on and not before[keep].startswith("<"):
        edits = _append(i, after[keep][len(before[keep]) :])
        keep += 1
    return [*edits, {"op": "tail", "i": i, "keep": keep, "html": "".join(after[keep:])}]


def _append(i: int, text: str) -> list[Op]:
    return [{"op": "append", "i": i, "text": unescape(text)}] if text else []


def _span(html: str) -> tuple[int, int]:
    """Where the content of the marked element begins and ends; only closing tags follow it."""
    start = html.index(_MARK) + len(_MARK)
    end = len(html)
    while True:
        stop = len(html[:end].rstrip()) if html[end - 1].isspace() else end
        closer = next((tag for tag in _CLOSERS if html.endswith(tag, start, stop)), None)
        if closer is None:
            return start, end
        end = stop - len(closer)


def _nodes(html: str) -> list[str] | None:
    """Return the top-level nodes of `html`, texts and whole elements; None if it is not a whole piece."""
    nodes = []
    depth = start = 0
    for match in _NODE.finditer(html):
        closing, tag = match[1], match[2]
        if tag is not None and tag not in _VOID:
            depth += -1 if closing else 1
        if depth < 0:
            return None
        if depth == 0:
            nodes.append(html[start : match.end()])
            start = match.end()
    return nodes if depth == 0 else None
