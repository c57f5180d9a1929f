"""From updates to messages, in linear time: the one place where streamed pieces become whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nbagents.core.content import (
    Arguments,
    Content,
    FunctionCall,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    TextLike,
    UsageContent,
    continues,
    merged_head,
)
from nbagents.core.messages import Message, Role
from nbagents.core.updates import AgentResponseUpdate, ChatResponseUpdate
from nbagents.core.usage import Usage, total_usage


class UpdateFolder:
    """Folds updates into messages and the facts about the response.

    An update belongs to the message of its id, wherever that stands; without an id to the newest message, unless role
    or author change. Neighbouring text of one kind joins. Usage reported several times within one response is a
    running total: the last known value of each field counts; different responses are summed.
    """

    def __init__(self) -> None:
        self._messages: list[_OpenMessage] = []
        self._by_id: dict[str, _OpenMessage] = {}
        self._usage: dict[str | None, Usage] = {}
        self._taken = 0
        self.response_id: str | None = None
        self.conversation_id: str | None = None
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.created_at: float | None = None
        self.agent_id: str | None = None
        self.run_id: str | None = None
        self.stop_reason: str | None = None

    def add(self, update: ChatResponseUpdate, *, new_call_id: Callable[[], str] | None = None) -> None:
        """Take in the next update.

        Args:
            update: it is not changed, but for the calls where they are to get ids.
            new_call_id: makes the id of a call that has none; its fragments get it too.
        """
        if update.retracts:
            self._retract(update.retracts)
        self._take_facts(update)
        message: _OpenMessage | None = None
        identified: dict[int, Content] = {}
        for place, content in enumerate(update.contents):
            if isinstance(content, UsageContent):
                self._take_usage(update, content.usage)
                continue
            message = message or self._target(update)
            call = message.add(content)
            if call is not None and new_call_id is not None and isinstance(content, FunctionCall):
                call.id = call.id or new_call_id()
                identified[place] = replace(content, id=call.id)
        if identified:
            update.contents = [identified.get(place, content) for place, content in enumerate(update.contents)]
        if message is None:
            if not (update.starts_message or update.message_id or update.interrupted):
                return
            message = self._target(update)
        if update.interrupted:
            message.interrupted = True
        if update.extra:
            message.extra = update.extra

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages so far, those included that hold nothing yet."""
        return [message.message_id for message in self._messages if message.message_id is not None]

    def messages(self) -> list[Message]:
        """Return the messages so far, without those that hold nothing."""
        return [built for message in self._messages if (built := message.build()).contents or message.is_whole]

    def next_messages(self, *, ended: bool = False) -> list[Message]:
        """Return the messages that this has not returned yet and that others follow; once `ended`, all of them."""
        complete = self._messages[self._taken : len(self._messages) - (not ended)]
        self._taken += len(complete)
        return [built for message in complete if (built := message.build()).contents or message.is_whole]

    @property
    def usage(self) -> Usage | None:
        """The usage so far; None if nothing was reported."""
        reports = list(self._usage.values())
        return reports[0] if len(reports) == 1 else total_usage(reports)

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "\n".join(text for m in self._messages if (text := m.text_of("text")))

    def text_of(self, kind: str) -> str:
        """The text of one kind (`text`, `reasoning`, `refusal`) so far."""
        return "".join(m.text_of(kind) for m in self._messages)

    def _take_facts(self, update: ChatResponseUpdate) -> None:
        if update.response_id:
            self.response_id = update.response_id
        if update.conversation_id:
            self.conversation_id = update.conversation_id
        if update.model and not self.model:
            self.model = update.model
        if update.finish_reason:
            self.finish_reason = update.finish_reason
        if isinstance(update, AgentResponseUpdate) and update.stop_reason:
            self.stop_reason = update.stop_reason
        if update.starts_message:
            return  # its time and owner are those of the message
        if update.created_at and not self.created_at:
            self.created_at = update.created_at
        if isinstance(update, AgentResponseUpdate):
            self.agent_id = update.agent_id or self.agent_id
            self.run_id = update.run_id or self.run_id

    def _retract(self, ids: Sequence[str]) -> None:
        """Forget messages and what they ended with; what they cost stays."""
        self._taken -= sum(message.message_id in ids for message in self._messages[: self._taken])
        self._messages = [message for message in self._messages if message.message_id not in ids]
        for message_id in ids:
            self._by_id.pop(message_id, None)
        self.finish_reason = None

    def _take_usage(self, update: ChatResponseUpdate, usage: Usage) -> None:
        key = update.response_id or update.message_id or self.response_id
        known = self._usage.get(key)
        self._usage[key] = known.updated(usage) if known else usage

    def _target(self, update: ChatResponseUpdate) -> _OpenMessage:
        newest = self._messages[-1] if self._messages else None
        if update.message_id is not None:
            found = self._by_id.get(update.message_id)
            if found is not None and found.takes(update):
                return found
        elif newest is not None and not update.starts_message and newest.takes(update):
            return newest
        message = _OpenMessage(update)
        self._messages.append(message)
        if update.message_id is not None:
            self._by_id[update.message_id] = message
        return message


