"""The entries of a transcript: what each shows, live as HTML and lasting as HTML, Markdown and plain text.

Everything in them is hostile: text is escaped, Markdown goes through `render_markdown`, lengths are bounded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

from nbagents.render.export import escape_markdown, fenced, safe_markdown
from nbagents.render.stream import MarkdownStream
from nbagents.render.text import clean_text, escape_text, shortened, visible

SHOWN_CHARACTERS = 2_000
"""How much of arguments, a result or an error is shown."""
OUTPUT_CHARACTERS = 20_000
"""How much of a tool's live output is shown."""

STATUS_WORDS = {
    "running": ("…", "running"),
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
    """An entry. `kind` names it for the page; `live` is its HTML there, `html` that which lasts."""

    kind: str

    def live(self) -> str: ...
    def html(self) -> str: ...
    def markdown(self) -> str: ...
    def text(self) -> str: ...


@dataclass(slots=True)
class UserItem:
    """What a person said."""

    said: str
    kind: str = "user"

    def live(self) -> str:
        return f'<div class="nbagents-bubble" dir="auto">{_lines(self.said)}</div>'

    def html(self) -> str:
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
        return f'<div class="nbagents-who">{escape_text(self.author)}</div><div class="nbagents-blocks"></div>'

    def html(self) -> str:
        return f"<p><strong>{escape_text(self.author)}:</strong></p>\n{self.stream.html()}"

    def markdown(self) -> str:
        return f"**{escape_markdown(self.author)}:**\n\n{safe_markdown(self.stream.text)}"

    def text(self) -> str:
        return f"{visible(self.author)}: {clean_text(self.stream.text)}"


@dataclass(slots=True)
class ReasoningItem:
    """What a model said to itself, folded away."""

    pieces: list[str] = field(default_factory=list)
    kind: str = "reasoning"

    def live(self) -> str:
        return self.html()

    def html(self) -> str:
        shown = _lines("".join(self.pieces))
        return (
            '<details class="nbagents-reasoning"><summary>Reasoning</summary>'
            f'<div dir="auto" data-part="text">{shown}</div></details>'
        )

    def markdown(self) -> str:
        return f"<details><summary>Reasoning</summary>\n\n{fenced(''.join(self.pieces))}\n\n</details>"

    def text(self) -> str:
        return f"[reasoning] {clean_text(''.join(self.pieces))}"


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
        shown = clean_text(text)[: max(OUTPUT_CHARACTERS - len(self.output), 0)]
        self.output += shown
        return shown

    def live(self) -> str:
        return self._card(live=True)

    def html(self) -> str:
        return self._card(live=False)

    def markdown(self) -> str:
        _, word = STATUS_WORDS[self.status]
        parts = [f"<details><summary>Tool <code>{escape_text(visible(self.name))}</code>: {word}</summary>\n"]
        parts += [f"{label}\n\n{fenced(_bounded(text))}\n" for label, text in self._sections()]
        return "\n".join([*parts, "</details>"])

    def text(self) -> str:
        _, word = STATUS_WORDS[self.status]
        outcome = self.error if self.error is not None else self.result
        shown = f": {_bounded(outcome)}" if outcome else ""
        return f"[tool {visible(self.name)}({_bounded(arguments_text(self.arguments))}) {word}{shown}]"

    def _card(self, *, live: bool) -> str:
        sign, word = STATUS_WORDS[self.status]
        brief, left = shortened(arguments_text(self.arguments).replace("\n", " "), 80)
        is_open = " open" if self.status in ("error", "invalid", "timeout") else ""
        took = f' <span class="nbagents-took">{self.duration_s:.1f} s</span>' if live and self.duration_s else ""
        head = (
            f'<span class="nbagents-status" data-status="{self.status}">{sign} {word}</span> '
            f"<code>{escape_text(visible(self.name))}</code> "
            f'<span class="nbagents-brief">{escape_text(brief)}{"…" if left else ""}</span>{took}'
        )
        body = "".join(
            f"<div>{label}</div><pre{_part(label)}>{escape_text(_bounded(text))}</pre>"
            for label, text in self._sections()
        )
        if live and self.status == "running" and not self.output:
            body += f"<pre{_part('Output')}></pre>"
        return f'<details class="nbagents-tool"{is_open}><summary>{head}</summary>{body}</details>'

    def _sections(self) -> list[tuple[str, str]]:
        told = [("Arguments", arguments_text(self.arguments, indent=2)), ("Output", self.output)]
        told += [("Result", self.result or ""), ("Error", self.error or "")]
        return [(label, text) for label, text in told if text]


@dataclass(slots=True)
class ApprovalItem:
    """A call that waits for a person."""

    request_id: str
    name: str
    arguments: Any
    outcome: str = "waits"
    kind: str = "approval"

    def live(self) -> str:
        return f'<div class="nbagents-approval">{self.html()}</div>'

    def html(self) -> str:
        shown = escape_text(arguments_text(self.arguments, indent=2))
        name = escape_text(visible(self.name))
        return f"<p><strong>{self._question()}</strong> <code>{name}</code></p><pre>{shown}</pre>"

    def markdown(self) -> str:
        name = escape_text(visible(self.name))
        return f"**{self._question()}** <code>{name}</code>\n\n{fenced(arguments_text(self.arguments, indent=2))}"

    def text(self) -> str:
        return f"[{self._question()} {visible(self.name)}({arguments_text(self.arguments)})]"

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
        return self.html()

    def html(self) -> str:
        parts = [f"<strong>{escape_text(self.title)}</strong>"]
        parts += [_lines(_bounded(text)) for text in (self.detail, self.hint) if text]
        return f'<blockquote class="nbagents-note" data-tone="{escape(self.tone)}">{" ".join(parts)}</blockquote>'

    def markdown(self) -> str:
        told = " ".join(escape_markdown(_bounded(text)) for text in (self.detail, self.hint) if text)
        return f"> **{escape_markdown(self.title)}** {told}".rstrip().replace("\n", "\n> ")

    def text(self) -> str:
        told = " ".join(text for text in (self.title, self.detail, self.hint) if text)
        return f"[{_bounded(clean_text(told))}]"


def arguments_text(arguments: Any, *, indent: int | None = None) -> str:
    """Return the arguments of a call as JSON, or as the model wrote them where they are none."""
    if not isinstance(arguments, dict):
        return clean_text(str(arguments or ""))
    return clean_text(json.dumps(arguments, ensure_ascii=False, indent=indent, default=str)) if arguments else ""


def _bounded(text: str) -> str:
    shown, left = shortened(text, SHOWN_CHARACTERS)
    return f"{shown}\n… {left:,} more characters" if left else shown


def _lines(text: str) -> str:
    return escape_text(text).replace("\n", "<br>")


def _part(label: str) -> str:
    return ' data-part="output"' if label == "Output" else ""
