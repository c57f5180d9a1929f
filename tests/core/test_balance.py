"""What a request gets of a stored conversation: always calls with their results, whatever is stored."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nbagents import Message
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.balance import LOST, balanced
from nbagents.core.content import FunctionCall, FunctionResult
from tests.support.strict import refusal


def call(number, provider_id=None):
    return FunctionCall(provider_id or f"c{number}", "add", {}, f"call_{number}")


def result(number, provider_id=None, text=""):
    return FunctionResult(provider_id or f"c{number}", "add", text or f"result {number}", f"call_{number}")


USER, SAID = Message("user", "q"), Message("assistant", "text")


def asks(*calls):
    return Message("assistant", ["Let me see.", *calls])


def answer(*results):
    return Message("tool", results)


def test_a_balanced_conversation_is_left_alone():
    messages = [USER, asks(call(1), call(2)), answer(result(2)), answer(result(1)), SAID, USER, SAID]
    assert balanced(messages) == messages
    assert all(left is right for left, right in zip(balanced(messages), messages, strict=True))
    assert balanced([]) == []


def test_the_list_that_comes_back_is_another_one():
    messages = [USER]
    balanced(messages).append(SAID)
    assert messages == [USER]


def test_a_call_without_a_result_is_answered_as_interrupted():
    sent = balanced([USER, asks(call(1), call(2)), answer(result(2)), USER])
    assert [m.role for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    lost, kept = sent[2].results[0], sent[3].results[0]
    assert (lost.id, lost.call_id, lost.name, lost.interrupted) == ("call_1", "c1", "add", True)
    assert kept == result(2)


def test_what_answers_no_call_is_left_out():
    sent = balanced([answer(result(9)), USER, asks(call(1)), answer(result(1), result(8)), answer(result(1)), SAID])
    assert sent == [USER, asks(call(1)), answer(result(1)), SAID]


def test_a_late_result_does_not_answer_the_same_id_of_an_earlier_turn():
    """C68: providers repeat their ids."""
    first = [USER, asks(FunctionCall("x", "add", {})), USER]
    second = [asks(FunctionCall("x", "add", {})), answer(FunctionResult("x", "add", "B"))]
    sent = balanced([*first, *second])
    assert [r.result for m in sent for r in m.results] == [LOST, "B"]


def test_two_calls_of_one_id_get_a_result_each():
    """C68"""
    calls = asks(FunctionCall("x", "add", {}), FunctionCall("x", "add", {}))
    results = [answer(FunctionResult("x", "add", text)) for text in "AB"]
    assert balanced([calls, *results]) == [calls, *results]
    sent = balanced([calls, results[0]])
    assert [(r.result, r.interrupted) for m in sent[1:] for r in m.results] == [("A", False), (LOST, True)]


def test_the_results_of_a_reply_in_several_messages_follow_their_calls():
    sent = balanced([USER, asks(call(1)), SAID, asks(call(2)), answer(result(1)), answer(result(2)), SAID])
    assert sent == [USER, asks(call(1)), answer(result(1)), SAID, asks(call(2)), answer(result(2)), SAID]


numbers = st.integers(1, 4)
anything = st.lists(
    st.one_of(
        st.just(USER),
        st.lists(numbers, max_size=3, unique=True).map(lambda ns: asks(*map(call, ns))),
        st.lists(numbers, min_size=1, max_size=2).map(lambda ns: answer(*map(result, ns))),
    ),
    max_size=12,
)


@given(anything)
def test_every_conversation_becomes_one_that_the_strict_server_takes(messages):
    sent = balanced(messages)
    if sent:
        assert refusal({"messages": wire_messages(sent)}) is None
    assert balanced(sent) == sent
    kept = [m for m in sent if m.role != "tool"]
    assert kept == [m for m in messages if m.role != "tool"]
    stored = Counter(r.result for m in messages for r in m.results)
    assert not Counter(r.result for m in sent for r in m.results if not r.interrupted) - stored
