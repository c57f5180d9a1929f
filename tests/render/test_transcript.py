"""Transcripts: a view of the events of runs, live and lasting."""

from __future__ import annotations

import html
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import Agent, AgentResponse, Message, RunBudget, ScriptedChatClient, ToolContext, run_log, tool, tool_call
from nbagents.core.content import ApprovalRequest, FunctionCall, FunctionResult, ReasoningContent, RefusalContent
from nbagents.core.errors import NBAgentsError, ServerError
from nbagents.core.events import RunEvent
from nbagents.core.usage import Usage
from nbagents.render import Transcript
from tests.render.page import apply_block_op, parse


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fail(context: ToolContext) -> None:
    """Fail."""
    context.emit_delta("half ")
    context.emit_delta("way")
    raise ValueError("no such thing")


@tool(approval="always")
def remove(path: str) -> str:
    """Remove."""
    return "gone"


ASKED_BY_SERVICE = ApprovalRequest("mcpr_1", FunctionCall("mcpr_1", "files.remove", {"path": "a"}), "files")
RUNS = {
    "an answer": [["Let me ", "see **it**.\n\n```py\nx", " = 1\n```\n"]],
    "reasoning": [[ReasoningContent("hm "), ReasoningContent("so"), "Yes."]],
    "tools": [["See ", tool_call("add", a=1, b=2), tool_call("fail"), tool_call("nope"), " here."], "3"],
    "approval": [["Sure ", tool_call("remove", path="a"), tool_call("add", a=1, b=1)], "Done."],
    "the service asks": [["Sure ", ASKED_BY_SERVICE], "Done."],
    "refusal": [[RefusalContent("I cannot help")]],
    "failure": [["Hel", ServerError("the server is down", hint="Start it.")]],
    "failure at once": [ServerError("down")],
    "step limit": [[tool_call("add", a=1, b=2)]] * 3,
    "no fit": ["x", "1"],
    "broken": [[ReasoningContent("hm"), "Hel", ServerError("down", headers={"retry-after": "0"})], ["Hel", "lo"]],
}


async def events_of(name):
    client = ScriptedChatClient(RUNS[name])
    client.max_retries, client.retry_streams = (1, True) if name == "broken" else (0, False)
    agent = Agent(client, name="helper", tools=[add, fail, remove])
    session = agent.create_session()
    options = {"response_format": int} if name == "no fit" else None
    stream = agent.run("Please", stream=True, session=session, options=options, budget=RunBudget(max_steps=2))
    events = []
    with suppress(NBAgentsError):  # some of RUNS end with one
        async for event in stream.events():
            events.append(event)
        response = await stream.get_final_response()
        if response.approvals:
            again = agent.run([response.approvals[0].approve()], stream=True, session=session)
            events += [event async for event in again.events()]
    return events, await agent.thread(session).get_messages()


@pytest.fixture(params=RUNS)
async def run(request):
    return (request.param, *await events_of(request.param))


class Page:
    """What a browser has after some patches."""

    def __init__(self):
        self.items = {}

    def apply(self, patches):
        for patch in json.loads(json.dumps(patches)):
            getattr(self, f"_{patch['op']}")(patch)

    def _add(self, patch):
        assert patch["key"] > max(self.items, default=-1)
        self.items[patch["key"]] = parse(patch["html"])

    def _drop(self, patch):
        del self.items[patch["key"]]

    def _html(self, patch):
        self.items[patch["key"]] = parse(patch["html"])

    def _append(self, patch):
        (part,) = self.items[patch["key"]].find_all("data-part")
        part.add(patch["text"])

    def _blocks(self, patch):
        (blocks,) = self.items[patch["key"]].find_all("class", "nbagents-blocks")
        for op in patch["ops"]:
            apply_block_op(blocks, op)

    @property
    def shown(self):
        return [item.outer for item in self.items.values()]


