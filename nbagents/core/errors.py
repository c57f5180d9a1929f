"""The one tree of errors. Every text in it is redacted when the error is made.

NBAgentsError
├── ConfigurationError          a wrong argument, a missing key or extra: raised at the call
├── LoopError                   a blocking call where only `await` can work
├── SessionError
│   ├── ThreadDeletedError      the thread was deleted
│   └── ReentrantRunError       a run asks for the session that it is itself running in
├── StoreError                  runs cannot be written, read or loaded
├── ToolError                   text that a tool wants the model to read
├── ReplayMissError             a recording holds no reply for this request
├── ModelError                  the call to the model failed
│   ├── AuthenticationError     401, 403
│   ├── ModelNotFoundError      404
│   ├── BadRequestError         400, 409, 413, 422
│   ├── RateLimitError          429
│   ├── ServerError             5xx
│   ├── ConnectionFailedError   no connection, or one that broke
│   ├── ModelTimeoutError       no answer in time
│   ├── IncompleteStreamError   the stream ended before the model said that it had finished
│   └── InvalidReplyError       a reply that is no chat completion (HTML, broken JSON, nothing)
└── RunError                    the run ended early; `.response` holds what there is
    ├── RunCancelledError       `handle.result()` after `stop()`
    ├── RunTimeoutError         the duration of the budget is used up
    ├── BudgetExceededError     tokens, cost or tool calls of the budget are used up
    └── OutputValidationError   no reply fitted `response_format`
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nbagents.core.secrets import redact

if TYPE_CHECKING:
    from nbagents.core.responses import AgentResponse
    from nbagents.core.usage import Usage


class NBAgentsError(Exception):
    """Base of all errors of nbagents.

    Args:
        message: what was wrong and what was expected.
        code: a short stable word for programs.
        hint: what to do about it.
        retryable: whether the same call may succeed later.

    Attributes:
        response: where a run ended with this error, the messages, text and usage that there are.
    """

    default_code = "error"
    default_retryable = False
    response: AgentResponse[Any] | None = None

    def __init__(
        self, message: str, *, code: str | None = None, hint: str | None = None, retryable: bool | None = None
    ) -> None:
        self.message = redact(message)
        self.code = code or self.default_code
        self.hint = redact(hint) if hint else None
        self.retryable = self.default_retryable if retryable is None else retryable
        super().__init__(self.message)

    def __str__(self) -> str:
        return _sentences(self.message, self.hint) if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: where the user's code was, and the message; not the rooms inside."""
        frames = traceback.extract_tb(self.__traceback__)
        own = os.path.dirname(os.path.dirname(__file__))
        place = next((frame for frame in reversed(frames) if not _is_inside(frame.filename, own)), None)
        shown = [f"{type(self).__name__}: {self}"]
        if place is not None and place.line:
            shown.insert(0, f"line {place.lineno} of {place.name}:  {redact(place.line)}")
        return shown


def _sentences(message: str, more: str) -> str:
    ends = message.rstrip().endswith((".", "!", "?", ":", "…"))
    return f"{message}{'' if ends else '.'} {more}"


def forget_inner_frames(error: NBAgentsError) -> None:
    """Drop the traceback of `error`, if no frame there is of the user's code: the message says more than ours.

    Raised again, it shows where the user called. What it was raised from keeps its own frames.
    """
    own = os.path.dirname(os.path.dirname(__file__))
    frames = traceback.walk_tb(error.__traceback__)
    if all(_is_inside(frame.f_code.co_filename, own) for frame, _ in frames):
        error.__traceback__ = None


def _is_inside(filename: str, folder: str) -> bool:
    """Whether a frame is of this package, or of what it stands on."""
    library = os.path.dirname(os.__file__)
    return filename.startswith((folder + os.sep, library + os.sep)) or f"{os.sep}site-packages{os.sep}" in filename


class ConfigurationError(NBAgentsError, ValueError):
    """A wrong argument, a missing key or a missing extra."""

    default_code = "configuration"


