"""Transcripts: a view of the events of runs, live and lasting."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import Agent, Message, RunBudget, ScriptedChatClient, ToolContext, run_log, tool, tool_call
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent, RefusalContent
from nbagents.core.errors import NBAgentsError, ServerError
from nbagents.render import Transcript
from nbagents.render.export import escape_markdown, fenced, safe_markdown
from tests.render.page import Element, apply_block_op, parse


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


RUNS = {
    "an answer": [["Let me ", "see **it**.\n\n```py\nx", " = 1\n```\n"]],
    "reasoning": [[ReasoningContent("hm "), ReasoningContent("so"), "Yes."]],
    "tools": [["See ", tool_call("add", a=1, b=2), tool_call("fail"), tool_call("nope"), " here."], "3"],
    "approval": [["Sure ", tool_call("remove", path="a"), tool_call("add", a=1, b=1)], "Done."],
    "refusal": [[RefusalContent("I cannot help")]],
    "failure": [["Hel", ServerError("the server is down", hint="Start it.")]],
    "failure at once": [ServerError("down")],
    "step limit": [[tool_call("add", a=1, b=2)]] * 3,
    "no fit": ["x", "1"],
}


async def events_of(name):
    agent = Agent(ScriptedChatClient(RUNS[name]), name="helper", tools=[add, fail, remove])
    session = agent.create_session()
    options = {"response_format": int} if name == "no fit" else None
    stream = agent.run("Please", stream=True, session=session, options=options, budget=RunBudget(max_steps=2))
    events = []
    try:
        async for event in stream.events():
            events.append(event)
        response = await stream.get_final_response()
        if response.approvals:
            again = agent.run([response.approvals[0].approve()], stream=True, session=session)
            events += [event async for event in again.events()]
    except NBAgentsError:
        pass
    return events, await agent.thread(session).get_messages()


@pytest.fixture(params=RUNS)
async def run(request):
    return (request.param, *await events_of(request.param))


class Page:
    """What a browser has after some patches."""

    def __init__(self):
        self.items = []

    def apply(self, patches):
        for patch in json.loads(json.dumps(patches)):
            getattr(self, f"_{patch['op']}")(patch)

    def _add(self, patch):
        assert patch["key"] == len(self.items)
        self.items.append(parse(patch["html"]))

    def _html(self, patch):
        self.items[patch["key"]] = parse(patch["html"])

    def _append(self, patch):
        (part,) = self.items[patch["key"]].find_all("data-part")
        for i, line in enumerate(patch["text"].split("\n")):
            if i:
                part.children.append(Element("br") if part.tag == "div" else "\n")
            part.add(line)

    def _blocks(self, patch):
        (blocks,) = self.items[patch["key"]].find_all("class", "nbagents-blocks")
        for op in patch["ops"]:
            apply_block_op(blocks, op)

    @property
    def shown(self):
        return [item.outer for item in self.items]


def test_patches_however_they_are_cut_and_a_snapshot_give_the_same_page(run):
    _, events, _ = run

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
    "refusal": "You: Please\n[Declined: I cannot help]\n[The model declined.]",
    "failure": "You: Please\nhelper: Hel\n[The run failed. the server is down Start it.]",
    "failure at once": "You: Please\n[The run failed. down]",
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


HOSTILE = [
    "<script>pwned()</script>",
    "<img src=x onerror=pwned()>",
    "<svg onload=pwned()>",
    '<iframe srcdoc="<script>pwned()</script>"></iframe>',
    "[x](javascript:pwned())",
    "[x](data:text/html,<script>pwned()</script>)",
    "![x](https://evil.example/?q=1)",
    "</code></pre></details><script>pwned()</script>",
    "```\n</code></pre><script>pwned()</script>\n````",
    '" onclick="pwned()" x="',
    "<style>*{display:none}</style>",
    "<a href='JaVaScRiPt&colon;pwned()'>x</a>",
    "[x]: javascript:pwned()\n[x]",
    "<" * 200 + "\n" + ">" * 5_000 + " deep",
]
KNOWN = """
    a blockquote br code del details div em h1 h2 h3 h4 h5 h6 hr li ol p pre section span strong summary sup table
    tbody td th thead tr ul math mi mn mo mrow mtext
"""
TAGS = frozenset(KNOWN.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_wherever_it_stands(text):
    call = FunctionCall("c", text, {text: text}, "id1")
    bad = FunctionCall("d", "f", text, "id2", invalid=True)
    messages = [
        Message("user", text),
        Message("assistant", [ReasoningContent(text), text, RefusalContent(text), call, bad], author_name=text),
        Message("tool", [FunctionResult("c", text, text, "id1")]),
        Message("tool", [FunctionResult("d", "f", text, "id2", error=text)]),
    ]
    transcript = Transcript.from_messages(messages)
    page = Page()
    page.apply(transcript.snapshot())
    for root in (*page.items, parse(transcript.to_html())):
        for element in root.walk():
            assert element.tag in TAGS
            assert not any(name.startswith("on") or name in ("style", "src", "srcdoc") for name in element.attrs)
            assert element.attrs.get("href", "https://").startswith(("https://", "mailto:", "http://"))
    parse(
        transcript.to_html(standalone=True)
        .replace("<!DOCTYPE html>\n", "")
        .partition("<body>")[2]
        .partition("</body>")[0]
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_exported_markdown_has_no_markup_of_the_model(text):
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": True})
    for markdown in (safe_markdown(text), escape_markdown(text), fenced(text)):
        tokens = [inner for token in renderer.parse(markdown) for inner in (token, *(token.children or ()))]
        assert not any(token.type in ("html_block", "html_inline", "image") for token in tokens)
        for token in tokens:
            target = str(token.attrGet("href") or "https:")
            assert target.startswith(("https:", "mailto:", "http:", "#"))


def test_code_in_exported_markdown_stays_as_it_was():
    text = "Use `a < b` and\n\n```html\n<b>![x](y)</b>\n```\nbut <b>not</b> ![this](https://x.example)"
    assert safe_markdown(text) == text.replace("but <b>not</b> ![", "but &lt;b>not&lt;/b> [")


def test_long_results_are_bounded_and_say_so():
    call = FunctionCall("c", "f", {}, "id")
    transcript = Transcript.from_messages(
        [Message("assistant", [call]), Message("tool", [FunctionResult("c", "f", "x" * 50_000, "id")])]
    )
    for form in (transcript.to_html(), transcript.to_markdown(), transcript.to_text()):
        assert len(form) < 3_000
        assert "48,000 more characters" in form
