"""What must never be shown: known secret values and text that looks like one. Every text that leaves is redacted."""

from __future__ import annotations

import json
import re
import string
import threading

_MASK = "[redacted]"
_MIN_LENGTH = 8  # shorter values occur in ordinary text: masking them would destroy it
_PIECE = 6  # so much of a key must never be shown
_KEY_CHARACTERS = string.ascii_letters + string.digits + "_-"
_WORDS = re.compile(r"([\s'\"]+)")
_LEFT_OUT = re.compile(r"\*{2}|\.{2}|…|•")
_known: set[str] = set()
_marks: set[str] = {_MASK}
"""What a text with a known secret, whole or shortened, must have somewhere; also a text inside JSON."""
_lock = threading.Lock()

_PATTERNS = [
    # Keys in the form that OpenAI, Anthropic and compatible services use, also half masked by the server.
    re.compile(r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|AIza)[-_][A-Za-z0-9_\-*]{6,}"),
    re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d)[A-Za-z0-9._~+/=\-]{12,}"),
    re.compile(
        r"(?i)(['\"]?\b\w*(?:api[-_]?key|authorization|secret|password|access[-_]?token)\b['\"]?\s*[:=]\s*)"
        r"(['\"]?)[^\s'\",;}]{4,}\2"
    ),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
]

# What must be in a text for one of these patterns to match: found out in a fraction of the time.
_PREFIXED = re.compile(
    r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"  # a word begins here, also behind an escape of JSON
    r"(?:sk|pk|rk|key|xai|gsk|hf|ghp|AIza)[-_][A-Za-z0-9_\-*]{6}"
)
_LABELS = re.compile(r"api[-_]?key|access[-_]?token|key[-_]")


def register_secret(value: str | None) -> None:
    """Mask `value` wherever it occurs from now on, in whole or as a URL password."""
    if value and len(value) >= _MIN_LENGTH:
        with _lock:
            _known.add(value)
            for piece in (value[:_PIECE], value[-_PIECE:]):
                _marks.update((piece, json.dumps(piece, ensure_ascii=False)[1:-1]))


def redact(text: str) -> str:
    """Return `text` with known secret values, and what looks like a key, masked."""
    if not may_hold_secret(text):
        return text
    text = _mask_shortened(_mask_rest(mask_known(text)))
    for pattern in _PATTERNS:
        text = pattern.sub(_keep_label if pattern.groups else _MASK, text)
    return text


def may_hold_secret(text: str) -> bool:
    """Whether `redact` could change `text` or, if that is JSON, a text inside it. False is certain, and quick."""
    for mark in tuple(_marks):
        if mark in text:
            return True
    low = text.lower()
    if not low.isascii():  # letters that stand for others where case does not matter
        low = low.replace("ſ", "s").replace("ı", "i").replace("\u0307", "")
    if ("secret" in low or "password" in low or "bearer" in low or "basic" in low or "authorization" in low) or (
        "://" in text and "@" in text
    ):
        return True
    if ("key" in low or "access" in low) and _LABELS.search(low):
        return True
    prefix = "k-" in text or "k_" in text or "hf" in text or "xai" in text or "ghp" in text or "AIza" in text
    return prefix and _PREFIXED.search(text) is not None


def mask_known(text: str) -> str:
    """Return `text` with known secret values masked, and nothing else: for content, which may well look like a key."""
    for value in sorted(_known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _MASK)
    return text


def _mask_rest(text: str) -> str:
    """Mask what stands right beside a known value: it may be only a part of the key that is shown."""
    if _MASK not in text:
        return text
    first, *between, last = text.split(_MASK)
    beside = [first.rstrip(_KEY_CHARACTERS), *(one.strip(_KEY_CHARACTERS) for one in between)]
    return _MASK.join([*beside, last.lstrip(_KEY_CHARACTERS)])


def _mask_shortened(text: str) -> str:
    """Mask what is left of a known value that somebody has shortened: `begin...end`, `begin***end`."""
    pieces = [piece for value in list(_known) for piece in (value[:_PIECE], value[-_PIECE:]) if piece in text]
    if not pieces:
        return text
    return "".join(
        _MASK if any(piece in word for piece in pieces) and _LEFT_OUT.search(word) else word
        for word in _WORDS.split(text)
    )


def redact_exception(error: BaseException) -> BaseException:
    """Mask the texts that `error` and its causes carry, in place: a chained traceback prints them."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.args = tuple(redact(a) if isinstance(a, str) else a for a in current.args)
        message = getattr(current, "message", None)
        if isinstance(message, str):
            current.message = redact(message)  # type: ignore[attr-defined]
        current = current.__cause__ or current.__context__
    return error


def _keep_label(match: re.Match[str]) -> str:
    label = match.group(1)
    return f"{label} {_MASK}" if label.isalpha() else f"{label}{_MASK}"
