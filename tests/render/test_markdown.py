"""Markdown to safe HTML: what is drawn, and what is not."""

from __future__ import annotations

import time

import pytest

from nbagents.render import render_markdown
from nbagents.render.highlight import HIGHLIGHT_LIMIT
from tests.render.page import parse


def body(text):
    """The HTML of `text` without the attributes that every block has."""
    return render_markdown(text).replace(' dir="auto"', "").replace(' dir="ltr"', "")


@pytest.mark.parametrize(
    "text",
    [
        "from $5 to $10",
        "US$5 or US$6",
        "it costs $5, not 5$",
        "$5 or 10$ a day",
        "a $ b $ c",
        "echo $HOME/$USER",
        "$PATH:$HOME",
        "one $ alone",
        "$x and `$y`",
        "$x or `$`",
        "$1$",
        "$x\ny$",
    ],
)
def test_money_and_variables_are_text(text):
    """C95"""
    assert "<math" not in body(text)
    assert parse(body(text)).text == text.replace("`", "")


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("$x^2$ is maths", 1),
        ("($a$), **$b$** and $c$.", 3),
        ("$2x$, $3n+1$ and $10^3$, for $5 each", 3),
        (r"\(z\) and \[y\]", 2),
        ("$$y$$", 1),
        ("$$\ny\n$$", 1),
        ("text\n\\[\ny\n\\]\ntext", 1),
        ("- item $$x$$\n- $y$", 2),
        ("say $$x$$ inline", 1),
        (r"$a \$ b$", 1),
    ],
)
def test_formulas_become_mathml(text, formulas):
    """C95"""
    assert body(text).count("<math") == formulas
    assert "$$" not in body(text)


def test_code_and_escaped_dollars_are_left_alone():
    """C95"""
    assert body("`echo $x$`") == "<p><code>echo $x$</code></p>"
    assert "$1 $2$" in body("```sh\ncut $1 $2$\n```").replace('<span class="v">', "").replace("</span>", "")
    assert body(r"\$7 already escaped, \$8 too") == "<p>$7 already escaped, $8 too</p>"


@pytest.mark.parametrize("latex", [r"\frac{", r"}", r"\begin{matrix} a", r"\left(", "{" * 500, r"\sqrt" * 900])
def test_broken_latex_shows_its_source(latex):
    assert parse(body(f"${latex}$")).text.strip("$\\()") == latex.strip("$\\()")


@pytest.mark.parametrize("text", [r"\text{</math><b>x</b>}", r"\text{&lt;script>}", "a<b", r"\href{javascript:x}{y}"])
def test_a_formula_cannot_break_out_of_its_element(text):
    (formula,) = parse(body(f"${text}$")).elements()[0].elements()
    assert formula.tag == "math"
    assert {e.tag for e in formula.walk()} <= {"mrow", "mi", "mo", "mtext"}
    assert not any("href" in e.attrs for e in formula.walk())


def test_symbols_of_formulas_are_characters():
    assert parse(body(r"$\sum_\alpha a \leq b$")).text == "∑αa≤b"


def test_formulas_may_be_left_to_the_page():
    html = render_markdown("$x<y$ and $$z$$", maths="tex")
    spans = parse(html).find_all("class", "nbagents-math mathjax_process tex2jax_process")
    assert [span.text for span in spans] == [r"\(x<y\)", r"\[z\]"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("~~~\n```\nx\n~~~", "```\nx\n"),
        ("```\nx\n```", "x\n"),
        ("```\nx\n``\n~~~\n````", "x\n``\n~~~\n"),
        ("```\nx", "x"),
        ("- item\n  ```\n  x\n    y\n  ```", "x\n  y\n"),
        ("```\n    ```\n```", "    ```\n"),
    ],
)
def test_a_fence_closes_only_on_its_own_marker(text, code):
    """C97"""
    (pre,) = [e for e in parse(body(text)).walk() if e.tag == "pre"]
    assert pre.text == code


def test_code_has_classes_a_language_and_its_direction():
    (pre,) = parse(render_markdown("```python x=1\ndef f(): # <b>\n```")).elements()
    assert pre.attrs == {"data-lang": "python", "dir": "ltr"}
    assert [(e.attrs["class"], e.text) for e in pre.walk() if e.tag == "span"] == [
        ("k", "def"),
        ("f", "f"),
        ("c", "# <b>"),
    ]
    assert '<code dir="ltr">x</code>' in render_markdown("`x`")


@pytest.mark.parametrize("language", ['py" onclick="x', "jp-Cell x", "</code>", "nosuchlanguage", "💥", "a" * 500])
def test_an_odd_language_is_no_markup(language):
    (pre,) = parse(render_markdown(f"```{language}\nx = 1\n```")).elements()
    assert set(pre.attrs) <= {"dir", "data-lang"}
    assert pre.text == "x = 1\n"


def test_text_and_blocks_find_their_own_direction():
    root = parse(render_markdown("# שלום\n\ntext\n\n- עברית\n\n> quote\n\n| a |\n|---|\n| ב |"))
    directed = {"h1", "p", "ul", "li", "blockquote", "table", "th", "td"}
    assert {e.tag for e in root.walk() if e.attrs.get("dir") == "auto"} == directed


def test_tables_lists_tasks_and_strikethrough():
    assert body("| a | b |\n|:-:|--:|\n| ~~x~~ | y |").replace("\n", "") == (
        '<table><thead><tr><th align="center">a</th><th align="right">b</th></tr></thead>'
        '<tbody><tr><td align="center"><s>x</s></td><td align="right">y</td></tr></tbody></table>'
    )
    assert body("3. a\n4. b") == '<ol start="3"><li>a</li><li>b</li></ol>'
    assert body("- [ ] a\n- [x] b\n- [y] c") == (
        '<ul><li class="nbagents-task">☐ a</li><li class="nbagents-task">☑ b</li><li>[y] c</li></ul>'
    )


