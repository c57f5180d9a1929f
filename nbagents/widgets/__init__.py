"""What a person sees and touches: one module for each widget, its browser side in `static/`."""

from nbagents.widgets.chat import Chat
from nbagents.widgets.transcript import TranscriptView

__all__ = ["Chat", "TranscriptView"]
