"""`Chat`: a transcript with a field to write in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

import traitlets

from nbagents.core import Agent, AgentRunInputs, AgentSession, NBAgentsError
from nbagents.core.errors import ConfigurationError
from nbagents.widgets.assets import module
from nbagents.widgets.conversation import AgentHandle, Conversation
from nbagents.widgets.places import front_end_listens, show
from nbagents.widgets.transcript import WIDGET_VIEW, TranscriptView, lasting_bundle

PATIENCE = 10.0  # seconds to wait for a stored history, or for a run to clean up


class Chat(TranscriptView):
    """A panel to talk with `agent` in: end a cell with it, or display it.

    Enter sends, Shift+Enter breaks the line, Esc stops. Runs live on the loop thread: the cell is over at once, and
    Stop and approvals work from then on. What is sent while a run goes on waits for its end. With every run that ends,
    the transcript is stored in the notebook beside the widget, so that it can be read without a kernel.

    Args:
        agent: whom to talk with.
        session: the conversation to go on with, whose messages are shown; a new one by default.
        height: how tall the transcript grows before it scrolls, in CSS pixels.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> chat = Chat(Agent(ScriptedChatClient(["Hello!"])))
        >>> chat.send("Hi").result().text
        'Hello!'
    """

    _esm: ClassVar[str] = module("chat")

    height = traitlets.Int(520).tag(sync=True)
    saved_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, agent: Agent, session: AgentSession | None = None, *, height: int = 520) -> None:
        if not isinstance(agent, Agent):
            raise ConfigurationError(f"agent must be an Agent, not {type(agent).__name__}.", hint="Chat(agent).")
        self._display_id = f"nbagents-{uuid.uuid4().hex}"
        self._shown: str | None = None
        conversation = Conversation(agent, session)
        conversation.load(PATIENCE)
        super().__init__(conversation, height=height, saved_id=f"{self._display_id}-saved")

    @property
    def session(self) -> AgentSession:
        """The conversation's session."""
        return self._conversation.session

    def send(self, messages: AgentRunInputs) -> AgentHandle:
        """Say something, from any thread; it waits for a run that goes on.

        Returns:
            The run's handle: `stop()`, `result(timeout=None)`, `done()`, or await it.

        Raises:
            ConfigurationError: messages that do not fit, or the chat is closed.
        """
        if self.comm is None:
            raise ConfigurationError("This chat is closed.", hint="Go on with Chat(agent, session=chat.session).")
        return self._conversation.send(messages)

    def stop(self) -> None:
        """Stop the run that goes on and drop what waits; from any thread. What there is of the reply stays."""
        self._conversation.stop()

    def freeze(self) -> None:
        """Put the lasting form in the widget's place (or display it, if the chat was not shown) and close the chat."""
        self._conversation.end(PATIENCE)
        self.close()
        bundle = lasting_bundle(self._conversation)
        if self._shown is None:
            show(bundle)
            return
        show(bundle, display_id=self._display_id, update=True)
        if self._shown == "live":
            show({"text/plain": ""}, display_id=self.saved_id, update=True)

    def close(self) -> None:
        """Stop what runs and free the widget. Idempotent."""
        self.stop()
        super().close()

    def to_html(self) -> str:
        """Return the transcript as an HTML fragment without scripts."""
        return str(lasting_bundle(self._conversation)["text/html"])

    def to_markdown(self) -> str:
        """Return the transcript as Markdown."""
        return str(lasting_bundle(self._conversation)["text/markdown"])

    def conversation_settled(self) -> None:
        """Draw all, and store the transcript beside the widget."""
        super().conversation_settled()
        if self._shown == "live":
            show(self._saved(), display_id=self.saved_id, update=True)
        elif self._shown == "static":
            show(lasting_bundle(self._conversation), display_id=self._display_id, update=True)

    def received(self, content: Mapping[str, Any]) -> None:
        """Do what a view asks for."""
        if content.get("type") != "send":
            super().received(content)
            return
        try:
            self.send(str(content.get("text", "")))
        except NBAgentsError as error:
            self.tell_views({"type": "refused", "text": content.get("text"), "why": str(error)})

    def _saved(self) -> dict[str, Any]:
        """The lasting form, marked so that a live view can hide it."""
        bundle = lasting_bundle(self._conversation)
        return {**bundle, "text/html": f'<div data-nbagents-saved="{self.saved_id}">{bundle["text/html"]}</div>'}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.bundle()

    def _ipython_display_(self) -> None:
        """Display the widget and, as an output of its own, the transcript as it lasts.

        In one output, JupyterLab without a kernel would show an error in the widget's place and not the transcript
        beside it, and storing the transcript there would draw the widget anew after every run.
        """
        if self.comm is None or not front_end_listens():
            self._shown = "static"
            show(lasting_bundle(self._conversation), display_id=self._display_id)
            return
        self._shown = "live"
        bundle, metadata = self.bundle()
        live = {WIDGET_VIEW: bundle[WIDGET_VIEW], "text/plain": f"Chat with {self.label}"}
        show(live, metadata=metadata, display_id=self._display_id)
        show(self._saved(), display_id=self.saved_id)
