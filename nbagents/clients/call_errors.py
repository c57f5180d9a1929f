"""What can go wrong in a call through the client of a package, as one error of our tree that says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbagents.clients.connections import Package
from nbagents.core.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidReplyError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    NBAgentsError,
    RateLimitError,
    ServerError,
)
from nbagents.core.secrets import errors_shown_with, redact_exception

_SERVER_TEXT_SHOWN = 300
_BODY_KEPT = 2_000
NOT_ENDED_HERE = ("cancelled", "unfinished")
"""Codes of replies that somebody else has ended or will end: sending the request again is not for us to decide."""
_HALF_MASKED = re.compile(r"[^\s'\"]*\*{3,}[^\s'\"]*")
_HTML = re.compile(r"^\s*<(?:!doctype|html|head|body)", re.I)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)


_GONE = re.compile(r"(?:conversation|(?:previous )?response) with id", re.I)
_TOO_LONG = ("context length", "context size", "prompt is too long")
_STATUS_OF_KIND = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Kinds of errors that a server reports within a stream, where there is no status any more."""


@dataclass(frozen=True, slots=True, eq=False)
class CallFacts:
    """What an error should tell about the call that failed.

    Attributes:
        model: the model that was asked for; empty where it is none.
        host: host and port of the endpoint.
        package: whose client sends.
        begun: the reply had begun to arrive.
        expected: what should have come back.
    """

    model: str
    host: str
    package: Package
    begun: bool = False
    expected: str = "a chat completion"


def model_error(error: Exception, facts: CallFacts) -> NBAgentsError:
    """Return `error`, raised by a call through the client of a package, as one of ours; raise it `from error`.

    `error` itself is made harmless: its texts are redacted, and the frames of its traceback, whose variables hold the
    headers and so the key, are dropped.
    """
    _make_harmless(error)
    package = facts.package.load()
    if isinstance(error, package.APIStatusError):
        return _status_error(error, facts)
    if isinstance(error, package.APITimeoutError):
        return _timeout(error, facts)
    if "DecodingError" in (type(error).__name__, type(error.__cause__).__name__):
        return invalid_reply("something that cannot be decompressed", "", facts)
    if isinstance(error, package.APIConnectionError):
        return _no_connection(error, facts)
    if isinstance(error, package.APIError):
        return reported_error(error.body or error.message, facts)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return invalid_reply("something that is no JSON", getattr(error, "doc", ""), facts)
    names = {kind.__name__ for kind in type(error).__mro__}  # of httpx2 or of httpx: the user may bring either
    if "TimeoutException" in names:
        return _timeout(error, facts)
    if "RequestError" in names:
        return _no_connection(error, facts)
    if isinstance(error, (getattr(package, facts.package.error), TypeError, ValueError)) and not facts.begun:
        return ConfigurationError(
            f"The request for {facts.host} cannot be built: {error}",
            hint="Check the options and client_kwargs of the run, and the settings of the client.",
        )
    return ModelError(f"The call to {facts.host} failed: {type(error).__name__}: {error}")


def reported_error(reported: Any, facts: CallFacts) -> ModelError:
    """Return the error that the server reports in an `error` object, within a stream or instead of a reply."""
    if isinstance(reported, dict) and (code := reported.get("code")) in NOT_ENDED_HERE:
        return ModelError(f"{facts.host} gave no reply: {reported.get('message')}", code=str(code))
    status = 500
    if isinstance(reported, dict):
        code, kind = reported.get("code"), str(reported.get("type") or "")
        if re.fullmatch("[45][0-9]{2}", str(code)):
            status = int(str(code))
        elif "rate_limit" in f"{code} {kind}":
            status = 429
        elif "invalid_request" in kind:
            status = 400
        else:
            status = _STATUS_OF_KIND.get(kind, status)
    return _of_status(status, f"{facts.host} reported an error", reported, _body_text(reported), {}, facts)


def invalid_reply(what: str, text: str, facts: CallFacts) -> InvalidReplyError:
    """Return the error of a reply with status 200 that is not what was expected."""
    if _HTML.match(text):
        title = _TITLE.search(text)
        what = f"an HTML page{f' ({title.group(1).strip()[:100]!r})' if title else ''}"
    return InvalidReplyError(
        f"{facts.host} answered with {what} instead of {facts.expected}.",
        hint=f"Check base_url: it must lead to {facts.package.api} and {facts.package.address}.",
        retryable=facts.begun,  # chunks came before it: not another server, but a fault on the way
        status=200,
        body_text=_without_keys(text[:_BODY_KEPT]) or None,
    )


def _status_error(error: Any, facts: CallFacts) -> ModelError:
    response = error.response
    headers = {name: value for name, value in response.headers.items() if name.lower() != "set-cookie"}
    opening = f"{facts.host} refused the request"
    return _of_status(response.status_code, opening, error.body, response.text, headers, facts)


