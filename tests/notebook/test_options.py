"""The options line of `%agent`: options first, then text as it was typed."""

from __future__ import annotations

import pytest

from nbagents.notebook.options import AgentOptions, OptionError, parse_options


@pytest.mark.parametrize(
    ("line", "options", "text"),
    [
        ("", AgentOptions(), ""),
        ("What is this?", AgentOptions(), "What is this?"),
        ("-n helper -s trip --new --model gpt-5-mini", AgentOptions("helper", "trip", "gpt-5-mini", True), ""),
        ('--model "my model" -s "C:\\My Docs\\a" # note', AgentOptions(None, "C:\\My Docs\\a", "my model"), "# note"),
        ("-s C:\\temp\\new it", AgentOptions(session="C:\\temp\\new"), "it"),
        ("--model='a b' x", AgentOptions(model="a b"), "x"),
        ("--model=a/b:free x", AgentOptions(model="a/b:free"), "x"),
        ("don't split me", AgentOptions(), "don't split me"),
        ("what is --model in argparse?", AgentOptions(), "what is --model in argparse?"),
        ("--new what is -s trip for?", AgentOptions(new=True), "what is -s trip for?"),
        ("-- --model is what?", AgentOptions(), "--model is what?"),
        ('--vars --   "quoted"  end', AgentOptions(vars=True), '  "quoted"  end'),
        ("-5 + 3", AgentOptions(), "-5 + 3"),
        ("- a list", AgentOptions(), "- a list"),
        ("--- a rule", AgentOptions(), "--- a rule"),
        ('"quoted" first', AgentOptions(), '"quoted" first'),
        ("--no-wait", AgentOptions(no_wait=True), ""),
    ],
)
def test_options_come_first_and_the_rest_is_text_as_it_was_typed(line: str, options: AgentOptions, text: str) -> None:
    """C102."""
    assert parse_options(line) == (options, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--modle x", "no option --modle"),
        ("-f a.yaml", "no option -f"),
        ("--model", "--model needs a value"),
        ("-s --new", "-s needs a value"),
        ('-s ""', "-s needs a value"),
        ("-s 'open", "-s has no closing quotation mark"),
        ("--new --new", "--new is given twice"),
        ("--new=yes", "--new takes no value"),
    ],
)
def test_a_bad_option_is_named_and_the_usage_shown(line: str, message: str) -> None:
    """C102."""
    with pytest.raises(OptionError, match=message) as caught:
        parse_options(line)
    assert "%%agent [options]" in str(caught.value)
