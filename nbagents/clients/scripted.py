"""A client whose replies are written beforehand: for tests, demos and teaching, without a model."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import count
from typing import Any

from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate, Usage
from nbagents.core.arguments import exact_arguments
from nbagents.core.content import Content, FunctionCall, TextContent, UsageContent
from nbagents.core.errors import ConfigurationError

Piece = str | Content
ScriptedReply = str | list[Piece] | BaseException | Callable[[ChatRequest], Any]
"""A text, a list of streamed pieces, an exception to raise, or a function of the request that returns one of these."""

_WORDS = re.compile(r"\S+\s*|\s+")
_call_numbers = count(1)


def tool_call(name: str, /, **arguments: Any) -> FunctionCall:
    """Return a call of the tool `name`, as a piece of a scripted reply.

    Example:
        >>> tool_call("add", a=1, b=2).arguments
        {'a': 1, 'b': 2}
    """
    return FunctionCall(f"call_{next(_call_numbers)}", name, arguments)


class ScriptedChatClient(BaseChatClient):
    """Gives one scripted reply for each model request, in order.

    Args:
        replies: a string is streamed word by word; of a list each item (text, `tool_call(...)`, other content or an
            exception) is one streamed piece; an exception is raised; a function gets the request and returns one of
            these.
        delay: seconds before each streamed piece.
        model: a name for the tables.

    Attributes:
        requests: the requests so far (`messages`, `tools`, `options`, `stream`).

    Example:
        >>> from nbagents import Agent
        >>> Agent(ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"]), tools=[lambda: None]).run_sync("1+2").text
        '3'
    """

    provider = "scripted"

    @exact_arguments()
    def __init__(self, replies: Iterable[ScriptedReply], *, delay: float = 0.0, model: str = "scripted") -> None:
        if isinstance(replies, str) or not isinstance(replies, Iterable):
            given = repr(replies) if isinstance(replies, str) else "..."
            raise ConfigurationError(
                f"replies is a list with one item for each model request, not {type(replies).__name__}.",
                hint=f"Use [{given}].",
            )
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf:
            raise ConfigurationError(f"delay is a number of seconds from 0, not {delay!r}.")
        self._replies = list(replies)
        self._lock = threading.Lock()
        self.delay = delay
        self.model = model
        self.requests: list[ChatRequest] = []

    def __repr__(self) -> str:
        return f"ScriptedChatClient({len(self._replies)} replies)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the next reply."""
        pieces = self._pieces(self._next_reply(request), request)
        if not request.stream:
            failed = [piece for piece in pieces if isinstance(piece, BaseException)]
            if failed:
                raise failed[0]
            if self.delay:
                await asyncio.sleep(self.delay)
            contents = [piece for piece in pieces if not isinstance(piece, BaseException)]
            yield ChatResponseUpdate(
                [*contents, _estimated_usage(request, contents)],
                "assistant",
                model=self.model,
                finish_reason=_finish_reason(contents),
            )
            return
        contents = []
        for piece in pieces:
            if self.delay:
                await asyncio.sleep(self.delay)
            if isinstance(piece, BaseException):
                raise piece
            contents.append(piece)
            yield ChatResponseUpdate([piece], "assistant", model=self.model)
        yield ChatResponseUpdate(
            [_estimated_usage(request, contents)], model=self.model, finish_reason=_finish_reason(contents)
        )

    def _next_reply(self, request: ChatRequest) -> ScriptedReply:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if number > len(self._replies):
            raise ConfigurationError(
                f"The script has {len(self._replies)} replies, and this is request {number}.",
                hint="Add a reply to the list, or give a function of the request.",
            )
        return self._replies[number - 1]

    def _pieces(self, reply: Any, request: ChatRequest) -> list[Any]:
        """Return the pieces of a reply: content, lists of content, or an exception at its place."""
        if isinstance(reply, str):
            return [TextContent(word) for word in _WORDS.findall(reply)] if request.stream else [TextContent(reply)]
        if isinstance(reply, BaseException):
            return [reply]
        if isinstance(reply, type) and issubclass(reply, BaseException):
            return [reply()]
        if isinstance(reply, Content):
            return [reply]
        if callable(reply):
            return self._pieces(reply(request), request)
        if isinstance(reply, list | tuple):
            return [TextContent(piece) if isinstance(piece, str) else piece for piece in reply]
        raise ConfigurationError(
            f"A scripted reply is a text, a list of pieces, an exception or a function, not {type(reply).__name__}."
        )


def _finish_reason(contents: Sequence[Content]) -> str:
    return "tool_calls" if any(isinstance(content, FunctionCall) for content in contents) else "stop"


def _estimated_usage(request: ChatRequest, contents: Sequence[Content]) -> UsageContent:
    """Tokens as a model would count them, about: four characters each, the same each time."""
    sent = sum(len(message.text) for message in request.messages)
    answered = sum(len(content.text) for content in contents if isinstance(content, TextContent))
    counts = max(1, round(sent / 4)), max(1, round(answered / 4))
    return UsageContent(Usage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=sum(counts)))
