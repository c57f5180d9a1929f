"""Tokens are estimated without a vocabulary, within what the published counts allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import (
    Agent,
    DataContent,
    Message,
    ScriptedChatClient,
    TextContent,
    TokenBudgetReducer,
    estimate_tokens,
)
from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.errors import ConfigurationError
from nbagents.core.tokens import IMAGE_TOKENS, TokenCounter


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [  # what cl100k_base and o200k_base count, as OpenAI's cookbook and tokenizer page show, with room for both
        ("tiktoken is great!", 4, 6),
        ("antidisestablishmentarianism", 4, 6),
        ("2 + 2 = 4", 5, 7),
        ("お誕生日おめでとう", 6, 9),
        ("The quick brown fox jumps over the lazy dog.", 9, 10),
        ("hello world", 2, 2),
        ("Привет, мир!", 4, 8),
        ("1234567890", 4, 4),
        ("\x00\x1b[0m" * 10, 40, 60),
        ("", 0, 0),
    ],
)
def test_an_estimate_is_near_what_models_count(text, least, most):
    assert least <= estimate_tokens(text) <= most


def test_scripts_other_than_latin_are_not_taken_for_english():
    for text in (
        "東京へ行きましょう。",
        "안녕하세요 세계",
        "你好，世界！今天天气很好。",
        "🐙🦑🐳",
        "नमस्ते दुनिया",
        "مرحبا بالعالم",
    ):
        assert estimate_tokens(text) >= len(text) / 2.5


@given(st.text(max_size=60), st.text(max_size=60))
def test_more_text_is_never_fewer_tokens_by_more_than_a_seam(left, right):
    whole, parts = estimate_tokens(left + right), estimate_tokens(left) + estimate_tokens(right)
    assert parts - 2 <= whole <= parts + 2
    assert whole <= 2 * len(left + right)


def test_a_message_counts_its_calls_results_and_pictures_once():
    counter = TokenCounter()
    call = Message("assistant", [FunctionCall("c1", "lookup", {"city": "Paris"})])
    result = Message("tool", [FunctionResult("c1", "lookup", "sunny " * 50)])
    picture = Message("user", [TextContent("Look"), DataContent("https://example.org/a.png", "image/png")])
    assert counter.message(call) > counter.message(Message("assistant", ""))
    assert 50 <= counter.message(result) <= 110
    assert counter.message(picture) == IMAGE_TOKENS + counter.message(Message("user", "Look"))


def test_a_counter_of_the_users_gives_a_number_or_tokens():
    assert TokenCounter(len).text("abc") == 3
    assert TokenCounter(lambda text: text.split()).text("a b c d") == 4
    with pytest.raises(ConfigurationError, match="returned None"):
        TokenCounter(lambda text: None).text("abc")
    with pytest.raises(ConfigurationError, match="counter is a function"):
        TokenCounter("o200k")


def test_counters_do_not_see_what_others_have_counted():
    message = Message("user", "one two three")
    assert TokenCounter(lambda text: 1000).message(message) > TokenCounter().message(message)


def test_a_text_that_a_counter_refuses_is_estimated():
    """`tiktoken.Encoding.encode` raises a ValueError for the text of a special token."""

    def encode(text):
        if "<|endoftext|>" in text:
            raise ValueError("Encountered text corresponding to disallowed special token '<|endoftext|>'.")
        return text.split()

    agent = Agent(ScriptedChatClient(["Fine.", "Fine."]), reducer=TokenBudgetReducer(100, counter=encode))
    session = agent.create_session()
    with pytest.warns(UserWarning, match="disallowed special token .* encode_ordinary"):
        agent.run_sync("Say <|endoftext|> twice.", session=session)
    assert agent.run_sync("And now?", session=session).text == "Fine."
