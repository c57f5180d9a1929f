"""Markdown that is still being written: any cut ends the same, nothing closed is sent again, traffic is linear."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents.render import MarkdownStream, render_markdown, stream
from tests.render.page import Element, apply_block_op, page_of, parse

LINES = ["# Head\n", "## H ", "\n\n", "\n", "---\n", "===\n", "text\n", "\n    ", "\n  ", "    code\n", "   more\n"]
LINES += ["```py\n", "```\n", "~~~\n", "````\n", "x = 1\n", "``` ", "> quote\n", "> ", "$$\n", "y\n", "\\[", "\\]"]
LISTS = [
    "- item\n",
    "- ",
    "  - nested\n",
    "1. one\n",
    "2. two\n",
    "+ p\n",
    "* s\n",
    "10) t\n",
    "[ ] task",
    "- [x] done\n",
]
TABLES = ["| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "|", "| x\n", "a | b\n--- | ---\n"]
INLINE = ["word ", "**bold** ", "*it*", "`code`", "***", "_", "**", "`", "~~s~~", "$x^2$", "$5 to $10 ", "\\(z\\)"]
INLINE += [
    "[a](http://x.y)",
    "[a]",
    "[a]: http://z.w\n",
    "![i](http://e.f/g.png)",
    "[^1]",
    "[^1]: note\n",
    "https://q.r",
]
INLINE += ["<http://a.b>", "<b>", "<script>", "&amp;", "&", "\\", "data-tail", '="">', "'", '"', ":"]
ODD = ["\t", "\r\n", "\r", "\0", "é", "\ud83d", "\ude00", "\u202e", "\xa0", " ", "  "]
PIECES = [*LINES, *LISTS, *TABLES, *INLINE, *ODD]
WHOLE_LINES = [
    *(
        "a | b",
        "--- | ---",
        "| a | b |",
        "|---|---|",
        "- x",
        "- a | b",
        "  - y",
        "1. z",
        "> w",
        "> - v",
        "# h | i",
        "## j",
    ),
    *(
        "```",
        "~~~",
        "````x|y",
        "```a|b",
        "   ```",
        "- ```",
        "text",
        "",
        "    code",
        "$$",
        "$$x$$",
        "\\[",
        "---",
        "===",
        "***",
    ),
    *("[r]: /u", "'t", "[^1]: n", "- ", "-", "|", "a", "* * *", "[r] [^1]", "\tt"),
]
MARKDOWN = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
    | st.lists(st.sampled_from(WHOLE_LINES), max_size=14).map("\n".join)
    | st.text(alphabet="a|-: \n`*#>1.+~$\\[]()_=\t^!&<", max_size=60)
)


class Reader:
    """A stream and the page that follows it."""

    def __init__(self):
        self.stream = MarkdownStream()
        self.page = Element("root")
        self.sent = []

    def flush(self):
        self._take(self.stream.flush())

    def finish(self):
        self._take(self.stream.finish())

    def read(self, text, step=1, every=1):
        for n, at in enumerate(range(0, len(text), step), 1):
            self.stream.feed(text[at : at + step])
            if n % every == 0:
                self.flush()
        return self

    def _take(self, ops):
        for op in json.loads(json.dumps(ops)):
            apply_block_op(self.page, op)
        self.sent.append(ops)

    @property
    def traffic(self):
        return sum(len(json.dumps(ops)) for ops in self.sent if ops)


@settings(max_examples=400, deadline=None)
@given(MARKDOWN, st.data())
def test_any_cut_ends_as_the_whole_does_and_every_page_is_what_the_stream_says(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=30)))
    reader = Reader()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        reader.stream.feed(text[start:end])
        if data.draw(st.booleans()):
            reader.flush()
            assert reader.page.inner == page_of(reader.stream.blocks()).inner
    reader.finish()
    assert reader.stream.html() == render_markdown(text)
    assert reader.page.inner == page_of(reader.stream.blocks()).inner
    assert not reader.page.find_all("data-tail")


ONCE_WRONG = [
    "- a\n\n  \\[b\n",
    "- item\n\n  \\[a\n- b\n",
    "+ p\n  - \\[^1]: note\n## H\n",
    "- a\n  - \n  b c\n",
    "- a\n  - ## H\n  b\nc d\n",
    "1. one\né\n\n1. one\n[ ] task\n'x\n",
    "- x\n\n  * s\n- y\n| a |\n> \ntext\n",
    "```\n  |\n\t````\n```py\nx\n",
    "````\n   more\n\n  ",
    "| a |\n|---|\n| 1 |\n| 2 |\n| 3 |\nx\n",
    "[a]: /u\n'ti\ntle'\n\n[a]\n",
    "* a\n\n* * *\n\n- b\n",
    "text\n| x\n|---|---|\n",
    "## H a | b\n--- | ---\n",
    "``` a | b\n--- | ---\n",
    "- item\n- a | b\n--- | ---\n- item\n",
    "- ```\n-\n  > m\n",
]


@pytest.mark.parametrize("text", ONCE_WRONG)
def test_ends_that_change_what_stands_before_them(text):
    for step in (1, 2, 3):
        reader = Reader()
        for at in range(0, len(text), step):
            reader.stream.feed(text[at : at + step])
            reader.flush()
            assert reader.page.inner == page_of(reader.stream.blocks()).inner
        reader.finish()
        assert reader.stream.html() == render_markdown(text)
        assert reader.page.inner == page_of(reader.stream.blocks()).inner


STORY = r"""# Title with `code`

