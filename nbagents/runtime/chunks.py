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


_put = object.__setattr__
_FIELDS = set(RunStreamChunk.model_fields)


def made_chunk(**fields: Any) -> RunStreamChunk:
    """Return a chunk of all its `fields`, which are our own making: to validate them would take half of a chunk's time.

    It puts what `BaseModel.model_construct` puts, which takes longer than validation.
    """
    chunk = RunStreamChunk.__new__(RunStreamChunk)
    _put(chunk, "__dict__", fields)
    _put(chunk, "__pydantic_fields_set__", _FIELDS)  # a frozen model does not change it
    _put(chunk, "__pydantic_extra__", None)
    _put(chunk, "__pydantic_private__", None)
    return chunk
