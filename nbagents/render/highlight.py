"""Code with classes for colours: few spans, known languages only, linear time whatever the code."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

HIGHLIGHT_LIMIT = 30_000
"""Characters of code above which it is shown plain; colouring that much takes about 70 ms."""

CPU_SECONDS = 0.05
CPU_SECONDS_PER_CHARACTER = 2e-5
"""About eight times what ordinary code takes. Many lexers are quadratic on code that was made for it."""

LANGUAGES = """
    bash c clojure cmake console cpp csharp css dart diff docker elixir erlang fortran go graphql groovy haskell
    html http ini java javascript json jsx julia kotlin lua make markdown matlab nginx objective-c ocaml perl php
    powershell protobuf pycon python pytb r ruby rust scala scss sql swift terraform tex toml tsx typescript vim
    xml yaml zig
"""
"""Aliases of the lexers that are used; a lexer runs on hostile text, so not every one that exists."""


def highlight(code: str, language: str) -> str:
    """Return `code` as HTML text, with `<span class>` around what has a colour.

    Plain where the language is not one of `LANGUAGES` (or another name of one), where the code is longer than
    `HIGHLIGHT_LIMIT`, and where the lexer takes far longer than it should.

    Example:
        >>> highlight("x = 1", "python")
        'x = <span class="m">1</span>'
    """
    name = _names().get(language.lower())
    coloured = _coloured(code, name) if name is not None and len(code) <= HIGHLIGHT_LIMIT else None
    return escape(code, quote=False) if coloured is None else coloured


@lru_cache(maxsize=64)
def _coloured(code: str, name: str) -> str | None:
    pieces = []
    for css, text in _runs(_within_budget(_lexer(name), code)):
        if css == _GAVE_UP:
            return None
        pieces.append(f'<span class="{css}">{text}</span>' if css else text)
    return "".join(pieces)


_GAVE_UP = "!"


def _within_budget(lexer: Lexer, code: str) -> Iterator[tuple[str, str]]:
    """Yield class and text of each token; `_GAVE_UP` when the time is used up."""
    deadline = time.thread_time() + CPU_SECONDS + CPU_SECONDS_PER_CHARACTER * len(code)
    for n, (kind, text) in enumerate(lexer.get_tokens(code)):
        if n % 32 == 0 and time.thread_time() > deadline:
            yield _GAVE_UP, ""
            return
        yield _css_class(kind), text


def _runs(pieces: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for css, group in groupby(pieces, key=lambda piece: piece[0]):
        yield css, escape("".join(text for _, text in group), quote=False)


@cache
def _names() -> dict[str, str]:
    from pygments.lexers import get_all_lexers

    # Without plugins: looking those up imports whatever packages are installed.
    known = frozenset(LANGUAGES.split())
    lexers = [aliases for _, aliases, _, _ in get_all_lexers(plugins=False) if known.intersection(aliases)]
    return {alias: aliases[0] for aliases in lexers for alias in aliases}


@lru_cache(maxsize=16)
def _lexer(name: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


@lru_cache(maxsize=512)
def _css_class(kind: _TokenType) -> str:
    return next((css for parent, css in _classes() if parent in kind.split()), "")


@cache
def _classes() -> list[tuple[_TokenType, str]]:
    from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String

    return [
        (Comment, "c"),
        (Keyword, "k"),
        (Operator.Word, "k"),
        (String, "s"),
        (Number, "m"),
        (Literal, "m"),
        (Name.Function, "f"),
        (Name.Class, "t"),
        (Name.Exception, "t"),
        (Name.Builtin, "t"),
        (Name.Tag, "k"),
        (Name.Attribute, "d"),
        (Name.Decorator, "d"),
        (Name.Variable, "v"),
        (Generic.Deleted, "g-d"),
        (Generic.Inserted, "g-i"),
        (Generic.Heading, "g-h"),
        (Generic.Subheading, "g-h"),
    ]
