"""A PostgreSQL server of our own, from Debian's `postgresql`: on loopback, with a password, stopped by pid."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support import require
from tests.support.processes import free_port, program

USER = "ada"
_numbers = count(1)


def _programs() -> Path | None:
    """Return the folder of `initdb` and `postgres`; Debian does not put it on PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in versions), key=lambda path: float(path.parent.name), default=None)


def _unprivileged(folder: Path) -> list[str]:
    """Return what goes before a command, since the server refuses root; `folder` becomes that user's."""
    if os.geteuid() != 0:
        return []
    known = {user.pw_name: user for user in pwd.getpwall()}
    user = known.get("postgres") or known["nobody"]
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class Postgres:
    """A running server; `url` is that of its own database."""

    def __init__(self, port: int, password: str) -> None:
        self.port = port
        self.password = password

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement outside of any transaction and return its rows."""
        import psycopg

        address = self.url(database).replace("+psycopg", "")
        with psycopg.connect(address, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        import psycopg

        try:
            return self.execute("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    found = _programs()
    require(found, "PostgreSQL (apt-get install postgresql)")
    assert found is not None
    password = secrets.token_urlsafe(24)
    # Not below pytest's own folder, which the server's user may not enter.
    with tempfile.TemporaryDirectory(prefix="nbagents-postgres-") as name:
        folder = Path(name)
        (folder / "password").write_text(password)
        as_user = _unprivileged(folder)
        login = [f"--username={USER}", f"--pwfile={folder / 'password'}", "--auth=scram-sha-256"]
        kind = ["--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [*as_user, found / "initdb", "--pgdata", folder / "files", *login, *kind],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        server = Postgres(free_port(), password)
        settings = [f"port={server.port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        settings += ["fsync=off", "log_checkpoints=off"]
        options = [part for setting in settings for part in ("-c", setting)]
        arguments = [*as_user, found / "postgres", "-D", folder / "files", *options]
        with program(arguments, ready=server.answers, cwd=folder):
            yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database, new for each test."""
    database = f"test_{next(_numbers)}"
    postgres.execute(f"CREATE DATABASE {database}")
    yield postgres.url(database)
    postgres.execute(f"DROP DATABASE {database} WITH (FORCE)")
