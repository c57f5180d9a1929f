"""Sessions in files: what the files look like, and what may happen to them."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import warnings
from urllib.parse import unquote

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import Agent, AgentSession, FileHistoryProvider, Message, ScriptedChatClient
from nbagents.core.errors import ConfigurationError, SessionError

TRIP = AgentSession("trip")


@pytest.fixture
def history(tmp_path):
    return FileHistoryProvider(tmp_path / "sessions")


async def turns(history, *answers):
    """Run one turn for each answer; a loading that warns fails."""
    agent = Agent(ScriptedChatClient(answers), history=history)
    for _ in answers:
        await agent.run("q", session=AgentSession("trip"))


async def texts(history):
    return [message.text for message in await history.get_messages(TRIP)]


async def test_each_turn_is_one_line_that_a_person_can_read(history):
    await turns(history, "żółw", "two")
    lines = history.path_of(TRIP).read_text(encoding="utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert "żółw" in lines[0]
    assert (first["version"], first["session_id"]) == (1, "trip")
    assert [message["role"] for message in second["messages"]] == ["user", "assistant"]


async def test_a_file_is_only_appended_to(history):
    path = history.path_of(TRIP)
    before = b""
    for answer in ("one", "two", "three"):
        await turns(history, answer)
        assert path.read_bytes().startswith(before)
        before = path.read_bytes()
    assert before.count(b"\n") == 3


async def test_appending_does_not_read_what_is_there(history):
    path = history.path_of(TRIP)
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b'{"version": 1, ')
        file.truncate(100_000_000)
    before = psutil.Process().io_counters().read_chars
    await history.save_messages(TRIP, [Message("user", "q")])
    assert psutil.Process().io_counters().read_chars - before < 1_000_000


async def test_the_folder_is_made_with_the_first_message_and_stays_where_it_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = FileHistoryProvider("a/sessions")
    monkeypatch.chdir("/")
    assert await texts(history) == []
    assert not (tmp_path / "a").exists()
    await turns(history, "one")
    assert [path.name for path in (tmp_path / "a" / "sessions").iterdir()] == ["trip.jsonl"]


LAST = "żółw 鳥 is the last answer"


def cut_in_json(line):
    return line[: len(line) // 2]


def cut_in_a_character(line):
    return line[: line.index("鳥".encode()) + 1]


def cut_in_the_first_word(line):
    return line[:4]


def blank_line_after(line):
    return cut_in_a_character(line) + b"\n\n"


def zeros_after(line):
    return cut_in_json(line) + b"\0" * 100


CUTS = [cut_in_json, cut_in_a_character, cut_in_the_first_word, blank_line_after, zeros_after]


@pytest.mark.parametrize("cut", CUTS)
async def test_a_torn_last_line_costs_only_itself(history, cut):
    """C77: the earlier turns load with one warning, and the next turn is readable."""
    await turns(history, "one", LAST)
    path = history.path_of(TRIP)
    first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + cut(last))
    with pytest.warns(UserWarning, match=r"trip\.jsonl.*line 2") as caught:
        assert await texts(history) == ["q", "one"]
    assert len(caught) == 1
    torn = path.read_bytes()
    with pytest.warns(UserWarning, match="line 2"):
        await turns(history, "three")
    with pytest.warns(UserWarning, match="line 2") as caught:
        assert await texts(history) == ["q", "one", "q", "three"]
    assert len(caught) == 1
    assert path.read_bytes().startswith(torn)


async def test_a_first_line_that_is_torn_is_survived_too(history):
    await turns(history, "one")
    path = history.path_of(TRIP)
    path.write_bytes(cut_in_json(path.read_bytes()))
    with pytest.warns(UserWarning, match="line 1"):
        await turns(history, "two")
    with pytest.warns(UserWarning, match="line 1"):
        assert await texts(history) == ["q", "two"]


async def test_every_possible_tear_leaves_whole_groups_and_room_for_the_next(history):
    """C77"""
    await history.save_messages(TRIP, [Message("user", "q 1"), Message("assistant", "żółw")])
    await history.save_messages(TRIP, [Message("user", "q 2"), Message("assistant", "鳥")])
    path = history.path_of(TRIP)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        await history.save_messages(TRIP, [Message("user", "next")])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = await texts(history)
        assert found in (["next"], ["q 1", "żółw", "next"], ["q 1", "żółw", "q 2", "鳥", "next"]), length


FOREIGN = {
    "notes.md": ("# My notes\n\n- milk\n", "line 1"),
    "table": ("a,b\n1,2\n", "line 1"),
    "other JSON Lines": ('{"role": "user", "content": "Hi"}\n', "line 1"),
    "a JSON file": ('{\n  "version": 1,\n  "messages": []\n}\n', "line 2"),
    "a list": ("[1, 2]\n", "line 1"),
    "bytes": ("\x7fELF\0\0", "line 1"),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_foreign_file_is_an_error_and_left_alone(history, name):
    content, where = FOREIGN[name]
    path = history.path_of(TRIP)
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(SessionError, match=rf"{re.escape(str(path))}, {where} was not written by"):
        await turns(history, "one")
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["# My notes\n", "a,b\n", "[1]\n"])
async def test_nothing_is_appended_to_a_foreign_file(history, content):
    path = history.path_of(TRIP)
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(SessionError, match="was not written by"):
        await history.save_messages(TRIP, [Message("user", "q")])
    assert path.read_text() == content


async def test_a_newer_version_and_unknown_content_say_where_they_are(history):
    await turns(history, "one")
    path = history.path_of(TRIP)
    good = path.read_text()
    path.write_text(good + good.replace('"version": 1', '"version": 2'))
    with pytest.raises(SessionError, match=r"line 2 is of version 2; this nbagents reads version 1"):
        await texts(history)
    path.write_text(good + good.replace('"text"', '"hologram"', 1))
    with pytest.raises(SessionError, match=r"line 2 holds something that is no message"):
        await texts(history)


async def test_a_file_that_an_editor_has_saved_with_its_own_marks_goes_on(history):
    """A byte order mark and CRLF, as Windows and git write them."""
    await turns(history, "one")
    path = history.path_of(TRIP)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    await turns(history, "two")
    assert await texts(history) == ["q", "one", "q", "two"]


def test_what_is_no_folder_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (None, 3, "", b"x", tmp_path / "file"):
        with pytest.raises(ConfigurationError, match="folder"):
            FileHistoryProvider(wrong)


async def test_a_disk_that_is_full_is_one_error_that_names_the_file(history):
    path = history.path_of(TRIP)
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with pytest.raises(SessionError, match=r"trip\.jsonl cannot be written: No space left") as caught:
        await history.save_messages(TRIP, [Message("user", "q")])
    assert isinstance(caught.value.__cause__, OSError)


async def test_the_loop_goes_on_while_a_file_is_not_free(history):
    await turns(history, "one")
    with history.path_of(TRIP).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        saving = asyncio.create_task(history.save_messages(TRIP, [Message("user", "q")]))
        reading = asyncio.create_task(history.get_messages(TRIP))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not saving.done()
        assert not reading.done()
    await saving
    await reading
    assert await texts(history) == ["q", "one", "q"]


def name_of(session_id):
    session = AgentSession("x")
    session.session_id = session_id
    return FileHistoryProvider("/sessions").path_of(session)


any_id = st.text(st.characters(), max_size=40) | st.text("aA.:/\\%=~ con\0", max_size=300)


@given(any_id)
def test_a_file_name_is_safe_everywhere_and_tells_the_id(session_id):
    path = name_of(session_id)
    assert os.fspath(path.parent) == "/sessions"
    assert re.fullmatch(r"[a-z0-9_%=-]{0,144}\.jsonl", path.name)
    assert not re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)", path.stem)
    if "=" not in path.name:
        assert unquote(path.name.removesuffix(".jsonl"), errors="surrogatepass") == session_id


@given(any_id, any_id)
def test_two_ids_have_two_files(left, right):
    assert (name_of(left) == name_of(right)) == (left == right)


async def test_the_whole_id_is_in_the_file_where_the_name_is_too_short_for_it(history):
    session = AgentSession("鳥" * 300)
    await history.save_messages(session, [Message("user", "q")])
    (path,) = history.folder.iterdir()
    assert json.loads(path.read_bytes())["session_id"] == session.session_id


async def test_a_file_system_without_locks_will_do(history, monkeypatch):
    def refuse(file, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    await turns(history, "one", "two")
    assert await texts(history) == ["q", "one", "q", "two"]


async def test_a_session_whose_file_is_gone_begins_again(history):
    await turns(history, "one")
    with contextlib.suppress(FileNotFoundError):
        history.path_of(TRIP).unlink()
    assert await texts(history) == []
    await turns(history, "two")
    assert await texts(history) == ["q", "two"]