class LoopError(NBAgentsError, RuntimeError):
    """A blocking call was made where it would wait for itself."""

    default_code = "loop"


class SessionError(NBAgentsError):
    """A session or thread cannot do what was asked."""

    default_code = "session"


class ThreadDeletedError(SessionError):
    """The thread was deleted."""

    default_code = "thread_deleted"


class ReentrantRunError(SessionError):
    """A run asked for the session that it is itself running in."""

    default_code = "reentrant_run"


class StoreError(NBAgentsError):
    """Runs cannot be written to where they are kept, or read from there."""

    default_code = "store"


class ToolError(NBAgentsError):
    """Raise it in a tool: the model reads the message as the call's result."""

    default_code = "tool"


class ReplayMissError(NBAgentsError):
    """A recording holds no reply for this request."""

    default_code = "replay_miss"


class ModelError(NBAgentsError):
    """The call to the model failed.

    Attributes:
        status: HTTP status, if there was a reply.
        headers: headers of the reply.
        body_text: the reply's body, shortened.
        partial_text: the text that had been streamed before the failure.
        attempts: how often the request was made.
    """

    default_code = "model"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        retryable: bool | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body_text: str | None = None,
        partial_text: str = "",
    ) -> None:
        super().__init__(message, code=code, hint=hint, retryable=retryable)
        self.status = status
        self.headers = {name: redact(value) for name, value in (headers or {}).items()}
        self.body_text = redact(body_text) if body_text else None
        self.partial_text = partial_text
        self.attempts = 1

    def __str__(self) -> str:
        if self.attempts == 1:
            return super().__str__()
        tried = f"Tried {self.attempts} times."
        return _sentences(self.message, f"{tried} {self.hint}" if self.hint else tried)


class AuthenticationError(ModelError):
    """The endpoint refused the key."""

    default_code = "authentication"


class ModelNotFoundError(ModelError):
    """The endpoint does not know the model or the path."""

    default_code = "model_not_found"


class BadRequestError(ModelError):
    """The endpoint refused the request itself; sending it again cannot help, but after a conflict (409)."""

    default_code = "bad_request"


class RateLimitError(ModelError):
    """The endpoint refuses more requests for the moment."""

    default_code = "rate_limit"
    default_retryable = True


class ServerError(ModelError):
    """The endpoint failed."""

    default_code = "server"
    default_retryable = True


class ConnectionFailedError(ModelError):
    """The endpoint could not be reached, or the connection broke."""

    default_code = "connection"
    default_retryable = True


class ModelTimeoutError(ModelError):
    """The endpoint did not answer in time."""

    default_code = "model_timeout"
    default_retryable = True


class IncompleteStreamError(ModelError):
    """The stream ended before the model said that it had finished."""

    default_code = "incomplete_stream"
    default_retryable = True


class InvalidReplyError(ModelError):
    """The endpoint answered with something that is no chat reply."""

    default_code = "invalid_reply"


class RunError(NBAgentsError):
    """A run ended early; `response` has the messages, text and usage that there are."""

    default_code = "run"


class RunCancelledError(RunError):
    """The run was stopped."""

    default_code = "cancelled"


class RunTimeoutError(RunError):
    """The run used up the duration of its budget."""

    default_code = "timeout"


class BudgetExceededError(RunError):
    """The run used up the tokens, cost or tool calls of its budget."""

    default_code = "budget_exhausted"


class OutputValidationError(RunError):
    """No reply of the model fitted `response_format`.

    Attributes:
        attempts: the number of replies that were tried.
        raw_text: the last reply.
    """

    default_code = "output_validation"

    def __init__(
        self, message: str, *, attempts: int, raw_text: str, usage: Usage | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.attempts = attempts
        self.raw_text = raw_text
        self._usage = usage

    @property
    def usage(self) -> Usage | None:
        """The tokens of all replies: of the run, or of the one call to a client."""
        return self._usage if self.response is None else self.response.usage
