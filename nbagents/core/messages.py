"""`Message`, one entry of a conversation: a pure value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, get_args

from nbagents.core.arguments import exact_arguments
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    Content,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    TextContent,
    content_from_dict,
    content_to_dict,
    merged_text,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.records import with_extra

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """One entry of a conversation.

    Args:
        role: `system`, `user`, `assistant` or `tool`.
        contents: a text, one piece of content or several; neighbouring pieces of text become one.
        author_name: who wrote it; the agent's name where an agent did.
        message_id: id of the message, where there is one.
        created_at: unix seconds, UTC.
        run_id: the run that added it.
        agent_id: the agent that added it.
        interrupted: the run ended while this was being written.
        extra: fields of a stored message that this version does not know.

    Raises:
        ConfigurationError: an unknown role, or contents that are no content.

    Example:
        >>> Message("user", "Hello").text
        'Hello'
    """

    role: Role
    contents: tuple[Content, ...]
    author_name: str | None = None
    message_id: str | None = None
    created_at: float | None = field(default=None, kw_only=True)
    run_id: str | None = field(default=None, kw_only=True)
    agent_id: str | None = field(default=None, kw_only=True)
    interrupted: bool = field(default=False, kw_only=True)
    extra: Mapping[str, Any] | None = field(default=None, kw_only=True)
    wire: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """A place where chat clients keep the form in which they send this message, by their own key."""

    @exact_arguments()
    def __init__(
        self,
        role: Role,
        contents: str | Content | Iterable[str | Content] = (),
        author_name: str | None = None,
        message_id: str | None = None,
        *,
        created_at: float | None = None,
        run_id: str | None = None,
        agent_id: str | None = None,
        interrupted: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if role not in ROLES:
            raise ConfigurationError(f"Unknown role {role!r}.", hint=f"Use one of: {', '.join(ROLES)}.")
        put = object.__setattr__
        put(self, "role", role)
        put(self, "contents", _as_contents(contents))
        put(self, "author_name", author_name)
        put(self, "message_id", message_id)
        put(self, "created_at", created_at)
        put(self, "run_id", run_id)
        put(self, "agent_id", agent_id)
        put(self, "interrupted", interrupted)
        put(self, "extra", extra)
        put(self, "wire", {})

    @property
    def text(self) -> str:
        """The visible text; pieces join with nothing between."""
        return "".join(c.text for c in self.contents if isinstance(c, TextContent))

    @property
    def calls(self) -> list[FunctionCall]:
        """The function calls in it."""
        return [c for c in self.contents if isinstance(c, FunctionCall)]

    @property
    def results(self) -> list[FunctionResult]:
        """The function results in it."""
        return [c for c in self.contents if isinstance(c, FunctionResult)]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` reads them."""
        record: dict[str, Any] = {
            "role": self.role,
            "contents": [content_to_dict(content) for content in self.contents],
        }
        for name, value in zip(_SCALARS, _read_scalars(self), strict=True):
            if value is not None and value is not False:
                record[name] = value
        return with_extra(record, self.extra) if self.extra else record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Message:
        """Read what `to_dict` wrote; fields that it does not know are kept in `extra`.

        Raises:
            ConfigurationError: no role, or content that is none.
        """
        if not isinstance(record, Mapping) or "role" not in record:
            raise ConfigurationError(f"A message is a mapping with a role, not {str(record)[:100]!r}.")
        contents = record.get("contents", ())
        if isinstance(contents, str | Mapping) or not isinstance(contents, Sequence):
            raise ConfigurationError(f"The contents of a message are a list, not {type(contents).__name__}.")
        extra = {k: v for k, v in record.items() if k not in {"role", "contents", *_SCALARS}}
        return cls(
            record["role"],
            [content_from_dict(content) for content in contents],
            extra=extra or None,
            **{name: record[name] for name in _SCALARS if name in record},
        )


_SCALARS = ("author_name", "message_id", "created_at", "run_id", "agent_id", "interrupted")
_read_scalars = attrgetter(*_SCALARS)

AgentRunInputs = str | Content | Message | Iterable[str | Content | Message] | None
"""What `Agent.run` accepts: nothing, a text, content, a message, or several of them."""


def normalize_messages(inputs: AgentRunInputs) -> list[Message]:
    """Return `inputs` as messages: texts and content become user messages, neighbouring content one message.

    Raises:
        ConfigurationError: something else, naming it, or an approval request in the place of the answer.

    Example:
        >>> [m.text for m in normalize_messages(["Hello", Message("user", "again")])]
        ['Hello', 'again']
    """
    if inputs is None:
        return []
    if isinstance(inputs, str):
        return [Message("user", inputs)]
    if isinstance(inputs, Message | Content):
        inputs = [inputs]
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        raise _not_an_input(inputs)
    messages: list[Message] = []
    loose: list[Content] = []
    for item in inputs:
        if isinstance(item, str | Message):
            _close_loose(loose, messages)
            messages.append(item if isinstance(item, Message) else Message("user", item))
        elif isinstance(item, Content):
            loose.append(item)
        else:
            raise _not_an_input(item)
    _close_loose(loose, messages)
    for content in (content for message in messages if message.role == "user" for content in message.contents):
        if isinstance(content, ApprovalRequest):
            raise ConfigurationError(
                f"A request to approve {content.call.name!r} is no answer to it.",
                hint="Pass request.approve() or request.deny(reason) for each of response.approvals.",
            )
    return messages


