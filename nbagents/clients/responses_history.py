"""From the items that OpenAI has stored to messages: pure functions. The other way is `responses_wire`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nbagents.clients.responses_replies import ResponseReader
from nbagents.clients.responses_wire import FILE_SCHEME
from nbagents.core.content import ApprovalRequest, Content, DataContent, FunctionResult, TextContent
from nbagents.core.errors import InvalidReplyError
from nbagents.core.folding import UpdateFolder
from nbagents.core.messages import Message, Role

Json = Mapping[str, Any]

_ROLES: dict[Any, Role] = {"system": "system", "developer": "system", "assistant": "assistant"}


def messages_of(items: Sequence[Any]) -> list[Message]:
    """Return stored items as messages, oldest first; each has the id of its first item as `message_id`.

    Raises:
        InvalidReplyError: something is no item.
    """
    messages: list[Message] = []
    said: list[Json] = []
    asked: dict[str, Any] = {}
    try:
        for item in items:
            read = _input if _is_input(item) else _ANSWERS.get(item.get("type"))
            if read is None:
                said.append(item)
                continue
            messages += _said(said, asked)
            said = []
            messages.append(read(item, asked))
        return [*messages, *_said(said, asked)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidReplyError(f"The server gave an item that is none: {str(items)[:200]}") from error


def _is_input(item: Json) -> bool:
    return _is_message(item) and item.get("role") != "assistant"


def _said(items: Sequence[Json], asked: dict[str, Any]) -> Iterator[Message]:
    """What the model said in a row, put together as a reply is; `asked` learns of what waits for an answer."""
    if not items:
        return
    whole = [{**item, "content": _parts(item, "output_text")} if _is_message(item) else item for item in items]
    ids = iter([str(item.get("id") or item.get("call_id")) for item in items if item.get("type") == "function_call"])
    reader, folder = ResponseReader(), UpdateFolder()
    update = reader.read_reply({"output": whole, "status": "completed"})
    while update is not None:
        folder.add(update, new_call_id=lambda: next(ids))
        update = reader.read_end()
    first = items[0].get("id")
    for number, message in enumerate(folder.messages(), 1):
        asked.update((call.call_id, call) for call in message.calls if call.call_id)
        asked.update((one.id, one) for one in message.contents if isinstance(one, ApprovalRequest))
        yield replace(message, message_id=first if number == 1 else f"{first}-{number}")


def _is_message(item: Json) -> bool:
    return bool(item["type"] == "message" if "type" in item else item["role"])


def _parts(item: Json, kind: str) -> list[Any]:
    content = item.get("content") or ()
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content)


def _input(item: Json, asked: Mapping[str, Any]) -> Message:
    contents = [content for part in _parts(item, "input_text") if (content := _content(part)) is not None]
    return Message(_ROLES.get(item.get("role"), "user"), contents, message_id=item.get("id"))


def _result(item: Json, asked: Mapping[str, Any]) -> Message:
    call = asked.get(item["call_id"])
    output = item.get("output") or ""
    parts = [] if isinstance(output, str) else [content for part in output if (content := _content(part)) is not None]
    text = output if isinstance(output, str) else "".join(c.text for c in parts if isinstance(c, TextContent))
    result = FunctionResult(
        item["call_id"],
        call.name if call else "",
        text,
        call.id if call else "",
        items=tuple(content for content in parts if isinstance(content, DataContent)),
    )
    return Message("tool", [result], message_id=item.get("id"))


def _approval(item: Json, asked: Mapping[str, Any]) -> Message:
    request = asked[item["approval_request_id"]]
    answer = request.approve() if item.get("approve") else request.deny(item.get("reason"))
    return Message("user", [answer], message_id=item.get("id"))


_ANSWERS = {"function_call_output": _result, "mcp_approval_response": _approval}


def _content(part: Json) -> Content | None:
    """A part of what was sent to the model; None for an empty one."""
    kind = part.get("type")
    if kind == "input_image":
        uri = part.get("image_url") or _of_file(part)
        return _held(uri, "image/png") if uri else None
    if kind == "input_file":
        uri = part.get("file_data") or part.get("file_url") or _of_file(part)
        return _held(uri, "application/octet-stream", part.get("filename")) if uri else None
    if kind == "input_audio":
        sound = part["input_audio"]
        form = "wav" if sound.get("format") == "wav" else "mpeg"
        return DataContent(f"data:audio/{form};base64,{sound['data']}", f"audio/{form}")
    text = part.get("text") or part.get("refusal")
    return TextContent(text) if isinstance(text, str) and text else None


def _of_file(part: Json) -> str | None:
    return f"{FILE_SCHEME}{part['file_id']}" if part.get("file_id") else None


def _held(uri: str, media_type: str, name: str | None = None) -> DataContent:
    kind = uri[5:].split(";")[0].split(",")[0] if uri.startswith("data:") else media_type
    return DataContent(uri, kind or media_type, name)
