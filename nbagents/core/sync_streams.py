"""`SyncResponseStream`: the updates of a reply for code that does not await."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, Self, TypeVar

from nbagents import loop as loops
from nbagents.core.errors import LoopError
from nbagents.core.streams import ResponseStream
from nbagents.loop import SyncReader, SyncStream

U_co = TypeVar("U_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class SyncResponseStream(Generic[U_co, R_co]):
    """The updates of a reply for code that does not await; each comes as soon as it is there.

    Iterate it, then ask for `get_final_response()`. Leaving it early (`break`, an error, the end of `with`) ends the
    run, also where a variable still holds the stream; the response then has what there is.
    """

    def __init__(self, reply: ResponseStream[U_co, R_co], updates: SyncStream[U_co]) -> None:
        self._reply = reply
        self._updates = updates

    def __iter__(self) -> SyncReader[U_co]:
        return self._updates.reader(self.__next__)

    def __next__(self) -> U_co:
        try:
            return next(self._updates)
        except loops.LoopError as error:
            raise LoopError(error.message, hint=error.hint) from error

    def get_final_response(self) -> R_co:
        """Wait for the end and return the response; what is left of the updates is passed over."""
        with suppress(StopIteration):
            while True:
                next(self)
        try:
            self._updates.wait()
        except loops.LoopError as error:
            raise LoopError(error.message, hint=error.hint) from error
        return self._reply.finished()

    def close(self) -> None:
        """End the run now; idempotent."""
        self._updates.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
