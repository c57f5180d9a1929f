"""What messages are made of: pure values, told apart by `type`. They know no storage, no network and no display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedToolCall as HostedToolCall
from nbagents.core.hosted import HostedToolResult as HostedToolResult
from nbagents.core.media import DataContent as DataContent
from nbagents.core.records import Piece, piece_from_dict, piece_to_dict
from nbagents.core.usage import Usage

Arguments = str | dict[str, Any] | None
"""Arguments of a call: parsed (dict), as the model wrote them (str), or none given."""


@dataclass(frozen=True, slots=True)
class TextContent(Piece):
    """Visible text; Markdown by custom."""

    type: ClassVar[str] = "text"
    text: str

    def __init__(self, text: str, *, extra: Mapping[str, Any] | None = None) -> None:
        # One is made for each streamed piece: this takes two thirds of the time that the generated method takes.
        _set_text(self, text)
        _set_extra(self, extra)

    @property
    def annotations(self) -> Sequence[Mapping[str, Any]]:
        """What the service cites, in its own words: addresses, files, and where in the text they belong."""
        cited: Sequence[Mapping[str, Any]] = (self.extra or {}).get("annotations", ())
        return cited


_set_text, _set_extra = TextContent.__dict__["text"].__set__, Piece.__dict__["extra"].__set__


@dataclass(frozen=True, slots=True)
class ReasoningContent(Piece):
    """What a model says to itself: never part of the answer.

    Attributes:
        text: the thought, or the service's summary of it; empty where the service keeps it to itself.
        id: the service's id of this thought.
        encrypted: what the service wants to be given back with the calls that the thought led to; with it the thought
            is complete.
    """

    type: ClassVar[str] = "reasoning"
    text: str
    id: str | None = None
    encrypted: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RefusalContent(Piece):
    """The model declines, in its own words."""

    type: ClassVar[str] = "refusal"
    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall(Piece):
    """The model asks for a function.

    Attributes:
        call_id: the provider's id; it may be missing, and providers repeat it.
        name: the function's name.
        arguments: a dict; or text that is a fragment of a stream or could not be parsed (then `invalid`).
        id: ours, unique.
        index: the provider's position of a streamed fragment.
        invalid: `arguments` is text that is not a JSON object.
    """

    type: ClassVar[str] = "function_call"
    call_id: str | None
    name: str
    arguments: Arguments = None
    id: str = ""
    index: int | None = None
    invalid: bool = False


@dataclass(frozen=True, slots=True)
class FunctionResult(Piece):
    """The answer to a call.

    Attributes:
        call_id: the provider's id of the call.
        name: the function's name.
        result: the text that the model reads.
        id: our id of the call.
        error: what went wrong, if something did.
        interrupted: the run ended before the function had; `result` says so.
        items: images and files that it returned; `result` names them.
        value: the object that the function returned; it is never stored.
        denied: the function was not called, since a person did not allow it; `error` says so.
    """

    type: ClassVar[str] = "function_result"
    call_id: str | None
    name: str
    result: str
    id: str = ""
    error: str | None = None
    interrupted: bool = False
    items: tuple[DataContent, ...] = ()
    value: Any = field(default=None, compare=False, repr=False)
    denied: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalResponse(Piece):
    """A person's answer to an `ApprovalRequest`; one to a service goes out with the next request."""

    type: ClassVar[str] = "approval_response"
    id: str
    call: FunctionCall
    approved: bool
    reason: str | None = None
    service: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest(Piece):
    """A call that waits for a person.

    Attributes:
        id: what the answer refers to.
        call: what is to be called, with its arguments.
        service: the server at the model's service which asks, and calls it itself; None for a tool of the agent.

    Example:
        >>> ask = ApprovalRequest("a1", FunctionCall("c1", "rm", {"path": "data/x"}))
        >>> ask.deny("keep it").approved
        False
    """

    type: ClassVar[str] = "approval_request"
    id: str
    call: FunctionCall
    service: str | None = None

    def approve(self) -> ApprovalResponse:
        """Let the call run as it stands."""
        return ApprovalResponse(self.id, self.call, True, service=self.service)

    def deny(self, reason: str | None = None) -> ApprovalResponse:
        """Refuse the call; the model is told, with `reason`."""
        return ApprovalResponse(self.id, self.call, False, reason, self.service)


