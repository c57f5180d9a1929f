"""How many tokens a text or a message has: an estimate that needs no network, or a counter of the user's."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Sized
from functools import cache
from itertools import count
from typing import Any

from nbagents.core.content import (
    Content,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    RefusalContent,
    TextContent,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool
from nbagents.core.media import DataContent
from nbagents.core.messages import Message
from nbagents.core.secrets import redact
from nbagents.core.tools import ToolDefinition

Counter = Callable[[str], Any]
"""Returns the number of tokens of a text, or the tokens themselves, as `encode` of a tiktoken encoding does."""

IMAGE_TOKENS = 765
"""What OpenAI's models count for a picture of 1024 x 1024 pixels; pictures are not opened to look at their size."""
_BYTES_OF_A_FILE = 100
_numbers = count()
_MESSAGE_TOKENS = 4  # role and marks around it
_CALL_TOKENS = 8
_TOOL_TOKENS = 12


def estimate_tokens(text: str) -> int:
    """Return about how many tokens `text` has for today's models, without a vocabulary.

    The rule: an English word of up to seven letters, three digits, two marks, a run of white space that is more than
    one blank, are a token each; so are two letters of other Latin words, three of Cyrillic and Greek, two of Arabic,
    Hebrew and Indian scripts, and each Chinese, Japanese or Korean character; an emoji is two. English text and code
    come out within about a fifth of what o200k and cl100k count, other scripts rather too high.

    Example:
        >>> estimate_tokens("The quick brown fox jumps over the lazy dog."), estimate_tokens("東京へ行く")
        (10, 5)
    """
    pieces, pictures = _patterns()
    return len(pieces.findall(text)) + (0 if text.isascii() else len(pictures.findall(text)))


class TokenCounter:
    """Counts tokens of messages and tools.

    Args:
        counter: a function of yours, such as `tiktoken.get_encoding("o200k_base").encode_ordinary`; the estimate by
            default, and for a text that it refuses with a `ValueError`.
    """

    def __init__(self, counter: Counter | None = None) -> None:
        if counter is not None and not callable(counter):
            raise ConfigurationError(
                f"counter is a function of a text, not {type(counter).__name__}.",
                hint='Such as tiktoken.get_encoding("o200k_base").encode_ordinary.',
            )
        self.exact = counter is not None
        self._counter: Counter = counter or estimate_tokens
        self._key = f"tokens {next(_numbers)}" if self.exact else "tokens"

    def text(self, text: str) -> int:
        """Count a text.

        Raises:
            ConfigurationError: the counter returned neither a number nor tokens.
        """
        try:
            found = self._counter(text)
        except ValueError as error:  # `encode` of tiktoken refuses <|endoftext|>, and anybody may have written that
            why = redact(str(error))[:100]
            warnings.warn(
                f"counter refused a text, which is estimated: {why}. Of tiktoken pass encode_ordinary.", stacklevel=2
            )
            found = estimate_tokens(text)
        number = len(found) if isinstance(found, Sized) else found
        if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
            raise ConfigurationError(
                f"counter returned {found!r} for a text.", hint="It returns the number of tokens, or a list of them."
            )
        return int(number)

    def message(self, message: Message) -> int:
        """Count a message; done once for each."""
        known: int | None = message.wire.get(self._key)
        if known is None:
            known = _MESSAGE_TOKENS + sum(map(self._content, message.contents))
            message.wire[self._key] = known
        return known

    def messages(self, messages: Iterable[Message]) -> int:
        """Count several messages."""
        return sum(map(self.message, messages))

    def tools(self, tools: Iterable[ToolDefinition | HostedTool]) -> int:
        """Count what a request says of its tools."""
        functions = [tool for tool in tools if isinstance(tool, ToolDefinition)]
        texts = (f"{one.name} {one.description} {json.dumps(one.parameters)}" for one in functions)
        return sum(_TOOL_TOKENS + self.text(text) for text in texts)

    def _content(self, content: Content) -> int:
        if isinstance(content, TextContent | RefusalContent):
            return self.text(content.text)
        if isinstance(content, FunctionCall):
            return _CALL_TOKENS + self.text(f"{content.name} {arguments_as_text(content)}")
        if isinstance(content, FunctionResult):
            return self.text(content.result) + sum(map(self._content, content.items))
        if isinstance(content, DataContent):
            return IMAGE_TOKENS if content.media_type.startswith("image/") else self._file(content)
        if isinstance(content, HostedToolCall | HostedToolResult):
            return _CALL_TOKENS + self.text(json.dumps(content_to_dict(content), ensure_ascii=False, default=str))
        return 0  # reasoning and marks of ours, which are not sent, or counted by no rule

    def _file(self, content: DataContent) -> int:
        size = len(content.uri) if content.uri.startswith("data:") else 0
        return max(size // _BYTES_OF_A_FILE, _BYTES_OF_A_FILE)


def arguments_as_text(call: FunctionCall) -> str:
    """Return the arguments of `call` as a model has written them, or nearly so."""
    given = call.arguments
    return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False, default=str)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Pieces that are one token, and characters that are one more."""
    pieces = re.compile(
        r"[A-Za-z]{1,7}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,2}|\s*[\r\n]\s*|\s{2,}"
        r"|[\u00c0-\u024f\u1e00-\u1eff]{1,2}"  # Latin with marks
        r"|[\u0370-\u058f\u10a0-\u10ff]{1,3}"  # Greek, Cyrillic, Armenian, Georgian
        r"|[\u0590-\u0e7f]{1,2}"  # Hebrew, Arabic, Indian scripts, Thai
        r"|[^\s!-~]"  # everything else, control characters too
    )
    return pieces, re.compile(r"[\U00010000-\U0010ffff]")
