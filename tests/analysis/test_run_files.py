"""Runs in JSONL files: what comes back, and what is said of files that are not as they should be."""

from __future__ import annotations

import json
import warnings

import pandas as pd
import pytest

from nbagents import (
    AgentSession,
    events_df,
    load_runs,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    save_runs,
    tool_call,
    tool_calls_df,
    usage_df,
    use_store,
)
from nbagents.analysis import plot_timeline
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.notes import note
from nbagents.core.secrets import register_secret
from tests.analysis.runs import agent, reported, run_that_fails, run_that_is_cancelled

TABLES = [runs_df, requests_df, messages_df, tool_calls_df, events_df, usage_df]


async def some_runs() -> None:
    helper = agent([tool_call("add", a=1, b=2), tool_call("fail", reason="no")], [reported(input_tokens=3), "3"])
    await helper.run("1+2", session=AgentSession("trip"))
    await run_that_fails()
    await run_that_is_cancelled()


@pytest.fixture
async def saved(tmp_path):
    """A file of three runs, its lines as dicts, the header first."""
    await some_runs()
    path = tmp_path / "runs.jsonl"
    assert save_runs(path) == 3
    return path


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_the_tables_of_loaded_runs_are_those_of_the_log(saved):
    loaded = load_runs(saved)
    assert repr(loaded) == "LoadedRuns(3 runs)"
    for table in TABLES:
        pd.testing.assert_frame_equal(table(loaded), table())
    assert runs_df(loaded, status="error").run_id.tolist() == runs_df(status="error").run_id.tolist()
    assert "seconds" in plot_timeline(loaded).get_xlabel()


async def test_the_file_has_a_header_and_a_line_for_each_event(saved):
    header, *events = lines_of(saved)
    assert header == {"format": "nbagents.runs", "version": 1}
    assert len(events) == len(events_df())
    assert set(events[0]) == {"run_id", "sequence", "name", "timestamp", "payload"}


async def test_only_what_is_selected_is_saved(tmp_path):
    await some_runs()
    path = tmp_path / "runs.jsonl"
    assert save_runs(path, "trip") == 1
    assert save_runs(path, status=["error", "cancelled"]) == 2
    assert len(load_runs(path)) == 2
    assert save_runs(path, []) == 0
    assert runs_df(load_runs(path)).empty
    with use_store("sqlite://") as store:
        await some_runs()
        assert save_runs(path, store) == 3
    with pytest.raises(ConfigurationError, match="agnet"):
        save_runs(path, agnet="x")
    assert len(load_runs(path)) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["runs.jsonl"]


async def test_secrets_never_enter_the_file_and_metadata_has_nobodys_words(tmp_path):
    """C108"""
    register_secret("hunter2hunter2")
    await agent("It is hunter2hunter2, sk-verysecret-0123456789.").run("wordsininput")
    path = tmp_path / "runs.jsonl"
    save_runs(path)
    assert "hunter2" not in path.read_text()
    assert "verysecret" not in path.read_text()
    assert "wordsininput" in path.read_text()
    save_runs(path, capture="metadata")
    assert "words" not in path.read_text()
    assert runs_df(load_runs(path)).total_tokens.tolist() == runs_df().total_tokens.tolist()
    with pytest.raises(ConfigurationError, match="'metadata'"):
        save_runs(path, capture="some")


async def test_every_table_shows_runs_without_words(tmp_path):
    await some_runs()
    save_runs(tmp_path / "bare.jsonl", capture="metadata")
    bare = load_runs(tmp_path / "bare.jsonl")
    assert [len(table(bare)) for table in TABLES] == [len(table()) for table in TABLES]
    assert messages_df(bare).content.isna().all()
    assert runs_df(bare).output_text.isna().all()


