"""`Transcript`: a view of a conversation, folded from the events of its runs or from stored messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    FunctionResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.usage import Usage
from nbagents.render.items import (
    ApprovalItem,
    AssistantItem,
    Item,
    NoteItem,
    ReasoningItem,
    ToolItem,
    UsageItem,
    UserItem,
)
from nbagents.render.maths import MathForm
from nbagents.render.sanitize import sanitize
from nbagents.render.style import CSS, PAGE_CSS

Patch = dict[str, Any]
"""One operation on a page; JSON-able. Items stand in the order of their keys. By its `op`:

- `add`: item `key` of `kind` comes last, with the content `html`; `request` is the id of an approval that waits.
- `html`: the content of item `key` is replaced; `request` as above.
- `blocks`: the operations `ops` (`nbagents.render.changes`) change the Markdown of item `key`.
- `append`: `text` goes to the end of the element marked `data-part` in item `key`, as text.
- `drop`: item `key` goes; no other gets its key.
"""

_ENDINGS = {
    "cancelled": ("quiet", "Stopped."),
    "max_steps": ("quiet", "The step limit was reached."),
    "timeout": ("alert", "The time of this run is used up."),
    "budget_exhausted": ("alert", "The budget of this run is used up."),
    "refused": ("quiet", "The model declined."),
    "failed": ("alert", "The run failed."),
}


class Transcript:
    """What a person sees of a conversation.

    `apply` takes events in; `patches` gives what has changed since the last call, for a page that has all before;
    `snapshot` gives the whole for a page that has nothing. The static forms are the same each time: they name no id,
    time or duration.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._dropped: set[int] = set()
        self._news: list[Patch] = []
        self._cards: dict[str, int] = {}
        self._approvals: dict[str, int] = {}
        self._asked: set[str] = set()
        self._growing: set[int] = set()
        self._assistant: int | None = None
        self._reasoning: int | None = None
        self._said: list[str] = []
        self._attempt: list[int] = []  # the texts of the model request that goes on
        self._author = "agent"
        self._correcting = False

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> Self:
        """Draw what a session has stored."""
        transcript, messages = cls(), list(messages)
        transcript._asked = {r.call.id for message in messages for r in _requests(message)}
        for message in messages:
            transcript._draw_message(message)
        transcript._close_texts()
        if any(_request(item) for item in transcript._items):
            transcript._leave_cards("waits")
        return transcript

    def apply(self, event: RunEvent) -> None:
        """Take in the next event of a run."""
        draw = getattr(self, f"_on_{event.name.replace('.', '_')}", None)
        if draw is not None:
            draw(event.payload)

    def note(self, text: str) -> None:
        """Add a remark that is no part of a run."""
        self._add(NoteItem("quiet", "Note:", text))

    def patches(self) -> list[Patch]:
        """Return the changes since the last call, each text once however often it grew."""
        for key in sorted(self._growing):
            self._flush(key)
        news, self._news = self._news, []
        return news

    def snapshot(self) -> list[Patch]:
        """Return the operations that draw the whole, as it was at the last `patches`."""
        whole = []
        for key, item in enumerate(self._items):
            if key in self._dropped:
                continue
            whole.append(self._added(key))
            if isinstance(item, AssistantItem) and (blocks := item.stream.blocks()):
                ops = [{"op": "block", "i": i, "html": html} for i, html in enumerate(blocks)]
                whole.append({"op": "blocks", "key": key, "ops": ops})
        return whole

    def to_html(self, *, standalone: bool = False, volatile: bool = False) -> str:
        """Return the transcript as HTML without script, form or picture from elsewhere.

        A fragment stands in pages that strip MathML (GitHub, a notebook that is not trusted), where `x²` would read
        `x2`: its formulas are LaTeX for the page's MathJax, and the rest of it is closed to MathJax, to which `$5 to
        $10` is a formula.

        Args:
            standalone: a whole page with its style; else a fragment that reads well without any.
            volatile: with durations and usage, which differ from run to run.
        """
        self.patches_kept()
        maths: MathForm = "mathml" if standalone else "tex"
        shown = [(item.kind, item.html(maths, volatile=volatile)) for item in self._shown()]
        parts = [f'<div class="nbagents-item nbagents-{kind}">{html}</div>' for kind, html in shown if html]
        body = "\n".join(parts)
        body = sanitize(f'<div class="nbagents mathjax_ignore tex2jax_ignore">{body}</div>')
        if not standalone:
            return body
        return (
            '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
            '<meta name="viewport" content="width=device-width"><title>Transcript</title>'
            f"<style>{CSS}{PAGE_CSS}</style></head><body>{body}</body></html>\n"
        )

    def to_markdown(self) -> str:
        """Return the transcript as Markdown without HTML of the model's."""
        self.patches_kept()
        return "\n\n".join(filter(None, (item.markdown() for item in self._shown())))

    def to_text(self) -> str:
        """Return the transcript as plain text."""
        self.patches_kept()
        return "\n".join(filter(None, (item.text() for item in self._shown())))

    def patches_kept(self) -> None:
        """Draw what has grown, and keep the changes for the next `patches`."""
        self._news = self.patches()

    # Runs

    def _on_run_started(self, payload: dict[str, Any]) -> None:
        self._author = payload["agent"]

    def _on_message_added(self, payload: dict[str, Any]) -> None:
        message: Message = payload["message"]
        if message.role == "user" and self._correcting:
            self._correcting = False
        elif message.role == "user":
            self._draw_message(message)
        elif message.role == "assistant":
            self._draw_rest_of(message)

    def _on_llm_requested(self, payload: dict[str, Any]) -> None:
        self._close_texts()
        self._said.clear()
        self._attempt.clear()

    def _on_llm_delta(self, payload: dict[str, Any]) -> None:
        self._say(payload["text"])

    def _on_llm_reasoning_delta(self, payload: dict[str, Any]) -> None:
        self._think(payload["text"])

    def _on_llm_succeeded(self, payload: dict[str, Any]) -> None:
        self._close_texts()

    _on_llm_failed = _on_llm_succeeded

    def _on_llm_retried(self, payload: dict[str, Any]) -> None:
        if payload.get("retracts"):
            self._drop(self._attempt)
        self._add(NoteItem("quiet", "Trying again.", payload["error"]["message"]))

    def _on_validation_retry(self, payload: dict[str, Any]) -> None:
        self._correcting = True
        self._add(NoteItem("quiet", "The reply did not fit; the agent was asked again.", payload["error"]))

    def _on_tool_called(self, payload: dict[str, Any]) -> None:
        if payload["id"] in self._approvals:
            self._settle_approval(payload["id"], "approved")
        self._cards[payload["id"]] = self._add(ToolItem(payload["tool_id"], payload["params"]))

    def _on_tool_delta(self, payload: dict[str, Any]) -> None:
        key = self._cards.get(payload["id"])
        if key is None:
            return  # the call is answered already: it timed out, and its thread goes on
        item = self._items[key]
        assert isinstance(item, ToolItem)
        if shown := item.grow(payload["text"]):
            self._append(key, shown)

    def _on_tool_succeeded(self, payload: dict[str, Any]) -> None:
        self._finish_card(payload, status="ok", result=payload["result"])

    def _on_tool_failed(self, payload: dict[str, Any]) -> None:
        if payload["status"] == "denied":
            self._settle_approval(payload["id"], "denied")
        self._finish_card(payload, status=payload["status"], error=payload["error"] or "")

    def _on_approval_requested(self, payload: dict[str, Any]) -> None:
        key = self._add(ApprovalItem(payload["id"], payload["tool_id"], payload["arguments"]))
        self._approvals[payload["id"]] = key

    def _on_artifact_emitted(self, payload: dict[str, Any]) -> None:
        self._add(NoteItem("quiet", f"Made {payload['name']}", f"({payload['kind']})"))

    def _on_run_ended(self, payload: dict[str, Any]) -> None:
        self._close_texts()
        self._leave_cards("waits" if payload["stop_reason"] == "approval_required" else "cancelled")
        if payload["stop_reason"] in _ENDINGS:
            tone, title = _ENDINGS[payload["stop_reason"]]
            error = payload["error"] or {}
            self._add(NoteItem(tone, title, error.get("message") or "", error.get("hint") or ""))
        elif payload["finish_reason"] == "length":
            self._add(NoteItem("quiet", "The reply was cut by its length limit."))
        for warning in payload.get("warnings", ()):
            self._add(NoteItem("quiet", "Note:", warning))
        usage: Usage | None = payload["usage"]
        if usage is not None and (usage.input_tokens or usage.output_tokens):
            self._add(UsageItem(usage, payload["usage_complete"]))

    # Messages

    def _draw_message(self, message: Message) -> None:
        """Draw a stored message."""
        if message.role == "user":
            self._close_texts()
            for content in message.contents:
                if isinstance(content, ApprovalResponse):  # one to the service: no call of ours shows it
                    self._settle_approval(content.id, "approved" if content.approved else "denied")
            if message.text:
                self._add(UserItem(message.text))
            return
        self._author = message.author_name or self._author
        for result in message.results:
            self._draw_result(result)
        if message.role != "assistant":
            return
        for content in message.contents:
            if isinstance(content, TextContent):
                self._say(content.text)
            elif isinstance(content, ReasoningContent):
                self._think(content.text)
            elif isinstance(content, RefusalContent):
                self._add(NoteItem("quiet", "Declined:", content.text))
        self._close_texts()
        for call in message.calls:
            if call.id not in self._asked:
                self._cards[call.id] = self._add(ToolItem(call.name, call.arguments))
        for request in _requests(message):
            self._approvals[request.id] = self._add(ApprovalItem(request.id, request.call.name, request.call.arguments))
        if message.interrupted:
            self._add(NoteItem("quiet", "Interrupted."))

    def _draw_result(self, result: FunctionResult) -> None:
        if (asked := self._approvals.get(result.id)) is not None:
            self._settle_approval(result.id, "denied" if result.denied else "approved")
            item = self._items[asked]
            if isinstance(item, ApprovalItem) and not result.denied:
                self._cards[result.id] = self._add(ToolItem(item.name, item.arguments))
        status = "cancelled" if result.interrupted else "error" if result.error else "ok"
        outcome = {"error": result.error} if result.error else {"result": result.result}
        status = "denied" if result.denied else status
        self._finish_card({"id": result.id, "tool_id": result.name}, status=status, **outcome)

    def _draw_rest_of(self, message: Message) -> None:
        """Draw what of a message was not streamed: a refusal, or an answer that was put in its place."""
        for content in message.contents:
            if isinstance(content, RefusalContent):
                self._add(NoteItem("quiet", "Declined:", content.text))
        if message.text and message.text != "".join(self._said):
            self._close_texts()
            self._say(message.text)
            self._close_texts()
        self._said.clear()

    # Items

    def _add(self, item: Item) -> int:
        self._close_texts()
        return self._place(item)

    def _place(self, item: Item) -> int:
        self._items.append(item)
        key = len(self._items) - 1
        self._news.append(self._added(key))
        return key

    def _added(self, key: int) -> Patch:
        item = self._items[key]
        return {"op": "add", "key": key, "kind": item.kind, "html": item.live(), **_request(item)}

    def _drop(self, keys: Iterable[int]) -> None:
        """Take back what is shown in these."""
        self._close_texts()
        self._dropped.update(keys)
        self._news.extend({"op": "drop", "key": key} for key in keys)

    def _shown(self) -> list[Item]:
        return [item for key, item in enumerate(self._items) if key not in self._dropped]

    def _redraw(self, key: int) -> None:
        item = self._items[key]
        self._news.append({"op": "html", "key": key, "html": item.live(), **_request(item)})

    def _append(self, key: int, text: str) -> None:
        last = self._news[-1] if self._news else {}
        if last.get("op") == "append" and last["key"] == key:
            last["text"] += text
        else:
            self._news.append({"op": "append", "key": key, "text": text})

    def _say(self, text: str) -> None:
        self._reasoning = None
        if self._assistant is None:
            self._assistant = self._place(AssistantItem(self._author))
            self._attempt.append(self._assistant)
        item = self._items[self._assistant]
        assert isinstance(item, AssistantItem)
        item.stream.feed(text)
        self._growing.add(self._assistant)
        self._said.append(text)

    def _think(self, text: str) -> None:
        if self._reasoning is None:
            self._close_texts()
            self._reasoning = self._place(ReasoningItem())
            self._attempt.append(self._reasoning)
        item = self._items[self._reasoning]
        assert isinstance(item, ReasoningItem)
        if shown := item.grow(text):
            self._append(self._reasoning, shown)

    def _close_texts(self) -> None:
        """What is said next stands in a new item."""
        self._reasoning = None
        if self._assistant is not None:
            item = self._items[self._assistant]
            assert isinstance(item, AssistantItem)
            self._growing.discard(self._assistant)
            self._change_blocks(self._assistant, item.stream.finish())
            self._assistant = None

    def _flush(self, key: int) -> None:
        item = self._items[key]
        assert isinstance(item, AssistantItem)
        self._growing.discard(key)
        self._change_blocks(key, item.stream.flush())

    def _change_blocks(self, key: int, ops: list[Patch]) -> None:
        if ops:
            self._news.append({"op": "blocks", "key": key, "ops": ops})

    def _finish_card(
        self, payload: dict[str, Any], *, status: str, result: str | None = None, error: str | None = None
    ) -> None:
        key = self._cards.pop(payload["id"], None)
        if key is None:
            if payload["id"] in self._approvals:
                return  # it was denied: the approval says so
            key = self._add(ToolItem(payload["tool_id"], None))
        item = self._items[key]
        assert isinstance(item, ToolItem)
        item.status, item.result, item.error = status, result, error
        item.duration_s = payload.get("duration_s")
        self._redraw(key)

    def _leave_cards(self, status: str) -> None:
        """Nothing runs any more: the cards that have no outcome get this one."""
        for key in self._cards.values():
            item = self._items[key]
            if isinstance(item, ToolItem) and item.status == "running":
                item.status = status
                self._redraw(key)
        self._cards.clear()

    def _settle_approval(self, request_id: str, outcome: str) -> None:
        key = self._approvals.get(request_id)
        if key is not None:
            item = self._items[key]
            assert isinstance(item, ApprovalItem)
            item.outcome = outcome
            self._redraw(key)


def _request(item: Item) -> Patch:
    return {"request": item.request_id} if isinstance(item, ApprovalItem) and item.outcome == "waits" else {}


def _requests(message: Message) -> list[ApprovalRequest]:
    return [content for content in message.contents if isinstance(content, ApprovalRequest)]
