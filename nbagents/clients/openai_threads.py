"""Threads that live at OpenAI: its conversations, and the chain of responses that a rolling id is the end of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nbagents.clients.responses_history import messages_of
from nbagents.clients.responses_tools import approval_items, hosted_item
from nbagents.clients.responses_wire import FILE_SCHEME, wire_input
from nbagents.clients.service import ServiceClient
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    Content,
    DataContent,
    ErrorContent,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    UsageContent,
)
from nbagents.core.errors import ConfigurationError, InvalidReplyError, ModelError, ModelNotFoundError
from nbagents.core.hosted_threads import HostedThread
from nbagents.core.messages import Message
from nbagents.core.retries import with_retries
from nbagents.core.sessions import AgentSession

CONVERSATION_PREFIX = "conv_"
"""How the ids of conversations begin; others are those of responses."""
_BATCH = 20
_PAGE = 100
_INCLUDED = (
    "code_interpreter_call.outputs",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
)
"""What has to be asked for, so that items come whole."""

Json = dict[str, Any]


class OpenAIThread(HostedThread):
    """What the two kinds share: who asks, and what can be sent there.

    Args:
        session: the conversation.
        client: a client of the endpoint where it lives.
    """

    accepts_external_messages = True
    can_delete = True
    can_read = True

    def __init__(self, session: AgentSession, client: ServiceClient) -> None:
        super().__init__(session)
        self.client = client

    def kind_of(self, id: str) -> str:
        """Return the kind of thread that `id` belongs to: it begins with that."""
        return (OpenAIConversationThread if id.startswith(CONVERSATION_PREFIX) else OpenAIResponseThread).kind

    def unfit(self, message: Message) -> list[str]:
        """Name the types of content in `message` that OpenAI does not take, or not from here."""
        return [content.type for content in message.contents if _is_unfit(content, message)]

    async def _ask(self, method: str, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Ask for something that may be asked for again."""
        return await with_retries(lambda: self.client.ask(method, path, query=query), retries=self.client.max_retries)

    async def _delete(self, path: str) -> None:
        """Delete what is at `path`; that it is not there any more is no error."""
        try:
            await self._ask("DELETE", path)
        except ModelNotFoundError:
            return

    async def _items(self, path: str) -> list[Json]:
        """Return all items below `path`, oldest first."""
        return [item async for item in self._pages(path)]

    async def _pages(self, path: str) -> AsyncIterator[Json]:
        query: Json = {"limit": _PAGE, "order": "asc", "include": list(_INCLUDED)}
        while True:
            page = await self._ask("GET", path, query)
            items = page.get("data") if isinstance(page, Mapping) else None
            if not isinstance(items, list):
                raise InvalidReplyError(f"{path} gave no list of items: {str(page)[:200]}")
            for item in items:
                yield item
            last = page.get("last_id") or (items[-1].get("id") if items else None)
            if not page.get("has_more") or not last or last == query.get("after"):
                return
            query["after"] = last


class OpenAIConversationThread(OpenAIThread):
    """A conversation of OpenAI's Conversations API."""

    kind = "an OpenAI conversation"

    async def create_at_service(self) -> str:
        """Make the conversation and return its id."""
        return await create_conversation(self.client)

    async def read_at_service(self, id: str) -> list[Message]:
        """Return the messages that are stored there, oldest first."""
        return messages_of(await self._items(f"{_path_of(id)}/items"))

    async def add_at_service(self, id: str, messages: Sequence[Message]) -> None:
        """Store `messages` after the others; where that fails in the middle, what was stored is taken back."""
        path = f"{_path_of(id)}/items"
        stored: list[str] = []
        try:
            for batch in batches(wire_input(messages)):
                reply = await self.client.ask("POST", path, body={"items": batch})
                items = reply.get("data") if isinstance(reply, Mapping) else None
                stored += [item["id"] for item in items or () if item.get("id")]
        except BaseException as error:
            try:
                for item_id in reversed(stored):
                    await self._delete(f"{path}/{_quoted(item_id)}")
            except ModelError as failure:
                error.add_note(f"What was stored of the messages before is still there: {failure}")
            raise

    async def delete_at_service(self, id: str) -> None:
        """Delete the conversation."""
        await self._delete(_path_of(id))


