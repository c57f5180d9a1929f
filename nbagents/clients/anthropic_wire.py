"""From messages and tools to the body of a request to Anthropic's Messages API: pure functions, nothing is sent."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagents.clients.call_ids import CallIds
from nbagents.clients.wire_text import argument_text, clean_text, clean_values, function_name
from nbagents.core.content import (
    DataContent,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool
from nbagents.core.messages import Message
from nbagents.core.tools import ToolDefinition

Block = dict[str, Any]

WIRE_KEY = "anthropic"
"""Where a message keeps its blocks: it is converted once, not once per request."""
EMPTY = "(empty message)"
"""What stands for a user's message without text, which the service refuses."""
BLOCK_TYPE = "block_type"
"""The field of a hosted call or result with the service's word for it: only what came from there goes back there."""
REDACTED = "redacted"
"""The field of a thought that the service keeps to itself."""
CITATIONS = "citations"
CITED_CHARS = "cited_chars"
"""The fields of a text with sources: these, and for how many characters at its end they hold."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BAD_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
_BASE64 = re.compile(r"data:[^,]*;base64,", re.I)
_DESCRIBED = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern", "maxItems")
"""Keywords of a schema that the service refuses; they are told to the model in words."""


def wire_messages(messages: Sequence[Message]) -> tuple[list[Block], list[Block]]:
    """Return the blocks of the system prompt, and `messages` as the service takes them.

    User and assistant take turns: neighbours of one role are one message, and results stand in the user's message that
    follows their calls. The conversation begins with the user and no text is empty. Each message is a list of blocks,
    also where a text would do, so that what is added at the end leaves all before it as it was.
    """
    ids = CallIds(lambda id: _BAD_IN_ID.sub("_", id))
    system: list[Block] = []
    sent: list[Block] = []
    for message in messages:
        blocks = _blocks_of(message)
        if message.role == "system":
            system += blocks
            continue
        if message.role == "tool":
            named = zip(blocks, ids.answer(message), strict=True)
            blocks = [{**block, "tool_use_id": id} for block, id in named]
        elif message.role == "assistant" and message.calls:
            blocks = _with_ids(blocks, ids.open(message))
        role = "assistant" if message.role == "assistant" else "user"
        _append(sent, role, blocks)
    if not sent or sent[0]["role"] == "assistant":
        sent.insert(0, {"role": "user", "content": [_text(EMPTY)]})
    return system, sent


def _append(sent: list[Block], role: str, blocks: list[Block]) -> None:
    if not blocks:
        return
    if sent and sent[-1]["role"] == role:
        sent[-1]["content"] += blocks
    else:
        sent.append({"role": role, "content": list(blocks)})


def _with_ids(blocks: list[Block], ids: list[str]) -> list[Block]:
    waiting = iter(ids)
    return [{**block, "id": next(waiting)} if block["type"] == "tool_use" else block for block in blocks]


def _blocks_of(message: Message) -> list[Block]:
    known: list[Block] | None = message.wire.get(WIRE_KEY)
    if known is None:
        known = message.wire[WIRE_KEY] = list(_make_blocks(message))
    return known


def _make_blocks(message: Message) -> Iterator[Block]:
    if message.role == "tool":
        yield from (_result_block(result) for result in message.results)
    elif message.role == "assistant":
        yield from assistant_blocks(message)
    elif message.role == "user":
        parts = [_part(c) for c in message.contents if isinstance(c, TextContent | DataContent)]
        filled = [part for part in parts if part["type"] != "text" or part["text"].strip()]
        if parts or not message.contents:
            yield from filled or [_text(EMPTY)]
    elif message.text.strip():
        yield _text(message.text)


def assistant_blocks(message: Message) -> list[Block]:
    """Return what the model has said, its thoughts exactly as they came; those without a signature are left out."""
    blocks: list[Block] = []
    cut = _unanswered_hosted(message) if message.interrupted else set()
    for content in message.contents:
        if isinstance(content, TextContent) and content.extra and CITATIONS in content.extra:
            blocks += _cited(content.text, content.extra)
        elif isinstance(content, TextContent | RefusalContent):
            if content.text.strip():
                blocks.append(_text(content.text))
        elif isinstance(content, ReasoningContent):
            # Those of other services have an id.
            if content.encrypted and content.id is None:
                blocks.append(_thought(content))
        elif isinstance(content, FunctionCall):
            blocks.append(_call_block(content))
        elif isinstance(content, HostedToolCall | HostedToolResult) and content.id not in cut:
            blocks += _hosted_block(content)
    return blocks


def _text(text: str) -> Block:
    return {"type": "text", "text": clean_text(text)}


def _cited(text: str, extra: Mapping[str, Any]) -> list[Block]:
    """The end of `text` that has sources is a block of its own."""
    cited = extra.get(CITED_CHARS)
    start = max(len(text) - cited, 0) if isinstance(cited, int) else 0
    blocks = [_text(part) for part in (text[:start], text[start:]) if part.strip()]
    if text[start:].strip():
        blocks[-1][CITATIONS] = clean_values(extra[CITATIONS])
    return blocks


def _thought(content: ReasoningContent) -> Block:
    if content.extra and content.extra.get(REDACTED):
        return {"type": "redacted_thinking", "data": clean_text(content.encrypted or "")}
    signature = clean_text(content.encrypted or "")
    return {"type": "thinking", "thinking": clean_text(content.text), "signature": signature}


def _call_block(call: FunctionCall) -> Block:
    given = json.loads(argument_text(call))
    if not isinstance(given, dict):  # an object that was encoded twice
        given = json.loads(given)
    block = {"type": "tool_use", "id": "", "name": function_name(call.name), "input": given}
    return {**block, "caller": clean_values(call.extra["caller"])} if call.extra and "caller" in call.extra else block


def _hosted_block(content: HostedToolCall | HostedToolResult) -> list[Block]:
    extra = dict(content.extra or {})
    kind = extra.pop(BLOCK_TYPE, None)
    if kind is None:
        return []
    if isinstance(content, HostedToolResult):
        return [clean_values({"type": kind, "tool_use_id": content.id, "content": content.result, **extra})]
    block = {"type": kind, "id": content.id, "name": content.name, "input": content.arguments or {}, **extra}
    return [clean_values({**block, "server_name": content.server} if content.server else block)]


def _unanswered_hosted(message: Message) -> set[str]:
    """The ids of hosted calls whose result has not arrived: the service refuses the one without the other."""
    answered = {c.id for c in message.contents if isinstance(c, HostedToolResult)}
    return {c.id for c in message.contents if isinstance(c, HostedToolCall)} - answered


def _result_block(result: FunctionResult) -> Block:
    """A result; the images and PDFs that the function returned go with it."""
    text = clean_text(result.result)
    shown = [_part(item) for item in result.items if _is_shown(item)]
    content: Any = [*([_text(text)] if text.strip() else []), *shown] if shown else text
    block: Block = {"type": "tool_result", "tool_use_id": "", "content": content}
    return {**block, "is_error": True} if result.error else block


def _is_shown(item: DataContent) -> bool:
    return item.media_type.lower() in (*_IMAGES, "application/pdf")


def _part(content: TextContent | DataContent) -> Block:
    if isinstance(content, TextContent):
        return _text(content.text)
    kind = content.media_type.lower().partition(";")[0].strip()
    title = {"title": clean_text(content.name)} if content.name else {}
    if kind in _IMAGES:
        return {"type": "image", "source": _source(content, kind)}
    if kind == "application/pdf":
        return {"type": "document", "source": _source(content, kind), **title}
    if kind.startswith("text/") and content.uri[:5].lower() == "data:":
        text = clean_text(content.data.decode(errors="replace"))
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    raise ConfigurationError(
        f"Anthropic's models take no {content.media_type!r}.",
        hint="They take PNG, JPEG, GIF and WebP images, PDF files, and text files as bytes.",
    )


def _source(content: DataContent, kind: str) -> Block:
    if content.uri[:5].lower() != "data:":
        return {"type": "url", "url": content.uri}
    if plain := _BASE64.match(content.uri):
        data = content.uri[plain.end() :]
    else:
        data = b64encode(content.data).decode("ascii")
    return {"type": "base64", "media_type": kind, "data": data}


def wire_tools(tools: Sequence[ToolDefinition | HostedTool]) -> list[Block]:
    """Return `tools` as the service takes them; a hosted tool stands in its own words."""
    return [
        {"type": tool.type, **tool.options} if isinstance(tool, HostedTool) else _wire_function(tool) for tool in tools
    ]


def _wire_function(tool: ToolDefinition) -> Block:
    schema = plain_schema(tool.parameters) if tool.strict else tool.parameters
    block: Block = {"name": tool.name, "input_schema": {"type": "object", **schema}}
    if tool.description:
        block["description"] = tool.description
    return {**block, "strict": True} if tool.strict else block


def plain_schema(schema: Any) -> Any:
    """Return a strict schema without the bounds that the service does not enforce; the description tells them.

    Example:
        >>> plain_schema({"type": "integer", "minimum": 1})
        {'type': 'integer', 'description': '{"minimum": 1}'}
    """
    if isinstance(schema, list):
        return [plain_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: schema[key] for key in _DESCRIBED if key in schema}
    if schema.get("minItems", 0) not in (0, 1):
        told["minItems"] = schema["minItems"]
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in told:
            continue
        if key in ("properties", "$defs"):
            kept[key] = {name: plain_schema(one) for name, one in value.items()}
        else:
            kept[key] = value if key in ("enum", "const", "required") else plain_schema(value)
    if told:
        words = json.dumps(told, ensure_ascii=False)
        kept["description"] = f"{kept['description']}\n{words}" if kept.get("description") else words
    return kept


def mark_for_cache(body: dict[str, Any], lasting: str | None) -> None:
    """Ask in `body` that what it begins with be kept in the cache: tools and system prompt, and the conversation.

    Args:
        body: a request that is not sent yet.
        lasting: `5m` or `1h`; None for the service's default.
    """
    mark = {"type": "ephemeral", **({"ttl": lasting} if lasting else {})}
    for part in ("system", "tools"):
        if blocks := body.get(part):
            body[part] = [*blocks[:-1], {**blocks[-1], "cache_control": mark}]
            break
    body["cache_control"] = mark  # of the last block of the conversation
