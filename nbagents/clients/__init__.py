"""Chat clients: one module for each kind of endpoint."""

from nbagents.clients.scripted import ScriptedChatClient, tool_call

__all__ = ["ScriptedChatClient", "tool_call"]
