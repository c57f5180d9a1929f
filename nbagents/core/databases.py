"""SQL databases as nbagents uses them: SQLite as it is, others with a driver. It imports SQLAlchemy: import it late."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import Pool, StaticPool

from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.core.secrets import redact, register_secret

BUSY_SECONDS = 30.0
"""How long a writer waits for another one on the same SQLite file."""
PAGE_BYTES = 4096
"""What a new SQLite file is made of; rows of more than about that size take less time in larger pages."""
_CREATION_LOCK = 0x6E6261  # any number will do, as long as it is always the same


_of_parents: list[Pool] = []
"""Pools of a process that this one was forked from: a driver minds that their connections are dropped open."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables that belong together and have one version.

    Attributes:
        metadata: the tables.
        version_table: the one that holds the version, made by `version_table`.
        version: the version that this nbagents reads and writes.
        error: the kind of error of whoever uses them.
    """

    metadata: MetaData
    version_table: Table
    version: int
    error: type[NBAgentsError]


def version_table(name: str, metadata: MetaData) -> Table:
    """Declare the table that holds the version of the others."""
    return Table(name, metadata, Column("version", Integer, primary_key=True, autoincrement=False))


class Database:
    """One database with its tables, which the first use makes. It blocks; any thread and any process may use it.

    Attributes:
        name: its address, without the password.
        key: equal for objects that stand for the same database.
        is_sqlite: whether it is SQLite.
        address: what opens it again elsewhere; None if a secret is in it, or if nothing can.
    """

    def __init__(
        self, url: URL, tables: Tables, *, busy_seconds: float = BUSY_SECONDS, page_bytes: int = PAGE_BYTES
    ) -> None:
        self.name = shown_url(url)
        self.key: Hashable = id(self) if _is_in_memory(url) else _place(url)
        address = url.render_as_string(hide_password=False)
        self.address = None if _is_in_memory(url) or redact(address) != address else address
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._tables = tables
        self._busy_seconds = busy_seconds
        self._engine = _engine(url, busy_seconds, page_bytes)
        self._prepared = False
        self._owner = os.getpid()
        self.after_fork()

    def after_fork(self) -> None:
        """Have locks that no thread of another process holds; needed where threads write while the program forks."""
        # SQLite lets one connection write at a time, and its in-memory databases live in a single one.
        self._turn: AbstractContextManager[Any] = threading.Lock() if self.is_sqlite else nullcontext()
        self._preparing = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read with."""
        with self._errors("read"), self._turn, self.prepared_engine().connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection in a transaction: all that is done in it stays, or nothing."""
        with self._errors("written"), self._turn, self.prepared_engine().begin() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def prepared_engine(self) -> Engine:
        """Return the engine; the first use makes what is not there yet, whoever else does so at the same time."""
        with self._preparing:
            if self._owner != os.getpid():  # a fork: the connections belong to the parent
                _of_parents.append(self._engine.pool)
                self._engine.dispose(close=False)
                self._owner, self._prepared = os.getpid(), False
            if not self._prepared:
                with self._engine.begin() as connection:
                    if self.is_sqlite:
                        self._use_write_ahead_log(connection)
                    self._create_tables(connection)
                self._prepared = True
        return self._engine

    def dispose(self) -> None:
        """Close the connections."""
        if self._owner == os.getpid():
            self._engine.dispose()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise self._tables.error(
                f"The database {self.name} cannot be {what}: {type(cause).__name__}: {cause}",
                hint=_advice(cause),
                retryable=isinstance(error, OperationalError),
            ) from error

    def _use_write_ahead_log(self, connection: Connection) -> None:
        """Let others read while one writes. The switch needs the whole file and does not wait for it by itself."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                break
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _create_tables(self, connection: Connection) -> None:
        version_table = self._tables.version_table
        if self.is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if not inspect(connection).has_table(version_table.name):
            if connection.dialect.name == "postgresql":  # there two CREATE TABLE IF NOT EXISTS at once can fail
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
            if not (known := inspect(connection)).has_table(version_table.name):
                self._refuse_others(table for table in self._tables.metadata.tables if known.has_table(table))
                self._tables.metadata.create_all(connection, checkfirst=False)
        version = connection.scalar(select(version_table.c.version))
        if version is None:
            connection.execute(insert(version_table), {"version": self._tables.version})
        elif version != self._tables.version:
            raise self._tables.error(
                f"The tables beside {version_table.name} in {self.name} are of version {version}; "
                f"this nbagents knows version {self._tables.version}.",
                hint="Update nbagents, or use another database.",
            )

    def _refuse_others(self, names: Iterable[str]) -> None:
        if found := sorted(names):
            raise self._tables.error(
                f"{self.name} has a table {found[0]} that is not of nbagents.", hint="Use another database."
            )


