"""Sessions in a SQL database: what is said of it, and what may happen to it."""

import asyncio
import contextlib
import copy
import pickle
import sqlite3
import subprocess
import sys
import traceback

import pytest

from nbagents import Agent, AgentSession, Message, ScriptedChatClient, SQLHistoryProvider
from nbagents.core.errors import ConfigurationError, SessionError

TRIP = AgentSession("trip")


@pytest.fixture
async def history(tmp_path):
    opened = SQLHistoryProvider(f"sqlite:///{tmp_path}/chat.db")
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/chat.db"


async def texts(history, session=TRIP):
    return [message.text for message in await history.get_messages(session)]


async def test_each_message_is_a_row(history, tmp_path):
    """C73: rows that plain SQL can count."""
    agent = Agent(ScriptedChatClient(["one", "two"]), history=history)
    for _ in range(2):
        await agent.run("q", session=TRIP)
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as connection:
        rows = connection.execute("SELECT sequence, message ->> '$.role' FROM nbagents_messages").fetchall()
        assert rows == [(1, "user"), (2, "assistant"), (3, "user"), (4, "assistant")]
        assert connection.execute("SELECT session_id, length FROM nbagents_sessions").fetchall() == [("trip", 4)]
        assert connection.execute("SELECT version FROM nbagents_schema").fetchall() == [(1,)]
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


async def test_of_a_deleted_session_not_even_the_bytes_stay(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "my diary " * 1000)])
    await history.save_messages(AgentSession("other"), [Message("user", "q")])
    await history.delete_messages(TRIP)
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as connection:
        assert connection.execute("SELECT count(*) FROM nbagents_messages").fetchall() == [(1,)]
    await history.close()
    assert [path.name for path in tmp_path.iterdir()] == ["chat.db"]
    assert b"my diary" not in (tmp_path / "chat.db").read_bytes()


async def test_the_default_is_a_file_where_the_program_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = SQLHistoryProvider()
    monkeypatch.chdir("/")
    await history.save_messages(TRIP, [Message("user", "q")])
    await history.close()
    assert [path.name for path in tmp_path.iterdir()] == ["chat.db"]


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
async def test_a_database_in_memory_is_one_for_all_threads(address):
    history = SQLHistoryProvider(address)
    agent = Agent(ScriptedChatClient(["ok"] * 8), history=history)
    await asyncio.gather(*[agent.run("q", session=AgentSession("trip")) for _ in range(4)])
    await asyncio.gather(*[agent.run("q", session=AgentSession(f"trip {i}")) for i in range(4)])
    assert await texts(history) == ["q", "ok"] * 4
    await history.close()
    other = SQLHistoryProvider(address)
    assert await texts(other) == []
    await other.close()


async def test_closing_twice_is_nothing_and_a_closed_provider_says_so(url):
    """C80"""
    history = SQLHistoryProvider(url)
    await history.save_messages(TRIP, [Message("user", "q")])
    await asyncio.gather(history.close(), history.close())
    for use in (history.get_messages(TRIP), history.save_messages(TRIP, [Message("user", "q")])):
        with pytest.raises(SessionError, match="closed"):
            await use
    with pytest.raises(SessionError, match="closed"):
        await Agent(ScriptedChatClient(["ok"]), history=history).run("q", session=AgentSession("trip"))


PASSWORD = "Zx8!Qw3@Rt5/Yu7"


async def test_the_password_is_never_shown(postgres):
    """C108"""
    from urllib.parse import quote

    url = postgres.url().replace(postgres.password, quote(PASSWORD, safe=""))
    history = SQLHistoryProvider(url)
    assert f"127.0.0.1:{postgres.port}/postgres" in repr(history)
    with pytest.raises(SessionError, match=r"cannot be read.*password authentication failed") as caught:
        await Agent(ScriptedChatClient(["ok"]), history=history).run("q")
    shown = repr(history) + "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert PASSWORD not in shown
    assert quote(PASSWORD, safe="") not in shown
    await history.close()


