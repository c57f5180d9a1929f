"""Messages, options, names, budgets, secrets, the log: the small values."""

import json
import math
import pickle
import traceback
from dataclasses import FrozenInstanceError, fields
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from nbagents import (
    UNSET,
    Agent,
    AgentSession,
    Message,
    RunBudget,
    ScriptedChatClient,
    merge_options,
    normalize_messages,
)
from nbagents.core.content import (
    ApprovalRequest,
    DataContent,
    FunctionCall,
    FunctionResult,
    ReasoningContent,
    TextContent,
    content_from_dict,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError, NBAgentsError, ThreadDeletedError
from nbagents.core.events import RunEvent
from nbagents.core.history import InMemoryHistoryProvider
from nbagents.core.names import VALID_NAME, safe_name
from nbagents.core.runlog import RunLog
from nbagents.core.secrets import redact, redact_exception, register_secret
from nbagents.core.threads import LocalThread


def test_inputs_of_every_kind_become_messages():
    image = DataContent("https://example.org/x.png", "image/png")
    mixed = normalize_messages(["a", image, TextContent("b"), Message("assistant", "c")])
    assert [(m.role, m.text, len(m.contents)) for m in mixed] == [
        ("user", "a", 1),
        ("user", "b", 2),
        ("assistant", "c", 1),
    ]
    assert normalize_messages(None) == []
    assert normalize_messages(TextContent("x")) == normalize_messages("x")


@pytest.mark.parametrize("wrong", [3, {"role": "user"}, [3], [None], b"x"])
def test_other_inputs_are_an_error(wrong):
    with pytest.raises(ConfigurationError, match="A run takes"):
        normalize_messages(wrong)


def test_neighbouring_text_of_a_message_is_one_piece():
    assert Message("user", ["a", "b", TextContent("c")]).contents == (TextContent("abc"),)


@pytest.mark.parametrize(("role", "contents"), [("human", "x"), ("user", [3])])
def test_a_message_that_is_none_is_an_error(role, contents):
    with pytest.raises(ConfigurationError):
        Message(role, contents)


def test_content_survives_json_and_unknown_types_are_an_error():
    request = ApprovalRequest("a", FunctionCall("c", "f", {"x": 1}, "id"))
    for content in (request, request.approve(), request.deny("no"), FunctionCall(None, "f", "{", invalid=True)):
        assert content_from_dict(json.loads(json.dumps(content_to_dict(content)))) == content
    with pytest.raises(ConfigurationError, match="Unknown content type 'hologram'"):
        content_from_dict({"type": "hologram"})
    with pytest.raises(ConfigurationError, match="does not fit"):
        content_from_dict({"type": "text", "txt": "x"})


def test_unknown_fields_of_a_stored_message_are_kept():
    record = Message("user", "x").to_dict() | {"mood": "calm"}
    assert Message.from_dict(record).to_dict() == record


def test_options_merge_by_rule():
    defaults = {"temperature": 0, "metadata": {"a": 1}, "seed": 1, "user": "u"}
    merged = merge_options(defaults, {"metadata": {"b": 2}, "seed": UNSET, "user": None, "top_p": 0.5})
    assert merged == {"temperature": 0, "metadata": {"a": 1, "b": 2}, "user": "u", "top_p": 0.5}
    assert defaults["metadata"] == {"a": 1}


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(ConfigurationError, match=r"Unknown option 'n'\."):
        merge_options({}, {"n": 2})
    with pytest.raises(ConfigurationError, match="'temperature'"):
        merge_options({}, {"temprature": 2})


LIMITS = [field.name for field in fields(RunBudget)]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [-1, -0.5, "3", True, math.nan, math.inf, [1], -math.inf])
def test_a_limit_that_is_none_is_an_error(name, value):
    with pytest.raises(ConfigurationError, match=name):
        RunBudget(**{name: value})


def test_limits_of_counts_are_whole_and_none_is_no_limit():
    assert RunBudget(max_cost_usd=0.5, max_duration_ms=99.5).max_cost_usd == 0.5
    for name in set(LIMITS) - {"max_cost_usd", "max_duration_ms"}:
        with pytest.raises(ConfigurationError, match=f"{name} must be a whole number"):
            RunBudget(**{name: 2.5})
    with pytest.raises(ConfigurationError, match=r"max_steps.*at least 1"):
        RunBudget(max_steps=0)
    assert RunBudget(**dict.fromkeys(set(LIMITS) - {"max_validation_retries"})).to_dict() == {
        "max_validation_retries": 1
    }