Some **bold text** and *italic* and ***both*** with `inline code` and ~~gone~~, see [the docs](https://e.example/a_b)
or ![a picture](https://e.example/p.png). Snake_case_names and 2 * 3 * 4 stay, so do costs from $5 to $10, but
$x^2 + y_1$ is maths and \(z\) too.

- first **item**
- second `item`
  - nested *one*
    ```python
    def f(x):
        return x ** 2
    ```
- [ ] open task
- [x] done task

1. One

   More of one.
2. Two

| Name | Value |
|------|------:|
| a **b** | 1 |
| c | d |

Text before:
| x | y |
|---|---|
| 1 | 2 |

> A quote with **bold**
> and more

$$
\sum_{i=0}^n i
$$

~~~
tilde ``` fence
~~~

````md
```py
x
```
````

    indented code

---

Final line & <b>not html</b> with **bold at the end**"""

STRAY = re.compile(
    r"\*\*|\*\w|__|~~|```|`|\|-|\|$|\$\$|\$x|\]\(|^#|\n#|^\s*[-*+] |\\[\[(]|\[[ x]\]|^\d\.", re.MULTILINE
)


def text_outside_code(element):
    parts = []
    for child in element.children:
        if isinstance(child, str):
            parts.append(child)
        elif child.tag not in ("code", "math"):
            parts.append(text_outside_code(child))
    return "".join(parts)


def test_no_prefix_shows_a_stray_marker():
    for length in range(1, len(STORY) + 1):
        stream = MarkdownStream()
        stream.feed(STORY[:length])
        stream.flush()
        shown = text_outside_code(page_of(stream.blocks()))
        assert not STRAY.search(shown), (STORY[:length], shown)


def test_little_is_held_back():
    """Only a marker, the beginning of a link or of a formula, or the first line of a table."""
    reader = Reader()
    for n, character in enumerate(STORY, 1):
        reader.stream.feed(character)
        reader.flush()
        came = re.sub(r"\W|\(https?\S*\)?", "", STORY[:n])
        assert len(re.sub(r"\W", "", reader.page.text)) > len(came) * 0.9 - 45


def test_what_is_closed_is_never_sent_again():
    reader = Reader().read(STORY.replace("- [ ]", "-"), step=5)
    reader.finish()
    last = 0
    for op in (op for ops in reader.sent for op in ops):
        assert op["i"] >= last - 1, op
        last = max(last, op["i"])


def test_an_open_fence_grows_by_its_text_and_is_coloured_when_it_closes():
    reader = Reader()
    reader.stream.feed("```python\nx = 1\n")
    reader.flush()
    reader.stream.feed("y = 2  # <b>")
    reader.flush()
    assert reader.sent[-1] == [{"op": "append", "i": 0, "text": "y = 2  # <b>"}]
    reader.stream.feed("\n``")
    reader.flush()
    assert reader.sent[-1] == [{"op": "append", "i": 0, "text": "\n"}]
    assert "<span" not in reader.page.inner
    reader.stream.feed("`\n")
    reader.flush()
    assert "<span" in reader.page.inner
    assert reader.page.text == "x = 1\ny = 2  # <b>\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- a\n  ```\n  one\n    two\n", "one\n  two\n"),
        ("1. a\n\n   ~~~\n   x\n\n   y\n", "x\n\ny\n"),
        ("```\n\tx\n", "\tx\n"),
    ],
)
def test_fences_in_lists_grow_by_their_text_too(text, code):
    reader = Reader().read(text)
    (pre,) = [e for e in reader.page.walk() if e.tag == "pre"]
    assert pre.text == code
    assert {op["op"] for ops in reader.sent[-3:] for op in ops} <= {"append"}


def test_text_goes_on_by_appending_and_a_new_element_follows_what_is_there():
    reader = Reader()
    reader.stream.feed("Hello wor")
    reader.flush()
    reader.stream.feed("ld & all, **bo")
    reader.flush()
    assert reader.sent[-1] == [
        {"op": "append", "i": 0, "text": "ld & all, "},
        {"op": "tail", "i": 0, "keep": 1, "html": "<strong>bo</strong>"},
    ]


def test_items_and_rows_are_sent_one_by_one():
    for text, kind in (("- one\n- two\n- three\n", "li"), ("| a |\n|---|\n| 1 |\n| 2 |\n| 3 |\n", "tr")):
        reader = Reader().read(text)
        sizes = [len(op["html"]) for ops in reader.sent[-8:] for op in ops if "html" in op]
        assert sizes
        assert max(sizes) < 60
        assert sum(e.tag == kind for e in reader.page.walk()) >= 3


