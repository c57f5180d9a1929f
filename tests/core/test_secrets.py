"""The quick look that spares most texts from being searched for secrets overlooks none."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbagents.core import secrets
from nbagents.core.secrets import may_hold_secret, redact, register_secret

KNOWN = 'p"w\n-Grün-0042'
FRAGMENTS = [
    *("sk-", "pk_", "rk-", "key-", "KEY_", "xai-", "gsk_", "hf_", "ghp-", "AIza-", "task_", "ask-"),
    *("api_key", "API-Key", "apıkey", "Authorization", "ſecret", "SECRET", "password", "access token", "Access_Token"),
    *("bearer", "BAſIC", "Basic", "İ", "K", "\u0307", "[redacted]", KNOWN, KNOWN[:6], KNOWN[-6:], "…", "**", ".."),
    *(
        "http://user:pass@host",
        "://",
        "@",
        ":",
        "=",
        " = ",
        '"',
        "'",
        "\\",
        "\n",
        "\x1f",
        " ",
        "é",
        "abc123def456",
        "x",
    ),
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=8).map("".join)


@pytest.fixture(autouse=True)
def known_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_marks", set(secrets._marks))
    register_secret(KNOWN)


def thoroughly_redacted(text: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "may_hold_secret", lambda text: True)
        return redact(text)


@given(texts)
@example("ſecret=abcdefgh")
@example(f"x {KNOWN[:6]}…{KNOWN[-6:]} y")
def test_what_is_passed_over_holds_no_secret(text: str) -> None:
    assert redact(text) == thoroughly_redacted(text)


@given(texts, texts)
@example("\nsk-abcdefgh", "x")
@example("\x1fsk-abcdefgh", "x")
@example("api_key", "abcdefgh")
@example(KNOWN, "x")
def test_json_that_is_passed_over_holds_no_secret_inside(first: str, second: str) -> None:
    text = json.dumps({first: [second, f"{first}={second}"]}, ensure_ascii=False)
    if not may_hold_secret(text):
        for inside in (first, second, f"{first}={second}"):
            assert thoroughly_redacted(inside) == inside


def test_ordinary_words_are_passed_over() -> None:
    for text in ("Ask the task force: a key idea is to access the risk-free rate at https://x.org/a_b.", "call_0123"):
        assert not may_hold_secret(text)
