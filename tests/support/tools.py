"""Runs the project's own checkers from this environment and shows what they say when they object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(*arguments: str | Path, cwd: Path = ROOT, python: str | Path = sys.executable) -> str:
    """Run `python ARGUMENTS`, fail the test with its output where it fails, and return its standard output."""
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command[1:])}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def tracked_files() -> list[Path]:
    """Return the files of the repository, as git has them or would take them."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]
