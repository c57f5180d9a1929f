"""The entries of a transcript: what each shows, live as HTML and lasting as HTML, Markdown and plain text.

Everything in them is hostile: text is escaped, Markdown goes through `render_markdown`, lengths are bounded. The
lasting forms are the same each time; `volatile` adds durations and usage to the HTML.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

from nbagents.core.usage import Usage
from nbagents.render.export import as_entities, escape_markdown, fenced, safe_markdown
from nbagents.render.markdown import render_markdown
from nbagents.render.maths import MathForm
from nbagents.render.stream import MarkdownStream
from nbagents.render.text import TextDecoder, bounded, clean_text, escape_text, on_one_line, visible

SHOWN_CHARACTERS = 2_000
"""How much of arguments, a result or an error is shown."""
OUTPUT_CHARACTERS = 20_000
"""How much of a tool's live output is shown."""

STATUS_WORDS = {
    "running": ("…", "running"),
    "waits": ("…", "waits for approval"),
    "ok": ("✓", "done"),
    "error": ("✗", "failed"),
    "invalid": ("✗", "refused"),
    "timeout": ("✗", "timed out"),
    "cancelled": ("■", "stopped"),
    "denied": ("⊘", "denied"),
    "limit": ("⊘", "not run"),
}
"""How a call stands: a sign and a word, so that no colour is needed."""


class Item(Protocol):
    """An entry. `kind` names it for the page; `live` is its HTML there, the others are what lasts ("" for nothing)."""

    kind: str

    def live(self) -> str: ...
    def html(self, maths: MathForm, *, volatile: bool) -> str: ...
    def markdown(self) -> str: ...
    def text(self) -> str: ...


@dataclass(slots=True)
class UserItem:
    """What a person said."""

    said: str
    kind: str = "user"

    def live(self) -> str:
        return f'<div class="nbagents-bubble" dir="auto">{_lines(self.said)}</div>'

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return f'<p dir="auto"><strong>You:</strong> {_lines(self.said)}</p>'

    def markdown(self) -> str:
        return f"**You:** {escape_markdown(self.said)}"

    def text(self) -> str:
        return f"You: {clean_text(self.said)}"


@dataclass(slots=True)
class AssistantItem:
    """What an agent says, in Markdown that may still grow."""

    author: str
    stream: MarkdownStream = field(default_factory=MarkdownStream)
    kind: str = "assistant"

    def live(self) -> str:
        return f'<div class="nbagents-who">{_name(self.author)}</div><div class="nbagents-blocks"></div>'

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        said = self.stream.html()
        if maths != "mathml" and ("<math" in said or "nbagents-math" in said):
            said = render_markdown(self.stream.text, maths=maths)
        return f"<p><strong>{_name(self.author)}:</strong></p>\n{said}"

    def markdown(self) -> str:
        return f"**{escape_markdown(visible(self.author))}:**\n\n{safe_markdown(self.stream.text)}"

    def text(self) -> str:
        return f"{visible(self.author)}: {self.stream.text}"


@dataclass(slots=True)
class ReasoningItem:
    """What a model said to itself, folded away."""

    pieces: list[str] = field(default_factory=list)
    kind: str = "reasoning"
    _decoder: TextDecoder = field(default_factory=TextDecoder)

    def grow(self, text: str) -> str:
        """Take a piece in; return what of it can be shown."""
        shown = self._decoder.feed(text)
        self.pieces.append(shown)
        return shown

    def live(self) -> str:
        return self._folded(escape_text(self._thought))

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return self._folded(_lines(self._thought))

    def markdown(self) -> str:
        return f"<details><summary>Reasoning</summary>\n\n{fenced(self._thought)}\n\n</details>"

    def text(self) -> str:
        return f"[reasoning] {self._thought}"

    @property
    def _thought(self) -> str:
        return "".join(self.pieces)

    def _folded(self, shown: str) -> str:
        return (
            '<details class="nbagents-reasoning"><summary>Reasoning</summary>'
            f'<div dir="auto" data-part="text">{shown}</div></details>'
        )


