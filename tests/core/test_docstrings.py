"""What a docstring says of a function and its parameters, in the layouts that people and models write."""

from __future__ import annotations

import inspect

import pytest

from nbagents.core.docstrings import parse_docstring

LAYOUTS = {
    "types with brackets": (
        """Do.

        Args:
            a (list[tuple[int, str]], optional): first (see: b)
            b (Tuple(int, str)): https://x.test: second
            *args (int): rest
            **kwargs: more
        """,
        {"a": "first (see: b)", "b": "https://x.test: second", "args": "rest", "kwargs": "more"},
    ),
    "text on the next lines": (
        """Do.

        Args:
            a:
                One of:
                    fast: quick

                or slow.
            b: second

        Raises:
            ValueError: never
        """,
        {"a": "One of: fast: quick or slow.", "b": "second"},
    ),
    "bullets and code": (
        """Do.

        Args:
            - a: first
            - `b` (int): second
        """,
        {"a": "first", "b": "second"},
    ),
    "nothing before Args": (
        """Args:
            a: first
            b: second
        """,
        {"a": "first", "b": "second"},
    ),
    "entries at the margin": ("Do.\n\nArgs:\na: first\nb: second\n\n", {"a": "first", "b": "second"}),
    "tabs and returns": ("Do.\r\n\tArgs:\r\n\t\ta: first\r\n\tReturns:\r\n\t\tz", {"a": "first"}),
    "two sections": (
        """Do.

        Parameters:
            a: first

        Keyword Args:
            b: second
        """,
        {"a": "first", "b": "second"},
    ),
    "numpy": (
        """Do.
        Parameters
        ----------
        a : {'x', 'y'}, default 'x'
            first

            and more
        b, c : int
            both
        *args
            rest

        Other Parameters
        ----------------
        d
            last
        See Also
        --------
        other : not a parameter
        """,
        {"a": "first and more", "b": "both", "c": "both", "args": "rest", "d": "last"},
    ),
    "numpy, other underline": ("Do.\n\nParameters\n==========\na : int\n    first", {"a": "first"}),
    "sphinx": (
        r"""Do.
        :param a: first
            goes on
        :type a: int
        :param dict[str, int] b: second
        :keyword c: third
        :param \*args: rest
        :raises ValueError: never
        :rtype: int
        """,
        {"a": "first goes on", "b": "second", "c": "third", "args": "rest"},
    ),
}


@pytest.mark.parametrize(("docstring", "parameters"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_parameters_are_found_and_leave_the_summary_clean(docstring, parameters):
    """C62"""
    summary, found = parse_docstring(docstring)
    assert found == parameters
    assert summary == ("" if inspect.cleandoc(docstring).startswith("Args") else "Do.")


def test_a_heading_of_ones_own_stays_in_what_the_model_reads():
    summary, found = parse_docstring(
        """Search.

        Query syntax
        ------------
        Use AND.

        Parameters
        ----------
        query : str
            What to look for.
        """
    )
    assert summary == "Search.\n\nQuery syntax\n------------\nUse AND."
    assert found == {"query": "What to look for."}


@pytest.mark.parametrize("nothing", [None, "", "   \n  "])
def test_no_docstring_says_nothing(nothing):
    assert parse_docstring(nothing) == ("", {})
