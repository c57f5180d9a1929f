"""The tables of `SQLHistoryProvider` and what is done with them. It blocks, and imports SQLAlchemy: import it late."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateTable

from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.secrets import redact, register_secret

SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
"""How long a writer waits for another one on the same SQLite file."""
_CREATION_LOCK = 0x6E6261  # any number will do, as long as it is always the same

_metadata = MetaData()
_schema = Table("nbagents_schema", _metadata, Column("version", Integer, primary_key=True, autoincrement=False))
_sessions = Table(
    "nbagents_sessions",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("session_id", Text, nullable=False),
    Column("length", Integer, nullable=False),
)
_messages = Table(
    "nbagents_messages",
    _metadata,
    Column("session", ForeignKey(_sessions.c.id), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("message", Text, nullable=False),
)


class HistoryDatabase:
    """The sessions in one database: their messages in order, as JSON. Any thread may use it.

    A session is known by the SHA-256 of its id: databases compare text by rules of their own. Its row counts the
    messages; who adds some first changes the count, so that writers take turns.

    Attributes:
        name: its address, without the password.
        key: equal for objects that stand for the same database.
    """

    def __init__(self, url: URL) -> None:
        self.name = _shown(url)
        self.key: Hashable = id(self) if _is_in_memory(url) else _place(url)
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _engine(url)
        # SQLite lets one connection write at a time, and its in-memory databases live in a single one.
        self._turn: AbstractContextManager[Any] = threading.Lock() if self._is_sqlite else nullcontext()
        self._preparing = threading.Lock()
        self._prepared = False
        self._owner = os.getpid()

    def read(self, session_id: str) -> list[str]:
        """Return the messages of a session, oldest first."""
        asked = (
            select(_messages.c.message)
            .join(_sessions)
            .where(_sessions.c.digest == _digest(session_id))
            .order_by(_messages.c.sequence)
        )
        with self._errors("read"), self._turn, self._prepared_engine().connect() as connection:
            return list(connection.scalars(asked))

    def append(self, session_id: str, messages: Sequence[str]) -> None:
        """Add messages to the end of a session, all of them or none."""
        with self._errors("written"):
            try:
                self._append(session_id, messages)
            except IntegrityError:  # another writer has made the row of this session in the meantime
                self._append(session_id, messages)

    def remove(self, session_id: str) -> None:
        """Forget a session."""
        own = select(_sessions.c.id).where(_sessions.c.digest == _digest(session_id))
        with self._errors("written"), self._writing() as connection:
            connection.execute(delete(_messages).where(_messages.c.session.in_(own)))
            connection.execute(delete(_sessions).where(_sessions.c.digest == _digest(session_id)))

    def dispose(self) -> None:
        """Close the connections."""
        if self._owner == os.getpid():
            self._engine.dispose()

    def _append(self, session_id: str, messages: Sequence[str]) -> None:
        own = _sessions.c.digest == _digest(session_id)
        with self._writing() as connection:
            longer = update(_sessions).where(own).values(length=_sessions.c.length + len(messages))
            if not connection.execute(longer).rowcount:
                row = {"digest": _digest(session_id), "session_id": _as_text(session_id), "length": len(messages)}
                connection.execute(insert(_sessions), row)
            session, length = connection.execute(select(_sessions.c.id, _sessions.c.length).where(own)).one()
            first = length - len(messages) + 1
            connection.execute(
                insert(_messages),
                [
                    {"session": session, "sequence": sequence, "message": message}
                    for sequence, message in enumerate(messages, first)
                ],
            )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._turn, self._prepared_engine().begin() as connection:
            if self._is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def _prepared_engine(self) -> Engine:
        """Return the engine; the first use makes what is not there yet, whoever else does so at the same time."""
        with self._preparing:
            if self._owner != os.getpid():  # a fork: the connections belong to the parent
                self._engine.dispose(close=False)
                self._owner = os.getpid()
            if not self._prepared:
                with self._engine.begin() as connection:
                    if self._is_sqlite:
                        _use_write_ahead_log(connection)
                    _create_tables(connection, self._is_sqlite)
                self._prepared = True
        return self._engine

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise SessionError(
                f"The database {self.name} cannot be {what}: {type(cause).__name__}: {cause}",
                hint="Check that it is there, that this user may write to it, and that no other program locks it.",
                retryable=isinstance(error, OperationalError),
            ) from error


def parsed_url(text: str) -> URL:
    """Read the address of a database; its password is masked from now on, the path of a SQLite file made absolute.

    Raises:
        ConfigurationError: no such address, or one that only asyncio programs can use.
    """
    try:
        url = make_url(text)
        is_async = url.get_dialect().is_async
    except (ArgumentError, NoSuchModuleError):
        raise _unusable(text) from None  # its text quotes the address
    if is_async:
        raise _unusable(text)
    if url.password:
        register_secret(url.password)
        register_secret(quote(url.password, safe=""))
    if url.get_backend_name() != "sqlite" or _is_in_memory(url) or str(url.database).startswith("file:"):
        return url
    return url.set(database=str(Path(str(url.database)).expanduser().resolve()))


def _shown(url: URL) -> str:
    """Return `url` without its password."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database or ''}"
    return redact(url.render_as_string(hide_password=True))


def _is_in_memory(url: URL) -> bool:
    """Whether the database dies with its connection."""
    if url.get_backend_name() != "sqlite":
        return False
    return url.database in (None, "", ":memory:") or url.query.get("mode") == "memory"


def _place(url: URL) -> Hashable:
    """What tells one database from others; not who asks, and through which driver."""
    return url.get_backend_name(), url.host, url.port, url.database, tuple(sorted(url.query.items()))


def _engine(url: URL) -> Engine:
    """Return an engine that has not connected yet. Its errors quote no parameters: those are the conversation."""
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, hide_parameters=True)
    # Without a level the driver begins no transaction by itself: where one begins is said here.
    settings: dict[str, Any] = {"timeout": BUSY_SECONDS, "isolation_level": None}
    if _is_in_memory(url):
        settings["check_same_thread"] = False
        return create_engine(url, connect_args=settings, poolclass=StaticPool, hide_parameters=True)
    engine = create_engine(url, connect_args=settings, pool_size=1, hide_parameters=True)
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, record: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")  # with the write-ahead log a crash of the program loses nothing
    connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten


def _use_write_ahead_log(connection: Connection) -> None:
    """Let others read while one writes. The switch needs the whole file and does not wait for it by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            break
        except OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _create_tables(connection: Connection, is_sqlite: bool) -> None:
    if is_sqlite:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    if not inspect(connection).has_table(_schema.name):
        if connection.dialect.name == "postgresql":  # there two CREATE TABLE IF NOT EXISTS at once can fail
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
        for table in _metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
    version = connection.scalar(select(_schema.c.version))
    if version is None:
        connection.execute(insert(_schema), {"version": SCHEMA_VERSION})
    elif version != SCHEMA_VERSION:
        raise SessionError(
            f"The tables nbagents_* in {_shown(connection.engine.url)} are of version {version}; "
            f"this nbagents knows version {SCHEMA_VERSION}.",
            hint="Update nbagents, or use another database.",
        )


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()


def _as_text(session_id: str) -> str:
    """Escape what no database takes as text: NUL and halves of surrogate pairs."""
    return re.sub("[\\\\\0\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", session_id)


def _unusable(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"{redact(text)!r} is no database that SQLHistoryProvider can use.",
        hint='Pass e.g. "sqlite:///chat.db" or "postgresql+psycopg://user:password@host/database".',
    )
