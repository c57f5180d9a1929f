"""Messages at rest: JSON in one line, and back. Where it is kept is for the history providers to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.messages import Message

Text = TypeVar("Text", str, bytes)
MAX_REMEMBERED = 32_000_000
"""Characters of stored text whose messages are kept."""


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


def messages_from(records: Iterable[Any]) -> list[Message]:
    """Return the messages that `Message.to_dict` made the `records` of.

    Raises:
        SessionError: a record that is no message; the text goes on where the caller has named the place.
    """
    try:
        return [Message.from_dict(record) for record in records]
    except (ConfigurationError, TypeError, AttributeError) as error:
        raise SessionError(
            f"holds something that is no message: {error}",
            hint="A newer nbagents may have written it, or another program.",
        ) from error


class ReadBefore(Generic[Text]):
    """What was made of stored texts before: a long conversation is parsed once, not once in every turn.

    The text itself is the key, so this is never out of date. When `MAX_REMEMBERED` is reached, it begins anew.
    """

    def __init__(self, parse: Callable[[Text], list[Message]]) -> None:
        self._parse: Callable[[Text], list[Message]] = parse
        self._known: dict[Text, list[Message]] = {}
        self._size = 0

    def messages(self, text: Text) -> list[Message]:
        """Return the messages in `text`; what parsing raises is raised each time."""
        found = self._known.get(text)
        if found is None:
            found = self._parse(text)
            self._size += len(text)
            if self._size > MAX_REMEMBERED:
                self._known, self._size = {}, len(text)
            self._known[text] = found
        return found
