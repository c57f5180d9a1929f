"""What must never be shown: known secret values and text that looks like one. Every text that leaves is redacted."""

from __future__ import annotations

import json
import os
import re
import string
import threading
import time
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

MASK = "[redacted]"
_MIN_LENGTH = 8  # shorter values occur in ordinary text: masking them would destroy it
_PIECE = 6  # so much of a key must never be shown
_KEY_CHARACTERS = string.ascii_letters + string.digits + "_-"
_WORDS = re.compile(r"([\s'\"]+)")
_LEFT_OUT = re.compile(r"\*{2}|\.{2}|…|•")
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|passphrase|credentials?|dsn)(?:_?\d+)?$")
"""Names of environment variables whose values are secrets."""
_SECRET_FIELD = re.compile(r"(?i)auth|key|token|secret|passw|cookie|sig|code")
"""Names of headers and of parts of an address whose values are."""
_LOOK_AGAIN_SECONDS = 0.05
_known: set[str] = set()
_marks: set[str] = {MASK}
"""What a text with a known secret, whole or shortened, must have somewhere; also a text inside JSON."""
_environment: dict[str, str] = {}
_looked_at = float("-inf")
_variables = -1
_lock = threading.Lock()

_PREFIX = r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|AIza)[-_]"
_VALUE = r"(?:[^\s'\",;}\\]|\\(?!['\"]))"


@cache
def _patterns() -> list[re.Pattern[str]]:
    """What looks like a key; compiled when it is first needed, as the others."""
    return [
        # Keys in the form that OpenAI, Anthropic and compatible services use, also half masked by the server.
        re.compile(_PREFIX + r"(?=[A-Za-z0-9_\-]{0,100}[\d*])[A-Za-z0-9_\-*]{6,}"),
        re.compile(r"\bsk-[A-Za-z0-9_\-*]{6,}"),
        re.compile(
            r"\b(?:AIza[A-Za-z0-9_-]{30,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
            r"|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b)"
        ),
        re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d)[A-Za-z0-9._~+/=\-]{12,}"),
        re.compile(
            r"(?i)(['\"]?\b\w*(?:(?:api|secret|private|access|account|signing|master)[-_]?(?:access[-_]?)?key"
            r"|authorization|secret|passw(?:or)?d|access[-_]?token)\b\\*['\"]?\s*[:=]\s*)"
            rf"\\*['\"]?(?:(?:bearer|basic|token)\s+)?{_VALUE}{{4,}}"
        ),
        re.compile(
            rf"(?i)(\b\w*token\b\\*['\"]?\s{{0,2}}[:=]\s{{0,2}}\\*['\"]?)(?=[^\s'\",;}}]{{0,100}}\d){_VALUE}{{16,}}"
        ),
    ]


@cache
def _in_address() -> re.Pattern[str]:
    return re.compile(r"(?<=://)[^/\s?#'\"<>]+(?=@)")


@cache
def _quick_signs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What must be in a text for one of the patterns to match: found out in a fraction of the time."""
    prefixed = re.compile(
        r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"  # a word begins, also behind an escape of JSON
        r"(?:sk|pk|rk|key|xai|gsk|hf|ghp|AIza)[-_][A-Za-z0-9_\-*]{6}"
    )
    labels = re.compile(
        r"(?:api|private|access|account|signing|master)[-_]?(?:access[-_]?)?key"
        r"|access[-_]?token|key[-_]|token.{0,16}[:=]",
        re.S,
    )
    return prefixed, labels


_GITHUB = ("gho_", "ghp_", "ghs_", "ghu_", "ghr_")


def register_secret(value: str | bytes | None) -> None:
    """Mask `value` wherever it occurs from now on: in whole, in a URL, in JSON and in base64.

    Masked are errors, reprs, tables, recordings and what tools return. What a person types and what a model
    says is content: it is shown and kept in the session as it is. Values of less than eight characters are not masked.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value and len(value) >= _MIN_LENGTH:
        with _lock:
            for form in _forms(value):
                _known.add(form)
                for piece in (form[:_PIECE], form[-_PIECE:]):
                    _marks.update((piece, json.dumps(piece, ensure_ascii=False)[1:-1]))


def register_url_secrets(url: str) -> None:
    """Mask the password of an address from now on, and what its query calls a key, token or the like."""
    from urllib.parse import parse_qsl, urlsplit  # slow to import

    try:
        parts = urlsplit(url)
    except ValueError:
        return
    register_secret(parts.password)
    for name, value in parse_qsl(parts.query):
        if _SECRET_FIELD.search(name):
            register_secret(value)


def register_header_secrets(headers: Mapping[str, Any] | None) -> None:
    """Mask the values of headers that carry keys, tokens or cookies from now on."""
    for name, value in (headers or {}).items():
        if isinstance(value, str | bytes) and _SECRET_FIELD.search(str(name)):
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            register_secret(text)
            register_secret(text.partition(" ")[2])  # what stands behind `Bearer`


def redact(text: str) -> str:
    """Return `text` with known secret values, and what looks like a key, masked."""
    if not may_hold_secret(text):
        return text
    text = _mask_shortened(_mask_rest(mask_known(text)))
    for pattern in _patterns():
        text = pattern.sub(_keep_label if pattern.groups else MASK, text)
    return _in_address().sub(lambda match: MASK if ":" in match[0] else match[0], text)