def test_a_blank_line_between_items_loosens_the_ones_before():
    reader = Reader().read("- one\n- two\n- three\n\n- four\n")
    assert reader.page.inner.count("<p") == 4


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("See [it].\n\nMore.\n\n[it]: https://a.example", 'href="https://a.example"'),
        ("A note[^n].\n\nMore.\n\n[^n]: The text", "The text"),
    ],
)
def test_targets_and_footnotes_that_come_later_correct_what_was_sent(text, corrected):
    reader = Reader().read(text)
    assert corrected not in reader.page.inner
    reader.finish()
    assert corrected in reader.page.inner
    assert reader.stream.html() == render_markdown(text)


def test_nothing_new_is_nothing_to_send():
    stream = MarkdownStream()
    assert stream.flush() == []
    stream.feed("text")
    assert stream.flush()
    assert stream.flush() == []
    assert stream.finish()
    assert stream.finish() == []


def test_a_finished_stream_takes_no_more():
    stream = MarkdownStream()
    stream.finish()
    with pytest.raises(ValueError, match="has finished"):
        stream.feed("x")


def test_a_pair_that_is_cut_in_two_is_one_character():
    stream = MarkdownStream()
    for half in ("a \ud83d", "\ude00 b\r", "\nc \ud83d"):
        stream.feed(half)
        stream.flush()
    stream.finish()
    assert stream.text == "a 😀 b\nc \ufffd"
    assert parse(stream.html()).text == stream.text


WORDS = "alpha **beta** gamma `delta` epsilon zeta eta "
MIXED = (
    "## A heading\n\n" + WORDS * 6 + "\n\n" + f"- {WORDS}\n" * 6 + "\n| a | b |\n|---|---|\n" + "| one | two |\n" * 6
    + "\n```python\n" + "def f(x):\n    return x + 1  # note\n" * 8 + "```\n\nMaths $x^2$ and [a link](https://a.example).\n\n"
)  # fmt: skip
LONG_BLOCKS = {
    "fence": ("```text\n" + "some line of code\n" * 2_300 + "```\n", 1.3),
    "fence with tabs": ("```text\n" + "\tsome line of code\n" * 2_300 + "```\n", 1.3),
    "fence in a list": ("1. Do:\n\n   ```text\n" + "   some line of code\n" * 2_000 + "   ```\n", 2.5),
    "indented code": ("    some line of code\n" * 2_000, 1.3),
    "paragraph": ("plain words and more of them " * 1_400, 1.5),
    "paragraph with markup": (WORDS * 900, 4),
    "list": (f"- {WORDS}\n" * 800, 8),
    "loose list": (f"1. {WORDS}\n\n" * 800, 8),
    "table": ("| a | b |\n|---|---|\n" + "| some cell | another |\n" * 1_600, 8),
    "quote": (f"> {WORDS}\n" * 800, 6),
}


@pytest.mark.parametrize("name", LONG_BLOCKS)
def test_a_long_open_block_costs_linear_traffic(name):
    text, times = LONG_BLOCKS[name]
    reader = Reader().read(text, step=8, every=40)
    reader.finish()
    assert reader.traffic < len(text) * times
    assert reader.stream.html() == render_markdown(text)


@pytest.fixture
def parsed(monkeypatch):
    """Lengths of what is parsed."""
    lengths = []

    def counted(function):
        def count(source, *rest):
            lengths.append(len(source))
            return function(source, *rest)

        return count

    for function in (stream.parse, stream.parse_structure, stream.render_blocks):
        monkeypatch.setattr(stream, function.__name__, counted(function))
    return lengths


@pytest.mark.parametrize("name", LONG_BLOCKS)
def test_a_long_open_block_costs_linear_work(name, parsed):
    """Counted in characters that are parsed, at a flush every 40 characters."""
    work = []
    for length in (12_000, 24_000):
        text = LONG_BLOCKS[name][0][:length]
        parsed.clear()
        Reader().read(text, step=8, every=5).finish()
        work.append(sum(parsed) / length)
    assert work[1] < max(work[0] * 1.5, 10)


@pytest.mark.parametrize("name", ["fence", "fence with tabs", "fence in a list", "list", "loose list", "table"])
def test_a_flush_late_in_a_long_block_looks_at_its_end_only(name, parsed):
    text = LONG_BLOCKS[name][0][:20_000]
    reader = Reader().read(text, step=40)
    parsed.clear()
    reader.read(LONG_BLOCKS[name][0][20_000:20_400], step=40)
    assert sum(parsed) < 10 * 500


@pytest.mark.parametrize("text", ["[", "![", "*a ", "- ", "`a ", "$a ", "| a ", "> ", "\\["])
def test_no_text_takes_long_while_it_grows(text):
    """A model that repeats itself for ever must not stop the others; this takes seconds at most."""
    started = time.process_time()
    Reader().read(text * (12_000 // len(text)), step=60).finish()
    assert time.process_time() - started < 20


def test_twenty_thousand_tokens_cost_less_than_the_budget():
    """At 1,000 tokens and 20 flushes a second the design allows 0.7 MB."""
    text = (MIXED * 200)[:115_000]
    reader = Reader().read(text, step=6, every=50)
    reader.finish()
    assert reader.traffic < 700_000
    assert reader.stream.html() == render_markdown(text)