async def test_patterns_and_lists_of_files(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("1.jsonl", "2.jsonl", "deep/3.jsonl"):
        await agent("Hi.").run("Hi")
        save_runs(tmp_path / name, run_log().runs()[-1].run_id)
    everything = runs_df().run_id.tolist()
    assert runs_df(load_runs(str(tmp_path / "*.jsonl"))).run_id.tolist() == everything[:2]
    assert runs_df(load_runs(f"{tmp_path}/**/*.jsonl")).run_id.tolist() == everything
    assert runs_df(load_runs([tmp_path / "2.jsonl", f"{tmp_path}/[12].jsonl"])).run_id.tolist() == everything[:2]
    assert len(load_runs([])) == 0
    for wrong in (tmp_path / "4.jsonl", f"{tmp_path}/*.json", tmp_path):
        with pytest.raises(ConfigurationError, match="no file"):
            load_runs(wrong)
    with pytest.raises(ConfigurationError, match="int"):
        load_runs(3)


async def test_a_run_that_was_saved_twice_is_there_once_with_all_of_its_events(saved, tmp_path):
    header, *events = lines_of(saved)
    write(tmp_path / "earlier.jsonl", [header, *events[:4]])
    assert len(load_runs([tmp_path / "earlier.jsonl", saved])) == 3
    pd.testing.assert_frame_equal(events_df(load_runs([tmp_path / "earlier.jsonl", saved])), events_df())


async def test_two_different_runs_with_one_id_are_an_error_that_names_both(saved, tmp_path):
    header, *events = lines_of(saved)
    events[1]["timestamp"] += 1
    write(tmp_path / "other.jsonl", [header, *events])
    with pytest.raises(StoreError, match=r"other\.jsonl, line 3 holds another event 2 .*runs\.jsonl, line 3"):
        load_runs([saved, tmp_path / "other.jsonl"])


@pytest.mark.parametrize("cut", [1, 30])
async def test_a_torn_last_line_is_passed_over_with_a_warning(saved, cut):
    """C74: as a killed program or a full disk leaves it."""
    torn = saved.read_bytes()
    n_lines = torn.count(b"\n")
    saved.write_bytes(torn[: -1 - cut])
    with pytest.warns(UserWarning, match=rf"runs\.jsonl, line {n_lines} is not whole"):
        loaded = load_runs(saved)
    assert len(events_df(loaded)) == n_lines - 2
    assert runs_df(loaded).status.isna().tolist() == [False, False, True]
    saved.write_bytes(torn[:-1])  # whole, without its newline
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(events_df(load_runs(saved))) == n_lines - 1


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("timestamp", "2026-01-01T10:00:00", "without a time zone"),
        ("timestamp", "yesterday", "no timestamp, but 'yesterday'"),
        ("timestamp", None, "no timestamp"),
        ("timestamp", True, "no timestamp"),
        ("sequence", 0, "no sequence"),
        ("sequence", "2", "no sequence"),
        ("run_id", "", "no run_id"),
        ("run_id", 3, "no run_id"),
        ("name", "run.sold", "'run.sold' that this nbagents does not know"),
        ("name", "llm.delta", "'llm.delta' that this nbagents does not know"),
        ("payload", [], "without a payload"),
        ("payload", {}, "without message"),
        ("payload", {"message": {"role": "boss"}}, "cannot be read: Unknown role"),
        ("payload", {"message": {"role": "user", "contents": [{"type": "spell"}]}}, "cannot be read"),
        ("more", 1, "and nothing else"),
    ],
)
async def test_a_line_that_is_wrong_is_named(saved, field, value, said):
    lines = lines_of(saved)
    lines[2][field] = value
    write(saved, lines)
    with pytest.raises(StoreError, match=rf"runs\.jsonl, line 3 .*{said}"):
        load_runs(saved)


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("run.started", "agent", 5, "whose agent is 5"),
        ("run.started", "session_id", None, "whose session_id is None"),
        ("run.started", "input", {}, "whose input is {}"),
        ("llm.requested", "step", "1", "whose step is '1'"),
        ("llm.succeeded", "latency_s", "long", "whose latency_s is 'long'"),
        ("llm.succeeded", "usage", {"input_tokens": "3"}, "input_tokens is a whole number, not '3'"),
        ("message.added", "message", {"role": "user", "message_id": 3}, "message_id is a text, not int"),
        ("tool.succeeded", "result", {"a": 1}, "whose result is {'a': 1}"),
        ("tool.succeeded", "id", [1], r"whose id is \[1\]"),
        ("run.ended", "stop_reason", "bored", "whose stop_reason is 'bored', which is none"),
        ("run.ended", "error", {"type": 3}, "type is a text, not int"),
        ("run.noted", "thumbs", "sideways", "whose thumbs is 'sideways', which is none"),
    ],
)
async def test_a_field_that_cannot_be_what_it_is_is_named(saved, name, field, value, said):
    note(run_log().runs()[0], "fine", thumbs="up")
    save_runs(saved)
    lines = lines_of(saved)
    number, line = next((number, line) for number, line in enumerate(lines, 1) if line.get("name") == name)
    line["payload"][field] = value
    write(saved, lines)
    with pytest.raises(StoreError, match=rf"runs\.jsonl, line {number} holds an event {name!r} .*{said}"):
        load_runs(saved)


@pytest.mark.parametrize("value", [5, {"a": 1}, "left out"])
async def test_whatever_stands_in_a_field_of_a_file_is_an_error_of_the_file_or_a_row(saved, value):
    """A file that somebody edited: each field of each event in turn."""
    note(run_log().runs()[0], "fine", thumbs="up")
    save_runs(saved)
    lines = lines_of(saved)
    fields = {(line["name"], key): number for number, line in enumerate(lines[1:], 1) for key in line["payload"]}
    for (_, key), number in fields.items():
        payload = dict(lines[number]["payload"]) | {key: value}
        if value == "left out":
            del payload[key]
        write(saved, [*lines[:number], {**lines[number], "payload": payload}, *lines[number + 1 :]])
        try:
            loaded = load_runs(saved)
        except StoreError:
            continue
        for table in (runs_df, messages_df, tool_calls_df, events_df):
            table(loaded)


