"""Images, sound and files as content: where they are, what type they have, how they are read."""

from __future__ import annotations

import binascii
import os
import posixpath
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from nbagents.core.errors import ConfigurationError
from nbagents.core.records import Piece
from nbagents.core.secrets import redact

UNKNOWN_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[\w.+*-]+/[\w.+*-]+\s*(;.*)?", re.S)
_SHOWN_URI = 60


@dataclass(frozen=True, slots=True, repr=False)
class DataContent(Piece):
    """An image, sound or file: a `data:` URI that holds it, or the address where it is.

    Attributes:
        uri: a `data:` URI or an address.
        media_type: such as `image/png`.
        name: what the file is called, where it has a name.

    Raises:
        ConfigurationError: no URI, or a media type that is none.

    Example:
        >>> DataContent.from_bytes(b"%PDF-1.7").media_type
        'application/pdf'
    """

    type: ClassVar[str] = "data"
    uri: str
    media_type: str
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.uri, str) or ":" not in self.uri:
            raise ConfigurationError(
                f"uri is a data: URI or an address, not {str(self.uri)[:_SHOWN_URI]!r}.",
                hint="Use DataContent.from_file(path) or DataContent.from_bytes(data).",
            )
        if not isinstance(self.media_type, str) or not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ConfigurationError(
                f"media_type is a text such as 'image/png', not {str(self.media_type)[:_SHOWN_URI]!r}."
            )

    def __repr__(self) -> str:
        uri = self.uri
        if len(uri) > _SHOWN_URI:
            uri = f"{uri[:_SHOWN_URI]}… [{len(uri)} characters]"
        name = f", name={self.name!r}" if self.name else ""
        return f"DataContent({redact(uri)!r}, {self.media_type!r}{name})"

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, media_type: str | None = None, *, name: str | None = None
    ) -> DataContent:
        """Hold `data`; its media type is recognised by its first bytes, else by the suffix of `name`.

        What is not recognised is `application/octet-stream`.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ConfigurationError(
                f"data is bytes, not {type(data).__name__}.", hint="For a path use DataContent.from_file(path)."
            )
        data = bytes(data)
        media_type = media_type or media_type_of(data, name)
        return cls(f"data:{media_type};base64,{b64encode(data).decode('ascii')}", media_type, name)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], media_type: str | None = None) -> DataContent:
        """Hold the file at `path`; its media type is recognised as by `from_bytes`.

        Raises:
            ConfigurationError: it cannot be read.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigurationError(f"path is a text or a Path, not {type(path).__name__}.")
        place = os.path.expanduser(path)
        try:
            with open(place, "rb") as file:
                data = file.read()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"The file {place!r} cannot be read: {why}.") from error
        return cls.from_bytes(data, media_type, name=os.path.basename(place))

    @classmethod
    def from_uri(cls, uri: str, media_type: str | None = None) -> DataContent:
        """Hold what a `data:` URI holds, or point to an address.

        A `data:` URI is checked and written in its plain form, base64. Its media type is `media_type`, the one that it
        states, or the one of its first bytes. That of an address is told by the suffix of its path.

        Raises:
            ConfigurationError: neither a `data:` URI nor an address, or base64 that is none.
        """
        from urllib.parse import unquote, urlsplit  # slow to import, and seldom needed

        if not isinstance(uri, str):
            raise ConfigurationError(f"uri is a text, not {type(uri).__name__}.")
        uri = uri.strip()
        if _is_data(uri):
            stated, data = _parsed(uri)
            return cls.from_bytes(data, media_type or stated)
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise ConfigurationError(f"{redact(uri)[:_SHOWN_URI]!r} is no address: {error}.") from error
        if len(parts.scheme) < 2 or parts.scheme == "file":  # a single letter is a drive of Windows
            raise ConfigurationError(
                f"{uri[:_SHOWN_URI]!r} is neither a data: URI nor an address.",
                hint="For a file use DataContent.from_file(path).",
            )
        name = posixpath.basename(unquote(parts.path)) or None
        return cls(uri, media_type or _type_of_suffix(name) or UNKNOWN_TYPE, name)

    @property
    def data(self) -> bytes:
        """The bytes.

        Raises:
            ConfigurationError: it is only an address, or base64 that is none.
        """
        if not _is_data(self.uri):
            raise ConfigurationError(
                f"{redact(self.uri)[:_SHOWN_URI]!r} is an address: its bytes are not here.",
                hint="Fetch it and use DataContent.from_bytes(data).",
            )
        return _parsed(self.uri)[1]

    @property
    def summary(self) -> str:
        """What it is, in a few words for those who cannot see it, such as `[image/png, 640x480]`."""
        if not _is_data(self.uri):
            return f"[{self.media_type}, {redact(self.uri)}]"
        data = self.data
        size = image_size(data)
        facts = [self.media_type, self.name, f"{size[0]}x{size[1]}" if size else f"{len(data)} bytes"]
        return f"[{', '.join(fact for fact in facts if fact)}]"