def split_answers(messages: Iterable[Message], *, held: bool) -> tuple[list[ApprovalResponse], list[Message]]:
    """Return the answers to approval requests among `messages`, and what else is in them.

    An answer to the service is a message to it, unless calls are held back here: then it may be for an agent among
    them, which is asked by its own service. The service gets one answer to each request: a denial counts more than an
    approval.
    """
    answers: list[ApprovalResponse] = []
    others: list[Message] = []
    messages = list(messages)
    told: set[str] = set()
    given = [content for message in messages for content in message.contents if isinstance(content, ApprovalResponse)]
    denied = {answer.id for answer in given if not answer.approved}
    for message in messages:
        kept: list[Content] = []
        for content in message.contents:
            if not isinstance(content, ApprovalResponse):
                kept.append(content)
            elif held or content.service is None:
                answers.append(content)
            elif content.approved is (content.id not in denied) and content.id not in told:
                told.add(content.id)
                kept.append(content)
        if len(kept) == len(message.contents):
            others.append(message)
        elif kept:
            others.append(replace(message, contents=tuple(kept)))
    return answers, others


def own_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of JSON values: who changes it does not change what is stored."""
    nested = any(isinstance(value, dict | list) for value in values.values())
    return deepcopy(values) if nested else dict(values)


def own_message(message: Message, **known: Any) -> Message:
    """Return a copy of a caller's message, with those of `known` that it does not have yet.

    What the caller does to his does not change what is stored.
    """
    if not message.extra and all(type(content) is TextContent for content in message.contents):
        return attributed(message, **known)  # nothing in it can change
    fields: dict[str, Any] = {name: getattr(message, name) for name in _SCALARS}
    fields |= {name: value for name, value in known.items() if not fields[name]}
    extra = own_values(dict(message.extra)) if message.extra else None
    return Message(message.role, [_own_content(content) for content in message.contents], extra=extra, **fields)


def attributed(message: Message, **known: Any) -> Message:
    """Return `message` with those of `known` that it does not have yet."""
    missing = {name: value for name, value in known.items() if not getattr(message, name)}
    if not missing:
        return message
    signed = object.__new__(Message)  # what is in it was checked when `message` was made
    put, get = object.__setattr__, missing.get
    put(signed, "role", message.role)
    put(signed, "contents", message.contents)
    put(signed, "author_name", get("author_name") or message.author_name)
    put(signed, "message_id", get("message_id") or message.message_id)
    put(signed, "created_at", get("created_at") or message.created_at)
    put(signed, "run_id", get("run_id") or message.run_id)
    put(signed, "agent_id", get("agent_id") or message.agent_id)
    put(signed, "interrupted", message.interrupted)
    put(signed, "extra", message.extra)
    put(signed, "wire", {})
    return signed


def result_message(result: FunctionResult) -> Message:
    """Return the message that answers one call."""
    return Message("tool", [result], author_name=result.name, message_id=f"msg_{result.id}")


def _own_content(content: Content) -> Content:
    if isinstance(content, FunctionCall) and isinstance(content.arguments, dict):
        return replace(content, arguments=own_values(content.arguments))
    return deepcopy(content) if isinstance(content, HostedToolCall | HostedToolResult) else content


def _close_loose(loose: list[Content], messages: list[Message]) -> None:
    if loose:
        messages.append(Message("user", loose))
        loose.clear()


def _as_contents(contents: str | Content | Iterable[str | Content]) -> tuple[Content, ...]:
    if isinstance(contents, str):
        return (TextContent(contents),)
    if isinstance(contents, Content):
        return (contents,)
    pieces: list[Content] = []
    for item in contents:
        piece = TextContent(item) if isinstance(item, str) else item
        if not isinstance(piece, Content):
            raise ConfigurationError(
                f"A message holds text and content, not {type(piece).__name__}.",
                hint="Pass a string, a content object such as TextContent(...), or a list of them.",
            )
        joined = merged_text(pieces[-1], piece) if pieces else None
        if joined is not None:
            pieces[-1] = joined
        else:
            pieces.append(piece)
    return tuple(pieces)


def _not_an_input(value: object) -> ConfigurationError:
    return ConfigurationError(
        f"A run takes text, content or messages, not {type(value).__name__}.",
        hint="Pass a string, Message('user', ...), or a list of them.",
    )