@pytest.mark.parametrize("junk", [b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'"text"'])
async def test_junk_between_the_lines_is_named(saved, junk):
    lines = saved.read_bytes().splitlines(keepends=True)
    saved.write_bytes(b"".join([*lines[:2], b"\n", junk + b"\n", *lines[2:]]))
    with pytest.raises(StoreError, match=r"runs\.jsonl, line 4 "):
        load_runs(saved)


@pytest.mark.parametrize(
    ("first_line", "said"),
    [
        ("", "no file of runs"),
        ("id,name\n", "no file of runs"),
        ('{"format": "nbagents.recording", "version": 1}\n', "no file of runs"),
        ("[1]\n", "no file of runs"),
        ('{"format": "nbagents.runs", "version": 7}\n', "version 7; this nbagents knows version 1"),
        ('{"format": "nbagents.runs"}\n', "version None"),
    ],
)
async def test_foreign_files_and_other_versions_are_an_error_and_left_alone(tmp_path, first_line, said):
    path = tmp_path / "notes.jsonl"
    path.write_text(first_line)
    with pytest.raises(StoreError, match=rf"notes\.jsonl is .*{said}"):
        load_runs(path)
    if first_line:
        with pytest.raises(StoreError, match="which would be replaced"):
            save_runs(path)
        assert path.read_text() == first_line


async def test_a_run_whose_beginning_is_missing_is_named(saved):
    header, _, *rest = lines_of(saved)
    write(saved, [header, *rest])
    with pytest.raises(StoreError, match=r"runs\.jsonl holds the run 'run_.*without its beginning"):
        load_runs(saved)


async def test_a_file_edited_by_hand(saved):
    """A byte order mark, empty lines, events in another order, times as ISO 8601, NaN for what is missing."""
    header, *events = lines_of(saved)
    events[0]["timestamp"] = "2026-01-01T12:00:00+02:00"
    replied = next(event for event in events if event["name"] == "llm.succeeded")
    replied["payload"]["latency_s"] = float("nan")
    text = "\n\n".join(json.dumps(line) for line in [header, *reversed(events)])
    saved.write_bytes(b"\xef\xbb\xbf" + text.replace("\n\n", "\n").encode() + b"\n\n")
    loaded = load_runs(saved)
    assert runs_df(loaded).started_at.min() == pd.Timestamp("2026-01-01T10:00:00Z")
    assert requests_df(loaded).latency_s.isna().sum() == requests_df().latency_s.isna().sum() + 1


async def test_half_of_a_surrogate_pair_in_a_file_does_not_break_the_tables(saved):
    lines = lines_of(saved)
    lines[1]["payload"]["input"][0]["contents"][0]["text"] = "half \ud83d"
    write(saved, lines)
    assert runs_df(load_runs(saved)).input_text[0] == "half ?"


async def test_a_save_that_fails_leaves_the_file_as_it_was(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("nbagents.analysis.run_files.stored_payloads", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_runs(saved)
    assert saved.read_bytes() == before
    assert [one.name for one in saved.parent.iterdir()] == ["runs.jsonl"]


def test_a_folder_that_is_missing_is_made(tmp_path):
    response = agent("Hello.").run_sync("Hi")
    path = tmp_path / "a" / "b" / "runs.jsonl"
    assert save_runs(path, response) == 1
    assert runs_df(load_runs(path)).run_id.tolist() == [response.run_id]


@pytest.mark.parametrize("place", ["file/runs.jsonl", "file/deeper/runs.jsonl", "folder"])
def test_a_place_where_no_file_can_be_is_one_clear_error(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=rf"{place} cannot be written: .*Name a file in a folder"):
        save_runs(tmp_path / place, [])
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]


def test_a_path_and_a_selection_that_changed_places_are_told_apart(tmp_path):
    with pytest.raises(ConfigurationError, match="The path of a file comes first, not AgentResponse"):
        save_runs(agent("Hello.").run_sync("Hi"), str(tmp_path / "runs.jsonl"))


def test_a_mistyped_argument_is_named_with_the_nearest(tmp_path):
    with pytest.raises(ConfigurationError, match=r"save_runs has no argument 'caputre'\. Did you mean 'capture'\?"):
        save_runs(tmp_path / "runs.jsonl", caputre="metadata")
    with pytest.raises(ConfigurationError, match=r"save_runs has no argument 'sesion_id'\. Did you mean 'session_id'"):
        save_runs(tmp_path / "runs.jsonl", sesion_id="trip")
    with pytest.raises(ConfigurationError, match=r"load_runs has no argument 'path'\. Did you mean 'paths'\?"):
        load_runs(path=tmp_path / "runs.jsonl")
    assert list(tmp_path.iterdir()) == []
