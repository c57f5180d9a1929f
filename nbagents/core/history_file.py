"""Sessions in a folder: a JSON Lines file for each, one line for each group of messages, only ever appended to."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
import warnings
from codecs import BOM_UTF8
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.history import HistoryProvider
from nbagents.core.messages import Message
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.sessions import AgentSession
from nbagents.core.stored import ReadBefore, messages_from, stored_text

if sys.platform != "win32":
    import fcntl

FILE_VERSION = 1
MAX_NAME = 150
"""Longer file names are cut: file systems allow 255 bytes, encrypted ones 143 characters and the suffix."""

_BLANK = b" \t\r\0"  # a power cut may leave NUL where the last line was
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)")
_FOREIGN = "was not written by FileHistoryProvider."
_LEFT_ALONE = "It is left as it is: move it away, or use another folder."
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class FileHistoryProvider(HistoryProvider):
    """Keeps each session in a file of its own: a line of JSON for each group of messages that is stored together.

    A group is written in one piece and read whole or not at all; what a crash has left of one is passed over with a
    warning. Files are only appended to, also by several processes at once; `thread.delete()` removes one.

    Args:
        folder: where the files are; it is made when the first message is stored.

    Raises:
        ConfigurationError: no path, or the path of something that is no folder.

    Example:
        >>> import tempfile
        >>> from nbagents import Agent, ScriptedChatClient
        >>> history = FileHistoryProvider(tempfile.mkdtemp())
        >>> session = AgentSession("trip")
        >>> _ = Agent(ScriptedChatClient(["Hello!"]), history=history).run_sync("Hi", session=session)
        >>> history.path_of(session).name
        'trip.jsonl'
    """

    @exact_arguments()
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise ConfigurationError(f"folder must be the path of a folder, not {folder!r}.")
        self.folder = Path(folder).expanduser().resolve()
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is no folder.", hint="Each session becomes a file in it.")
        self._lines = ReadBefore(_parse)

    def __repr__(self) -> str:
        return f"FileHistoryProvider({str(self.folder)!r})"

    def path_of(self, session: AgentSession) -> Path:
        """Return the file of `session`: its id, with `%` and two digits for each byte that file systems may confuse."""
        return self.folder / f"{file_name_of(session.session_id)}.jsonl"

    def storage_key(self, session: AgentSession) -> Hashable:
        """The file: providers of the same folder share it."""
        return "file", os.path.normcase(self.path_of(session))

    async def get_messages(self, session: AgentSession) -> list[Message]:
        """Return the stored messages of `session`, oldest first.

        Raises:
            SessionError: the file cannot be read, or was not written by this class; with its path and line.
        """
        path = self.path_of(session)
        messages, torn = await run_in_thread(partial(_read, path, self._lines))
        if torn:
            lines = ", ".join(map(str, torn))
            warnings.warn(
                f"{path}: a crash has cut off what was being stored (line {lines}); the other messages are there.",
                stacklevel=2,
            )
        found: list[Message] = messages
        return found

    async def save_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        """Append `messages`, all of them or none.

        Raises:
            SessionError: the file cannot be written, or was not written by this class.
        """
        if messages:
            record = {
                "version": FILE_VERSION,
                "session_id": session.session_id,
                "messages": [message.to_dict() for message in messages],
            }
            await run_in_thread(partial(_append, self.path_of(session), stored_text(record).encode() + b"\n"))

    async def delete_messages(self, session: AgentSession) -> None:
        """Remove the file of `session`."""
        await run_in_thread(partial(_remove, self.path_of(session)))


def file_name_of(session_id: str) -> str:
    """Return `session_id`, or another id, as a name that is its own in every file system, whatever is in the id."""
    name = re.sub(r"[^a-z0-9_-]", _escaped, session_id)
    if _RESERVED.fullmatch(name):
        name = f"%{ord(name[0]):02x}{name[1:]}"
    if len(name) <= MAX_NAME - len(".jsonl"):
        return name
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:64]}={digest}"  # the sign is in no other name; the whole id is in each line of the file


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _read(path: Path, lines: ReadBefore[bytes]) -> tuple[list[Message], list[int]]:
    """Return the messages in `path` and the numbers of the lines that were cut off."""
    try:
        with FileIO(path) as file, _locked(file, exclusive=False):
            content = file.readall()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise _failed("read", path, error) from error
    messages: list[Message] = []
    torn = []
    for number, line in enumerate(content.removeprefix(BOM_UTF8).split(b"\n"), 1):
        line = line.strip(_BLANK)
        try:
            messages += lines.messages(line) if line else []
        except SessionError as error:
            raise SessionError(f"{path}, line {number} {error.message}", hint=error.hint) from error.__cause__
        except (ValueError, RecursionError):
            if not line.startswith(b"{"):
                raise _foreign(path, number) from None
            torn.append(number)
    return messages, torn


def _parse(line: bytes) -> list[Message]:
    record = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise SessionError(_FOREIGN, hint=_LEFT_ALONE)
    if record.get("version") != FILE_VERSION:
        raise SessionError(
            f"is of version {record.get('version')!r}; this nbagents reads version {FILE_VERSION}.",
            hint="Update nbagents, or use another folder.",
        )
    return messages_from(record["messages"])


def _append(path: Path, line: bytes) -> None:
    try:
        with _opened_to_append(path) as file, _locked(file, exclusive=True):
            if file.seek(0, os.SEEK_END):
                file.seek(0)
                if file.read(4).removeprefix(BOM_UTF8)[:1] not in (b"{", b"\n", b"\0", b""):
                    raise _foreign(path, 1)
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that a crash has cut must not swallow this one
                    line = b"\n" + line
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise _failed("written", path, error) from error


def _opened_to_append(path: Path) -> FileIO:
    """Open `path` so that each write goes to its end in one piece; the folder is made if it is not there."""
    try:
        return FileIO(path, "a+")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(path, "a+")


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _failed("removed", path, error) from error


@contextmanager
def _locked(file: FileIO, *, exclusive: bool) -> Iterator[None]:
    """Keep other processes from writing meanwhile; closing the file ends it.

    On a local disk an append is in one piece anyway; network file systems need the lock, and some have none.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
    yield


def _foreign(path: Path, number: int) -> SessionError:
    return SessionError(f"{path}, line {number} {_FOREIGN}", hint=_LEFT_ALONE)


def _failed(what: str, path: Path, error: OSError) -> SessionError:
    return SessionError(
        f"{path} cannot be {what}: {error.strerror or error}.",
        hint="Look at the folder's permissions and free space.",
    )
