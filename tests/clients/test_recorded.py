import asyncio
import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import (
    UNSET,
    Agent,
    AgentSession,
    Message,
    RecordedChatClient,
    ScriptedChatClient,
    recording,
    run_log,
    tool,
    tool_call,
)
from nbagents.clients.exchanges import redacted_updates, update_from_dict, update_to_dict
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate
from nbagents.core.content import DataContent, FunctionCall, TextContent
from nbagents.core.errors import ConfigurationError, IncompleteStreamError, ReplayMissError, ServerError
from nbagents.core.secrets import register_secret


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.jsonl"


def record(path, replies, ask, mode="auto"):
    """Let `ask` run an agent on a recorded script; return what it returned."""
    return ask(Agent(RecordedChatClient(path, ScriptedChatClient(replies), mode)))


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def replayed_flags(run_id):
    return [e.payload["replayed"] for e in run_log().get(run_id).events if e.name == "llm.succeeded"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_conversation_with_tools_replays_without_the_client(path):
    def talk(client):
        agent = Agent(client, "Be short.", tools=[add])
        session = AgentSession()
        first = agent.run_sync("1+2?", session=session)
        return first, agent.run_sync("Thanks", session=session)

    script = ScriptedChatClient([["Let me see. ", tool_call("add", a=1, b=2)], "It is 3.", "You're welcome."])
    made = talk(RecordedChatClient(path, script))
    again = talk(RecordedChatClient(path))
    assert [r.text for r in again] == [r.text for r in made] == ["Let me see. \nIt is 3.", "You're welcome."]
    assert [r.usage for r in again] == [r.usage for r in made]
    assert replayed_flags(made[0].run_id) == [False, False]
    assert replayed_flags(again[0].run_id) == [True, True]


def test_the_log_says_of_each_reply_whether_it_was_replayed(path):
    def ask(replies):
        return record(path, replies, lambda agent: agent.run_sync("1+2?", tools=[add]))

    ask([[tool_call("add", a=1, b=2)], "3"])
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    response = ask(["It is three."])
    assert response.text == "It is three."
    assert replayed_flags(response.run_id) == [True, False]


def test_streams_replay_with_their_boundaries(path):
    def pieces(client):
        return [update.text for update in client.as_agent().stream_sync("Count") if update.text]

    made = pieces(RecordedChatClient(path, ScriptedChatClient([["one ", "two ", "three"]])))
    assert pieces(RecordedChatClient(path, mode="replay")) == made == ["one ", "two ", "three"]


@pytest.mark.parametrize("stream_first", [True, False])
def test_a_stream_and_a_plain_reply_are_the_same_request(path, stream_first):
    def plain(client):
        return client.as_agent().run_sync("Count").text

    def streamed(client):
        return "".join(update.text for update in client.as_agent().stream_sync("Count"))

    first, second = (streamed, plain) if stream_first else (plain, streamed)
    assert first(RecordedChatClient(path, ScriptedChatClient(["one two three"]))) == "one two three"
    assert second(RecordedChatClient(path, mode="replay")) == "one two three"
    assert len(lines(path)) == 1


async def test_a_plain_reply_is_replayed_as_one_update(path):
    client = RecordedChatClient(path, ScriptedChatClient(["one two three"]))
    async for _ in client.get_response("Count", stream=True):
        pass
    request = ChatRequest([Message("user", "Count")], stream=False)
    updates = [update async for update in RecordedChatClient(path).generate(request)]
    assert [update.text for update in updates if update.text] == ["one two three"]
    assert updates[-1].finish_reason == "stop"
    assert all(update.replayed for update in updates)


def test_repeats_replay_in_order_and_a_new_client_begins_again(path):
    def three_times(agent):
        return [agent.run_sync("Joke").text for _ in range(3)]

    assert record(path, ["a", "b", "c"], three_times) == ["a", "b", "c"]
    for _ in range(2):
        assert three_times(Agent(RecordedChatClient(path))) == ["a", "b", "c"]


def test_a_cell_can_be_run_twice_in_replay_mode(path):
    record(path, ["a", "b"], lambda agent: [agent.run_sync("Joke") for _ in range(2)])
    agent = Agent(RecordedChatClient(path, mode="replay"))
    assert [agent.run_sync("Joke").text for _ in range(5)] == ["a", "b", "a", "b", "a"]


def test_auto_asks_when_the_recorded_replies_are_used_up(path):
    record(path, ["a"], lambda agent: agent.run_sync("Joke"))
    assert record(path, ["b"], lambda agent: [agent.run_sync("Joke").text for _ in range(2)]) == ["a", "b"]
    assert len(lines(path)) == 2


def test_record_replaces_what_was_recorded_for_the_same_request_only(path):
    record(path, ["a", "b", "kept"], lambda agent: [agent.run_sync(q) for q in ("Joke", "Joke", "Hello")])
    made = record(path, ["c", "d"], lambda agent: [agent.run_sync("Joke").text for _ in range(2)], "record")
    assert made == ["c", "d"]
    agent = Agent(RecordedChatClient(path, mode="replay"))
    assert [agent.run_sync(q).text for q in ("Joke", "Joke", "Hello")] == ["c", "d", "kept"]


def test_a_miss_shows_how_the_nearest_request_differs(path):
    def ask(client, question, **options):
        Agent(client, "Be short.", options=options).run_sync(question)

    ask(RecordedChatClient(path, ScriptedChatClient(["x"])), "What is the capital of France?", temperature=0.5)
    ask(RecordedChatClient(path, ScriptedChatClient(["x"])), "Something else entirely, long and winding")
    with pytest.raises(ReplayMissError) as caught:
        ask(RecordedChatClient(path), "What is the capital of Italy?", temperature=0.5)
    text = str(caught.value)
    assert "-user: What is the capital of France?\n+user: What is the capital of Italy?" in text
    assert str(path) in text
    assert "mode='auto'" in text
    assert "winding" not in text
    assert caught.value.response.stop_reason == "failed"


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"temperature": 0.1}},
        {"options": {"model": "other"}},
        {"tools": [add]},
        {"messages": ["Hello", Message("user", "again")]},
        {"messages": [Message("user", ["Hello", DataContent("data:image/png;base64,AA==", "image/png")])]},
    ],
)
def test_model_messages_options_and_tools_tell_requests_apart(path, change):
    record(path, ["Hi."], lambda agent: agent.run_sync("Hello"))
    with pytest.raises(ReplayMissError):
        Agent(RecordedChatClient(path, mode="replay")).run_sync(**{"messages": "Hello", **change})


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"metadata": {"run": "2"}, "user": "ada"}},
        {"messages": Message("user", "Hello", "Ada", "m-7", created_at=1.0)},
        {"options": {"temperature": UNSET}},
    ],
)
def test_labels_ids_names_and_times_do_not(path, change):
    record(path, ["Hi."], lambda agent: agent.run_sync("Hello"))
    agent = Agent(RecordedChatClient(path, mode="replay"), name="renamed")
    assert agent.run_sync(**{"messages": "Hello", **change}).text == "Hi."


