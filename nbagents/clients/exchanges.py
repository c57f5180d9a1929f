"""A recording: JSON lines of requests and their replies, without secrets, ids and times."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import textwrap
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from nbagents.core import ChatRequest, ChatResponseUpdate, HostedTool, Message
from nbagents.core.callables import depth_of_caller
from nbagents.core.content import (
    Content,
    DataContent,
    FunctionCall,
    FunctionResult,
    RefusalContent,
    TextContent,
    content_from_dict,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.folding import parse_arguments
from nbagents.core.outputs import output_format
from nbagents.core.secrets import redact
from nbagents.core.tools import ToolDefinition

VERSION = 1
_MASK = "[redacted]"
_LABELS = frozenset({"metadata", "user", "store"})  # they mark a request; the reply does not depend on them
_UNRECORDED = frozenset({"contents", "created_at", "replayed", "raw"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_STREAMED = {"text": "text", "reasoning": "text", "refusal": "text", "function_call": "arguments"}
_DIFF_LINES = 30
_DIFF_WIDTH = 100

_BEGINNING = b'{"key": "'  # of each line that is written

_writing = threading.Lock()


@dataclass(frozen=True)
class Exchange:
    """One request and its reply.

    Attributes:
        request: what `normal_request` gave.
        updates: the reply's increments, as `update_to_dict` gave them; `at` is when one came, in seconds.
        model: the model that was asked.
        provider: the recorded client's word for the tables.
    """

    request: dict[str, Any]
    updates: list[dict[str, Any]]
    model: str | None = None
    provider: str | None = None

    @cached_property
    def key(self) -> str:
        """Equal for requests that are the same; taken from the request, so that an edited one is found."""
        return request_key(self.request)

    def to_line(self) -> bytes:
        """Return the exchange as a line of the file."""
        record = {
            "version": VERSION,
            "key": self.key,
            "model": self.model,
            "provider": self.provider,
            "request": self.request,
            "updates": redacted_updates(self.updates),
        }
        line = json.dumps(record, ensure_ascii=False, sort_keys=True)
        return _SURROGATE.sub(lambda lone: f"\\u{ord(lone[0]):04x}", line).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Exchange:
        """Read a line of the file.

        Raises:
            ConfigurationError: a newer version wrote it.
            ValueError: it is none.
        """
        record = json.loads(line)
        if not isinstance(record, dict) or not isinstance(record.get("request"), dict):
            raise ValueError("no `request`")
        updates = record.get("updates")
        if not isinstance(updates, list) or not all(isinstance(update, dict) for update in updates):
            raise ValueError("no `updates`")
        if not all(isinstance(update.get("at", 0), int | float) for update in updates):
            raise ValueError("`at` of an update is no number")
        version = record.get("version", VERSION)
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"`version` is {version!r:.60}")
        if version > VERSION:
            raise ConfigurationError(
                f"The recording has version {version}; this nbagents reads up to {VERSION}.",
                hint="Upgrade nbagents, or record again.",
            )
        return cls(record["request"], record["updates"], record.get("model"), record.get("provider"))


class Recording:
    """The file of a recording. Several clients and threads of one process may write it; one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exchanges(self) -> list[Exchange]:
        """Read the file, in order; lines that are no exchange are passed over with one warning.

        Raises:
            ConfigurationError: the file is no recording and can become none, or a newer version wrote it.
        """
        lines = self._lines()
        odd = [line for line in lines if line.exchange is None]
        if odd and len(odd) == len(lines) and not odd[0].is_torn:
            raise ConfigurationError(
                f"{self.path} is no recording: its line {odd[0].number} is no exchange.",
                hint="Record into a file of its own; nothing was written into this one.",
            )
        if odd:
            more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
            said = f"{self.path}, line {odd[0].number}{more} is no exchange and was passed over: {odd[0].fault}"
            warnings.warn(said, stacklevel=depth_of_caller())
        return [line.exchange for line in lines if line.exchange is not None]

    def add(self, exchange: Exchange) -> None:
        """Write `exchange` behind the others; a torn last line stays a line of its own."""
        with _writing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, 2)
                    torn = file.read(1) != b"\n"
                    file.write(b"\n" if torn else b"")
                file.write(exchange.to_line())

    def remove(self, key: str) -> None:
        """Take out the exchanges of one request."""
        with _writing:
            lines = self._lines()
            kept = [line.text for line in lines if line.exchange is None or line.exchange.key != key]
            if len(kept) < len(lines):
                new = self.path.with_name(f"{self.path.name}.new")
                new.write_bytes(b"".join(line + b"\n" for line in kept))
                new.replace(self.path)

    def _lines(self) -> list[_Line]:
        nearest = next((one for one in (self.path, *self.path.parents) if one.exists()), self.path)
        if nearest.is_dir() == (
            nearest == self.path
        ):  # a folder in the place of the file, or a file in one of a folder
            raise ConfigurationError(
                f"There can be no recording {self.path}: {nearest} is a {'folder' if nearest.is_dir() else 'file'}.",
                hint="Give it the name of a file.",
            )
        if nearest != self.path:
            return []
        texts = enumerate(self.path.read_bytes().split(b"\n"), start=1)
        return [_Line.read(number, text) for number, text in texts if text.strip()]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the file that is not blank; without an exchange it has a fault."""

    number: int
    text: bytes
    exchange: Exchange | None
    fault: str = ""

    @classmethod
    def read(cls, number: int, text: bytes) -> _Line:
        try:
            return cls(number, text, Exchange.from_line(text))
        except ConfigurationError:
            raise
        except ValueError as error:
            return cls(number, text, None, str(error))

    @property
    def is_torn(self) -> bool:
        """Whether it is the beginning of an exchange, as a program that was killed leaves it."""
        return self.text.startswith(_BEGINNING) or _BEGINNING.startswith(self.text)


def normal_request(request: ChatRequest, model: str | None) -> dict[str, Any]:
    """Return what makes two requests the same: model, messages, options and tools; without ids, times and secrets.

    A reply in one piece and a stream are the same request.
    """
    options = {name: value for name, value in request.options.items() if name not in _LABELS and name != "model"}
    asked = output_format(options.get("response_format"))
    if asked is not None:
        options["response_format"] = asked.to_option()
    normal: dict[str, Any] = {
        "messages": [_normal_message(message) for message in request.messages],
        "options": options,
        "tools": [_normal_tool(tool) for tool in request.tools],
    }
    normal = {name: value for name, value in normal.items() if value or name == "messages"}
    if model is not None:
        normal["model"] = model
    plain: dict[str, Any] = json.loads(json.dumps(normal, default=repr))
    return _redacted(plain)  # type: ignore[no-any-return]


def _normal_tool(tool: ToolDefinition | HostedTool) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        return {"type": tool.type, **tool.options}
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def request_key(request: Mapping[str, Any]) -> str:
    """Return the hash of a normal request."""
    canonical = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def update_to_dict(update: ChatResponseUpdate) -> dict[str, Any]:
    """Return `update` as JSON-able values, without what stands at its default, times and our own ids."""
    record = {
        f.name: value
        for f in fields(ChatResponseUpdate)
        if f.name not in _UNRECORDED and (value := getattr(update, f.name)) != f.default
    }
    if update.contents:
        record["contents"] = [_content_record(content) for content in update.contents]
    return record


def update_from_dict(record: Mapping[str, Any]) -> ChatResponseUpdate:
    """Read what `update_to_dict` wrote, as a replayed update.

    Raises:
        ConfigurationError: a field that updates do not have.
    """
    facts = {name: value for name, value in record.items() if name not in {"contents", "at"}}
    try:
        contents = [content_from_dict(content) for content in record.get("contents", ())]
        return ChatResponseUpdate(contents, replayed=True, **facts)
    except (TypeError, AttributeError) as error:
        raise ConfigurationError(f"An update of the recording does not fit: {error}.") from error


def redacted_updates(updates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `updates` without secrets, also those that are spread over several pieces.

    The pieces of a text with a secret lose their boundaries: the first one holds all of it.
    """
    copies = [{**u, "contents": [dict(c) for c in u["contents"]]} if "contents" in u else dict(u) for u in updates]
    contents = [content for update in copies for content in update.get("contents", ())]
    for content in contents:
        if not isinstance(content.get(_STREAMED.get(content["type"], "")), str):
            content.update(_redacted(content))
    for name, pieces in _texts(contents):
        whole = "".join(piece[name] for piece in pieces)
        safe = _redacted_arguments(whole) if name == "arguments" else redact(whole)
        if safe != whole:
            for piece in pieces:
                piece[name] = ""
            pieces[0][name] = safe
    return copies