def parsed_url(text: str, user: str) -> URL:
    """Read the address of a database; its password is masked from now on, the path of a SQLite file made absolute.

    Args:
        text: the address.
        user: what would use the database, for the error.

    Raises:
        ConfigurationError: no such address, or one that only asyncio programs can use.
    """
    try:
        url = make_url(text)
        is_async = url.get_dialect().is_async
    except (ArgumentError, NoSuchModuleError):
        raise _unusable(text, user) from None  # its text quotes the address
    if is_async:
        raise _unusable(text, user)
    if url.password:
        register_secret(url.password)
        register_secret(quote(url.password, safe=""))
    if url.get_backend_name() != "sqlite" or _is_in_memory(url) or str(url.database).startswith("file:"):
        return url
    return url.set(database=str(Path(str(url.database)).expanduser().resolve()))


def shown_url(url: URL) -> str:
    """Return `url` without its password."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database or ''}"
    return redact(url.render_as_string(hide_password=True))


def database_text(text: str) -> str:
    """Escape what no database takes as text: NUL and halves of surrogate pairs."""
    return re.sub("[\\\\\0\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _is_in_memory(url: URL) -> bool:
    """Whether the database dies with its connection."""
    if url.get_backend_name() != "sqlite":
        return False
    return url.database in (None, "", ":memory:") or url.query.get("mode") == "memory"


def _place(url: URL) -> Hashable:
    """What tells one database from others; not who asks, and through which driver."""
    return url.get_backend_name(), url.host, url.port, url.database, tuple(sorted(url.query.items()))


def _engine(url: URL, busy_seconds: float, page_bytes: int) -> Engine:
    """Return an engine that has not connected yet. Its errors quote no parameters: those are the conversation."""
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, hide_parameters=True)
    # Without a level the driver begins no transaction by itself: where one begins is said here.
    settings: dict[str, Any] = {"timeout": busy_seconds, "isolation_level": None}
    if _is_in_memory(url):
        settings["check_same_thread"] = False
        return create_engine(url, connect_args=settings, poolclass=StaticPool, hide_parameters=True)
    engine = create_engine(url, connect_args=settings, pool_size=1, hide_parameters=True)
    event.listen(engine, "connect", partial(_set_up_sqlite, page_bytes))
    return engine


def _set_up_sqlite(page_bytes: int, connection: Any, record: object) -> None:
    connection.execute(f"PRAGMA page_size={page_bytes}")  # of a file that is new
    connection.execute("PRAGMA synchronous=NORMAL")  # with the write-ahead log a crash of the program loses nothing
    connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten


def _advice(cause: BaseException) -> str:
    if "not a database" in str(cause):  # SQLite's words
        return "Another kind of file is there, and stays as it is; use another path."
    return "Check that it is there, that this user may write to it, and that no other program locks it."


def _unusable(text: str, user: str) -> ConfigurationError:
    return ConfigurationError(
        f"{redact(text)!r} is no database that {user} can use.",
        hint='Pass e.g. "sqlite:///chat.db" or "postgresql+psycopg://user@host/database".',
    )
