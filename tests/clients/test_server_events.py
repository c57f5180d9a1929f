"""Server-sent events: the same values however the bytes are cut and whatever ends their lines."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents.clients.server_events import EventReader

VALUES = [{"text": "żółw 鳥🐙"}, {"n": 1}]
ONE, TWO = (json.dumps(value, ensure_ascii=False) for value in VALUES)


def read(*pieces: bytes) -> list[Any]:
    reader = EventReader()
    return [*(value for piece in pieces for value in reader.feed(piece)), *reader.end()]


SAME = {
    "plain": f"data: {ONE}\n\ndata: {TWO}\n\ndata: [DONE]\n\n",
    "without a space": f"data:{ONE}\n\ndata:{TWO}\n\ndata:[DONE]\n\n",
    "a byte order mark": f"\ufeffdata: {ONE}\n\ndata: {TWO}\n\n",
    "comments and pings": f": hello\n\ndata: {ONE}\n\n: ping\n\n:\ndata: {TWO}\n\nevent: ping\n\n",
    "other fields": f"retry: 3000\nid: 1\nevent: chunk\ndata: {ONE}\n\nretry: x\nid: 2\ndata: {TWO}\n\n",
    "events of an assistant": f"event: thread.message\ndata: {ONE}\n\ndata: {TWO}\n\n",
    "one value in several lines": f"data: {{\ndata: {ONE[1:-1]}\ndata: }}\n\ndata: {TWO}\n\n",
    "no blank line between": f"data: {ONE}\ndata: {TWO}\ndata: [DONE]\n",
    "no end of the last line": f"data: {ONE}\n\ndata: {TWO}",
    "no data in an event": f"data:\n\ndata: {ONE}\n\ndata: \n\ndata: {TWO}\n\n",
    "more after the end": f"data: {ONE}\n\ndata: {TWO}\n\ndata: [DONE]\n\ndata: {ONE}\n\ndata: garbage\n\n",
    "a cut event at the end": f"data: {ONE}\n\ndata: {TWO}\n\ndata: {ONE[:9]}",
    "JSON lines": f"{ONE}\n{TWO}\n",
}


@pytest.mark.parametrize("end_of_line", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_all_forms_of_a_stream_give_the_same_values(text: str, end_of_line: str) -> None:
    sent = text.replace("\n", end_of_line).encode()
    assert read(sent) == VALUES
    assert read(*(sent[place : place + 1] for place in range(len(sent)))) == VALUES


@given(
    st.sampled_from(list(SAME.values())),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(min_value=0, max_value=300)),
)
def test_where_the_network_cuts_does_not_matter(text: str, end_of_line: str, cuts: list[int]) -> None:
    """C45"""
    sent = text.replace("\n", end_of_line).encode()
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    assert read(*(sent[start:end] for start, end in pairwise(places))) == VALUES


def test_a_line_that_ends_nowhere_is_read_in_linear_time() -> None:
    """Ten million characters in pieces of a hundred: joining at each piece would take minutes."""
    piece = b"x" * 100
    (value,) = read(b'data: {"text": "', *[piece] * 100_000, b'"}\n\n')
    assert len(value["text"]) == 10_000_000


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ('data: {"error": {"message": "Full"}}', {"message": "Full"}),
        ('data: {"message": "Full", "type": "overloaded_error"}', {"message": "Full", "type": "overloaded_error"}),
        ("data: Full", "Full"),
    ],
)
def test_an_event_named_error_is_one_whatever_it_holds(sent: str, error: Any) -> None:
    assert read(f"event: error\n{sent}\n\ndata: {TWO}\n\n".encode()) == [{"error": error}, VALUES[1]]


def test_data_that_is_no_json_is_an_error_where_an_event_has_ended() -> None:
    with pytest.raises(json.JSONDecodeError, match="Expecting"):
        read(b"data: {]\n\ndata: {}\n\n")
    with pytest.raises(json.JSONDecodeError, match="utf-8"):
        read(b"data: \xff\xfe\n\ndata: {}\n\n")


def test_what_belongs_to_no_event_is_kept_within_bounds() -> None:
    reader = EventReader()
    assert list(reader.feed(b"<html>\n<title>Busy</title>\n" + b"x\n" * 100_000)) == []
    assert reader.stray.startswith(b"<html>\n<title>Busy</title>\n")
    assert len(reader.stray) < 70_000


def test_what_follows_the_end_is_not_read() -> None:
    reader = EventReader()
    assert list(reader.feed(f"data: {ONE}\n\ndata: [DONE]\n\n".encode())) == VALUES[:1]
    assert reader.done
