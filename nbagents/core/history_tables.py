"""The tables of `SQLHistoryProvider` and what is done with them. It blocks, and imports SQLAlchemy: import it late."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import URL, Column, ForeignKey, Integer, MetaData, String, Table, Text, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from nbagents.core.databases import Database, Tables, database_text, version_table
from nbagents.core.errors import SessionError

_metadata = MetaData()
_tables = Tables(_metadata, version_table("nbagents_schema", _metadata), version=1, error=SessionError)
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


class HistoryDatabase(Database):
    """The sessions in one database: their messages in order, as JSON. Any thread may use it.

    A session is known by the SHA-256 of its id: databases compare text by rules of their own. Its row counts the
    messages; who adds some first changes the count, so that writers take turns.
    """

    def __init__(self, url: URL) -> None:
        super().__init__(url, _tables)

    def read(self, session_id: str) -> list[str]:
        """Return the messages of a session, oldest first."""
        asked = (
            select(_messages.c.message)
            .join(_sessions)
            .where(_sessions.c.digest == _digest(session_id))
            .order_by(_messages.c.sequence)
        )
        with self.reading() as connection:
            return list(connection.scalars(asked))

    def append(self, session_id: str, messages: Sequence[str]) -> None:
        """Add messages to the end of a session, all of them or none."""
        try:
            self._append(session_id, messages)
        except SessionError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            self._append(session_id, messages)  # another writer has made the row of this session in the meantime

    def remove(self, session_id: str) -> None:
        """Forget a session."""
        own = select(_sessions.c.id).where(_sessions.c.digest == _digest(session_id))
        with self.writing() as connection:
            connection.execute(delete(_messages).where(_messages.c.session.in_(own)))
            connection.execute(delete(_sessions).where(_sessions.c.digest == _digest(session_id)))

    def _append(self, session_id: str, messages: Sequence[str]) -> None:
        own = _sessions.c.digest == _digest(session_id)
        with self.writing() as connection:
            longer = update(_sessions).where(own).values(length=_sessions.c.length + len(messages))
            if not connection.execute(longer).rowcount:
                row = {"digest": _digest(session_id), "session_id": database_text(session_id), "length": len(messages)}
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


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