def test_two_models_share_a_file(path):
    for model in ("small", "large"):
        client = RecordedChatClient(path, ScriptedChatClient([f"I am {model}."], model=model))
        client.as_agent().run_sync("Who are you?")

    def replay(**options):
        agent = RecordedChatClient(path, mode="replay").as_agent()
        return [agent.run_sync("Who are you?", options=options).text for _ in range(2)]

    assert replay(model="large") == ["I am large.", "I am large."]
    assert replay() == ["I am small.", "I am small."]
    large = ScriptedChatClient([], model="large")
    assert RecordedChatClient(path, large).as_agent().run_sync("Who are you?").text == "I am large."


async def test_failures_and_broken_off_replies_are_not_recorded(path):
    with pytest.raises(ServerError):
        await record(path, [["half ", ServerError("down")]], lambda agent: agent.run("Hello"))

    async def leave(agent):
        async with agent.run("Hello", stream=True) as stream:
            async for _ in stream:
                break

    await record(path, [["half ", "whole"]], leave)

    class Cut(ScriptedChatClient):
        async def generate(self, request):
            async for update in super().generate(request):
                update.finish_reason = None
                yield update

    with pytest.raises(IncompleteStreamError):
        await RecordedChatClient(path, Cut(["half"])).as_agent().run("Hello")
    assert not path.exists()


def test_the_file_is_for_people(path):
    """One line per exchange, sorted keys, characters as they are, no ids and times in the request."""
    record(path, ["Grüße 你好"], lambda agent: agent.run_sync("Schönen Tag"))
    text = path.read_text("utf-8")
    (exchange,) = lines(path)
    assert "Schönen Tag" in text
    assert list(exchange) == sorted(exchange)
    assert exchange["version"] == 1
    assert exchange["model"] == exchange["provider"] == "scripted"
    assert exchange["request"] == {
        "messages": [{"content": "Schönen Tag", "role": "user"}],
        "model": "scripted",
    }
    assert "".join(c.get("text", "") for u in exchange["updates"] for c in u["contents"]) == "Grüße 你好"


