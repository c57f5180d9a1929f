"""`RunStreamChunk`: one piece of the public stream of a run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from nbagents.runtime.payloads import RunStreamChunkKind
from nbagents.runtime.results import RunResult


class RunStreamChunk(BaseModel):
    """One piece of the stream of a run. `model_dump_json()` and `model_validate_json()` take it there and back.

    Example:
        >>> chunk = RunStreamChunk.model_validate_json(
        ...     '{"kind": "llm.delta", "run_id": "r", "session_id": "s", "agent_id": "a", "sequence": 2,'
        ...     ' "timestamp_ms": 0, "payload": {"text": "Hi"}}'
        ... )
        >>> chunk.kind is RunStreamChunkKind.LLM_DELTA, chunk.payload["text"]
        (True, 'Hi')
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)

    kind: RunStreamChunkKind
    """What happened."""
    run_id: str
    """The run."""
    session_id: str
    """The conversation."""
    agent_id: str
    """The agent."""
    sequence: int
    """The place in the stream of the run: from 1, without gaps."""
    timestamp_ms: int
    """When it happened: milliseconds since 1970, UTC."""
    payload: dict[str, Any]
    """What is to be told; its fields depend on the kind."""
    result: RunResult | None = None
    """What the run gave: on the last chunk, `run.finished`, and only there."""