def may_hold_secret(text: str) -> bool:
    """Whether `redact` could change `text` or, if that is JSON, a text inside it. False is certain, and quick."""
    _look_at_environment()
    for mark in tuple(_marks):
        if mark in text:
            return True
    low = text.lower()
    if not low.isascii():  # letters that stand for others where case does not matter
        low = low.replace("ſ", "s").replace("ı", "i").replace("\u0307", "")
    if "secret" in low or "passw" in low or "bearer" in low or "basic" in low:
        return True
    if ("z" in low and "authorization" in low) or ("@" in text and "://" in text):
        return True
    prefixed, labels = _quick_signs()
    if "k" in low and ("key" in low or "token" in low) and labels.search(low):
        return True
    prefix = ("-" in text and "k-" in text) or ("_" in text and "k_" in text) or "hf" in text or "ghp" in text
    if (prefix or ("x" in text and "xai" in text)) and prefixed.search(text):
        return True
    return _has_sign(text)


def _has_sign(text: str) -> bool:
    """Whether a word of one of the patterns is there; to look for one character first takes a tenth of the time."""
    return (
        ("J" in text and "eyJ" in text)
        or ("K" in text and ("AKIA" in text or "PRIVATE KEY" in text))
        or ("I" in text and ("AIza" in text or "ASIA" in text))
        or ("x" in text and "xox" in text)
        or ("-" in text and "glpat-" in text)
        or ("_" in text and "github_pat_" in text)
        or ("gh" in text and any(sign in text for sign in _GITHUB))
    )


def known_secrets() -> int:
    """How many secret values are known: what was masked when there were fewer is to be masked again."""
    _look_at_environment()
    return len(_known)


def mask_known(text: str) -> str:
    """Return `text` with known secret values masked, and nothing else: for content, which may well look like a key."""
    _look_at_environment()
    for value in sorted(_known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, MASK)
    return text


def _forms(value: str) -> Iterator[str]:
    """Yield `value` as it is and as it looks in base64, in JSON, in a repr and in an address."""
    yield value
    yield b2a_base64(value.encode("utf-8", "replace"), newline=False).decode().rstrip("=")
    if _PLAIN.fullmatch(value) is None:
        from urllib.parse import quote  # slow to import, and seldom needed

        yield json.dumps(value)[1:-1]
        yield json.dumps(value, ensure_ascii=False)[1:-1]
        yield repr(value)[1:-1]
        yield quote(value, safe="", errors="replace")


def _look_at_environment() -> None:
    """Register the secrets among the variables of the environment, which a tool may print.

    One more variable counts at once, a new value of an old one a moment later: this is asked with every tool's result.
    """
    global _looked_at, _variables
    now, variables = time.monotonic(), len(os.environ)
    if variables == _variables and now - _looked_at < _LOOK_AGAIN_SECONDS:
        return
    _looked_at, _variables = now, variables
    for name in list(os.environ):
        value = os.environ.get(name, "")
        if _environment.get(name) == value:
            continue
        _environment[name] = value
        if "://" in value:
            register_url_secrets(value)
        elif _SECRET_NAME.search(name) and not value.isalpha() and not value.startswith(("/", "~", ".")):
            register_secret(value)  # a word such as `postgres` keeps nothing secret, and stands in ordinary text


def _mask_rest(text: str) -> str:
    """Mask what stands right beside a known value: it may be only a part of the key that is shown."""
    if MASK not in text:
        return text
    first, *between, last = text.split(MASK)
    beside = [first.rstrip(_KEY_CHARACTERS), *(one.strip(_KEY_CHARACTERS) for one in between)]
    return MASK.join([*beside, last.lstrip(_KEY_CHARACTERS)])


def _mask_shortened(text: str) -> str:
    """Mask what is left of a known value that somebody has shortened: `begin...end`, `begin***end`."""
    pieces = [piece for value in list(_known) for piece in (value[:_PIECE], value[-_PIECE:]) if piece in text]
    if not pieces:
        return text
    return "".join(
        MASK if any(piece in word for piece in pieces) and _LEFT_OUT.search(word) else word
        for word in _WORDS.split(text)
    )


def redact_exception(error: BaseException) -> BaseException:
    """Mask the texts that `error`, its causes and its parts carry, in place: a chained traceback prints them."""
    for one in errors_shown_with(error):
        of_system = _TEXTS_OF_OS_ERRORS if isinstance(one, OSError) else ()
        for name in ("args", *of_system, *getattr(one, "__dict__", ())):
            value = getattr(one, name, None)
            if (safe := _without_secrets(value)) is not value:
                _put(one, name, safe)
    return error


def errors_shown_with(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and all that a traceback of it can print: causes, contexts and the parts of groups, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        yield current


_TEXTS_OF_OS_ERRORS = ("strerror", "filename", "filename2")


def _put(error: BaseException, name: str, value: Any) -> None:
    try:
        BaseException.__setattr__(error, name, value)  # also where the class is frozen
    except (AttributeError, TypeError):
        return  # read-only: its text comes from somewhere else


def _without_secrets(value: Any, depth: int = 5) -> Any:
    """Return texts, and lists and dicts of them, with secrets masked; the object itself where there are none."""
    if isinstance(value, str):
        return value if (safe := redact(value)) == value else safe
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        return value if (safe := redact(text)) == text else safe.encode("utf-8", "surrogateescape")
    if depth and (type(value) is tuple or type(value) is list):
        items = [_without_secrets(item, depth - 1) for item in value]
        unchanged = all(new is old for new, old in zip(items, value, strict=True))
        return value if unchanged else type(value)(items)
    if depth and type(value) is dict:
        pairs = [(_without_secrets(key, depth - 1), _without_secrets(item, depth - 1)) for key, item in value.items()]
        unchanged = all(a is b and c is d for (a, c), (b, d) in zip(pairs, value.items(), strict=True))
        return value if unchanged else dict(pairs)
    return value


def _keep_label(match: re.Match[str]) -> str:
    label = match.group(1)
    return f"{label} {MASK}" if label.isalpha() else f"{label}{MASK}"
