"""Runs in JSONL files: a line for the format, then one for each event, in the order in which they happened."""

from __future__ import annotations

import glob
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

from pydantic_core import from_json

from nbagents.analysis.facts import RunFacts
from nbagents.analysis.progress import progress
from nbagents.analysis.queries import EVERY_RUN, RunQuery, wanted
from nbagents.analysis.selection import Filters, Selection, chosen_runs
from nbagents.analysis.stored_events import CAPTURES, Capture, check_record, event_of, parse_json, stored_payloads
from nbagents.core.arguments import exact_arguments
from nbagents.core.callables import depth_of_caller
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.events import RunEvent
from nbagents.core.runlog import RunRecord

FORMAT = "nbagents.runs"
VERSION = 1
_FIELDS = ("run_id", "sequence", "name", "timestamp", "payload")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class LoadedRuns:
    """Runs that were read from files; every table and plot takes it in the place of a selection."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._records = list(wanted(records, EVERY_RUN))

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"LoadedRuns({len(self)} runs)"

    def records(self, query: RunQuery = EVERY_RUN) -> Iterator[RunRecord]:
        """Yield the runs that `query` wants, oldest first."""
        return wanted(self._records, query)


@exact_arguments(Filters)
def save_runs(
    path: str | os.PathLike[str],
    selection: Selection = None,
    /,
    *,
    capture: Capture = "full",
    **filters: Unpack[Filters],
) -> int:
    """Write runs to a JSONL file, secrets masked, and return how many. A file of runs that is there is replaced.

    Args:
        path: where to; folders that are missing are made.
        selection: a response, a session, an id, a store or a list of these; None is all runs, `[]` none.
        capture: `full`, or `metadata`: no words of people, models or tools.
        filters: those of `runs_df`.

    Raises:
        ConfigurationError: a filter that is none.
        StoreError: another kind of file is there, or it cannot be written.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient, runs_df
        >>> from tempfile import mkdtemp
        >>> response = Agent(ScriptedChatClient(["Hello."])).run_sync("Hi")
        >>> path = f"{mkdtemp()}/runs.jsonl"
        >>> save_runs(path, response)
        1
        >>> runs_df(load_runs(path)).output_text.tolist()
        ['Hello.']
    """
    if capture not in CAPTURES:
        raise ConfigurationError(f"capture is 'full' or 'metadata', not {capture!r:.100}.")
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(
            f"The path of a file comes first, not {type(path).__name__}.", hint="save_runs('runs.jsonl', response)"
        )
    target = Path(path).expanduser()
    runs = chosen_runs(selection, filters)
    with _as_store_error("written", target):
        return _save(target, runs, capture)


def _save(target: Path, runs: Iterable[RunFacts], capture: Capture) -> int:
    if target.exists() and target.stat().st_size:
        with target.open("rb") as existing:
            _check_header(f"{target}, which would be replaced,", existing.readline())
    count = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
            for run in progress(runs, "Saving"):
                file.writelines(_lines(run.record, capture))
                count += 1
        os.replace(name, target)  # the file is always whole
    except BaseException:
        os.unlink(name)
        raise
    return count


@contextmanager
def _as_store_error(done: str, path: Path) -> Iterator[None]:
    """Raise what the system says of a file as ours: a folder that is a file, no right, no room."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename and str(error.filename) != str(path) else ""
        raise StoreError(
            f"{path} cannot be {done}: {error.strerror or error}{where}.",
            hint="Name a file in a folder that you may write to." if done == "written" else "",
        ) from error


@exact_arguments()
def load_runs(paths: Paths) -> LoadedRuns:
    """Read runs from the files that `save_runs` wrote.

    A run that is in several files is there once, with all of its events. A last line that is not whole, as a program
    that was killed or a full disk leaves it, is passed over with a warning. NaN and infinity are read as missing.

    Args:
        paths: a file, a pattern such as `runs/*.jsonl`, or a list of these.

    Raises:
        ConfigurationError: no such file.
        StoreError: another kind of file, another version of it, one that cannot be read, or a line that is wrong; it
            names the file and line.
    """
    runs: dict[str, _Loading] = {}
    for path in _files(paths):
        for number, event in _events(path):
            runs.setdefault(event.run_id, _Loading(event.run_id)).add(event, path, number)
    return LoadedRuns([run.record() for run in runs.values()])


