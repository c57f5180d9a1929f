"""Messages in the JSON form that OpenTelemetry's conventions give to inputs and outputs, secrets masked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nbagents.analysis.jsontext import json_text
from nbagents.core.content import Content, FunctionCall, FunctionResult, ReasoningContent, RefusalContent, TextContent
from nbagents.core.messages import Message

_FINISH_REASONS = {"tool_calls": "tool_call"}


def message_text(message: Message) -> str:
    """Return one message of `input_messages`: it is written once, however many requests bring it."""
    return json_text(_message(message))


def input_messages(texts: Iterable[str]) -> str:
    """Return what a model or an agent was given, as `gen-ai-input-messages.json` describes it.

    Args:
        texts: the messages, each by `message_text`.
    """
    return f"[{','.join(texts)}]"


def output_messages(messages: Iterable[Message], finish_reason: str | None) -> str:
    """Return what it answered, as `gen-ai-output-messages.json` describes it."""
    reason = _FINISH_REASONS.get(finish_reason or "", finish_reason or "error")
    return json_text([{**_message(message), "finish_reason": reason} for message in messages])


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(content) for content in message.contents]}


def _part(content: Content) -> dict[str, Any]:
    """One piece; of files and of what the conventions have no form for only the kind is told."""
    if isinstance(content, TextContent):
        return {"type": "text", "content": content.text}
    if isinstance(content, ReasoningContent):
        return {"type": "reasoning", "content": content.text}
    if isinstance(content, RefusalContent):
        return {"type": "refusal", "content": content.text}
    if isinstance(content, FunctionCall):
        call_id = content.call_id or content.id
        return {"type": "tool_call", "id": call_id, "name": content.name, "arguments": content.arguments}
    if isinstance(content, FunctionResult):
        return {"type": "tool_call_response", "id": content.call_id or content.id, "response": content.result}
    return {"type": content.type}