def _of_status(
    status: int, opening: str, body: Any, text: str, headers: Mapping[str, str], facts: CallFacts
) -> ModelError:
    said = _server_text(body, text)
    code = str(body.get("code") or "") if isinstance(body, dict) else ""
    kind, message, hint = _kind_of(status, code, said, opening, facts)
    return kind(
        f"{message} ({status}){f': {said}' if said else '.'}",
        hint=hint,
        retryable=code != "insufficient_quota" and (status == 409 or kind.default_retryable),
        status=status,
        headers=headers,
        body_text=_without_keys(text[:_BODY_KEPT]) or None,
    )


def _kind_of(
    status: int, code: str, said: str, opening: str, facts: CallFacts
) -> tuple[type[ModelError], str, str | None]:
    """The error for a status, what it says and what to do."""
    if status == 404 and not facts.model:
        return ModelNotFoundError, f"{facts.host} has nothing at this address", "Check the id and base_url."
    if code == "previous_response_not_found" or (status == 404 and _GONE.match(said)):
        hint = "It was deleted, or kept for a limited time only. Begin a new session: agent.create_session()."
        return BadRequestError, f"{facts.host} no longer has the conversation that this goes on from", hint
    if status == 404 or code == "model_not_found":
        hint = f"Check the model's name; if it is right, check base_url, which {facts.package.address}."
        return ModelNotFoundError, f"{facts.host} knows no model {facts.model!r}", hint
    if status in (401, 403):
        hint = f"Set {facts.package.variable}, or pass api_key=; check that the key may use this model."
        return AuthenticationError, f"{facts.host} refused the API key", hint
    if code == "insufficient_quota":
        return RateLimitError, f"The quota of this key at {facts.host} is used up", "Check plan and billing."
    if status == 429:
        hint = "Wait, or set max_concurrency or requests_per_minute of the client; max_retries tries again by itself."
        return RateLimitError, f"{facts.host} takes no more requests for the moment", hint
    if status == 408:
        return ModelTimeoutError, f"{facts.host} gave up waiting", "Run again."
    if status == 409:
        return BadRequestError, f"{facts.host} is busy with something that this request depends on", "Run again."
    if status >= 500:
        return ServerError, f"{facts.host} failed", "The fault is the server's: run again later."
    if status == 413:
        hint = "Send fewer or smaller images and files, shorten the conversation, or use a new session."
        return BadRequestError, f"The request is too large for {facts.host}", hint
    if code == "context_length_exceeded" or any(words in said for words in _TOO_LONG):
        return BadRequestError, f"The conversation is too long for {facts.model!r}", "Shorten it, or use a new session."
    return BadRequestError, opening, "Sending it again cannot help: check the options and messages of the run."


def _timeout(error: Exception, facts: CallFacts) -> ModelError:
    cause = type(error.__cause__ or error).__name__
    if cause == "PoolTimeout":
        return ModelTimeoutError(
            f"No connection to {facts.host} became free in time.",
            hint="Raise the connection limit of the HTTP client, or lower max_concurrency.",
        )
    if cause == "ConnectTimeout":
        return ModelTimeoutError(
            f"{facts.host} did not take the connection in time.", hint="Is the server running, and is base_url right?"
        )
    what = "stopped in the middle of its reply" if facts.begun else "did not answer in time"
    return ModelTimeoutError(f"{facts.host} {what}.", hint="Run again, or raise timeout= of the client.")


def _no_connection(error: Exception, facts: CallFacts) -> ModelError:
    cause = error.__cause__ or error
    reason = f": {_short_line(str(cause))}" if str(cause) else ""
    if facts.begun:
        return ConnectionFailedError(
            f"The connection to {facts.host} broke in the middle of the reply{reason}.", hint="Run again."
        )
    return ConnectionFailedError(
        f"No connection to {facts.host}{reason}.", hint="Is the server running, and is base_url right?"
    )


def _server_text(body: Any, text: str) -> str:
    """What the server says about the error, in one short line."""
    said: Any = body
    while isinstance(said, dict):
        said = next((said[key] for key in ("message", "error", "detail", "msg") if said.get(key)), None)
    if not isinstance(said, str):
        said = text
    if _HTML.match(said):
        title = _TITLE.search(said)
        said = title.group(1) if title else "an HTML page"
    return _short_line(said)


def _short_line(text: str) -> str:
    line = _without_keys(" ".join(text.split()))
    return line if len(line) <= _SERVER_TEXT_SHOWN else f"{line[:_SERVER_TEXT_SHOWN]}…"


def _body_text(reported: Any) -> str:
    return reported if isinstance(reported, str) else json.dumps(reported, ensure_ascii=False, default=str)


def _without_keys(text: str) -> str:
    """Drop what a server shows of a key: `sk-ab***yz` still has pieces of it."""
    return _HALF_MASKED.sub("[redacted]", text)


def _make_harmless(error: BaseException) -> None:
    redact_exception(error)
    for one in errors_shown_with(error):
        one.__traceback__ = None
        one.args = tuple(_without_keys(a) if isinstance(a, str) else a for a in one.args)