def test_an_edited_recording_is_replayed_as_edited(path):
    record(path, ["Hi."], lambda agent: agent.run_sync("Hello"))
    path.write_text(path.read_text().replace("Hello", "Good morning").replace("Hi.", "Morning!"))
    assert Agent(RecordedChatClient(path)).run_sync("Good morning").text == "Morning!"


@pytest.mark.parametrize("torn", [b'{"version": 1, "requ', b'{"version": 1, "key": "\xc3', b"\x00\xff", b"[1]"])
def test_a_torn_last_line_is_passed_over_and_not_written_into(path, torn):
    """C77, for recordings: killed while writing, also in the middle of a character."""
    record(path, ["a"], lambda agent: agent.run_sync("first"))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with pytest.warns(UserWarning, match="line 2 is no exchange"):
        client = RecordedChatClient(path, ScriptedChatClient(["b"]))
    client.as_agent().run_sync("second")
    with pytest.warns(UserWarning, match="line 2 is no exchange"):
        agent = RecordedChatClient(path).as_agent()
    assert [agent.run_sync(q).text for q in ("first", "second")] == ["a", "b"]
    assert path.read_bytes().startswith(whole + torn + b"\n")


def test_a_newer_version_is_refused(path):
    path.write_text('{"version": 2, "request": {}, "updates": []}\n')
    with pytest.raises(ConfigurationError, match="version 2"):
        RecordedChatClient(path)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("version", "2", "`version` is '2'"),
        ("request", [], "no `request`"),
        ("updates", [3], "no `updates`"),
        ("updates", [{"at": "soon"}], "`at` of an update is no number"),
    ],
)
def test_a_line_that_was_edited_into_something_else_is_named(path, field, value, fault):
    for question in ("first", "second"):
        record(path, ["a"], lambda agent, question=question: agent.run_sync(question))
    records = lines(path)
    records[1][field] = value
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    with pytest.warns(UserWarning, match=f"line 2 is no exchange and was passed over: {fault}"):
        assert RecordedChatClient(path).as_agent().run_sync("first").text == "a"


@pytest.mark.parametrize(
    "update", [{"contents": [3]}, {"contents": 3}, {"colour": "red"}, {"contents": [{"type": "x"}]}]
)
def test_an_update_that_fits_nothing_is_one_clear_error(path, update):
    record(path, ["a"], lambda agent: agent.run_sync("first"))
    records = lines(path)
    records[0]["updates"] = [update]
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    with pytest.raises(ConfigurationError):
        RecordedChatClient(path).as_agent().run_sync("first")


def test_many_threads_write_whole_lines(path):
    def work(start):
        client = RecordedChatClient(path, ScriptedChatClient(["yes"] * 10))
        for number in range(start, start + 10):
            client.as_agent().run_sync(f"question {number} " + "x" * 30_000)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = [exchange["request"]["messages"][0]["content"].split()[1] for exchange in lines(path)]
    assert sorted(map(int, asked)) == list(range(40))


async def test_concurrent_runs_share_the_replies(path):
    await asyncio.gather(
        *(RecordedChatClient(path, ScriptedChatClient([t])).as_agent().run("Joke") for t in ("a", "b", "c"))
    )
    agent = RecordedChatClient(path, mode="replay").as_agent()
    replies = await asyncio.gather(*(agent.run("Joke") for _ in range(3)))
    assert sorted(reply.text for reply in replies) == ["a", "b", "c"]


def test_secrets_never_enter_the_file(path):
    """C93: a key in a prompt, in a tool's arguments, result and settings, and in a streamed answer cut in two."""
    register_secret("hunter2-hunter2")

    @tool
    def login(password: str, note: str) -> dict[str, str]:
        """Log in."""
        return {"access_token": "f00f00f00", "seen": note}

    call = tool_call("login", password="correct horse", note="sk-abcdefgh12345678")
    fragments = [
        FunctionCall("c1", "login", '{"password": "battery', index=0),
        FunctionCall(None, "", ' staple", "note": "n"}', index=0),
    ]
    script = [[call], [fragments[0], fragments[1]], ["Key: hunter2-", "hunter2 and sk-12345", "67890abc."]]

    def ask(client):
        agent = Agent(client, "Use Bearer abcdefgh12345678", tools=[login])
        return agent.run_sync("My key is sk-proj-aaaabbbbcccc1234, user hunter2-hunter2")

    ask(RecordedChatClient(path, ScriptedChatClient(script)))
    text = path.read_text()
    for secret in ("hunter2-", "-hunter2", "abcdefgh1", "aaaabbbb", "horse", "battery", "staple", "f00f00", "67890abc"):
        assert secret not in text, secret
    assert ask(RecordedChatClient(path)).text.startswith("Key: [redacted]")


