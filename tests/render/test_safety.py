"""Hostile text is inert wherever it stands: only allow-listed tags, attributes and addresses come out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nbagents import Message
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent, RefusalContent
from nbagents.core.events import RunEvent
from nbagents.core.usage import Usage
from nbagents.render import MarkdownStream, Transcript, render_markdown
from nbagents.render.export import as_entities, escape_markdown, fenced, safe_markdown
from nbagents.render.sanitize import ATTRIBUTES, TAGS, sanitize
from tests.render.page import parse

HOSTILE = [
    "<script>pwned()</script>",
    "<ScRiPt src=//evil.example/x.js></sCrIpT >",
    "<img src=x onerror=pwned()>",
    "<svg onload=pwned()><a xlink:href='javascript:pwned()'>",
    '<svg><style><img src=x onerror=pwned()></style></svg>',
    '<math><mtext><table><mglyph><style><img src=x onerror=pwned()>',
    '<iframe srcdoc="<script>pwned()</script>"></iframe>',
    '<form action=//evil.example><input name=x><button formaction="javascript:pwned()">',
    "<base href=//evil.example><link rel=stylesheet href=//evil.example><meta http-equiv=refresh content=0>",
    "<style>*{display:none}</style></style><style>@import '//evil.example'",
    "<div style='position:fixed;inset:0'>x</div>",
    "<a href='JaVaScRiPt&colon;pwned()'>x</a>",
    "[x](javascript:pwned())",
    "[x](java&#10;script:pwned())",
    "[x](&#x6A;avascript&colon;pwned())",
    "[x](data:text/html,<script>pwned()</script>)",
    "[x](data:image/svg+xml;base64,PHN2Zz4=)",
    '[x](https://a.example "\\" onclick=pwned() \\"")',
    "![x](https://evil.example/?q=1)",
    '![x" onerror="pwned()](data:image/png;base64,AA" onerror="pwned())',
    "![x][r]\n\n[r]: https://evil.example/x.png",
    "[x]: javascript:pwned()\n\n[x]",
    "> [a\\]b]: javascript:pwned()\n\n[x][a\\]b]",
    "<javascript:pwned()> <https://a.example/\"onclick=pwned()>",
    "</code></pre></details></div><script>pwned()</script>",
    "```\n</code></pre><script>pwned()</script>\n````",
    '```"><script>pwned()</script>\nx\n```',
    "``` `\n<img src=x onerror=pwned()>\n```",
    "\\`<img src=x onerror=pwned()>`",
    "`a\n\n<img src=x onerror=pwned()>`",
    "1. a\n\n        ```\n    <img src=x onerror=pwned()>",
    '" onclick="pwned()" x="',
    "' autofocus onfocus='pwned()",
    "$\\text{</math><img src=x onerror=pwned()>}$",
    "$\\href{javascript:pwned()}{x} \\class{jp-Cell}{y} \\style{position:fixed}{z} \\hspace{-900em}$",
    "| <b> | `<i>` |\n|---|---|\n| <script>pwned()</script> | ![x](//evil.example) |",
    "[^1]: <script>pwned()</script>\n\nx[^1]",
    "<!-- --!> <script>pwned()</script> --><![CDATA[<script>pwned()</script>]]><?php ?>",
    "\ud83c\udf00 \ud800 \0 \u202e <\u200bscript> \ufeff<script\u2028>pwned()</script>",
    ' data-tail="">',
    "{{constructor.constructor('pwned()')()}} ${pwned()} <%= pwned() %>",
    "<" * 200 + "\n" + ">" * 5_000 + " deep",
]  # fmt: skip
PLACES = {
    "text": "{}",
    "heading": "# {}",
    "list": "- a\n- {}",
    "quote": "> {}",
    "table": "| a | b |\n|---|---|\n| x | {} |",
    "code": "`{}`",
    "fence": "```\n{}\n```",
    "open fence": "```py\n{}",
    "language": "```{}\nx\n```",
    "link text": "[{}](https://a.example)",
    "link target": "[x]({})",
    "link title": '[x](https://a.example "{}")',
    "image text": "![{}](https://a.example/x.png)",
    "image source": "![x]({})",
    "definition": "[x]: {}\n\n[x]",
    "footnote": "x[^1]\n\n[^1]: {}",
    "formula": "${}$",
    "formula text": "$\\text{{{}}}$",
    "display formula": "$$\n{}\n$$",
    "emphasis": "**{}** ~~{}~~",
}
OURS = {"class", "data-part", "data-status", "data-tone", "open", "rel", "target", "data-lang", "data-tail", "dir"}


def assert_inert(html):
    """Only what the allow-list names, in a well-formed text."""
    for element in parse(html).walk():
        assert element.tag in TAGS
        assert set(element.attrs) <= OURS | ATTRIBUTES.get(element.tag, set()), element.outer
        if "href" in element.attrs:
            assert element.tag == "a"
            assert re.match(r"(https?://|mailto:)", element.attrs["href"], re.IGNORECASE)
            assert element.attrs["rel"] == "noopener noreferrer"
        if "src" in element.attrs:
            assert re.match(r"data:image/(png|jpeg|gif|webp);", element.attrs["src"])
        for name in element.attrs.get("class", "").split():
            assert name.startswith("nbagents") or name.endswith("jax_ignore") or "_process" in name or len(name) <= 3
        for length in (element.attrs.get("width"), element.attrs.get("linethickness")):
            assert length is None or len(length) < 6


@pytest.mark.parametrize("place", PLACES)
def test_hostile_markdown_is_inert_in_every_place_whole_and_while_it_grows(place):
    for text in HOSTILE:
        source = PLACES[place].replace("{{", "{").replace("}}", "}").replace("{}", text)
        assert_inert(render_markdown(source))
        assert_inert(render_markdown(source, maths="tex"))
        stream = MarkdownStream()
        for at in range(0, min(len(source), 400), 7):
            stream.feed(source[at : at + 7])
            for op in stream.flush():
                if op["op"] in ("block", "tail"):
                    assert_inert(op["html"])
            assert_inert("".join(stream.blocks()))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="<>/&;:\"'=`$\\[](){}!#-|*_~ \nasvgim:javscript", max_size=80))
def test_random_markup_is_inert(text):
    assert_inert(render_markdown(text))
    assert_inert(sanitize(text))
    assert_active_free(safe_markdown(text))


@pytest.mark.parametrize(
    ("html", "clean"),
    [
        ('<a href="javascript:x">a</a>', None),
        ('<a href="/tree">a</a>', None),
        ('<a href="data:text/html,x">a</a>', None),
        ('<img src="data:image/svg+xml;base64,AA" alt="a">', '<img alt="a">'),
        ('<img src="https://a.example/x.png" srcset="y" onload="z">', "<img>"),
        ('<p id="x" style="color:red" class="jp-Cell" dir="evil">a</p>', "<p>a</p>"),
        ('<ol start="-1"><li>a', "<ol><li>a</li></ol>"),
        ("<p>a<script>b</script><!-- c --><o:p>d</o:p>", "<p>ad</p>"),
        ('<math><mspace width="-99em"></mspace><mi href="https://a.example">x</mi></math>', None),
    ],
)
def test_the_allow_list_stands_alone(html, clean):
    """Even where all that comes before it fails."""
    made = sanitize(html)
    assert made == clean if clean is not None else not re.search("99em|href", made)


class Open(MarkdownIt):
    """A Markdown renderer of others: it takes HTML and any link."""

    def validateLink(self, url):
        return True


def assert_active_free(markdown):
    """No HTML but our own cards, no image, no link of another scheme."""
    own = re.compile(
        r"</?(details|summary|code)>|<details><summary>(Reasoning|Tool <code>[^<>]*</code>: [a-z ]+)</summary>\n?"
    )
    for token in Open("commonmark", {"html": True}).enable("table").parse(markdown):
        for inner in (token, *(token.children or ())):
            assert inner.type != "image"
            if inner.type in ("html_block", "html_inline"):
                assert own.fullmatch(inner.content.strip()), inner.content
            if inner.type == "link_open":
                assert re.match(r"https?:|mailto:|#|[^:]*$", inner.attrs["href"], re.IGNORECASE), inner.attrs


def transcript_of(text):
    """A transcript with `text` in every place that a model, a tool, a server or a person can fill."""
    call = FunctionCall("c", text, {text: [text]}, "id1")
    transcript = Transcript.from_messages(
        [
            Message("user", text),
            Message("assistant", [ReasoningContent(text), text, RefusalContent(text), call], author_name=text),
            Message("assistant", [FunctionCall("d", "f", text, "id2", invalid=True)]),
            Message("tool", [FunctionResult("c", text, text, "id1")]),
            Message("tool", [FunctionResult("d", "f", text, "id2", error=text)], interrupted=True),
        ]
    )
    tool = {"tool_id": text, "call_id": text, "id": "t1", "step": 1}
    error = {"type": text, "code": text, "message": text, "hint": text}
    for name, payload in [
        ("run.started", {"agent": text}),
        ("llm.retried", {"attempt": 1, "wait_s": 0.1, "error": error}),
        ("validation.retry", {"attempt": 1, "error": text}),
        ("tool.called", {**tool, "params": {text: text}}),
        ("tool.delta", {**tool, "text": text}),
        ("artifact.emitted", {"name": text, "kind": text, "payload": text}),
        ("approval.requested", {**tool, "id": text, "arguments": {text: text}}),
        ("run.ended", {"stop_reason": "failed", "finish_reason": None, "error": error, "usage": Usage(1, 2)}
         | {"usage_complete": False, "warnings": [text]}),
    ]:  # fmt: skip
        transcript.apply(RunEvent("r", 1, name, 0.0, payload))
    return transcript


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_in_every_entry_live_and_lasting(text):
    transcript = transcript_of(text)
    for patch in (*transcript.patches(), *transcript.snapshot()):
        assert_inert(patch.get("html", ""))
        for op in patch.get("ops", ()):
            assert_inert(op.get("html", ""))
    assert_inert(transcript.to_html())
    page = transcript.to_html(standalone=True, volatile=True)
    head, _, rest = page.partition("<body>")
    assert head == Transcript().to_html(standalone=True).partition("<body>")[0]
    assert_inert(rest.partition("</body>")[0])
    assert rest.endswith("</body></html>\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_in_exported_markdown(text):
    assert_active_free(transcript_of(text).to_markdown())
    for markdown in (safe_markdown(text), escape_markdown(text), fenced(text), f"<code>{as_entities(text)}</code>"):
        assert_active_free(markdown)


@pytest.mark.parametrize("text", ["a \u202egnp.exe", "a\u2066b\u2069", "\x1b[31mred\x1b[0m", "a\x07b", "tag\U000e0041"])
def test_characters_that_hide_or_reorder_are_seen_in_calls_and_approvals(text):
    transcript = transcript_of(text)
    html = transcript.to_html()
    cards = "".join(e.outer for e in parse(html).walk() if "nbagents-tool" in e.attrs.get("class", ""))
    approval = "".join(e.outer for e in parse(html).walk() if "nbagents-approval" in e.attrs.get("class", ""))
    for part in (cards, approval):
        assert part
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", part)
    assert "\\u202e" in cards or "\u202e" not in text


def test_text_in_code_looks_the_same_in_exported_markdown():
    for text in (
        "Use `a < b` and `x`.\n\n```html\n<b>![x](y)</b>\n```\n\nAnd a < b & c.",
        "- a\n\n  ```html\n  <b>\n  ```\n- [x](https://a.example) and <https://a.example>",
        "| a | b |\n|---|---|\n| **x** | $5 |",
        "# Head\n\n> quote\n\n1. one\n2. two\n\n***\n\n~~gone~~ [it]\n\n[it]: https://a.example",
    ):
        assert safe_markdown(text) == text


def test_a_fence_that_dialects_may_see_differently_has_its_html_escaped():
    assert "<b>" not in safe_markdown("- ~~~ `a`\n  <b>\n  ~~~")
    assert "<b>" in safe_markdown("- ~~~html\n  <b>\n  ~~~")


def test_exported_markdown_shows_html_as_text_and_images_as_links():
    assert safe_markdown("<b>x</b> ![cat](https://a.example)") == "&lt;b>x&lt;/b> [cat](https://a.example)"
    assert safe_markdown("`<b>` [x](javascript:y)") == "<code>&#60;b&#62;</code> [x](#)"
    assert safe_markdown("~~~py\nx = `1`\n~~~") == "```py\nx = `1`\n```"
    assert fenced("```\n````\n") == "`````\n```\n````\n\n`````"
