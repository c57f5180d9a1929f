"""`TranscriptView`: the widget that draws a conversation, live, in any number of views."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import anywidget
import traitlets

from nbagents.loop import loop_thread
from nbagents.widgets.assets import module, styles
from nbagents.widgets.conversation import Conversation

FLUSH_INTERVAL = 0.05  # seconds between two patches
_BUSY_SHARE = 3  # a flush that took long is followed by a pause of this many times its duration
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class TranscriptView(anywidget.AnyWidget):
    """Draws `conversation`: streaming text, tool cards, approvals, and a Stop button while a run goes on.

    Changes go out as patches, at most 20 a second, made on the loop thread. Each carries a sequence number; a view that
    misses one, or comes late, asks for the whole. `snapshot` is the whole as of the last run's end. Views keep their
    copy of it up to date themselves, so it is sent only when the widget is displayed or a page asks: sent after every
    run, a conversation's traffic would grow with the square of its length.

    Args:
        conversation: what to draw; one view draws it.
        can_stop: whether clicks can reach Python while the run goes on; if not, the view says what stops it instead.
    """

    _esm: ClassVar[str] = module("transcript")
    _css: ClassVar[str] = styles()

    snapshot = traitlets.Dict().tag(sync=True)
    state = traitlets.Unicode("idle").tag(sync=True)
    waiting = traitlets.List(traitlets.Unicode()).tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    can_stop = traitlets.Bool(True).tag(sync=True)

    def __init__(self, conversation: Conversation, *, can_stop: bool = True, **traits: Any) -> None:
        self._conversation = conversation
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flush_at = 0.0
        super().__init__(
            snapshot=self._whole(), label=conversation.agent.name, can_stop=can_stop, state=conversation.state, **traits
        )
        self.on_msg(_received)
        conversation.listeners.append(self)

    def bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the view of this widget with, for where no widget is drawn, the transcript as it is now.

        Returns:
            MIME types with their values, and the metadata.
        """
        self._keep_whole()
        self.send_state("snapshot")
        made: Any = anywidget.AnyWidget._repr_mimebundle_(self)
        return {**lasting_bundle(self._conversation), WIDGET_VIEW: made[0][WIDGET_VIEW]}, made[1]

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the state for the browser; the whole of it (a page was loaded) has a fresh snapshot."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if key is None:
            state["snapshot"] = self._whole()
        return state

    def notify_change(self, change: Any) -> None:
        """Tell observers of `snapshot`, without sending it."""
        if change["name"] == "snapshot":
            traitlets.HasTraits.notify_change(self, change)
        else:
            super().notify_change(change)

    def close(self) -> None:
        """Free the widget; what it showed live disappears from the page. Idempotent."""
        if self in self._conversation.listeners:
            self._conversation.listeners.remove(self)
        if self.comm is not None:
            layout = self.layout
            super().close()
            layout.close()

    def __del__(self) -> None:
        """Nothing is left to close: an open widget is never collected."""

    # What follows is called on the loop thread.

    def conversation_changed(self) -> None:
        """Draw the change soon, together with others."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._flush_at), self._flush)

    def conversation_settled(self) -> None:
        """Draw all, and keep the whole for late views."""
        self._keep_whole()

    def received(self, content: Mapping[str, Any]) -> None:
        """Do what a view asks for."""
        match content.get("type"):
            case "sync":
                self._catch_up(content.get("seq"))
            case "stop":
                self._conversation.stop()
            case "answer":
                self._conversation.answer(str(content.get("id")), approved=content.get("approved") is True)

    def tell_views(self, content: dict[str, Any]) -> None:
        """Send a message to every view; ipywidgets calls this `send`, which a chat does to its agent."""
        anywidget.AnyWidget.send(self, content)

    def _flush(self) -> None:
        self._timer = None
        started = time.monotonic()
        with self._conversation.lock:
            self._send_patch()
        if self.comm is not None:
            self.set_trait("state", self._conversation.state)
            self.set_trait("waiting", self._conversation.waiting)
        loop = asyncio.get_running_loop()
        self._flush_at = loop.time() + max(FLUSH_INTERVAL, _BUSY_SHARE * (time.monotonic() - started))

    def _send_patch(self) -> None:
        """Send what has changed; the caller has the lock, so that patches and wholes go out in one order."""
        operations = self._conversation.transcript.patches()
        if operations:
            self._sequence += 1
            self.tell_views({"type": "patch", "seq": self._sequence, "ops": operations})

    def _whole(self) -> dict[str, Any]:
        with self._conversation.lock:
            self._send_patch()
            return {"seq": self._sequence, "ops": self._conversation.transcript.snapshot()}

    def _keep_whole(self) -> None:
        """Reassign `snapshot` if it is older than the transcript."""
        with self._conversation.lock:
            whole = self._whole()
            if whole["seq"] != self.snapshot.get("seq"):
                self.snapshot = whole

    def _catch_up(self, seen: Any) -> None:
        with self._conversation.lock:
            whole = self._whole()
            if whole["seq"] != seen:
                self.tell_views({"type": "whole", **whole})


def _received(view: TranscriptView, content: Mapping[str, Any], buffers: object) -> None:
    """Hand a message over to the loop thread: widget callbacks come on whatever thread the kernel likes."""
    loop_thread().post(view.received, content)


def lasting_bundle(conversation: Conversation) -> dict[str, Any]:
    """Return the transcript as it is now as HTML, Markdown and plain text."""
    with conversation.lock:
        transcript = conversation.transcript
        return {
            "text/html": transcript.to_html(),
            "text/markdown": transcript.to_markdown(),
            "text/plain": transcript.to_text(),
        }
