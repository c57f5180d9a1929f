"""Messages at rest: JSON in one line, and back. Where it is kept is for the history providers to say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.messages import Message


def stored_text(record: Mapping[str, Any]) -> str:
    """Return `record` as one line of JSON that can be written as UTF-8.

    It is readable as it stands; only a record that holds half of a surrogate pair is escaped, and comes back unchanged.

    Raises:
        SessionError: a value that is no JSON.
    """
    try:
        text = json.dumps(record, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(
            f"A message holds something that cannot be stored: {error}",
            hint="Keep plain values, lists and dicts in the arguments of calls and in `extra`.",
        ) from error
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(record)
    return text


def messages_from(records: Iterable[Any], place: str) -> list[Message]:
    """Return the messages that `Message.to_dict` made the `records` of.

    Raises:
        SessionError: a record that is no message, with its `place`.
    """
    try:
        return [Message.from_dict(record) for record in records]
    except (ConfigurationError, TypeError, AttributeError) as error:
        raise SessionError(
            f"{place} holds something that is no message: {error}",
            hint="A newer nbagents may have written it, or another program.",
        ) from error
