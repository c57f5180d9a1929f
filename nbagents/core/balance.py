"""What a model service takes: each call of a message is answered right after it, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.messages import Message, result_message
from nbagents.core.toolcalls import unanswered

LOST = "Interrupted: the result of this call was not stored."


def balanced(messages: Sequence[Message]) -> list[Message]:
    """Return `messages`, repaired where services would refuse them; they stay as they are in the storage.

    A call without a result is answered as interrupted; a result without a call, or a second one, is left out.
    """
    return list(messages) if _is_balanced(messages) else list(_repaired(messages))


def _is_balanced(messages: Sequence[Message]) -> bool:
    waiting: list[FunctionCall] = []
    for message in messages:
        if message.role == "tool":
            for result in message.results:
                call = next((call for call in waiting if _answers(result, call)), None)
                if call is None:
                    return False
                waiting.remove(call)
        elif waiting:
            return False
        elif message.role == "assistant":
            waiting = [content for content in message.contents if type(content) is FunctionCall]
    return not waiting


def _repaired(messages: Sequence[Message]) -> Iterator[Message]:
    """Put together what belongs together: the messages of one reply, then their results."""
    reply: list[Message] = []
    answers: list[Message] = []
    for message in messages:
        if message.role == "tool":
            answers.append(message)
            continue
        if answers or message.role != "assistant":
            yield from _answered(reply, answers)
            reply, answers = [], []
        if message.role == "assistant":
            reply.append(message)
        else:
            yield message
    yield from _answered(reply, answers)


def _answered(reply: Sequence[Message], answers: Sequence[Message]) -> Iterator[Message]:
    results = [(result, message) for message in answers for result in message.results]
    for message in reply:
        yield message
        for call in message.calls:
            place = next((i for i, (result, _) in enumerate(results) if _answers(result, call)), None)
            if place is None:
                yield result_message(unanswered(call, LOST))
            else:
                result, stored = results.pop(place)
                yield stored if len(stored.contents) == 1 else replace(stored, contents=(result,))


def _answers(result: FunctionResult, call: FunctionCall) -> bool:
    """By our id, which is unique; a message made by hand may have only the provider's."""
    if result.id and call.id:
        return result.id == call.id
    return result.call_id == call.call_id
