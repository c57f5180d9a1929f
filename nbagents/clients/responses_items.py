"""One item of a response's output, and how much of it has been told: each piece is told once, whatever repeats it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbagents.clients.responses_tools import hosted_contents
from nbagents.clients.wire_text import read_id
from nbagents.core.content import Content, FunctionCall, HostedToolCall, ReasoningContent, RefusalContent, TextContent

Json = Mapping[str, Any]
Said = type[TextContent] | type[RefusalContent]

_PARAGRAPH = "\n\n"
"""What stands between the parts of one thought."""


class OutputItem:
    """A message, a thought, a call of ours or one of the service's.

    Args:
        raw: the item as far as it is known.
        message_id: the message of ours that it belongs to.
        number: how many items were opened before it.
        place: its place in the output, as the server counts.

    Attributes:
        has_text: something of it is to be seen.
    """

    __slots__ = (
        "_annotations",
        "_announced",
        "_arguments",
        "_closed_parts",
        "_given_arguments",
        "_id_read",
        "_phase",
        "_told",
        "closed",
        "has_text",
        "id",
        "kind",
        "message_id",
        "number",
        "place",
    )

    def __init__(self, raw: Json, message_id: str, number: int, place: int) -> None:
        self.kind: str = raw["type"]
        self.id: Any = raw.get("id")
        self._id_read = read_id(self.id)
        self.message_id = message_id
        self.number = number
        self.place = place
        self.has_text = False
        self.closed = False
        self._phase: Any = raw.get("phase")
        self._told: dict[Any, list[str]] = {}
        self._closed_parts: set[Any] = set()
        self._annotations: dict[Any, list[Any]] = {}
        self._announced = False
        self._arguments: list[str] = []
        self._given_arguments: Any = None

    def announce(self, raw: Json) -> list[Content]:
        """Return what is known when the item begins: a call of ours by its name, one of the service's as it stands."""
        if self.kind in ("message", "reasoning") or self._announced:
            return []
        self._announced = True
        if self.kind != "function_call":
            return [content for content in hosted_contents(raw) if isinstance(content, HostedToolCall)]
        self._given_arguments = raw.get("arguments")
        waiting = "".join(self._arguments) or None
        return [FunctionCall(_call_id(raw), str(raw.get("name") or "").strip(), waiting, index=self.number)]

    def say(self, kind: Said, part: Any, delta: Any) -> list[Content]:
        """Return the next piece of a part of a message."""
        if not delta:
            return []
        self._keep(part, delta)
        self.has_text = True
        return [kind(delta)]

    def say_rest(self, kind: Said, part: Any, whole: Any) -> list[Content]:
        """Return what is still missing of a part of a message."""
        return self.say(kind, part, self._rest(part, whole))

    def cite(self, part: Any, annotation: Any) -> list[Content]:
        """Keep what a part of a message cites until that part ends."""
        self._annotations.setdefault(part, []).append(annotation)
        return []

    def close_part(self, place: Any, part: Json) -> list[Content]:
        """Return what is still missing of a part of a message: a rest of its text, and what there is to say of it."""
        if place in self._closed_parts:
            return []
        self._closed_parts.add(place)
        if part.get("type") == "refusal":
            return self.say_rest(RefusalContent, place, part.get("refusal"))
        if part.get("type") not in ("output_text", "text"):
            return []
        rest = self.say_rest(TextContent, place, part.get("text"))
        cited = part.get("annotations") or self._annotations.get(place)
        of_it = {"annotations": list(cited)} if cited else {}
        if self._phase:
            of_it["phase"] = self._phase
        return [*rest, TextContent("", extra=of_it)] if of_it and place in self._told else rest

    def think(self, part: Any, delta: Any) -> list[Content]:
        """Return the next piece of a part of a thought, which a paragraph separates from the parts before."""
        if not delta:
            return []
        begins = part not in self._told and bool(self._told)
        self._keep(part, delta)
        return [ReasoningContent(f"{_PARAGRAPH}{delta}" if begins else delta, self._id_read)]

    def think_rest(self, part: Any, whole: Any) -> list[Content]:
        """Return what is still missing of a part of a thought."""
        return self.think(part, self._rest(part, whole))

    def argue(self, delta: Any) -> list[Content]:
        """Return the next piece of the arguments of a call; it waits until the call has its name."""
        if not delta:
            return []
        self._arguments.append(_text(delta))
        return [FunctionCall(None, "", delta, index=self.number)] if self._announced else []

    def argue_rest(self, whole: Any) -> list[Content]:
        """Return what is still missing of the arguments of a call; what is no object stays text."""
        told = "".join(self._arguments)
        if isinstance(whole, str):
            return self.argue(whole[len(told) :]) if whole.startswith(told) else []
        if whole is None or told:
            return []
        self._arguments.append(json.dumps(whole))
        return [FunctionCall(None, "", whole if isinstance(whole, dict) else self._arguments[0], index=self.number)]

    def close(self, raw: Json) -> list[Content]:
        """Return what is still missing of the item, which `raw` holds whole."""
        if self.closed:
            return []
        self.closed = True
        if self.kind == "message":
            self._phase = self._phase or raw.get("phase")
            parts = enumerate(raw.get("content") or ())
            return [content for place, part in parts for content in self.close_part(place, part)]
        if self.kind == "reasoning":
            return self._close_thought(raw)
        if self.kind == "function_call":
            return [*self.announce(raw), *self.argue_rest(raw.get("arguments") or self._given_arguments)]
        return [*hosted_contents(raw)]

    def _close_thought(self, raw: Json) -> list[Content]:
        told: list[Content] = []
        for place, part in enumerate(raw.get("summary") or ()):
            told += self.think_rest(("summary", place), part.get("text"))
        for place, part in enumerate(raw.get("content") or ()):
            told += self.think_rest(("text", place), part.get("text"))
        if (encrypted := raw.get("encrypted_content")) and isinstance(encrypted, str):
            told.append(ReasoningContent("", self._id_read or read_id(raw.get("id")), encrypted))
        return told

    def _keep(self, part: Any, delta: Any) -> None:
        self._told.setdefault(part, []).append(_text(delta))

    def _rest(self, part: Any, whole: Any) -> str:
        """What `whole` has more than was told; nothing where it is another text: that cannot be taken back."""
        told = "".join(self._told.get(part, ()))
        return whole[len(told) :] if isinstance(whole, str) and whole.startswith(told) else ""


def _text(delta: Any) -> str:
    if not isinstance(delta, str):
        raise TypeError(f"a piece of text is no text: {delta!r}")
    return delta


def _call_id(raw: Json) -> str | None:
    return read_id(raw.get("call_id")) or read_id(raw.get("id"))
