"""What a tool returned, as text for a model."""

import dataclasses
import json
import types
from datetime import date

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from nbagents.core.results import error_text, result_text
from nbagents.core.secrets import register_secret


class Item(BaseModel):
    n: int


@dataclasses.dataclass
class Point:
    x: float


VALUES = [
    ("text", "text"),
    (None, "null"),
    ({"a": [1, True]}, '{"a": [1, true]}'),
    ([float("nan"), float("inf")], "[null, null]"),
    (Item(n=1), '{"n": 1}'),
    (Point(1.5), '{"x": 1.5}'),
    ({date(2026, 1, 2)}, '["2026-01-02"]'),
    (np.int64(3), "3"),
    (np.array([1, 2]), "[1, 2]"),
    ("a\ud83d", "a?"),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[str(text) for _, text in VALUES])
def test_values_become_json_that_a_model_can_read(value, text):
    assert result_text(value) == text


def test_a_big_table_is_a_preview_that_says_what_is_missing():
    """C57"""
    frame = pd.DataFrame({f"c{i}": ["x" * 500] * 10_000 for i in range(40)})
    frame.loc[0, "c0"] = None
    text = result_text(frame)
    assert len(text) <= 21_000
    assert "10000 x 40" in text
    assert "only the first 20 rows and 20 columns" in text


def test_a_small_table_is_whole():
    text = result_text(pd.DataFrame({"a": [1, np.nan]}))
    assert json.loads(text.partition("\n")[2])["data"] == [[1.0], [None]]
    assert "[1, 2]" in result_text(pd.Series([1, 2]))


def test_a_long_result_is_cut_and_says_so():
    assert result_text("x" * 100, limit=10) == "xxxxxxxxxx\n[cut: 90 of 100 characters left out]"


def test_errors_are_told_by_class_and_message():
    """C70"""
    assert error_text(ValueError()) == "ValueError"
    assert error_text(KeyError("x")) == "KeyError: 'x'"
    group = ExceptionGroup("several", [ValueError("a"), TypeError()])
    assert error_text(group) == "ExceptionGroup: ValueError: a; TypeError"


def test_a_key_that_a_client_uses_goes_to_no_model():
    """C108"""
    register_secret("Zx8Qw3Rt5Yu7Pl0")
    assert result_text({"KEY": "Zx8Qw3Rt5Yu7Pl0"}) == '{"KEY": "[redacted]"}'
    assert (
        result_text("sk-looks-like-a-key-1234 stays: it is content") == "sk-looks-like-a-key-1234 stays: it is content"
    )


def test_missing_values_of_pandas_are_null_and_odd_keys_are_text():
    rows = [{"d": pd.NaT, "n": pd.NA, "k\ud83d": (1, pd.NaT)}]
    assert json.loads(result_text(rows)) == [{"d": None, "n": None, "k?": [1, None]}]
    assert result_text([pd.NA, 1]) == "[null, 1]"
    assert result_text(pd.Index([1, 2])) == "[1, 2]"


def test_an_error_that_cannot_say_what_it_is_has_a_name():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_text(Mute()) == "Mute"


class Unsayable:
    def __repr__(self):
        raise RuntimeError


class AnswersToAll:
    def __getattr__(self, name):
        return lambda *args, **kwargs: self


def circular():
    ring: list = []
    ring.append(ring)
    return ring


ODD = {
    "a list in itself": (circular, '"[[...]]"'),
    "what cannot say what it is": (Unsayable, '"<Unsayable>"'),
    "the same inside a list": (lambda: [1, Unsayable()], '[1, "<Unsayable>"]'),
    "a place in memory": (object, '"<object object>"'),
    "a proxy": (lambda: types.MappingProxyType({"a": 1}), '{"a": 1}'),
    "a view": (lambda: {"a": 1}.keys(), '["a"]'),
    "a range": (lambda: range(3), "[0, 1, 2]"),
    "an exception": (lambda: ValueError("bad"), '"ValueError: bad"'),
    "a number without end": (lambda: 10**5_000, '"<int>"'),
    "bytes of no known kind": (lambda: b"\xff\xfe", '"__4="'),
}


@pytest.mark.parametrize(("make", "text"), ODD.values(), ids=ODD.keys())
def test_odd_values_are_told_the_same_way_each_time(make, text):
    assert result_text(make()) == text


def test_an_object_that_answers_to_every_name_is_told_as_text():
    assert "AnswersToAll" in result_text(AnswersToAll())
