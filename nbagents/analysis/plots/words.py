"""Words of people and models as text in a plot: one short line, taken literally, in fonts that have its letters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

MAX_WIDTH = 32
"""Of a name, in letters; wide ones (Chinese, emoji) count twice."""

LAST_FAMILY = "DejaVu Sans"
"""Comes with matplotlib."""

FAMILIES = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "WenQuanYi Micro Hei",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Thai",
    "Noto Emoji",
    "Segoe UI Symbol",
    "Arial Unicode MS",
)
"""Asked, where they are installed, for letters that the font of the figure does not have."""

NO_GLYPH = "□"
_JOINERS = "\u200c\u200d"


def short(name: object) -> str:
    """Return `name` on one line, without control characters, with an ellipsis inside where it is too long.

    Example:
        >>> short("one\\n two\\x1b")
        'one two'
        >>> short("a" * 20 + "b" * 500)
        'aaaaaaaaaaaaaaaaaaaa…bbbbbbbbbbb'
    """
    line = " ".join(str(name).encode("utf-8", "replace").decode().split())
    line = "".join(letter for letter in line if _is_drawn(letter))
    if _width(line) <= MAX_WIDTH:
        return line
    end = _as_much(reversed(line), MAX_WIDTH // 3 + 1)[::-1]
    return f"{_as_much(line, MAX_WIDTH - 1 - _width(end))}…{end}"


def literal(lines: Iterable[str]) -> tuple[list[str], dict[str, Any]]:
    """Return `lines` as they can be drawn, and the properties of the text: no formulas, fonts with its letters.

    A letter that no font has becomes a square, so that matplotlib does not warn of it at every drawing.
    """
    lines = list(lines)
    properties: dict[str, Any] = {"parse_math": False, "usetex": False}
    letters = set("".join(lines))
    if all(letter.isascii() for letter in letters):
        return lines, properties
    families, covered = _families_for(letters)
    return ["".join(_glyph(letter, covered) for letter in line) for line in lines], properties | {
        "fontfamily": families
    }


def _families_for(letters: set[str]) -> tuple[list[str], set[str]]:
    """The families to draw `letters` with, those of the figure first, and which of the letters they have."""
    from matplotlib import rcParams

    families: list[str] = []
    covered: set[str] = set()
    for family in [*rcParams["font.family"], LAST_FAMILY, *FAMILIES]:
        font = _font(family)
        found = {letter for letter in letters - covered if font is not None and font.get_char_index(ord(letter))}
        if found or (not families and font is not None):
            families.append(family)
            covered |= found
        if letters <= covered:
            break
    if LAST_FAMILY not in families:
        families.append(LAST_FAMILY)
    return families, covered


def _font(family: str) -> FT2Font | None:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        return get_font(findfont(FontProperties(family=[family]), fallback_to_default=False))
    except ValueError:
        return None  # not installed


def _glyph(letter: str, covered: set[str]) -> str:
    if letter in covered:
        return letter
    return "" if unicodedata.category(letter) in {"Mn", "Me", "Cf"} else NO_GLYPH


def _is_drawn(letter: str) -> bool:
    return letter in _JOINERS or unicodedata.category(letter) not in {"Cc", "Cf", "Cs"}


def _width(line: str) -> int:
    return sum(_letter_width(letter) for letter in line)


def _letter_width(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _as_much(letters: Iterable[str], width: int) -> str:
    """As many of the first `letters` as are not wider than `width`."""
    kept = []
    for letter in letters:
        width -= _letter_width(letter)
        if width < 0:
            break
        kept.append(letter)
    return "".join(kept)