def test_a_budget_is_frozen_and_keeps_its_rules_in_json():
    budget = RunBudget(max_steps=3)
    with pytest.raises(FrozenInstanceError):
        budget.max_steps = 5
    read = TypeAdapter(RunBudget)
    assert read.validate_python(budget.to_dict()) == budget
    for wrong in ({"max_step": 3}, {"max_steps": -1}, {"max_cost_usd": math.nan}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            read.validate_python(wrong)


def test_names_are_valid_distinct_and_stable():
    """C63"""
    texts = ["Help Desk", "Help/Desk", "天气", "新闻", "x" * 70, "x" * 71, "1st", "", "add"]
    names = [safe_name(text, fallback="agent") for text in texts]
    assert all(VALID_NAME.match(name) and not name[0].isdigit() for name in names)
    assert len(set(names)) == len(names)
    assert names == [safe_name(text, fallback="agent") for text in texts]
    assert names[-1] == "add"
    assert not VALID_NAME.match("add\n")
    assert safe_name("add\n", fallback="agent") != "add\n"


def test_a_session_survives_json_with_its_messages():
    session = AgentSession("trip", state={"messages": [Message("user", "Hi")], "n": [1, {"a": None}]})
    read = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert (read.session_id, read.state) == ("trip", session.state)


def test_a_state_that_does_not_serialise_is_an_error_that_names_its_key():
    with pytest.raises(ConfigurationError, match=r"'file'.*object"):
        AgentSession(state={"file": object()}).to_dict()
    with pytest.raises(ConfigurationError, match="version"):
        AgentSession.from_dict({"session_id": "x"})


async def test_a_deleted_thread_says_so():
    thread = LocalThread(AgentSession("x"), InMemoryHistoryProvider())
    await thread.create()
    await thread.on_new_message(Message("user", "a"), Message("assistant", "b"))
    assert [m.text for m in await thread.get_messages()] == ["a", "b"]
    await thread.delete()
    await thread.delete()
    with pytest.raises(ThreadDeletedError):
        await thread.get_messages()


KEY = "sk-proj-Zx8Qw3Rt5Yu7Pl0MnBv"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-proj-****MnBv.",
        f"Authorization: Bearer {KEY}",
        f"{{'api_key': '{KEY}'}}",
        "postgresql://ada:Zx8Qw3Rt5@db/x",
        "OPENAI_API_KEY=Zx8Qw3Rt5Yu7Pl0MnBv",
    ],
)
def test_what_looks_like_a_key_is_masked(text):
    """C108"""
    shown = redact(text)
    assert "[redacted]" in shown
    assert not any(piece in shown for piece in ("Zx8Qw3", "MnBv"))


@pytest.mark.parametrize(
    "text",
    [
        "Plum7-orchard-31",
        "key Plum7-o...ard-31.",
        "'Plum7-***********hard-31'",
        "the Plum7-orchard-31-and-more",
        "Plum7-…",
    ],
)
def test_a_known_value_is_masked_in_whole_and_shortened(text):
    """C108: whatever form of mask the server has put over it."""
    register_secret("Plum7-orchard-31")
    shown = redact(text)
    assert "[redacted]" in shown
    assert not any(piece in shown for piece in ("Plum7-", "ard-31", "more"))
    assert redact("Plum7-trees and orchard-31.") == "Plum7-trees and orchard-31."


def test_ordinary_text_is_not_masked():
    text = "Ask the desk-keeper: a key-value store, basic training, task-based (https://example.org/a:b)."
    assert redact(text) == text


def test_a_registered_secret_is_masked_in_errors_their_causes_and_tracebacks():
    """C108"""
    register_secret("correct horse battery")
    try:
        try:
            raise ValueError("got correct horse battery")
        except ValueError as cause:
            raise NBAgentsError("it was correct horse battery") from redact_exception(cause)
    except NBAgentsError as error:
        shown = "".join(traceback.format_exception(error)) + repr(error) + error.message
    assert "correct horse battery" not in shown.replace('raise ValueError("got correct horse battery")', "").replace(
        'raise NBAgentsError("it was correct horse battery")', ""
    )


def test_errors_carry_code_hint_and_retryable():
    error = NBAgentsError("No model.", hint="Give one.", code="x", retryable=True)
    assert (str(error), error.code, error.retryable) == ("No model. Give one.", "x", True)