@dataclass(slots=True)
class ToolItem:
    """A call of a tool."""

    name: str
    arguments: Any
    status: str = "running"
    output: str = ""
    result: str | None = None
    error: str | None = None
    duration_s: float | None = None
    kind: str = "tool"

    def grow(self, text: str) -> str:
        """Take live output in; return what of it is shown."""
        shown = visible(text)[: max(OUTPUT_CHARACTERS - len(self.output), 0)]
        self.output += shown
        return shown

    def live(self) -> str:
        return self._card(volatile=True)

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return self._card(volatile=volatile)

    def markdown(self) -> str:
        _, word = STATUS_WORDS[self.status]
        name = as_entities(visible(self.name))
        parts = [f"<details><summary>Tool <code>{name}</code>: {word}</summary>\n"]
        parts += [f"{label}\n\n{fenced(text)}\n" for label, text in self._sections()]
        return "\n".join([*parts, "</details>"])

    def text(self) -> str:
        _, word = STATUS_WORDS[self.status]
        outcome = self.error if self.error is not None else self.result
        shown = f": {_shown(outcome)}" if outcome else ""
        arguments = bounded(arguments_text(self.arguments), SHOWN_CHARACTERS)
        return f"[tool {visible(self.name)}({arguments}) {word}{shown}]"

    def _card(self, *, volatile: bool) -> str:
        sign, word = STATUS_WORDS[self.status]
        brief = on_one_line(arguments_text(self.arguments), 80)
        is_open = " open" if self.status in ("error", "invalid", "timeout") else ""
        took = (
            f' <span class="nbagents-took">{_seconds(self.duration_s)}</span>' if volatile and self.duration_s else ""
        )
        head = (
            f'<span class="nbagents-status" data-status="{escape(self.status)}">{sign} {word}</span> '
            f'<code dir="ltr">{_name(self.name)}</code> '
            f'<span class="nbagents-brief" dir="ltr">{escape_text(brief)}</span>{took}'
        )
        body = "".join(_section(label, text) for label, text in self._sections())
        if self.status == "running" and not self.output:
            body += '<pre dir="auto" data-part="output"></pre>'
        return f'<details class="nbagents-tool"{is_open}><summary>{head}</summary>{body}</details>'

    def _sections(self) -> list[tuple[str, str]]:
        arguments = bounded(arguments_text(self.arguments, indent=2), SHOWN_CHARACTERS)
        told = [("Arguments", arguments), ("Output", self.output)]
        told += [("Result", _shown(self.result)), ("Error", _shown(self.error))]
        return [(label, text) for label, text in told if text]


@dataclass(slots=True)
class ApprovalItem:
    """A call that waits for a person. Its arguments are shown whole: they are what is approved."""

    request_id: str
    name: str
    arguments: Any
    outcome: str = "waits"
    kind: str = "approval"

    def live(self) -> str:
        return f"<div>{self._question_html()}</div>"

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return self._question_html()

    def markdown(self) -> str:
        name = as_entities(visible(self.name))
        return f"**{self._question()}** <code>{name}</code>\n\n{fenced(arguments_text(self.arguments, indent=2))}"

    def text(self) -> str:
        return f"[{self._question()} {visible(self.name)}({arguments_text(self.arguments)})]"

    def _question_html(self) -> str:
        shown = escape_text(arguments_text(self.arguments, indent=2))
        return (
            f'<p><strong>{self._question()}</strong> <code dir="ltr">{_name(self.name)}</code></p>'
            f'<pre dir="ltr">{shown}</pre>'
        )

    def _question(self) -> str:
        return {"waits": "Waits for approval:", "approved": "Approved:", "denied": "Denied:"}[self.outcome]


@dataclass(slots=True)
class NoteItem:
    """Something about the run: it was stopped, it failed, a limit was reached."""

    tone: str
    title: str
    detail: str = ""
    hint: str = ""
    kind: str = "note"

    def live(self) -> str:
        return self._quote()

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return self._quote()

    def markdown(self) -> str:
        told = " ".join(escape_markdown(_shown(text)) for text in (self.detail, self.hint) if text)
        return f"> **{escape_markdown(visible(self.title))}** {told}".rstrip().replace("\n", "\n> ")

    def text(self) -> str:
        return f"[{' '.join(_shown(text) for text in (self.title, self.detail, self.hint) if text)}]"

    def _quote(self) -> str:
        parts = [f"<strong>{_name(self.title)}</strong>"]
        parts += [_lines(_shown(text)) for text in (self.detail, self.hint) if text]
        return f'<blockquote class="nbagents-note" data-tone="{escape(self.tone)}">{" ".join(parts)}</blockquote>'


@dataclass(slots=True)
class UsageItem:
    """What a run used; only where volatile things are shown."""

    usage: Usage
    is_complete: bool = True
    kind: str = "usage"

    def live(self) -> str:
        counts = [(self.usage.input_tokens, "in"), (self.usage.output_tokens, "out")]
        counts += [(self.usage.cached_input_tokens, "cached"), (self.usage.reasoning_tokens, "reasoning")]
        told = " · ".join(f"{count:,} {word}" for count, word in counts if count)
        return f'<div class="nbagents-footer">Tokens: {"" if self.is_complete else "at least "}{told}</div>'

    def html(self, maths: MathForm, *, volatile: bool) -> str:
        return self.live() if volatile else ""

    def markdown(self) -> str:
        return ""

    def text(self) -> str:
        return ""


def arguments_text(arguments: Any, *, indent: int | None = None) -> str:
    """Return the arguments of a call as JSON, or as the model wrote them where they are none."""
    if not isinstance(arguments, dict):
        return visible(str(arguments or ""))
    return visible(json.dumps(arguments, ensure_ascii=False, indent=indent, default=str)) if arguments else ""


def _shown(text: str | None) -> str:
    return bounded(visible(text or ""), SHOWN_CHARACTERS)


def _name(text: str) -> str:
    return escape_text(visible(text))


def _section(label: str, text: str) -> str:
    # A result may be in any language; arguments are code.
    attributes = ' dir="ltr"' if label == "Arguments" else ' dir="auto"'
    attributes += ' data-part="output"' if label == "Output" else ""
    return f"<div>{label}</div><pre{attributes}>{escape_text(text)}</pre>"


def _lines(text: str) -> str:
    return escape_text(clean_text(text)).replace("\n", "<br>")


def _seconds(duration: float) -> str:
    return f"{duration:.1f} s" if duration >= 0.1 else f"{duration * 1000:.0f} ms"