def test_patches_however_they_are_cut_and_a_snapshot_give_the_same_page(run):
    _, events, _ = run

    @settings(deadline=None)
    @given(st.lists(st.booleans(), min_size=len(events), max_size=len(events)), st.integers(0, len(events)))
    def check(flushes, late_at):
        transcript, early, late = Transcript(), Page(), None
        for i, (event, flush) in enumerate(zip(events, flushes, strict=True)):
            transcript.apply(event)
            if flush or i == late_at:
                patches = transcript.patches()
                early.apply(patches)
                if late is not None:
                    late.apply(patches)
            if i == late_at:
                late = Page()
                late.apply(transcript.snapshot())
        patches = transcript.patches()
        fresh = Page()
        fresh.apply(transcript.snapshot())
        for page in filter(None, (early, late)):
            page.apply(patches)
            assert page.shown == fresh.shown

    check()


def test_the_lasting_forms_are_the_same_each_time_and_name_nothing_volatile(run):
    name, events, _ = run
    forms = []
    for _ in range(2):
        transcript = Transcript()
        for event in events:
            transcript.apply(event)
        forms.append((transcript.to_html(), transcript.to_markdown(), transcript.to_text()))
    assert forms[0] == forms[1]
    volatile = {event.payload.get("id") for event in events} | {events[0].run_id} - {None}
    assert not any(str(one) in form for one in volatile if one for form in forms[0]), name


EXPECTED = {
    "an answer": "You: Please\nhelper: Let me see **it**.\n\n```py\nx = 1\n```\n",
    "reasoning": "You: Please\n[reasoning] hm so\nhelper: Yes.",
    "tools": (
        "You: Please\nhelper: See  here.\n"
        '[tool add({"a": 1, "b": 2}) done: 3]\n'
        "[tool fail() failed: The tool 'fail' failed: ValueError: no such thing]\n"
        "[tool nope() refused: There is no tool 'nope'; known tools: add, fail, remove.]\n"
        "helper: 3"
    ),
    "approval": (
        'You: Please\nhelper: Sure \n[tool add({"a": 1, "b": 1}) done: 2]\n'
        '[Approved: remove({"path": "a"})]\n[tool remove({"path": "a"}) done: gone]\nhelper: Done.'
    ),
    "the service asks": 'You: Please\nhelper: Sure \n[Approved: files.remove({"path": "a"})]\nhelper: Done.',
    "refusal": "You: Please\n[Declined: I cannot help]\n[The model declined.]",
    "failure": "You: Please\nhelper: Hel\n[The run failed. the server is down Start it.]",
    "failure at once": "You: Please\n[The run failed. down]",
    "broken": "You: Please\n[Trying again. down]\nhelper: Hello",
}


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_transcript_tells_what_happened(name):
    events, _ = await events_of(name)
    transcript = Transcript()
    for event in events:
        transcript.apply(event)
    assert transcript.to_text() == EXPECTED[name]


async def test_a_stopped_run_has_no_card_that_still_runs():
    import asyncio

    @tool
    async def slow() -> None:
        """Wait."""
        await asyncio.sleep(30)

    transcript = Transcript()
    stream = Agent(ScriptedChatClient([[tool_call("slow")]]), tools=[slow]).run("q", stream=True)
    async for event in stream.events():
        transcript.apply(event)
        if event.name == "tool.called":
            break
    await stream.aclose()
    for rest in run_log().get(event.run_id).events[event.sequence :]:
        transcript.apply(rest)
    assert transcript.to_text().splitlines()[1:] == [
        "[tool slow() stopped: Interrupted: the run ended before this call had finished.]",
        "[Stopped.]",
    ]


async def test_a_stored_session_is_drawn_as_it_was():
    events, messages = await events_of("tools")
    live = Transcript()
    for event in events:
        live.apply(event)
    stored = Transcript.from_messages(messages)
    assert stored.to_text().replace("failed: There is no tool", "refused: There is no tool") == live.to_text()


