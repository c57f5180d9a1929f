"""Notes: what people say about a run once it is over."""

from __future__ import annotations

from typing import Literal, Protocol, get_args, runtime_checkable

from nbagents.core.errors import ConfigurationError
from nbagents.core.runlog import run_log

Thumbs = Literal["up", "down"]
THUMBS: tuple[str, ...] = get_args(Thumbs)


@runtime_checkable
class HasRunId(Protocol):
    """What knows its run: a response, a record of the log."""

    @property
    def run_id(self) -> str | None:
        """The run."""


def note(run: str | HasRunId, text: str | None = None, *, thumbs: Thumbs | None = None) -> None:
    """Write down what you think of a run that has ended. Notes add up; of the thumbs the last ones count.

    They stand in `runs_df` as `notes` and `thumbs`, and stay with the run in the log and the store.

    Args:
        run: a response, or the id of a run.
        text: some words.
        thumbs: `up` or `down`.

    Raises:
        ConfigurationError: nothing to note, something else than the above, no such run, or one that is still going.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> note(Agent(ScriptedChatClient(["Hello."])).run_sync("Hi"), "too short", thumbs="down")
    """
    run_id = run.run_id if isinstance(run, HasRunId) else run
    if not isinstance(run_id, str):
        raise ConfigurationError(
            f"A note is about a run, and {type(run).__name__} has no run_id.", hint="Pass a response, or its run_id."
        )
    if thumbs is not None and thumbs not in THUMBS:
        raise ConfigurationError(f"thumbs is 'up' or 'down', not {thumbs!r:.100}.")
    if text is not None and not isinstance(text, str):
        raise ConfigurationError(f"The text of a note is a str, not {type(text).__name__}.")
    if not (text and text.strip()) and thumbs is None:
        raise ConfigurationError("This note says nothing.", hint='Give a text, thumbs="up" or thumbs="down".')
    run_log().note(run_id, {"text": text or None, "thumbs": thumbs})