def difference(request: Mapping[str, Any], recorded: Iterable[Mapping[str, Any]]) -> str:
    """Return a short unified diff from the nearest of `recorded` to `request`; empty if nothing is recorded."""
    asked = _as_lines(request)
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2("\n".join(asked))
    nearest: list[str] | None = None
    best = -1.0
    for other in recorded:
        lines = _as_lines(other)
        matcher.set_seq1("\n".join(lines))
        if (ratio := matcher.quick_ratio()) > best:
            nearest, best = lines, ratio
    if nearest is None:
        return ""
    diff = list(difflib.unified_diff(nearest, asked, "recorded", "asked", n=1, lineterm=""))
    shown = diff[:_DIFF_LINES] + [f"… {len(diff) - _DIFF_LINES} more lines"] * (len(diff) > _DIFF_LINES)
    return "\n".join(shown)


def _normal_message(message: Message) -> dict[str, Any]:
    pieces = [piece for content in message.contents if (piece := _normal_content(content)) is not None]
    if all(isinstance(piece, str) for piece in pieces):
        return {"role": message.role, "content": "".join(pieces)}
    return {"role": message.role, "content": pieces}


def _normal_content(content: Content) -> Any:
    if isinstance(content, TextContent | RefusalContent):
        return content.text
    if isinstance(content, FunctionCall):
        return {"call": content.name, "arguments": content.arguments}
    if isinstance(content, FunctionResult):
        return {"result_of": content.name, "result": content.result}
    if isinstance(content, DataContent):
        digest = hashlib.sha256(content.uri.encode()).hexdigest()
        place = f"sha256:{digest}" if content.uri.startswith("data:") else content.uri
        return {"data": place, "media_type": content.media_type}
    return None