@dataclass(slots=True)
class _Loading:
    """A run that is being put together: its events by their sequence, and where they stand."""

    run_id: str
    events: dict[int, RunEvent] = field(default_factory=dict)
    places: dict[int, tuple[Path, int]] = field(default_factory=dict)

    def add(self, event: RunEvent, path: Path, number: int) -> None:
        """Add an event; it may come again if it is the same."""
        known = self.events.setdefault(event.sequence, event)
        if known is not event and known != event:
            before, line = self.places[event.sequence]
            raise StoreError(
                f"{path}, line {number} holds another event {event.sequence} of the run {event.run_id!r:.60} than "
                f"{before}, line {line}.",
                hint="Two different runs have the same id; give one of them another.",
            )
        self.places.setdefault(event.sequence, (path, number))

    def record(self) -> RunRecord:
        """The whole run."""
        record = RunRecord(self.run_id, [self.events[sequence] for sequence in sorted(self.events)])
        try:
            check_record(record)
        except StoreError as error:
            path, _ = next(iter(self.places.values()))
            raise StoreError(f"{path} {error.message}", hint=error.hint) from None
        return record


def _lines(record: RunRecord, capture: Capture) -> Iterator[str]:
    events = list(record.events)
    for event, payload in zip(events, stored_payloads(events, capture), strict=True):
        head = json.dumps({name: getattr(event, name) for name in _FIELDS[:-1]}, separators=(",", ":"))
        yield f'{head[:-1]},"payload":{payload}}}\n'


def _files(paths: Paths) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    elif not isinstance(paths, Iterable) or isinstance(paths, bytes):
        raise ConfigurationError(f"paths is a file, a pattern or a list of these, not {type(paths).__name__}.")
    found: dict[Path, None] = {}
    for item in paths:
        pattern = os.path.expanduser(os.fspath(item))
        names = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
        matches = [Path(name) for name in names if os.path.isfile(name)]
        if not matches:
            raise ConfigurationError(f"There is no file {pattern!r}.", hint="Make one with save_runs(path).")
        found.update(dict.fromkeys(matches))
    return list(found)


def _events(path: Path) -> Iterator[tuple[int, RunEvent]]:
    """Yield the events of a file with the numbers of their lines."""
    with _as_store_error("read", path), path.open("rb") as file:
        _check_header(str(path), file.readline())
        for number, line in enumerate(progress(file, f"Loading {path.name}", unit="events"), 2):
            if not line.strip():
                continue
            try:
                yield number, _event(line)
            except StoreError as error:
                if line.endswith(b"\n") or not isinstance(error, _NotJSON):
                    raise StoreError(f"{path}, line {number} {error.message}", hint=error.hint) from None
                warnings.warn(f"{path}, line {number} is not whole and was passed over.", stacklevel=depth_of_caller())


class _NotJSON(StoreError):
    """A line that is no JSON."""


def _json(line: bytes) -> Any:
    try:
        return from_json(line, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        try:
            return parse_json(line.decode())
        except (StoreError, UnicodeDecodeError) as error:
            reason = error.message if isinstance(error, StoreError) else f"holds bytes that are no UTF-8: {error}"
            raise _NotJSON(reason) from None


def _event(line: bytes) -> RunEvent:
    record = _json(line)
    if not isinstance(record, dict) or set(record) != set(_FIELDS):
        raise StoreError(f"is no event: it needs {', '.join(_FIELDS)}, and nothing else.")
    run_id, sequence = record["run_id"], record["sequence"]
    if not isinstance(run_id, str) or not run_id:
        raise StoreError(f"has no run_id, but {run_id!r:.60}.")
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 1:
        raise StoreError(f"has no sequence from 1 on, but {sequence!r:.60}.")
    return event_of(run_id, sequence, str(record["name"]), _moment(record["timestamp"]), record["payload"])


def _moment(value: Any) -> float:
    """Read a time: unix seconds, or ISO 8601 with a time zone."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise StoreError(f"has no timestamp, but {value!r:.60}.") from None
        if moment.tzinfo is not None:
            return moment.timestamp()
        raise StoreError(f"has the timestamp {value!r} without a time zone.", hint='Append "Z" if it is UTC.')
    raise StoreError(f"has no timestamp, but {value!r:.60}.", hint="It is unix seconds, or ISO 8601 with a time zone.")


def _check_header(place: str, line: bytes) -> None:
    try:
        header = _json(line.removeprefix(b"\xef\xbb\xbf"))
    except _NotJSON:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StoreError(
            f'{place} is no file of runs: its first line is not {{"format": "{FORMAT}", ...}}.',
            hint="save_runs(path) writes such files.",
        )
    if header.get("version") != VERSION:
        raise StoreError(
            f"{place} is of version {header.get('version')!r:.60}; this nbagents knows version {VERSION}.",
            hint="Update nbagents, or write the file again.",
        )