def test_pieces_without_secrets_keep_their_boundaries():
    updates = [{"contents": [{"type": "text", "text": text}]} for text in ("Tell ", "me ", "no secrets")]
    assert redacted_updates(updates) == updates


@given(st.lists(st.text(st.characters(codec=None)), max_size=4), st.booleans())
def test_updates_survive_the_file(texts, finished):
    update = ChatResponseUpdate(
        [*map(TextContent, texts), FunctionCall("c", "f", '{"a"', index=1)],
        role="assistant",
        finish_reason="stop" if finished else None,
        response_id="r",
    )
    read = update_from_dict(json.loads(json.dumps(update_to_dict(update))))
    assert read.replayed
    read.replayed = False
    assert read == update


def test_half_a_surrogate_pair_can_be_recorded(path):
    record(path, ["half \ud83d pair"], lambda agent: agent.run_sync("Say \ude00"))
    assert Agent(RecordedChatClient(path)).run_sync("Say \ude00").text == "half \ud83d pair"


def test_it_looks_like_the_client_that_it_records(path):
    class Plain(BaseChatClient):
        model = "plain"
        provider = "mine"
        streaming = False
        supports_tools = False

        async def generate(self, request):
            assert not request.stream
            yield ChatResponseUpdate((TextContent("Hi."),), finish_reason="stop")

    client = RecordedChatClient(path, Plain())
    assert (client.model, client.provider, client.streaming, client.supports_tools) == ("plain", "mine", False, False)
    list(client.as_agent().stream_sync("Hello"))
    replay = RecordedChatClient(path)
    assert (replay.model, replay.provider) == ("plain", "mine")


def test_wrong_arguments_are_refused_at_once(tmp_path):
    with pytest.raises(ConfigurationError, match="There is no recording"):
        RecordedChatClient(tmp_path / "none.jsonl")
    with pytest.raises(ConfigurationError, match="There is no recording"):
        RecordedChatClient(tmp_path / "none.jsonl", ScriptedChatClient([]), mode="replay")
    with pytest.raises(ConfigurationError, match="needs a client"):
        RecordedChatClient(tmp_path / "none.jsonl", mode="record")
    with pytest.raises(ConfigurationError, match="auto, record, replay"):
        RecordedChatClient(tmp_path / "none.jsonl", ScriptedChatClient([]), mode="write")


def test_a_miss_in_an_empty_recording_says_so(path):
    path.touch()
    with pytest.raises(ReplayMissError, match="It is empty"):
        RecordedChatClient(path).as_agent().run_sync("Hello")


async def slowly(client):
    began = time.perf_counter()
    pieces = [(update.text, time.perf_counter() - began) async for update in client.as_agent().run("Hi", stream=True)]
    return [text for text, _ in pieces if text], max(at for _, at in pieces)


async def test_a_stream_replays_with_its_times_if_asked(path):
    record(path, ["one two three"], lambda agent: list(agent.stream_sync("Hi")))
    records = lines(path)
    for place, update in enumerate(records[0]["updates"]):
        update["at"] = 0.15 * (place + 1)
    path.write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    fast, at_once = await slowly(RecordedChatClient(path, mode="replay"))
    slow, later = await slowly(RecordedChatClient(path, mode="replay", timing=True))
    assert fast == slow
    assert at_once < 0.14 < later


def test_everything_inside_recording_is_recorded_and_replayed(path):
    first, second = ScriptedChatClient(["one", "two"]), ScriptedChatClient(["three"])
    with recording(path) as tape:
        helper = Agent(first, name="helper")
        made = [
            helper.run_sync("a").text,
            asyncio.run(second.get_response("b")).text,
            helper.start("c").result().text,
        ]
    assert made == ["one", "three", "two"]
    assert (tape.recorded, tape.replayed) == (3, 0)
    with recording(path, "replay") as tape:
        helper = Agent(ScriptedChatClient([]))
        again = [helper.run_sync("a").text, asyncio.run(ScriptedChatClient([]).get_response("b")).text]
        again.append(helper.stream_sync("c").get_final_response().text)
    assert again == made
    assert (tape.recorded, tape.replayed) == (0, 3)
    assert "0 recorded, 3 replayed" in repr(tape)


