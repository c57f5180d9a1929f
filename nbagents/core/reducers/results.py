"""The reducer that shortens what tools returned long ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbagents.core.content import Content, FunctionResult
from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import Message
from nbagents.core.reducers.base import LimitedReducer, ReductionContext
from nbagents.core.reducers.cutting import DEFAULT_KEEP, remember_cut, remembered_cut
from nbagents.core.tokens import Counter, TokenCounter


class ToolResultReducer(LimitedReducer):
    """Shortens the oldest results of tools once all of them together have more than `max_tokens`.

    What the model has not read yet stays whole: the results since its last reply. Calls and short results stay.

    Args:
        max_tokens: the limit.
        keep: the part of it that is left whole then.
        preview: how many characters of a result are left; pictures and files in it are left out.
        counter: counts the tokens of a text instead of the estimate.
    """

    unit = "max_tokens"

    def __init__(
        self, max_tokens: int, *, keep: float = DEFAULT_KEEP, preview: int = 200, counter: Counter | None = None
    ) -> None:
        super().__init__(max_tokens, keep)
        if isinstance(preview, bool) or not isinstance(preview, int) or preview < 0:
            raise ConfigurationError(f"preview is a number of characters, not {preview!r}.")
        self.preview = preview
        self.counter = TokenCounter(counter)

    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return the messages with old results shortened."""
        begin = remembered_cut(messages, context.state)
        scale = 1.0 if self.counter.exact else context.scale
        if scale * sum(map(self._size, messages[begin:])) > self.limit:
            unread = next((i + 1 for i in reversed(range(len(messages))) if messages[i].role != "tool"), 0)
            left, target = 0, self.limit * self.keep / scale
            begin = len(messages)
            while begin and (left <= target or begin > unread):
                begin -= 1
                left += self._size(messages[begin])
            remember_cut(messages, begin, context.state)
        return [*map(self._shortened, messages[:begin]), *messages[begin:]] if begin else None

    def _size(self, message: Message) -> int:
        return self.counter.message(message) if message.role == "tool" else 0

    def _shortened(self, message: Message) -> Message:
        if message.role != "tool":
            return message
        key = f"shortened to {self.preview}"
        short: Message | None = message.wire.get(key)
        if short is None:
            contents = [self._short(content) for content in message.contents]
            same = all(new is old for new, old in zip(contents, message.contents, strict=True))
            short = message if same else replace(message, contents=tuple(contents))
            message.wire[key] = short
        return short

    def _short(self, content: Content) -> Content:
        if not isinstance(content, FunctionResult):
            return content
        more = len(content.result) - self.preview
        if more <= len(_LEFT_OUT) and not content.items:
            return content
        text = content.result if more <= len(_LEFT_OUT) else content.result[: self.preview] + _LEFT_OUT.format(more)
        return replace(content, result=text, items=(), value=None)


_LEFT_OUT = " [… {:,} more characters were here]"
