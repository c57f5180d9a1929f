"""`copy_thread`: the messages of one thread in another, of whatever kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nbagents.core.balance import balanced
from nbagents.core.content import CONTENT_TYPES
from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.messages import Message
from nbagents.core.sessions import PENDING_KEY
from nbagents.core.thread_base import Thread
from nbagents.core.turns import end_turn, take_free_turn


async def copy_thread(source: Thread, target: Thread, *, leave_out: Iterable[str] = ()) -> list[Message]:
    """Copy the messages of `source` into `target`; the source stays as it is.

    All of them are copied or none: what the target could not store is an error. Calls without a result are answered as
    interrupted, so that every service takes what follows. Where a service stores the copy, names of authors and times
    are its own.

    Args:
        source: the thread of a session between two runs: `agent.thread(session)`.
        target: a thread without messages: `other_agent.thread(other_agent.create_session())`.
        leave_out: types of content that may be missing in the copy, such as `"reasoning"`.

    Returns:
        The messages that were copied.

    Raises:
        SessionError: the source is not read or not between two runs, the target takes no messages or has some, or
            cannot store something, naming it.

    Example:
        >>> import asyncio
        >>> from nbagents import Agent, ScriptedChatClient
        >>> agent = Agent(ScriptedChatClient(["Hello!"]))
        >>> response, other = agent.run_sync("Hi"), agent.create_session()
        >>> copied = asyncio.run(copy_thread(agent.thread(response.session), agent.thread(other)))
        >>> [message.text for message in copied]
        ['Hi', 'Hello!']
    """
    unwanted = {leave_out} if isinstance(leave_out, str) else set(leave_out)
    if unknown := sorted(unwanted - CONTENT_TYPES.keys()):
        raise ConfigurationError(f"Unknown types of content {unknown}.", hint=f"Known: {', '.join(CONTENT_TYPES)}.")
    for thread in (source, target):
        if not isinstance(thread, Thread):
            raise ConfigurationError(
                f"A thread is copied into a thread, and this is of type {type(thread).__name__}.",
                hint="Pass agent.thread(session), twice.",
            )
        thread.check()
    if source.turn_key == target.turn_key:
        raise SessionError(
            f"The session {source.session.session_id!r} would be copied into itself.", hint="Give the copy a new one."
        )
    if not target.accepts_external_messages:
        await target.on_new_message(Message("user", "."))  # it says why not
    messages = await _messages_of(source, unwanted)
    _check_fits(messages, target)
    if target.can_read and await target.get_messages():
        raise SessionError(
            f"The session {target.session.session_id!r} has messages already.",
            hint="Copy into a new one: agent.create_session().",
        )
    await target.on_new_message(*messages)
    return messages


async def _messages_of(source: Thread, unwanted: set[str]) -> list[Message]:
    """Read the source while no run adds to it."""
    name = source.session.session_id
    if not take_free_turn(source.turn_key):
        raise SessionError(f"A run goes on in the session {name!r}.", hint="Copy it after the run.")
    try:
        if PENDING_KEY in source.session.state:
            raise SessionError(
                f"Calls of the session {name!r} wait for approval: its last turn cannot be copied.",
                hint="Answer them first: agent.run([request.approve(), ...], session=session).",
            )
        messages = balanced(await source.get_messages())
    finally:
        end_turn(source.turn_key)
    return [kept for message in messages if (kept := _without(message, unwanted)) is not None]


def _without(message: Message, unwanted: set[str]) -> Message | None:
    contents = tuple(content for content in message.contents if content.type not in unwanted)
    if len(contents) == len(message.contents):
        return message
    return replace(message, contents=contents) if contents else None


def _check_fits(messages: Sequence[Message], target: Thread) -> None:
    """Raise SessionError for what the target could not store."""
    found = [(place, target.unfit(message)) for place, message in enumerate(messages)]
    bad = [f"{', '.join(what)} of message {place}" for place, what in found if what]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise SessionError(
            f"{target.kind.capitalize()} cannot store {'; '.join(bad[:5])}{more}.",
            hint="Nothing was copied. To do without, name the types: copy_thread(source, target, leave_out=[...]).",
        )