def _content_record(content: Content) -> dict[str, Any]:
    record = content_to_dict(content)
    if isinstance(content, FunctionCall):
        record.pop("id", None)
    return record


def _texts(contents: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Group the pieces of each streamed text: the name of the field, and the pieces in order."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    calls: dict[Any, int] = {}
    for content in contents:
        kind = content["type"]
        name = _STREAMED.get(kind, "")
        if not isinstance(content.get(name), str):
            continue
        if kind == "function_call":
            index = content.get("index")
            if content.get("name"):
                calls[index] = calls.get(index, 0) + 1
            groups.setdefault((name, kind, index, calls.get(index)), []).append(content)
        else:
            groups.setdefault((name, kind), []).append(content)
    return [(key[0], pieces) for key, pieces in groups.items()]


def _redacted(value: Any) -> Any:
    """Return JSON values with secrets masked, also where only the name of a field tells that it is one."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _MASK if isinstance(item, str) and item and _names_a_secret(name) else _redacted(item)
            for name, item in value.items()
        }
    return value


def _redacted_arguments(text: str) -> str:
    parsed = parse_arguments(text)
    if parsed is None:
        return redact(text)
    safe = _redacted(parsed)
    return text if safe == parsed else json.dumps(safe, ensure_ascii=False)


@lru_cache(maxsize=1000)
def _names_a_secret(name: str) -> bool:
    probe = f"{name}=0123456789"
    return redact(probe) != probe


def _as_lines(request: Mapping[str, Any]) -> list[str]:
    """Return a request for reading: a line for each option, tool and line of text."""
    lines = [f"model: {request['model']}"] if "model" in request else []
    lines += [f"option {name}: {_shown(value)}" for name, value in sorted(request.get("options", {}).items())]
    lines += [f"tool {tool.get('name')}: {_shown(tool)}" for tool in request.get("tools", ())]
    for message in request.get("messages", ()):
        content = message.get("content", "")
        for piece in content if isinstance(content, list) else [content]:
            lines += f"{message.get('role')}: {_shown(piece)}".splitlines()
    return [part for line in lines for part in textwrap.wrap(line, _DIFF_WIDTH) or [""]]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