class _OpenMessage:
    """A message that still grows; its parts are lists of text pieces, calls and finished content.

    One that `to_updates` unfolded is whole: it stays as it was, with empty texts in it or nothing at all.
    """

    __slots__ = (
        "author_name",
        "calls",
        "created_at",
        "extra",
        "hosted",
        "interrupted",
        "is_whole",
        "known_calls",
        "message_id",
        "owner",
        "parts",
        "role",
    )

    def __init__(self, first: ChatResponseUpdate) -> None:
        self.role: Role = first.role or "assistant"
        self.author_name = first.author_name
        self.message_id = first.message_id
        self.created_at = first.created_at
        self.interrupted = False
        self.is_whole = first.starts_message
        self.extra: Mapping[str, Any] | None = None
        self.owner = (first.run_id, first.agent_id) if isinstance(first, AgentResponseUpdate) else (None, None)
        self.parts: list[_OpenText | _OpenCall | Content] = []
        self.calls: list[_OpenCall] = []
        self.known_calls: dict[tuple[str, str | int | None], _OpenCall] = {}
        self.hosted: dict[tuple[str, str], int] = {}

    def takes(self, update: ChatResponseUpdate) -> bool:
        return (update.role is None or update.role == self.role) and (
            update.author_name is None or update.author_name == self.author_name
        )

    def add(self, content: Content) -> _OpenCall | None:
        """Take in a piece; return the call that it belongs to, if it is one of a call."""
        if isinstance(content, TextLike):
            newest = self.parts[-1] if self.parts else None
            if isinstance(newest, _OpenText) and continues(newest.head, content):
                newest.add(content)
            else:
                self.parts.append(_OpenText(content))
        elif isinstance(content, FunctionCall):
            return self._add_call(content)
        elif isinstance(content, HostedToolCall | HostedToolResult) and content.id:
            self._add_hosted(content)
        else:
            self.parts.append(content)
        return None

    def _add_call(self, fragment: FunctionCall) -> _OpenCall:
        newest = self.calls[-1] if self.calls else None
        for call in self._candidates(fragment):
            if call.continues(fragment, newest=call is newest):
                call.add(fragment)
                self.known_calls.setdefault(("call_id", call.call_id), call)
                return call
        opened = _OpenCall(fragment)
        self.calls.append(opened)
        self.parts.append(opened)
        for key in (("id", opened.id), ("index", opened.index), ("call_id", opened.call_id)):
            self.known_calls[key] = opened
        return opened

    def _candidates(self, fragment: FunctionCall) -> list[_OpenCall]:
        """The calls that `fragment` may belong to: the last of its id or index, and the newest."""
        keys = (("id", fragment.id), ("index", fragment.index), ("call_id", fragment.call_id))
        found = [self.known_calls[key] for key in keys if key[1] not in (None, "") and key in self.known_calls]
        return [*found, *self.calls[-1:]]

    def _add_hosted(self, content: HostedToolCall | HostedToolResult) -> None:
        """A service tells of its calls several times, each time more: the last word counts, in the first place."""
        place = self.hosted.setdefault((content.type, content.id), len(self.parts))
        if place == len(self.parts):
            self.parts.append(content)
        else:
            self.parts[place] = content

    def text_of(self, kind: str) -> str:
        return "".join(
            "".join(part.pieces) for part in self.parts if isinstance(part, _OpenText) and part.head.type == kind
        )

    def build(self) -> Message:
        contents = [
            part.build() if isinstance(part, _OpenText | _OpenCall) else part
            for part in self.parts
            if self.is_whole or not isinstance(part, _OpenText) or part.holds_something()
        ]
        return Message(
            self.role,
            contents,
            self.author_name,
            self.message_id,
            created_at=self.created_at,
            run_id=self.owner[0],
            agent_id=self.owner[1],
            interrupted=self.interrupted,
            extra=self.extra,
        )


