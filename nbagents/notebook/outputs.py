"""The output of an `%%agent` cell: live while the run goes on, and one lasting form when it is over."""

from __future__ import annotations

import uuid
from typing import Protocol

from nbagents.widgets.conversation import Conversation
from nbagents.widgets.places import delivers_clicks, front_end_listens, show
from nbagents.widgets.transcript import TranscriptView, lasting_bundle


class CellOutput(Protocol):
    """The one output of a cell.

    Attributes:
        is_live: whether it shows the reply before the run is over.
    """

    is_live: bool

    def open(self) -> None:
        """Show what there is before the run begins."""

    def settle(self) -> None:
        """Show the lasting form, now that the run is over."""


class LiveOutput:
    """A widget that follows the conversation; the lasting form takes its place.

    A run that waits for a person keeps the widget with its buttons, until it has gone on and is over.
    """

    is_live = True

    def __init__(self, conversation: Conversation, *, cell_waits: bool) -> None:
        self._conversation = conversation
        self._view = TranscriptView(conversation, can_stop=delivers_clicks() or not cell_waits)
        self._display_id = f"nbagents-{uuid.uuid4().hex}"

    def open(self) -> None:
        """Display the widget."""
        bundle, metadata = self._view.bundle()
        show(bundle, metadata=metadata, display_id=self._display_id)

    def settle(self) -> None:
        """Put the lasting form in the widget's place and free the widget."""
        if self._conversation.approvals:
            self._conversation.listeners.append(self)
            self._view.can_stop = True
            bundle, metadata = self._view.bundle()
            show(bundle, metadata=metadata, display_id=self._display_id, update=True)
        else:
            show(lasting_bundle(self._conversation), display_id=self._display_id, update=True)
            self._view.close()

    def conversation_changed(self) -> None:
        """The view draws that."""

    def conversation_settled(self) -> None:
        """Become lasting once the run that waited for a person is over."""
        if not self._conversation.approvals:
            self._conversation.listeners.remove(self)
            self.settle()


class StaticOutput:
    """The lasting form only: nobody looks at the cell while it runs."""

    is_live = False

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def open(self) -> None:
        """Show nothing yet: what executes a notebook may not fold updates (nbval does not)."""

    def settle(self) -> None:
        """Display the lasting form."""
        show(lasting_bundle(self._conversation))


def reply_output(conversation: Conversation, *, cell_waits: bool) -> CellOutput:
    """Return the kind of output that fits who looks at the cell."""
    if front_end_listens():
        return LiveOutput(conversation, cell_waits=cell_waits)
    return StaticOutput(conversation)
