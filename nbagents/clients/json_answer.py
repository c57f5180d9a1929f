"""`AnswerDecoder`: the text of the field `answer` of a JSON object while the object is still arriving. Pure."""

from __future__ import annotations

import re

_OPENING = re.compile(r'\s*(?:\{\s*(?:"(?P<key>[^"]*)(?:"\s*(?::\s*(?P<value>\S)?)?)?)?)?')
_SPECIAL = re.compile(r'["\\]')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNIT_LENGTH = 6  # of \uXXXX


class AnswerDecoder:
    r"""Takes a reply in pieces, wherever they are cut, and gives the text of its `answer` as far as it is certain.

    A reply that is no JSON object is text from its first character on.

    Attributes:
        kind: `answer` (an object that begins with that field, a string), `object` (any other object), `text`, or None
            while that is not known yet.

    Example:
        >>> decoder = AnswerDecoder()
        >>> [decoder.feed(piece) for piece in ['{"ans', 'wer": "H', r'\u00', 'e9!"}']]
        ['', 'H', '', 'é!']
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self._pieces: list[str] = []
        self._held = ""
        self._closed = False

    @property
    def raw(self) -> str:
        """Everything that was fed."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Take the next piece; return the text that it adds."""
        self._pieces.append(piece)
        if self.kind is None:
            self._held += piece
            piece = self._opened()
        if self.kind == "text":
            return piece
        return self._unescape(piece) if self.kind == "answer" else ""

    def _opened(self) -> str:
        """Decide the kind once enough has arrived; return what follows the opening."""
        opening = _OPENING.match(self._held)
        assert opening is not None  # every part of the pattern is optional
        key, value = opening["key"], opening["value"]
        if opening.end() < len(self._held) or value is not None:
            if key is None:
                self.kind = "object" if "{" in opening[0] else "text"
            else:
                self.kind = "answer" if (key, value) == ("answer", '"') else "object"
        if self.kind is None:
            return ""
        rest = self._held if self.kind == "text" else self._held[opening.end() :]
        self._held = ""
        return rest

    def _unescape(self, piece: str) -> str:
        text, self._held = self._held + piece, ""
        decoded: list[str] = []
        at = 0
        while at < len(text) and not self._closed:
            special = _SPECIAL.search(text, at)
            end = special.start() if special else len(text)
            decoded.append(text[at:end])
            if special is None:
                break
            if special[0] == '"':
                self._closed = True
                break
            character, length = _unescaped(text, end)
            if length == 0:
                self._held = text[end:]
                break
            decoded.append(character)
            at = end + length
        return "".join(decoded)


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """Return the character of the escape at `at` and the escape's length, 0 if its end has not arrived."""
    letter = text[at + 1 : at + 2]
    if letter != "u":
        return _ESCAPES.get(letter, letter), 2 if letter else 0
    unit = _unit(text, at)
    if unit is None:
        return "", 0
    if not 0xD800 <= unit < 0xDC00:
        return chr(unit), _UNIT_LENGTH
    following = text[at + _UNIT_LENGTH : at + 2 * _UNIT_LENGTH]
    if not following or (len(following) < _UNIT_LENGTH and "\\u".startswith(following[:2])):
        return "", 0  # the other half of a pair may come
    low = _unit(text, at + _UNIT_LENGTH) if following.startswith("\\u") else None
    if low is not None and 0xDC00 <= low < 0xE000:
        return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), 2 * _UNIT_LENGTH
    return chr(unit), _UNIT_LENGTH


def _unit(text: str, at: int) -> int | None:
    r"""Return the code unit of the `\uXXXX` at `at`; None if its end has not arrived."""
    digits = text[at + 2 : at + _UNIT_LENGTH]
    if len(digits) < _UNIT_LENGTH - 2:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return 0xFFFD  # no JSON: say so with the replacement character, and go on
