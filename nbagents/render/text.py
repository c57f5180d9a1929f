"""Text as it may be shown: one form of line ends and surrogates, nothing that hides, bounded lengths."""

from __future__ import annotations

import re
from html import escape

_SURROGATES = re.compile("[\ud800-\udfff]")
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


def clean_text(text: str) -> str:
    """Return `text` with `\\n` line ends, no NUL, and U+FFFD where a surrogate stands alone.

    Example:
        >>> clean_text("a\\r\\nb\\ud800")
        'a\\nb�'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextDecoder:
    """`clean_text` for a text that comes in pieces: pairs that are cut in two are joined."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what is certain so far."""
        text = self._held + piece
        if text.endswith("\r") or "\ud800" <= text[-1:] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        else:
            self._held = ""
        return clean_text(text)

    def finish(self) -> str:
        """Return the rest."""
        rest, self._held = self._held, ""
        return clean_text(rest)


def visible(text: str) -> str:
    """Return text of a tool or a provider with what would not be seen made visible, and terminal colours removed.

    Characters that reorder or hide others could make an approval show one thing and do another.

    Example:
        >>> visible("rm \\u202egnp.x")
        'rm \\\\u202egnp.x'
    """
    text = clean_text(text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def escape_text(text: str) -> str:
    """Return `text` escaped for an element's content, in the form in which the sanitiser writes it."""
    return escape(text, quote=False).replace("\xa0", "&nbsp;")


def bounded(text: str, limit: int) -> str:
    """Return the first `limit` characters of `text`, and how many were left out.

    Example:
        >>> bounded("abcdef", 4)
        'abcd\\n… 2 more characters'
    """
    left = len(text) - limit
    return f"{text[:limit]}\n… {left:,} more characters" if left > 0 else text


def on_one_line(text: str, limit: int) -> str:
    """Return the beginning of `text` on one line.

    Example:
        >>> on_one_line("a\\n  b c", 3)
        'a b…'
    """
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit and len(text) <= limit * 4 else f"{line[:limit].rstrip()}…"
