"""Names that services accept for tools and agents: letters, digits, `_` and `-`, at most 64."""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 64
VALID_NAME = re.compile(r"^[A-Za-z0-9_-]{1,64}\Z")


def safe_name(text: str, *, fallback: str) -> str:
    """Return a valid name made from `text`; the same text gives the same name, different texts different ones.

    Invalid characters become `_`, runs of `_` collapse, a leading digit gets a prefix, nothing left gives `fallback`;
    where that lost something, a short hash of `text` keeps the names distinct.

    Example:
        >>> safe_name("add", fallback="tool")
        'add'
        >>> safe_name("Help Desk", fallback="agent") == safe_name("Help/Desk", fallback="agent")
        False
    """
    if VALID_NAME.match(text) and not text[0].isdigit():
        return text
    cleaned = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", text)).strip("_")
    if cleaned[:1].isdigit():
        cleaned = f"_{cleaned}"
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{(cleaned or fallback)[: MAX_LENGTH - 7]}_{digest}"
