"""`--vars`: exact names only, once."""

from __future__ import annotations

import pytest

from nbagents.notebook.variables import fill_variables

NAMES = {"name": "Ada", "nested": "{name} and {b}", "n": 3, "a": "A", "b": "B", "größe": 1.5, "x": "X"}


@pytest.mark.parametrize(
    "text",
    [
        "{b: a for a, b in pairs}",
        'log({"level": "x"})',
        "const s = `${x}`; const o = {};",
        r"\frac{a}{b}",
        '{"name": "a", "b": {"n": 1}}',
        "{In[3]}",
        "{name.upper()} {name!r} {n:>5} { name } {unknown} {}",
        "{{name}}",
        "{0} {n",
    ],
)
def test_what_is_no_exact_reference_stays_as_it_is(text: str) -> None:
    """C100."""
    assert fill_variables(text, NAMES) == text


def test_an_exact_name_is_replaced_once() -> None:
    """C100: what was inserted is not looked through again."""
    assert fill_variables("'{name}' {n}{größe} {nested}", NAMES) == "'Ada' 31.5 {name} and {b}"
