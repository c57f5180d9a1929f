"""What a run does where the service stores the conversation: which messages are new to it, and how it goes on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from nbagents.core.messages import Message
from nbagents.core.sessions import PENDING_KEY, UNSENT_KEY

if TYPE_CHECKING:
    from nbagents.core.events import RunEvent
    from nbagents.core.run import RunContext


def note_conversation(run: RunContext, conversation_id: str) -> None:
    """Take over the service's id as soon as it is there: a run that is cancelled a moment later keeps it."""
    run.conversation_id = conversation_id
    if not run.thread.stores_locally:
        run.session.service_session_id = conversation_id
        run.at_service = len(run.transcript)
        run.confirmed = True


def undo_conversation(run: RunContext, conversation_id: str | None, at_service: int) -> None:
    """Go back to what was known before a reply that is asked for again: it goes on from there, not from the broken."""
    if not run.thread.stores_locally:
        run.session.service_session_id, run.at_service, run.confirmed = conversation_id, at_service, False


def note_reply(run: RunContext) -> list[RunEvent]:
    """Count what the service has, the reply included; return an event if it did not say under which id."""
    if run.thread.stores_locally:
        return []
    if run.confirmed:
        run.confirmed = False
        count_up_to_calls(run)
        return []
    session = run.session
    text = (
        f"The service should store the session {session.session_id!r}, but its reply has no conversation id: the next "
        "run may not go on from here. To keep the history on this side pass options={'store': False}."
    )
    run.warnings.append(text)
    warnings.warn(text, stacklevel=2)
    known = {"session_id": session.session_id, "service_session_id": session.service_session_id}
    return [run.event("session.unconfirmed", known)]


def count_up_to_calls(run: RunContext) -> None:
    """Count the model's last message, and what stands before it, among what the service has."""
    if not run.thread.stores_locally and run.session.service_session_id is not None:
        said = [place for place, message in enumerate(run.transcript, 1) if message.role == "assistant"]
        run.at_service = max([run.at_service, *said])


def keep_unsent(run: RunContext) -> None:
    """Keep for the next run what no request of this one has brought to the service.

    Those are results, what waited before and, where the service takes messages with a request only, all of a turn whose
    reply broke off: the id that the session goes on with is then that of the reply before.
    """
    if run.thread.stores_locally:
        return
    state, left = run.session.state, _left(run)
    if left and not run.thread.deleted and PENDING_KEY not in state:
        state[UNSENT_KEY] = left
    else:
        state.pop(UNSENT_KEY, None)


def _left(run: RunContext) -> list[Message]:
    new = run.transcript[run.at_service :]
    of_this_run = run.transcript[max(run.at_service, run.history) :]
    if run.thread.carries and any(message.interrupted for message in of_this_run):
        return new
    if not run.at_service:
        return new[: run.history]
    has_id = run.session.service_session_id is not None
    return [message for message in new if message.role == "tool"] if has_id else []