async def test_an_answer_that_was_put_in_the_place_of_another_is_shown():
    from nbagents import RunContext

    async def shout(context: RunContext, call_next):
        await call_next()
        context.answer("LOUD")

    transcript = Transcript()
    async for event in Agent(ScriptedChatClient(["quiet"]), middleware=[shout]).run("q", stream=True).events():
        transcript.apply(event)
    assert transcript.to_text() == "You: q\nagent: quiet\nagent: LOUD"


def test_long_results_are_bounded_and_say_so():
    call = FunctionCall("c", "f", {}, "id")
    transcript = Transcript.from_messages(
        [Message("assistant", [call]), Message("tool", [FunctionResult("c", "f", "x" * 50_000, "id")])]
    )
    for form in (transcript.to_html(), transcript.to_markdown(), transcript.to_text()):
        assert len(form) < 3_000
        assert "48,000 more characters" in form


def test_one_patch_holds_what_many_events_brought():
    transcript = Transcript()
    for event in [("llm.delta", {"text": "a "})] * 50 + [("llm.reasoning_delta", {"text": "b "})] * 50:
        transcript.apply(RunEvent("r", 0, event[0], 0.0, event[1]))
    assert [patch["op"] for patch in transcript.patches()] == ["add", "blocks", "add", "append"]
    assert transcript.patches() == []


def test_text_that_is_no_unicode_breaks_no_form():
    """A lone surrogate cannot be sent to a browser or written to a notebook."""
    lone = "a \ud800 b"
    messages = [
        Message("user", lone),
        Message("assistant", [ReasoningContent(lone), lone, FunctionCall("c", lone, {lone: lone}, "id")], lone),
        Message("tool", [FunctionResult("c", lone, lone, "id")]),
    ]
    transcript = Transcript.from_messages(messages)
    forms = [transcript.to_html(), transcript.to_markdown(), transcript.to_text()]
    forms.append(json.dumps(transcript.snapshot(), ensure_ascii=False))
    for form in forms:
        assert form.encode().count("\ufffd".encode()) >= 4


def test_output_of_a_call_that_is_answered_already_is_left_out():
    """A tool that timed out may go on writing in its thread."""
    facts = {"tool_id": "slow", "call_id": "c", "id": "i", "step": 1}
    transcript = Transcript()
    for name, payload in [
        ("tool.called", {"params": {}}),
        ("tool.failed", {"error": "too slow", "status": "timeout", "duration_s": 1.0}),
        ("tool.delta", {"text": "still here"}),
    ]:
        transcript.apply(RunEvent("r", 1, name, 0.0, {**facts, **payload}))
    assert transcript.to_text() == "[tool slow() timed out: too slow]"


def test_durations_and_usage_are_shown_live_and_on_request_only():
    transcript = Transcript()
    facts = {"tool_id": "f", "call_id": "c", "id": "i", "step": 1}
    ended = {"stop_reason": "completed", "finish_reason": "stop", "error": None, "usage": Usage(1234, 56)}
    for name, payload in [
        ("tool.called", {**facts, "params": {}}),
        ("tool.succeeded", {**facts, "result": "x", "duration_s": 1.26}),
        ("run.ended", {**ended, "usage_complete": False}),
    ]:
        transcript.apply(RunEvent("r", 1, name, 0.0, payload))
    live = json.dumps(transcript.patches(), ensure_ascii=False)
    for form in (live, transcript.to_html(volatile=True)):
        assert "1.3 s" in form
        assert "Tokens: at least 1,234 in · 56 out" in form
    for form in (
        transcript.to_html(),
        transcript.to_html(standalone=True),
        transcript.to_markdown(),
        transcript.to_text(),
    ):
        assert "1.3 s" not in form
        assert "1,234" not in form