def media_type_of(data: bytes, name: str | None = None) -> str:
    """Return the media type of `data` by its first bytes, else by the suffix of `name`.

    Example:
        >>> media_type_of(b"GIF89a"), media_type_of(b"a,b", "table.csv"), media_type_of(b"?")
        ('image/gif', 'text/csv', 'application/octet-stream')
    """
    found = next((kind for kind, matches in _SIGNATURES if matches(data)), None)
    by_suffix = _type_of_suffix(name)
    if found == "application/zip" and by_suffix is not None:  # the files of Office are archives
        return by_suffix
    return found or by_suffix or UNKNOWN_TYPE


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, GIF, JPEG or WebP image; None for anything else."""
    if data.startswith(_PNG) and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg_size(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame header
            height, width = data[place + 5 : place + 7], data[place + 7 : place + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


_PNG = b"\x89PNG\r\n\x1a\n"


def _begins(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(signatures)


def _riff(form: bytes) -> Callable[[bytes], bool]:
    return lambda data: data[:4] == b"RIFF" and data[8:12] == form


def _iso_media(*brands: bytes) -> Callable[[bytes], bool]:
    return lambda data: data[4:8] == b"ftyp" and data[8:12].startswith(brands)


def _is_mpeg_audio(data: bytes) -> bool:
    """An ID3 tag, or a frame header of layer III: eleven set bits, then the version and the bits 01."""
    return data.startswith(b"ID3") or (len(data) > 2 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2)


_SIGNATURES: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("image/png", _begins(_PNG)),
    ("image/jpeg", _begins(b"\xff\xd8\xff")),
    ("image/gif", _begins(b"GIF87a", b"GIF89a")),
    ("image/webp", _riff(b"WEBP")),
    ("image/avif", _iso_media(b"avif", b"avis")),
    ("image/heic", _iso_media(b"heic", b"heix", b"hevc", b"mif1")),
    ("image/tiff", _begins(b"II*\x00", b"MM\x00*")),
    ("image/bmp", lambda data: data[:2] == b"BM" and data[6:10] == bytes(4)),
    ("application/pdf", _begins(b"%PDF-")),
    ("audio/wav", _riff(b"WAVE")),
    ("audio/mpeg", _is_mpeg_audio),
    ("audio/ogg", _begins(b"OggS")),
    ("audio/flac", _begins(b"fLaC")),
    ("audio/mp4", _iso_media(b"M4A", b"M4B")),
    ("video/quicktime", _iso_media(b"qt  ")),
    ("video/mp4", _iso_media(b"")),
    ("video/webm", lambda data: data[:4] == b"\x1aE\xdf\xa3" and b"webm" in data[:64]),
    ("application/zip", _begins(b"PK\x03\x04", b"PK\x05\x06")),
    ("application/gzip", _begins(b"\x1f\x8b")),
)
"""What the first bytes of a file say, the first match counts."""

_OFFICE = "application/vnd.openxmlformats-officedocument"
_SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".mp4": "video/mp4",
    ".zip": "application/zip",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".py": "text/x-python",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".html": "text/html",
    ".htm": "text/html",
    ".xml": "application/xml",
    ".json": "application/json",
    ".ipynb": "application/x-ipynb+json",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
}
"""A table of its own: that of the `mimetypes` module differs from machine to machine."""


def _type_of_suffix(name: str | None) -> str | None:
    return _SUFFIXES.get(os.path.splitext(name)[1].lower()) if name else None


def _is_data(uri: str) -> bool:
    return uri[:5].lower() == "data:"


def _parsed(uri: str) -> tuple[str | None, bytes]:
    """Return the media type that a `data:` URI (RFC 2397) states, if it does, and the bytes that it holds."""
    from urllib.parse import unquote, unquote_to_bytes  # slow to import, and seldom needed

    head, comma, payload = uri[5:].partition(",")
    if not comma:
        raise ConfigurationError("This data: URI has no comma before its content.", hint=_DATA_HINT)
    words = [word.strip() for word in head.split(";")]
    encoded = words[-1].lower() == "base64"
    stated = ";".join(words[:-1] if encoded else words)
    if not encoded:
        return stated if words[0] else "text/plain", unquote_to_bytes(payload)
    try:
        return (stated if words[0] else None), b64decode("".join(unquote(payload).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigurationError(f"This data: URI does not hold valid base64: {error}.", hint=_DATA_HINT) from error


_DATA_HINT = "It is written data:image/png;base64,… ; DataContent.from_bytes(data) makes one."