@dataclass(frozen=True, slots=True)
class UsageContent(Piece):
    """Tokens of the request so far; it is folded into the response and never stored in a message."""

    type: ClassVar[str] = "usage"
    usage: Usage


@dataclass(frozen=True, slots=True)
class ErrorContent(Piece):
    """Something went wrong inside a reply that goes on."""

    type: ClassVar[str] = "error"
    message: str
    code: str | None = None


Content = (
    TextContent
    | ReasoningContent
    | RefusalContent
    | DataContent
    | FunctionCall
    | FunctionResult
    | HostedToolCall
    | HostedToolResult
    | ApprovalRequest
    | ApprovalResponse
    | UsageContent
    | ErrorContent
)

TextLike = TextContent | ReasoningContent | RefusalContent
"""The kinds that come as pieces of text and join."""

CONTENT_TYPES: dict[str, type[Any]] = {kind.type: kind for kind in get_args(Content)}
_NESTED: dict[str, type[Piece]] = {"call": FunctionCall, "items": DataContent}


def content_to_dict(content: Content) -> dict[str, Any]:
    """Return `content` as JSON-able values, without the fields that stand at their default."""
    if type(content) is TextContent and not content.extra:  # most of it
        return {"type": "text", "text": content.text}
    return piece_to_dict(content)


def content_from_dict(record: Mapping[str, Any]) -> Content:
    """Read what `content_to_dict` wrote; fields that this version does not know are kept.

    Raises:
        ConfigurationError: no such type, or a field that is missing or holds something else.
    """
    if not isinstance(record, Mapping):
        raise ConfigurationError(f"Content is read from a mapping, not from {type(record).__name__}.")
    name = record.get("type")
    kind = CONTENT_TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(sorted(CONTENT_TYPES))
        raise ConfigurationError(f"Unknown content type {name!r}.", hint=f"Known types: {known}.")
    content: Content = piece_from_dict(kind, record, _NESTED)
    return content


def continues(left: TextLike, right: TextLike) -> bool:
    """Whether `right` is the next piece of the text `left`: of the same kind, and neither with fields of its own.

    An empty piece with fields of its own closes a text: they are what there is to say of it. Pieces of one thought may
    lack its id; a thought that is complete goes on only under its id.
    """
    if type(left) is not type(right) or left.extra or (right.extra and right.text):
        return False
    if not isinstance(left, ReasoningContent) or not isinstance(right, ReasoningContent):
        return True
    if left.encrypted is not None:
        return right.id is not None and right.id == left.id
    return left.id is None or right.id is None or left.id == right.id


def merged_text(left: Content, right: Content) -> Content | None:
    """Return the two joined where `right` continues `left`, else None."""
    if isinstance(left, TextLike) and isinstance(right, TextLike) and continues(left, right):
        return replace(merged_head(left, right), text=left.text + right.text)
    return None


def merged_head(left: TextLike, right: TextLike) -> TextLike:
    """Return `left` with what its continuation `right` knows besides text: fields, and id and secret of a thought."""
    if right.extra:
        left = replace(left, extra=right.extra)
    if not isinstance(left, ReasoningContent) or not isinstance(right, ReasoningContent):
        return left
    thought = right.id if left.id is None else left.id
    encrypted = left.encrypted if right.encrypted is None else right.encrypted
    unchanged = (thought, encrypted) == (left.id, left.encrypted)
    return left if unchanged else replace(left, id=thought, encrypted=encrypted)
