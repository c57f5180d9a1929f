"""What messages are made of: pure values, told apart by `type`. They know no storage, no network and no display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from nbagents.core.errors import ConfigurationError
from nbagents.core.usage import Usage

Arguments = str | dict[str, Any] | None
"""Arguments of a call: parsed (dict), as the model wrote them (str), or none given."""


@dataclass(frozen=True, slots=True)
class TextContent:
    """Visible text; Markdown by custom."""

    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningContent:
    """What a model says to itself: never part of the answer."""

    type: ClassVar[str] = "reasoning"
    text: str


@dataclass(frozen=True, slots=True)
class RefusalContent:
    """The model declines, in its own words."""

    type: ClassVar[str] = "refusal"
    text: str


@dataclass(frozen=True, slots=True)
class DataContent:
    """An image, sound or file: a `data:` URI that holds it or a URL where it is."""

    type: ClassVar[str] = "data"
    uri: str
    media_type: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
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
class FunctionResult:
    """The answer to a call.

    Attributes:
        call_id: the provider's id of the call.
        name: the function's name.
        result: the text that the model reads.
        id: our id of the call.
        error: what went wrong, if something did.
        interrupted: the run ended before the function had; `result` says so.
        value: the object that the function returned; it is never stored.
    """

    type: ClassVar[str] = "function_result"
    call_id: str | None
    name: str
    result: str
    id: str = ""
    error: str | None = None
    interrupted: bool = False
    value: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ApprovalResponse:
    """A person's answer to an `ApprovalRequest`."""

    type: ClassVar[str] = "approval_response"
    id: str
    call: FunctionCall
    approved: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits for a person.

    Example:
        >>> ask = ApprovalRequest("a1", FunctionCall("c1", "rm", {"path": "data/x"}))
        >>> ask.deny("keep it").approved
        False
    """

    type: ClassVar[str] = "approval_request"
    id: str
    call: FunctionCall

    def approve(self) -> ApprovalResponse:
        """Let the call run as it stands."""
        return ApprovalResponse(self.id, self.call, True)

    def deny(self, reason: str | None = None) -> ApprovalResponse:
        """Refuse the call; the model is told, with `reason`."""
        return ApprovalResponse(self.id, self.call, False, reason)


@dataclass(frozen=True, slots=True)
class UsageContent:
    """Tokens of the request so far; it is folded into the response and never stored in a message."""

    type: ClassVar[str] = "usage"
    usage: Usage


@dataclass(frozen=True, slots=True)
class ErrorContent:
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
    | ApprovalRequest
    | ApprovalResponse
    | UsageContent
    | ErrorContent
)

CONTENT_TYPES: dict[str, type[Any]] = {
    kind.type: kind
    for kind in (
        TextContent,
        ReasoningContent,
        RefusalContent,
        DataContent,
        FunctionCall,
        FunctionResult,
        ApprovalRequest,
        ApprovalResponse,
        UsageContent,
        ErrorContent,
    )
}

_UNSTORED = {"value"}


def content_to_dict(content: Content) -> dict[str, Any]:
    """Return `content` as JSON-able values, without the fields that stand at their default."""
    record: dict[str, Any] = {"type": content.type}
    for f in fields(content):
        value = getattr(content, f.name)
        if f.name in _UNSTORED or value == f.default:
            continue
        if isinstance(value, FunctionCall):
            value = content_to_dict(value)
        elif isinstance(value, Usage):
            value = value.to_dict()
        record[f.name] = value
    return record


def content_from_dict(record: Mapping[str, Any]) -> Content:
    """Read what `content_to_dict` wrote.

    Raises:
        ConfigurationError: no such type, or a field that the type does not have.
    """
    values = dict(record)
    kind = CONTENT_TYPES.get(values.pop("type", ""))
    if kind is None:
        known = ", ".join(sorted(CONTENT_TYPES))
        raise ConfigurationError(f"Unknown content type {record.get('type')!r}.", hint=f"Known types: {known}.")
    if "call" in values:
        values["call"] = content_from_dict(values["call"])
    if "usage" in values:
        values["usage"] = Usage.from_dict(values["usage"])
    try:
        content: Content = kind(**values)
    except TypeError as error:
        raise ConfigurationError(f"Content of type {kind.type!r} does not fit: {error}.") from error
    return content


def merged_text(left: Content, right: Content) -> Content | None:
    """Return the two joined where they are neighbouring pieces of the same kind of text, else None."""
    if type(left) is type(right) and isinstance(left, TextContent | ReasoningContent | RefusalContent):
        return replace(left, text=left.text + right.text)  # type: ignore[union-attr]
    return None
