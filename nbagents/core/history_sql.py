"""Sessions in a SQL database: SQLite as it comes, PostgreSQL with a driver. The tables are in `history_tables`."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.history import HistoryProvider
from nbagents.core.messages import Message
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.sessions import AgentSession
from nbagents.core.stored import ReadBefore, messages_from, stored_text

if TYPE_CHECKING:
    from nbagents.core.history_tables import HistoryDatabase


class SQLHistoryProvider(HistoryProvider):
    """Keeps sessions in tables of a SQL database, `nbagents_sessions` and `nbagents_messages`: a row for each message.

    The first use makes the tables. Any number of threads and processes may use the same database: messages that are
    stored together stay together, and none is lost.

    Args:
        url: the database as SQLAlchemy writes it: `sqlite:///chat.db`, `postgresql+psycopg://user:password@host/name`.

    Raises:
        ConfigurationError: an address that does not fit, or a package that is missing, with what to install.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> history = SQLHistoryProvider("sqlite://")
        >>> agent = Agent(ScriptedChatClient(["Hello!", "Yes."]), history=history)
        >>> for question in ("Hi", "Still there?"):
        ...     _ = agent.run_sync(question, session=AgentSession("trip"))
        >>> [message.text for message in agent.client.requests[-1].messages]
        ['Hi', 'Hello!', 'Still there?']
    """

    @exact_arguments()
    def __init__(self, url: str = "sqlite:///chat.db") -> None:
        if not isinstance(url, str):
            raise ConfigurationError(f"url must be the address of a database, not {type(url).__name__}.")
        try:
            self._database = _database(url)
        except ModuleNotFoundError as error:
            raise missing_package("SQLHistoryProvider", error.name or str(error)) from error
        self._rows = ReadBefore(_parse)
        self._closed = False
        # Without close(): nothing stays open when this is dropped.
        self._disposing = weakref.finalize(self, self._database.dispose)

    def __repr__(self) -> str:
        return f"SQLHistoryProvider({self._database.name!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> SQLHistoryProvider:
        return self  # it holds connections and no state of a conversation: copies of an agent share it

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the address, for other processes to open the same database; a password goes into no pickle."""
        if self._database.address is None:
            raise ConfigurationError(
                f"{self!r} cannot be pickled: its address has a password, or it is a database in memory.",
                hint="Make it where it is used, or leave the password to the driver (PGPASSWORD, ~/.pgpass).",
            )
        return SQLHistoryProvider, (self._database.address,)

    def storage_key(self, session: AgentSession) -> Hashable:
        """The session in its database: providers of the same one share it."""
        return "sql", self._database.key, session.session_id

    async def get_messages(self, session: AgentSession) -> list[Message]:
        """Return the stored messages of `session`, oldest first.

        Raises:
            SessionError: the database cannot be read, or this is closed.
        """
        rows: list[str] = await self._in_database(partial(self._database.read, session.session_id))
        try:
            return [message for row in rows for message in self._rows.messages(row)]
        except SessionError as error:
            place = f"The session {session.session_id!r} in {self._database.name}"
            raise SessionError(f"{place} {error.message}", hint=error.hint) from error.__cause__

    async def save_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        """Append `messages`, all of them or none.

        Raises:
            SessionError: the database cannot be written, or this is closed.
        """
        if messages:
            rows = [stored_text(message.to_dict()) for message in messages]
            await self._in_database(partial(self._database.append, session.session_id, rows))

    async def delete_messages(self, session: AgentSession) -> None:
        """Remove the rows of `session`."""
        await self._in_database(partial(self._database.remove, session.session_id))

    async def close(self) -> None:
        """Close the connections; idempotent. From then on this cannot be used any more."""
        self._closed = True
        await run_in_thread(self._disposing)

    async def _in_database(self, work: Callable[[], Any]) -> Any:
        if self._closed:
            raise SessionError(f"{self!r} is closed.", hint="Make a new one.")
        return await run_in_thread(work)


def _database(url: str) -> HistoryDatabase:
    from nbagents.core.databases import parsed_url
    from nbagents.core.history_tables import HistoryDatabase

    return HistoryDatabase(parsed_url(url, "SQLHistoryProvider"))


def _parse(row: str) -> list[Message]:
    try:
        record = json.loads(row)
    except ValueError as error:
        raise SessionError(f"holds something that is no JSON: {error}") from error
    return messages_from([record])


def missing_package(user: str, module: str) -> ConfigurationError:
    """Return the error of `user`, which needs `module` for its database."""
    packages = {"sqlalchemy": "sqlalchemy>=2", "psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}
    if module in packages:
        hint = f'pip install "{packages[module]}"'
    else:  # the name of a module is not always that of what is to be installed
        hint = "SQLAlchemy's page on dialects names each driver's package; tested are SQLite and PostgreSQL."
    return ConfigurationError(f"{user} needs the module {module!r} for this database.", hint=hint)