def test_a_recording_ends_with_its_block_and_the_outer_one_goes_on(path, tmp_path):
    agent = Agent(ScriptedChatClient(["one", "two", "three", "four"]))
    inner = tmp_path / "inner.jsonl"
    with recording(path):
        agent.run_sync("a")
        with recording(inner):
            agent.run_sync("b")
        agent.run_sync("c")
    agent.run_sync("d")
    assert [len(lines(path)), len(lines(inner))] == [2, 1]


def test_a_client_that_only_answers_is_recorded_too(path):
    class Answers:
        def get_response(self, messages, *, stream=False, options=None):
            return ScriptedChatClient(["from afar"]).get_response(messages, stream=stream)

    for _ in range(2):
        with recording(path) as tape:
            assert Agent(Answers()).run_sync("Hi").text == "from afar"
    assert tape.replayed == 1


def test_a_file_that_cannot_be_replayed_is_told_at_once(path):
    with pytest.raises(ConfigurationError, match="There is no recording"), recording(path, "replay"):
        pass
    with pytest.raises(ConfigurationError, match="auto, record, replay"), recording(path, "play"):
        pass


@pytest.mark.parametrize(
    "foreign", ["a,b\n1,2\n", "import os\n\nprint(os.name)\n", '{"a": 1}', '{"nbagents": "runs"}\n{}\n']
)
def test_a_file_that_is_no_recording_is_refused_and_left_alone(path, foreign):
    path.write_text(foreign)
    with pytest.raises(ConfigurationError, match="is no recording: its line 1 is no exchange"), recording(path):
        pass
    with pytest.raises(ConfigurationError, match="Record into a file of its own"):
        RecordedChatClient(path, ScriptedChatClient(["b"]))
    assert path.read_text() == foreign


@pytest.mark.parametrize("mode", ["auto", "record", "replay"])
def test_a_file_of_another_kind_is_refused_in_every_mode_and_without_a_warning(path, mode, recwarn):
    path.write_text("\n" + "import this\n" * 169)
    with pytest.raises(ConfigurationError, match="is no recording: its line 2 "):
        RecordedChatClient(path, ScriptedChatClient(["b"]), mode)
    assert path.read_text().startswith("\nimport this\n")
    assert not recwarn.list


@pytest.mark.parametrize("left", [b'{"k', b'{"key": "0123'])
def test_what_was_torn_when_it_was_all_there_was_is_passed_over(path, left):
    """C77, for recordings: killed while the very first reply was written, which is then recorded again."""
    path.write_bytes(left)
    with pytest.warns(UserWarning, match="line 1 is no exchange"):
        client = RecordedChatClient(path, ScriptedChatClient(["b"]))
    client.as_agent().run_sync("first")
    assert path.read_bytes().startswith(left + b"\n")
    with pytest.warns(UserWarning, match="line 1 is no exchange"):
        assert RecordedChatClient(path).as_agent().run_sync("first").text == "b"


def test_an_empty_file_becomes_a_recording(path):
    path.write_text("\n")
    record(path, ["a"], lambda agent: agent.run_sync("first"))
    assert RecordedChatClient(path).as_agent().run_sync("first").text == "a"


@pytest.mark.parametrize("mode", ["auto", "record"])
def test_lines_that_are_passed_over_are_told_of_once_at_the_users_line(path, mode, recwarn):
    record(path, ["a"], lambda agent: agent.run_sync("first"))
    path.write_bytes(path.read_bytes() + b"one\ntwo\nthree\n")
    record(path, ["b"], lambda agent: agent.run_sync("first"), mode)
    assert [str(one.message).count("line 2 (and 2 more)") for one in recwarn] == [1]
    assert recwarn.list[0].filename == __file__


@pytest.mark.parametrize(("place", "said"), [("file/a.jsonl", "file is a file"), ("folder", "folder is a folder")])
def test_a_place_where_no_file_can_be_is_told_before_a_model_is_asked(tmp_path, place, said):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    client = ScriptedChatClient(["a"])
    with pytest.raises(ConfigurationError, match=said):
        RecordedChatClient(tmp_path / place, client)
    assert client.requests == []