async def test_a_password_among_the_settings_is_not_shown_either():
    """C108"""
    history = SQLHistoryProvider("postgresql+psycopg://ada@127.0.0.1:9/x?password=Zx8Qw3Rt5Yu7")
    assert "Zx8Qw3" not in repr(history)
    await history.close()


async def test_the_conversation_is_not_in_the_errors_of_the_database(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "q")])
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as connection:
        connection.execute("DROP TABLE nbagents_messages")
    diary = "-".join(["my", "diary"])  # the traceback quotes the lines of this test
    with pytest.raises(SessionError, match="no such table") as caught:
        await history.save_messages(TRIP, [Message("user", diary)])
    assert diary not in "".join(traceback.format_exception(caught.value))


WRONG = ["", "chat.db", "postgres://ada:Zx8Qw3Rt5Yu7@h/x", "sqlite+aiosqlite:///chat.db", "postgresql+asyncpg://h/x"]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_address_that_does_not_fit_is_an_error_at_once(wrong):
    with pytest.raises(ConfigurationError, match=r"sqlite:///chat\.db") as caught:
        SQLHistoryProvider(wrong)
    assert "Zx8Qw3" not in "".join(traceback.format_exception(caught.value))


def test_what_is_no_text_is_an_error_at_once():
    with pytest.raises(ConfigurationError, match="int"):
        SQLHistoryProvider(3)


@pytest.mark.parametrize(
    ("module", "url", "command"),
    [
        ("sqlalchemy", "sqlite://", 'pip install "sqlalchemy>=2"'),
        ("psycopg", "postgresql+psycopg://h/x", 'pip install "psycopg[binary]"'),
        ("MySQLdb", "mysql://h/x", "names each driver's package; tested are SQLite and PostgreSQL"),
    ],
)
def test_a_missing_package_names_what_to_install(monkeypatch, module, url, command):
    for name in list(sys.modules):
        if name.partition(".")[0] == module:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "nbagents.core.history_tables", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError) as caught:
        SQLHistoryProvider(url)
    assert command in str(caught.value)


async def test_a_database_of_another_version_is_an_error(url):
    from sqlalchemy import create_engine, text

    history = SQLHistoryProvider(url)
    await history.save_messages(TRIP, [Message("user", "q")])
    await history.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE nbagents_schema SET version = 2"))
    engine.dispose()
    later = SQLHistoryProvider(url)
    with pytest.raises(SessionError, match="version 2; this nbagents knows version 1"):
        await later.get_messages(TRIP)
    await later.close()


async def test_a_file_that_is_no_database_is_an_error_and_left_alone(tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("# My notes\n" * 100)
    history = SQLHistoryProvider(f"sqlite:///{notes}")
    with pytest.raises(SessionError, match=r"notes\.md cannot be read.*not a database"):
        await history.get_messages(TRIP)
    await history.close()
    assert notes.read_text() == "# My notes\n" * 100


async def test_a_row_that_is_no_message_names_its_session(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "q")])
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as connection, connection:
        connection.execute("UPDATE nbagents_messages SET message = '{}'")
    with pytest.raises(SessionError, match=r"'trip' in sqlite:///.*chat\.db holds something that is no message"):
        await history.get_messages(TRIP)


async def test_the_loop_goes_on_while_another_program_writes(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "1")])
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        saving = asyncio.create_task(history.save_messages(TRIP, [Message("user", "2")]))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not saving.done()
        other.execute("ROLLBACK")
    await saving
    assert await texts(history) == ["1", "2"]


async def test_a_new_database_that_another_program_writes_is_waited_for(history, tmp_path):
    """C73: SQLite itself does not wait where the file is to become one that others can read meanwhile."""
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE theirs (x)")
        saving = asyncio.create_task(history.save_messages(TRIP, [Message("user", "1")]))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not saving.done()
        other.execute("COMMIT")
    await saving
    assert await texts(history) == ["1"]