def test_formulas_last_where_mathml_is_stripped_and_money_stays_money():
    """C95: a page that strips MathML shows x² as x2, and its MathJax takes `$5 to $10` for a formula."""
    transcript = Transcript.from_messages([Message("assistant", "$x^2$ costs $5 to $10, `$a$`")])
    (root,) = parse(transcript.to_html()).elements()
    assert root.attrs["class"] == "nbagents mathjax_ignore tex2jax_ignore"
    (formula,) = root.find_all("class", "nbagents-math mathjax_process tex2jax_process")
    assert formula.text == r"\(x^2\)"
    assert "<math" in transcript.to_html(standalone=True)
    assert "<math" in json.dumps(transcript.snapshot())


def test_the_lasting_html_reads_well_without_a_style():
    call = FunctionCall("c", "add", {"a": 1}, "id")
    messages = [
        Message("user", "one\ntwo"),
        Message("assistant", [ReasoningContent("hm"), "**Hi**", call], "helper"),
        Message("tool", [FunctionResult("c", "add", "3", "id")]),
    ]
    root = parse(Transcript.from_messages(messages).to_html())
    assert not root.find_all("style")
    tags = [e.tag for e in root.walk()]
    assert tags.count("details") == tags.count("summary") == 2
    assert tags.count("br") == 1
    assert [e.text for e in root.walk() if e.tag == "strong"] == ["You:", "helper:", "Hi"]
    assert [e.text for e in root.walk() if e.tag == "pre"] == ['{\n  "a": 1\n}', "3"]
    assert "✓ done" in root.text


FORMS = ["text/html", "text/markdown", "text/plain"]


async def run_in(streamed, agent, messages, **settings):
    if streamed:
        return await agent.run(messages, stream=True, **settings).get_final_response()
    return await agent.run(messages, **settings)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_that_waits_for_a_person_says_so_and_how_to_answer(streamed):
    script = [["Sure. ", tool_call("remove", path="a"), tool_call("remove", path="b")], "Done."]
    agent = Agent(ScriptedChatClient(script), tools=[remove])
    waiting = await run_in(streamed, agent, "clean up")
    shown = waiting._repr_mimebundle_()
    for form in FORMS:
        told = html.unescape(shown[form]).replace("\\", "")
        assert told.count("Waits for approval:") == 2
        assert "running" not in told
        assert '"path": "a"' in told
        assert "agent.run_sync([r.approve() for r in response.approvals], session=response.session)" in told
    assert str(waiting) == shown["text/plain"]

    first, second = waiting.approvals
    done = await run_in(streamed, agent, [first.approve(), second.deny("keep it")], session=waiting.session)
    shown = done._repr_mimebundle_()
    for form in FORMS:
        assert "denied" in shown[form]
        assert "failed" not in shown[form]
        assert "keep it" in shown[form]
    assert str(done) == "Done."
    again = AgentResponse.from_dict(json.loads(json.dumps(done.to_dict())))
    assert again._repr_mimebundle_() == shown

    whole = Transcript.from_messages([*waiting.messages, *done.messages]).to_text().splitlines()
    assert whole[1:3] == ['[Approved: remove({"path": "a"})]', '[Denied: remove({"path": "b"})]']
    stored = Transcript.from_messages(await agent.thread(waiting.session).get_messages()).to_text()
    assert '[tool remove({"path": "b"}) denied: ' in stored


async def test_a_call_of_an_agent_that_waits_for_a_person_waits_itself():
    child = Agent(ScriptedChatClient([[tool_call("remove", path="a")]]), name="child", description="Do.", tools=remove)
    agent = Agent(ScriptedChatClient([[tool_call("child", messages="go")]]), tools=child)
    response = await agent.run("clean up")
    log = Transcript()
    for event in run_log().get(response.run_id).events:
        log.apply(event)
    for text in (str(response), log.to_text()):
        assert '[tool child({"messages": "go"}) waits for approval]' in text
        assert '[Waits for approval: remove({"path": "a"})]' in text
