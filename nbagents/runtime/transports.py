"""A stream of chunks as text for the wire: server-sent events, and lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from contextlib import aclosing
from typing import overload

from nbagents.loop import AsyncSource
from nbagents.runtime.chunks import RunStreamChunk


@overload
def to_sse(stream: AsyncSource[RunStreamChunk]) -> AsyncGenerator[str, None]: ...
@overload
def to_sse(stream: Iterable[RunStreamChunk]) -> Generator[str, None, None]: ...
def to_sse(
    stream: AsyncSource[RunStreamChunk] | Iterable[RunStreamChunk],
) -> AsyncGenerator[str, None] | Generator[str, None, None]:
    """Return each chunk as a server-sent event: `id` is its sequence, `event` its kind, `data` its JSON.

    A browser that reconnects sends the last id as `Last-Event-ID`: go on with `runtime.resume_stream(after=...)`.
    Leaving it ends the run.

    Args:
        stream: what `run_stream`, `resume_stream` or `stream_sync` gave.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> from nbagents.runtime import RunRequest, Runtime
        >>> runtime = Runtime(agents=[Agent(ScriptedChatClient(["Hello!"]), name="assistant")])
        >>> events = to_sse(runtime.stream_sync(request=RunRequest(agent_id="assistant", input_text="Hi")))
        >>> [event.splitlines()[1] for event in events]
        ['event: run.started', 'event: llm.delta', 'event: llm.finished', 'event: run.finished']
    """
    return _written(stream, _sse)


@overload
def to_jsonl(stream: AsyncSource[RunStreamChunk]) -> AsyncGenerator[str, None]: ...
@overload
def to_jsonl(stream: Iterable[RunStreamChunk]) -> Generator[str, None, None]: ...
def to_jsonl(
    stream: AsyncSource[RunStreamChunk] | Iterable[RunStreamChunk],
) -> AsyncGenerator[str, None] | Generator[str, None, None]:
    """Return each chunk as one line of JSON; `RunStreamChunk.model_validate_json(line)` reads it.

    Args:
        stream: what `run_stream`, `resume_stream` or `stream_sync` gave.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> from nbagents.runtime import RunRequest, Runtime
        >>> runtime = Runtime(agents=[Agent(ScriptedChatClient(["Hello!"]), name="assistant")])
        >>> lines = list(to_jsonl(runtime.stream_sync(request=RunRequest(agent_id="assistant", input_text="Hi"))))
        >>> RunStreamChunk.model_validate_json(lines[-1]).result.final_output
        'Hello!'
    """
    return _written(stream, _line)


def _written(
    stream: AsyncSource[RunStreamChunk] | Iterable[RunStreamChunk], write: Callable[[RunStreamChunk], str]
) -> AsyncGenerator[str, None] | Generator[str, None, None]:
    return _async(stream, write) if isinstance(stream, AsyncIterable) else _sync(stream, write)


async def _async(
    stream: AsyncSource[RunStreamChunk], write: Callable[[RunStreamChunk], str]
) -> AsyncGenerator[str, None]:
    async with aclosing(stream):
        async for chunk in stream:
            yield write(chunk)


def _sync(stream: Iterable[RunStreamChunk], write: Callable[[RunStreamChunk], str]) -> Generator[str, None, None]:
    for chunk in stream:
        yield write(chunk)


def _sse(chunk: RunStreamChunk) -> str:
    return f"id: {chunk.sequence}\nevent: {chunk.kind.value}\ndata: {chunk.model_dump_json()}\n\n"


def _line(chunk: RunStreamChunk) -> str:
    return f"{chunk.model_dump_json()}\n"
