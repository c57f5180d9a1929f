"""The streaming runtime: agents by id, each run a stream of public chunks that ends in a result."""

from nbagents.core import RunBudget
from nbagents.core.events import EVENT_TO_CHUNK_KIND
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.events import EventBus, RuntimeEvent
from nbagents.runtime.payloads import RunStreamChunkKind, payload_schemas
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import ErrorCause, RunArtifact, RunErrorRecord, RunResult, RunUsage
from nbagents.runtime.runtime import RunStream, Runtime
from nbagents.runtime.transports import to_jsonl, to_sse

__all__ = [
    "EVENT_TO_CHUNK_KIND",
    "ErrorCause",
    "EventBus",
    "RunArtifact",
    "RunBudget",
    "RunErrorRecord",
    "RunRequest",
    "RunResult",
    "RunStream",
    "RunStreamChunk",
    "RunStreamChunkKind",
    "RunUsage",
    "Runtime",
    "RuntimeEvent",
    "payload_schemas",
    "to_jsonl",
    "to_sse",
]