def test_the_log_is_bounded_in_runs_and_bytes_and_keeps_what_still_runs():
    log = RunLog(max_runs=2, max_bytes=10_000)

    def run(run_id, text="", *, end=True):
        record = log.open(run_id)
        record.append(RunEvent(run_id, 1, "message.added", 0.0, {"message": Message("user", text)}))
        if end:
            record.append(RunEvent(run_id, 2, "run.ended", 0.0, {}))
            log.close(record)

    run("going", end=False)
    run("a")
    run("b")
    assert [r.run_id for r in log.runs()] == ["going", "b"]
    run("c", "x" * 20_000)
    assert [r.run_id for r in log.runs()] == ["going"]
    log.clear()
    assert log.get("going") is not None


def size_of(*events):
    record = RunLog().open("run")
    for name, payload in events:
        record.append(RunEvent("run", 1, name, 0.0, payload))
    return record.size


IMAGE = DataContent("data:image/png;base64," + "A" * 5_000_000, "image/png")


@pytest.mark.parametrize(
    "event",
    [
        ("message.added", {"message": Message("user", IMAGE)}),
        ("message.added", {"message": Message("tool", FunctionResult("c", "f", "an image", items=(IMAGE,)))}),
        ("message.added", {"message": Message("assistant", FunctionCall("c", "f", {"a": ["x" * 5_000_000]}))}),
        ("message.added", {"message": Message("tool", FunctionResult("c", "f", "", value=np.zeros(625_000)))}),
        ("message.added", {"message": Message("tool", FunctionResult("c", "f", "", value=b"x" * 5_000_000))}),
        ("tool.called", {"params": "x" * 5_000_000}),
        ("artifact.emitted", {"payload": {"figure": ["x" * 5_000_000]}}),
        ("tool.failed", {"error": None, "traceback": "é" * 5_000_000}),
    ],
    ids=lambda event: event[0],
)
def test_what_an_event_holds_counts_in_bytes(event):
    assert 5_000_000 <= size_of(event) < 5_010_000


@pytest.mark.parametrize("said", [ReasoningContent("x" * 1_000_000), TextContent("x" * 1_000_000)])
def test_what_a_model_says_counts_in_its_three_places(said):
    assert 3_000_000 <= size_of(("message.added", {"message": Message("assistant", said)})) < 3_010_000
    assert 1_000_000 <= size_of(("message.added", {"message": Message("user", said)})) < 1_010_000


def test_a_payload_that_several_events_share_counts_once():
    call = FunctionCall("c", "f", {"a": "x" * 1_000_000})
    shared = [("message.added", {"message": Message("assistant", call)}), ("tool.called", {"params": call.arguments})]
    shared += [("message.added", {"message": Message("user", IMAGE)})] * 3
    assert 6_000_000 <= size_of(*shared) < 6_020_000


def test_odd_values_of_tools_are_counted_as_well_as_can_be():
    class Odd:
        @property
        def nbytes(self):
            raise RuntimeError("no")

    endless = []
    endless.append(endless)
    many = ["x" * 100] * 1_000_000
    for value in (Odd(), endless, Mock()):
        assert size_of(("artifact.emitted", {"payload": value})) < 20_000
    assert size_of(("artifact.emitted", {"payload": many})) > 100_000_000
    frame = pd.DataFrame({"a": range(100_000), "b": range(100_000)})
    assert 1_600_000 <= size_of(("artifact.emitted", {"payload": frame})) < 1_700_000


async def test_runs_with_large_files_push_out_older_runs(monkeypatch):
    """1,000 runs or so many bytes, whichever comes first."""
    log = RunLog(max_bytes=12_000_000)
    monkeypatch.setattr("nbagents.core.run.run_log", lambda: log)
    agent = Agent(ScriptedChatClient(["I see."] * 5))
    for number in range(5):
        await agent.run([f"{number}", DataContent("data:image/png;base64," + "A" * 5_000_000, "image/png")])
    assert [record.events[0].payload["input"][0].text for record in log.runs()] == ["3", "4"]


def test_unset_is_one_object_everywhere():
    from copy import deepcopy

    assert deepcopy({"a": UNSET})["a"] is UNSET
    assert pickle.loads(pickle.dumps({"a": UNSET}))["a"] is UNSET
    assert pickle.loads(pickle.dumps(Message("user", "x"))) == Message("user", "x")