class OpenAIResponseThread(OpenAIThread):
    """The responses that led to the one with the session's id: each names the one before it.

    Messages that are added wait in the session for the next request.
    """

    kind = "a chain of OpenAI responses"
    carries = True

    async def read_at_service(self, id: str) -> list[Message]:
        """Return the messages of all responses, oldest first."""
        whole: list[Json] = []
        async for response in self._chain(id):
            known = {item.get("id") for item in whole}
            output = _output(response)
            if whole and any(item.get("id") in known for item in output):
                break  # the list of a response has what was before it
            items = [*await self._items(f"{_response_path(response['id'])}/input_items"), *output]
            whole = [*(item for item in items if not item.get("id") or item["id"] not in known), *whole]
        return messages_of(whole)

    async def delete_at_service(self, id: str) -> None:
        """Delete the responses, the oldest first: as long as one is left, another try finds all of those left."""
        try:
            chain = [response["id"] async for response in self._chain(id)]
        except ModelNotFoundError:
            return
        for response_id in reversed(chain):
            await self._delete(_response_path(response_id))

    async def _chain(self, id: str) -> AsyncIterator[Json]:
        """Yield the response `id` and those before it, as far as they are still there."""
        seen: set[str] = set()
        following: str | None = id
        while following and following not in seen:
            seen.add(following)
            try:
                response = await self._ask("GET", _response_path(following), {"include": list(_INCLUDED)})
            except ModelNotFoundError:
                if following == id:
                    raise
                return
            if not isinstance(response, dict):
                raise InvalidReplyError(f"There is no response at {following!r}, but {str(response)[:200]}.")
            yield {**response, "id": following}
            following = response.get("previous_response_id")


async def create_conversation(client: ServiceClient) -> str:
    """Make a conversation and return its id.

    Raises:
        ModelError: the endpoint has none, or the call failed.
    """
    made = await with_retries(lambda: client.ask("POST", "/conversations", body={}), retries=client.max_retries)
    id = made.get("id") if isinstance(made, Mapping) else None
    if not isinstance(id, str) or not id.startswith(CONVERSATION_PREFIX):
        raise InvalidReplyError(
            f"The server made a conversation without an id that begins with {CONVERSATION_PREFIX!r}: {str(made)[:200]}"
        )
    return id


def batches(items: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield `items` in batches that one request may bring, cut where no call waits for its result if that can be."""
    begin = 0
    while begin < len(items):
        end = min(begin + _BATCH, len(items))
        if end < len(items):
            end = _last_pause(items, begin, end) or end
        yield list(items[begin:end])
        begin = end


def _last_pause(items: Sequence[Json], begin: int, end: int) -> int | None:
    """The last place up to `end` before which every call has its result."""
    waiting: set[Any] = set()
    pause = None
    for place in range(begin, end):
        item = items[place]
        if item["type"] == "function_call":
            waiting.add(item["call_id"])
        elif item["type"] == "function_call_output":
            waiting.discard(item["call_id"])
        if not waiting and item["type"] != "reasoning":
            pause = place + 1
    return pause


def _is_unfit(content: Content, message: Message) -> bool:
    if isinstance(content, ReasoningContent):
        return not (content.id and content.encrypted) or message.interrupted
    if isinstance(content, HostedToolCall):
        return message.interrupted or next(hosted_item(content, None), None) is None
    if isinstance(content, HostedToolResult):
        return all(one.id != content.id for one in message.contents if isinstance(one, HostedToolCall))
    if isinstance(content, FunctionResult):
        return any(_is_elsewhere(item) or item.media_type.startswith("audio/") for item in content.items)
    if isinstance(content, DataContent):
        return _is_elsewhere(content)
    if isinstance(content, ApprovalRequest | ApprovalResponse):
        return next(approval_items(content), None) is None
    return isinstance(content, UsageContent | ErrorContent)


def _is_elsewhere(content: DataContent) -> bool:
    return content.uri.startswith(FILE_SCHEME)


def _output(response: Json) -> list[Json]:
    output = response.get("output")
    return output if isinstance(output, list) else []


def _path_of(conversation_id: str) -> str:
    return f"/conversations/{_quoted(conversation_id)}"


def _response_path(response_id: str) -> str:
    return f"/responses/{_quoted(response_id)}"


def _quoted(id: str) -> str:
    """Return `id` as one part of a path, whatever is in it: a stored session may come from anywhere."""
    if not id.strip("."):
        raise ConfigurationError(f"{id!r} is no id of something that OpenAI stores.")
    return quote(id, safe="")