async def test_a_group_of_which_one_row_is_refused_leaves_nothing(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "1")])
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as connection:
        refuse = "CREATE TRIGGER no BEFORE INSERT ON nbagents_messages WHEN NEW.message LIKE '%poison%'"
        connection.execute(f"{refuse} BEGIN SELECT RAISE(ABORT, 'refused'); END")
        for session in (TRIP, AgentSession("new")):
            with pytest.raises(SessionError, match="refused"):
                await history.save_messages(session, [Message("user", "2"), Message("user", "poison")])
        assert await texts(history) == ["1"]
        assert connection.execute("SELECT session_id, length FROM nbagents_sessions").fetchall() == [("trip", 1)]


async def test_reading_does_not_wait_for_another_program_that_writes(history, tmp_path):
    await history.save_messages(TRIP, [Message("user", "1")])
    with contextlib.closing(sqlite3.connect(tmp_path / "chat.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await texts(history) == ["1"]


async def test_a_connection_that_the_server_has_ended_is_made_again(postgres, postgres_url):
    history = SQLHistoryProvider(postgres_url)
    await history.save_messages(TRIP, [Message("user", "1")])
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")
    await history.save_messages(TRIP, [Message("user", "2")])
    assert await texts(history) == ["1", "2"]
    await history.close()


async def test_a_user_who_may_not_make_tables_can_use_those_that_are_there(postgres, postgres_url):
    history = SQLHistoryProvider(postgres_url)
    await history.save_messages(TRIP, [Message("user", "1")])
    await history.close()
    database = postgres_url.rpartition("/")[2]
    for statement in (
        "CREATE ROLE guest LOGIN PASSWORD 'guest-Zx8Qw3'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO guest",
    ):
        postgres.execute(statement, database)
    guest = SQLHistoryProvider(f"postgresql+psycopg://guest:guest-Zx8Qw3@127.0.0.1:{postgres.port}/{database}")
    await guest.save_messages(TRIP, [Message("user", "2")])
    await guest.save_messages(AgentSession("new"), [Message("user", "3")])
    assert await texts(guest) == ["1", "2"]
    await guest.close()
    for statement in ("DROP OWNED BY guest", "DROP ROLE guest"):
        postgres.execute(statement, database)


FORKED = """
import asyncio, os, sys
from nbagents import AgentSession, Message, SQLHistoryProvider

history, session = SQLHistoryProvider(sys.argv[1]), AgentSession("trip")

async def write(who):
    for _ in range(30):
        await history.save_messages(session, [Message("user", who)])

asyncio.run(write("before"))
if (child := os.fork()) == 0:
    asyncio.run(write("child"))
    asyncio.run(history.close())
    os._exit(0)
asyncio.run(write("parent"))
assert os.waitpid(child, 0)[1] == 0
print(len(asyncio.run(history.get_messages(session))))
asyncio.run(history.close())
"""


def test_a_forked_program_makes_connections_of_its_own(url):
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", FORKED, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("90\n", "")


async def test_a_copy_shares_the_database_and_a_pickle_opens_it_again(history):
    await history.save_messages(TRIP, [Message("user", "q")])
    agent = Agent(ScriptedChatClient([]), history=history)
    assert copy.deepcopy(agent).history is history
    again = pickle.loads(pickle.dumps(history))
    assert again.storage_key(TRIP) == history.storage_key(TRIP)
    assert await texts(again) == ["q"]
    await again.close()


@pytest.mark.parametrize(
    "address",
    ["postgresql+psycopg://ada:Zx8Qw3Rt5Yu7@h/x", "postgresql+psycopg://h/x?password=Zx8Qw3Rt5Yu7", "sqlite://"],
)
async def test_what_no_pickle_may_hold_or_can_open_again_is_refused(address):
    """C108"""
    history = SQLHistoryProvider(address)
    with pytest.raises(ConfigurationError, match="cannot be pickled") as caught:
        pickle.dumps(history)
    assert "Zx8Qw3" not in "".join(traceback.format_exception(caught.value))
    assert pickle.loads(pickle.dumps(SQLHistoryProvider("postgresql+psycopg://ada@h/x"))) is not None