class _OpenText:
    """Neighbouring pieces of one text; `head` has what is known of it besides."""

    __slots__ = ("head", "pieces")

    def __init__(self, first: TextLike) -> None:
        self.head = first
        self.pieces = [first.text]

    def add(self, piece: TextLike) -> None:
        self.pieces.append(piece.text)
        self.head = merged_head(self.head, piece)

    def holds_something(self) -> bool:
        named = isinstance(self.head, ReasoningContent) and (self.head.id or self.head.encrypted)
        return bool(named or self.head.extra) or any(self.pieces)

    def build(self) -> Content:
        return replace(self.head, text="".join(self.pieces)) if len(self.pieces) > 1 else self.head


class _OpenCall:
    """A call whose arguments still arrive. Providers key the fragments by index, by id, by both or by nothing."""

    __slots__ = ("call_id", "extra", "id", "index", "invalid", "name", "parsed", "pieces")

    def __init__(self, first: FunctionCall) -> None:
        self.call_id = first.call_id or None
        self.id = first.id
        self.name = first.name
        self.index = first.index
        self.invalid = first.invalid
        self.extra = first.extra
        self.pieces: list[str] = []
        self.parsed: dict[str, Any] | None = None
        self._append(first.arguments)

    def continues(self, fragment: FunctionCall, *, newest: bool) -> bool:
        """Whether `fragment` belongs here: the same id, else the same index, else nothing but arguments."""
        if fragment.id and self.id:
            return fragment.id == self.id
        same_index = fragment.index is not None and fragment.index == self.index
        if fragment.index is not None and self.index is not None and not same_index:
            return False
        if fragment.call_id and fragment.call_id == self.call_id:
            # A repeated id is the same call, unless a whole second call follows a whole first one without an index.
            return same_index or not self._follows_whole(fragment)
        if fragment.call_id and self.call_id:  # some gateways make up an id for each fragment
            return same_index and not fragment.name and not self._is_whole()
        if fragment.call_id:
            return same_index and not self._is_whole()
        if fragment.name and fragment.name != self.name and self.name:
            return same_index and self.call_id is not None and self._has_no_arguments()
        if fragment.name and self.name and self._is_whole():
            return False
        return same_index or (newest and (not fragment.name or not self.name))

    def add(self, fragment: FunctionCall) -> None:
        self.call_id = self.call_id or fragment.call_id or None
        if fragment.name and fragment.name != self.name and (not self.name or self._has_no_arguments()):
            # A name in pieces, or once more from its beginning.
            self.name = fragment.name if fragment.name.startswith(self.name) else self.name + fragment.name
        self.extra = self.extra or fragment.extra
        self._append(fragment.arguments)

    def build(self) -> FunctionCall:
        text = "".join(self.pieces)
        arguments = self.parsed
        if arguments is None and not self.invalid:
            arguments = parse_arguments(text)
        if arguments is None:
            return FunctionCall(self.call_id, self.name, text, self.id, invalid=True, extra=self.extra)
        return FunctionCall(self.call_id, self.name, arguments, self.id, extra=self.extra)

    def _append(self, arguments: Arguments) -> None:
        if arguments is None or arguments == "":
            return
        if isinstance(arguments, dict):
            self.parsed = arguments
            return
        if self.pieces and arguments[0] in '{"' and (repeated := parse_arguments(arguments)) is not None:
            known = parse_arguments("".join(self.pieces))
            if known == repeated:
                return  # some gateways close with the whole arguments once more
            if known == {}:
                self.pieces.clear()  # and some open with an empty object as a place holder
        self.pieces.append(arguments)

    def _has_no_arguments(self) -> bool:
        return self.parsed is None and not self.pieces

    def _is_whole(self) -> bool:
        return self.parsed is not None or (
            bool(self.pieces) and self.pieces[-1][-1:] in '}"' and parse_arguments("".join(self.pieces)) is not None
        )

    def _follows_whole(self, fragment: FunctionCall) -> bool:
        if not self._is_whole() or not fragment.arguments:
            return False
        later = fragment.arguments if isinstance(fragment.arguments, dict) else parse_arguments(fragment.arguments)
        return later is not None and later != (self.parsed or parse_arguments("".join(self.pieces)))


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the object that `text` is, also where it was encoded twice; None where it is no JSON object.

    Nothing at all counts as an object without fields: tools without parameters are called that way.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
