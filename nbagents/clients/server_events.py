"""Server-sent events as model servers send them: from the bytes of a body to JSON values; nothing is read here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRAY_KEPT = 65_536


class EventReader:
    """Reads one stream, piece by piece as the network brings it.

    More forgiving than the standard (https://html.spec.whatwg.org/multipage/server-sent-events.html), as servers and
    the gateways before them need it: a byte order mark is read over, events need no blank line between them, the last
    one none after it, an event without data is none, and JSON may stand in a line of its own.

    Attributes:
        done: `[DONE]` has come; what follows it is not read.
        stray: the lines that belong to no event: an error page, or a plain reply that calls itself a stream.
    """

    def __init__(self) -> None:
        self.done = False
        self.stray = b""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._begun = False
        self._ended_in_cr = False

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the values whose event `piece` completes.

        Raises:
            JSONDecodeError: an event is neither JSON nor `[DONE]`.
        """
        if self.done:
            return
        if self._ended_in_cr and piece[:1] == b"\n":
            piece = piece[1:]
        if piece:
            self._ended_in_cr = piece[-1:] == b"\r"
        if b"\n" not in piece and b"\r" not in piece:
            self._line.append(piece)  # joined once: a long line in many pieces stays linear
            return
        self._line.append(piece)
        lines = b"".join(self._line).splitlines(keepends=True)
        self._line = [lines.pop()] if lines[-1][-1:] not in b"\r\n" else []
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        for line in lines:
            yield from self._take(line.rstrip(b"\r\n"))
            if self.done:
                return

    def end(self) -> Iterator[Any]:
        """Yield the value of the event that no blank line has ended, unless it has been cut."""
        with suppress(json.JSONDecodeError):
            yield from self.feed(b"\n\n")

    def _take(self, line: bytes) -> Iterator[Any]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif not line:
            yield from self._dispatch()
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif line.startswith(b"{") and (value := _json_or_none(line)) is not None:
            yield value
        elif not line.startswith((b":", b"id", b"retry", b"data")) and len(self.stray) < _STRAY_KEPT:
            self.stray += line + b"\n"

    def _dispatch(self) -> Iterator[Any]:
        data, event = self._data, self._event
        if not data:
            self._event = b""
            return
        self._data, self._event = [], b""
        if len(data) > 1 and _json_or_none(b"\n".join(data)) is not None:
            data = [b"\n".join(data)]
        for text in data:
            if text.startswith(b"[DONE]"):
                self.done = True
                return
            if event == b"error":
                value = _json_or_none(text)
                whole = isinstance(value, dict) and "error" in value
                yield value if whole else {"error": text.decode(errors="replace") if value is None else value}
            elif text:
                yield _json(text)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:  # no text, no JSON, a number too long or nested too deep
        raise json.JSONDecodeError(str(error), text.decode(errors="replace"), 0) from error


def _json_or_none(text: bytes) -> Any:
    try:
        return _json(text)
    except json.JSONDecodeError:
        return None
