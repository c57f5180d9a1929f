"""The checkers of the code agree: format, lint, types, layers, dependencies, examples in docstrings."""

from __future__ import annotations

from tests.support.servers import beside_python
from tests.support.tools import check

# Test dependencies that no test imports: programs, plugins, stubs, and what is loaded by name.
PROGRAMS = [
    *("build", "deptry", "import-linter", "ipykernel", "jupyterlab", "llmock", "mypy", "nbval", "ruff"),
    *("nbagents", "pytest-asyncio", "pytest-cov", "pytest-timeout"),
    *("pandas-stubs", "types-Pygments", "types-PyYAML", "types-tqdm"),
]


def test_lint() -> None:
    check("-m", "ruff", "check", ".")


def test_format() -> None:
    check("-m", "ruff", "format", "--check", ".")


def test_types() -> None:
    check("-m", "mypy")


def test_imports_run_downwards_only() -> None:
    check(beside_python("lint-imports"), "--no-cache")


def test_the_package_declares_what_it_imports() -> None:
    check("-m", "deptry", "nbagents", "--optional-dependencies-dev-groups", "test", "--ignore", "DEP002")


def test_every_declared_dependency_is_used() -> None:
    unused = f"DEP002={'|'.join(PROGRAMS)}"
    where = ["nbagents", "tests", "--exclude", "node_modules"]  # by default deptry leaves tests out
    check("-m", "deptry", *where, "--ignore", "DEP003,DEP004", "--per-rule-ignores", unused)


def test_examples_in_docstrings() -> None:
    check("-m", "pytest", "--doctest-modules", "nbagents", "-q", "-p", "no:cacheprovider")
