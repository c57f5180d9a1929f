"""Agents of a file or dict without `await`: in a script, in a cell, inside a running loop. Streams come piecewise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

from nbagents.core.arguments import exact_arguments
from nbagents.core.sync_streams import SyncResponseStream
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import RunResult
from nbagents.runtime.runtime import Runtime
from nbagents.spec.agents import SpecSettings

SyncRunStream = SyncResponseStream[RunStreamChunk, RunResult]


@exact_arguments(SpecSettings)
def stream_agent_with_dict(
    payload: Mapping[str, Any], *, request: RunRequest, **settings: Unpack[SpecSettings]
) -> SyncRunStream:
    """Run an agent of a dict and iterate the chunks as they come; `run.finished`, with the result, is the last.

    Each call makes its agents anew: what they should remember needs a `session` that is stored, or a `Runtime`.

    Args:
        payload: the agents, as for `Runtime.from_dict`.
        request: which of them, and what it is asked.
        settings: `tools`, `client`, `settings` and so on, as for `Runtime.from_dict`.

    Raises:
        SpecError: all that is wrong with the dict.
        LoopError: called on the loop thread itself, e.g. in an async tool: use a `Runtime` there.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> stream = stream_agent_with_dict(
        ...     {"agents": [{"id": "a"}]},
        ...     request=RunRequest(agent_id="a", input_text="Hi"),
        ...     client=ScriptedChatClient(["Hello!"]),
        ... )
        >>> [str(chunk.kind.value) for chunk in stream]
        ['run.started', 'llm.delta', 'llm.finished', 'run.finished']
    """
    return Runtime.from_dict(payload, **settings).stream_sync(request=request)


@exact_arguments(SpecSettings)
def stream_agent_with_config(
    path: str | os.PathLike[str], *, request: RunRequest, **settings: Unpack[SpecSettings]
) -> SyncRunStream:
    """Run an agent of a file and iterate the chunks as they come; as `stream_agent_with_dict`."""
    return Runtime.from_config(path, **settings).stream_sync(request=request)


@exact_arguments(SpecSettings)
def run_agent_with_dict(
    payload: Mapping[str, Any], *, request: RunRequest, **settings: Unpack[SpecSettings]
) -> RunResult:
    """Run an agent of a dict and wait for the result, however it ends; as `stream_agent_with_dict`."""
    return Runtime.from_dict(payload, **settings).run_sync(request=request)


@exact_arguments(SpecSettings)
def run_agent_with_config(
    path: str | os.PathLike[str], *, request: RunRequest, **settings: Unpack[SpecSettings]
) -> RunResult:
    """Run an agent of a file and wait for the result, however it ends; as `stream_agent_with_dict`."""
    return Runtime.from_config(path, **settings).run_sync(request=request)