def test_footnotes_stand_at_the_end_without_ids():
    html = body("One[^a] two[^b].\n\n[^b]: Second\n[^a]: First\n\nMore.")
    assert "<p>One<sup>[1]</sup> two<sup>[2]</sup>.</p>" in html
    notes = parse(html).elements()[-1]
    assert [li.text.strip() for li in notes.walk() if li.tag == "li"] == ["First", "Second"]
    assert not parse(html).find_all("id")


@pytest.mark.parametrize("target", ["https://a.example/?x=1&y=2", "http://a.example", "mailto:a@b.example"])
def test_links_open_elsewhere_and_tell_nothing(target):
    for text in (f"[x]({target})", f"<{target}>", f"[x]\n\n[x]: {target}"):
        (link,) = parse(render_markdown(text)).find_all("href")
        assert (link.attrs["rel"], link.attrs["target"]) == ("noopener noreferrer", "_blank")
        assert link.attrs["href"] == target


@pytest.mark.parametrize(
    "target",
    [
        *(
            "javascript:x()",
            "JavaScript:x()",
            "&#106;avascript:x()",
            "java\\script:x",
            "data:text/html,x",
            "vbscript:x",
        ),
        *("file:///etc", "/tree", "#id", "//a.example", "command:x", "blob:x"),
    ],
)
def test_links_to_anything_else_are_their_text(target):
    for text in (f"[**x**]({target})", f"[**x**]\n\n[x]: {target}", f"[**x**](<{target}>)"):
        root = parse(render_markdown(text))
        assert not [e for e in root.walk() if e.tag == "a"]
        assert "x" in root.text


def test_images_from_elsewhere_wait_for_a_click():
    (link,) = parse(render_markdown("![a *cat*](https://a.example/cat.png)")).find_all("href")
    assert link.attrs["class"] == "nbagents-image"
    assert link.text == "🖼 a cat (image at a.example)"
    nested = parse(render_markdown("[![cat](https://a.example/cat.png)](https://b.example)"))
    assert [e.attrs["href"] for e in nested.find_all("href")] == ["https://b.example"]


@pytest.mark.parametrize(
    "source", ["cat.png", "//a.example/x", "data:image/svg+xml;base64,AA", "javascript:x", "http://["]
)
def test_images_of_other_kinds_are_their_text(source):
    root = parse(render_markdown(f"![cat]({source})"))
    assert "cat" in root.text
    assert not root.find_all("src")
    assert not root.find_all("href")


def test_images_that_travel_with_the_text_are_shown():
    (image,) = parse(render_markdown("![dot](data:image/png;base64,iVBORw0KGgo=)")).find_all("src")
    assert image.attrs == {"src": "data:image/png;base64,iVBORw0KGgo=", "alt": "dot"}


def test_html_is_text():
    assert body("a <b>c</b> &amp; &lt;") == "<p>a &lt;b&gt;c&lt;/b&gt; &amp; &lt;</p>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\0b", "a\ufffdb"),
        ("\ud83d\ude00 \ud83d x \ude00", "😀 \ufffd x \ufffd"),
        ("zero\u200bwidth \u202eRTL", "zero\u200bwidth \u202eRTL"),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_odd_characters(text, shown):
    assert parse(render_markdown(text)).text == shown


@pytest.mark.parametrize("text", [">" * 10_000 + " deep", "- " * 5_000 + "deep", "> - " * 500 + "deep"])
def test_what_is_nested_too_deep_is_shown_as_it_is_written(text):
    assert "deep" in parse(render_markdown(text)).text


LONG = 20_000
PATHOLOGICAL = {
    "stars": "*" * LONG,
    "stars and words": "*a " * (LONG // 3),
    "brackets": "[" * LONG,
    "links": "[a](" * (LONG // 4),
    "images": "![" * (LONG // 2),
    "backticks": "`a " * (LONG // 3),
    "growing backticks": " ".join("`" * n for n in range(200)),
    "dollars": "$a " * (LONG // 3),
    "parentheses": r"\(" * (LONG // 2),
    "pipes": "|" * LONG,
    "wide table": "|a" * 2_000 + "\n" + "|-" * 2_000 + "\n" + "|x\n" * 2_000,
    "definitions": "[a]: /u\n" * 2_500,
    "entities": "&" * LONG,
    "tags": "<a " * (LONG // 3),
    "lines": "word\n" * (LONG // 5),
    "deep list": "\n".join("  " * n + "- x" for n in range(200)),
    "5,000 lines of code": "```python\n" + "x = f(1)  # note\n" * 5_000 + "```",
    "code made to be slow": "```java\n" + "a b " * (HIGHLIGHT_LIMIT // 4 - 10) + "\n```",
    "blank code made to be slow": "```c\n" + " \n" * (HIGHLIGHT_LIMIT // 2 - 10) + "```",
    "slow formula": "$" + "x+" * 1_900 + "x$",
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_no_text_takes_long(name):
    """20,000 hostile characters take well under a second here; a quadratic rule would take minutes."""
    started = time.process_time()
    html = render_markdown(PATHOLOGICAL[name])
    assert time.process_time() - started < 8
    assert len(html) < 3_000_000


def test_code_over_the_limit_is_plain():
    code = "x = 1\n" * (HIGHLIGHT_LIMIT // 6 + 1)
    assert "<span" not in render_markdown(f"```python\n{code}```")
    assert "<span" in render_markdown("```python\nx = 1\n```")
