"""The mark of tests that not every client under the contract can pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from tests.clients.endpoints import Ability

F = TypeVar("F", bound=Callable[..., Any])


def needs(*abilities: Ability) -> Callable[[F], F]:
    """Mark a test that only clients with these abilities can pass."""
    assert set(abilities) <= set(get_args(Ability))

    def mark(test: F) -> F:
        test.needs = frozenset(abilities)  # type: ignore[attr-defined]
        return test

    return mark
