"""Where a run lives when no `await` carries it: one daemon thread with one asyncio loop, and the blocking calls
into it; and the heartbeat of awaited runs. Standard library only; nothing here knows what an agent is."""

from nbagents.loop.heartbeat import Heartbeat, heartbeat
from nbagents.loop.hosts import LoopError, LoopThread, Mode, loop_thread, mode, set_mode
from nbagents.loop.runs import RunHandle, run_sync, start
from nbagents.loop.streams import AsyncSource, SyncReader, SyncStream, stream_sync

__all__ = [
    "AsyncSource",
    "Heartbeat",
    "LoopError",
    "LoopThread",
    "Mode",
    "RunHandle",
    "SyncReader",
    "SyncStream",
    "heartbeat",
    "loop_thread",
    "mode",
    "run_sync",
    "set_mode",
    "start",
    "stream_sync",
]
