"""The file of one durable run: a line for its beginning, one for each reply and each result, one for its end."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagents.core.errors import ConfigurationError, NBAgentsError, StoreError
from nbagents.core.stored import stored_text

if sys.platform != "win32":
    import fcntl

FORMAT = "nbagents.durable"
VERSION = 1
_HEAD = frozenset({"run_id", "request", "session", "before"})
_REPLY = frozenset({"response", "facts", "spent"})
_RESULT = frozenset({"id", "result", "status", "duration_s", "error_type", "artifacts", "spent"})
_END = frozenset({"time", "ended", "messages", "session", "stored"})
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_BINARY = getattr(os, "O_BINARY", 0)


@dataclass(slots=True)
class Written:
    """What the file of a run says.

    Attributes:
        head: how it began: `run_id`, `request`, `session`, and `history` or `after`.
        replies: the lines of the model's replies, in order.
        results: the lines of the results, by our id of the call.
        reduction: what the reducer had left for a reply that is missing.
        end: the line of its end, if it has ended.
    """

    head: dict[str, Any]
    replies: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    reduction: dict[str, Any] | None = None
    end: dict[str, Any] | None = None

    def add_reply(self, record: dict[str, Any]) -> None:
        """Add a reply; what the reducer had left before belongs to it."""
        before, self.reduction = self.reduction or {"spent": []}, None
        self.replies.append({**before, **record, "spent": [*before["spent"], *record["spent"]]})


class JournalFile:
    """Appends to the file of one run, which no other process may do meanwhile. The system unlocks it if this one dies.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._lock = threading.Lock()

    def create(self, head: Mapping[str, Any]) -> None:
        """Make the file, with its first line.

        Raises:
            ConfigurationError: it is there already.
            StoreError: it cannot be written.
        """
        line = {"format": FORMAT, "version": VERSION, **head}
        with _as_store_error("written", self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _BINARY
                self._file = os.open(self.path, flags, 0o600)  # it holds what was said
            except FileExistsError as error:
                raise duplicate(head["run_id"]) from error
            self._own()
        self.append(line)

    def open(self) -> Written:
        """Go on with a file that is there; return what it says. What a crash has cut off is removed.

        Raises:
            ConfigurationError: another process goes on with the run.
            StoreError: it cannot be read or written, or holds something else.
        """
        with _as_store_error("opened", self.path):
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | _BINARY)
            try:
                self._own()
                content = self.path.read_bytes()
                written = parse(self.path, content)
                os.ftruncate(self._file, content.rfind(b"\n") + 1)
            except BaseException:
                self.close()
                raise
        return written

    def check(self) -> None:
        """Make sure that the run can be gone on with.

        Raises:
            ConfigurationError: another process goes on with it.
        """
        self.open()
        self.close()

    def append(self, record: Mapping[str, Any], *, sync: bool = True) -> None:
        """Add a line; with `sync` it is on disk when this returns.

        Raises:
            StoreError: it cannot be written.
        """
        line = stored_text(record).encode() + b"\n"
        with self._lock, _as_store_error("written", self.path):
            if self._file is None:
                raise StoreError(f"{self.path} is closed.")
            written = os.write(self._file, line)
            while written < len(line):  # a full disk gives an error at the next try
                written += os.write(self._file, line[written:])
            if sync:
                os.fsync(self._file)

    def close(self) -> None:
        """Let others have the file; idempotent."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _own(self) -> None:
        assert self._file is not None
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise still_going(self.path.stem) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:  # some network file systems have none
                raise


def read(path: Path) -> Written:
    """Return what the file of a run says, without a line that a crash has cut off.

    Raises:
        StoreError: it cannot be read, or holds something else.
    """
    with _as_store_error("read", path):
        content = path.read_bytes()
    return parse(path, content)


def parse(path: Path, content: bytes) -> Written:
    """Read the lines of a file.

    Raises:
        StoreError: something else, naming the line.
    """
    lines = content.split(b"\n")[:-1]  # what follows the last line end was cut off
    records = [_record(path, number, line) for number, line in enumerate(lines, 1)]
    head = records[0] if records else {}
    if head.get("format") != FORMAT or not head.keys() >= _HEAD:
        raise StoreError(
            f"{path} holds no durable run.", hint="It is left as it is; give `durable` a folder of its own."
        )
    if head.get("version") != VERSION:
        raise StoreError(
            f"{path} is of version {head.get('version')!r}; this nbagents reads version {VERSION}.",
            hint="Update nbagents.",
        )
    written = Written(head)
    for number, record in enumerate(records[1:], 2):
        if record.keys() >= _REPLY:
            written.add_reply(record)
        elif record.keys() == {"reduction", "spent"}:
            written.reduction = record
        elif record.keys() >= _RESULT:
            written.results[record["id"]] = record
        elif record.keys() >= _END:
            written.end = record
        else:
            raise StoreError(f"{path}, line {number} is no step of a run.")
    return written


def still_going(run_id: str) -> ConfigurationError:
    """The error of a run that is to be resumed and has not stopped."""
    return ConfigurationError(
        f"The run {run_id!r} still goes on.", code="still_going", hint="Wait until it has ended, or end its process."
    )


def duplicate(run_id: str) -> ConfigurationError:
    """The error of a run whose id another one has, which is on disk."""
    return ConfigurationError(
        f"There is a run {run_id!r} already.",
        code="duplicate_run_id",
        hint="runtime.resume(run_id=...) goes on with it; else give each run an id of its own, or none.",
    )


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}, line {number} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise StoreError(f"{path}, line {number} is no step of a run.")
    return record


@contextmanager
def _as_store_error(done: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, NBAgentsError):
            raise
        raise StoreError(
            f"{path} cannot be {done}: {error.strerror or error}.",
            hint="Look at the folder's permissions and free space.",
        ) from error
