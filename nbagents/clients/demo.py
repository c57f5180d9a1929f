"""A client without a model that answers anything, always the same way: so that nbagents can be tried without a key."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from nbagents.clients.scripted import ScriptedChatClient, ScriptedReply
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate, Message
from nbagents.core.arguments import exact_arguments
from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.outputs import output_format
from nbagents.core.tools import ToolDefinition

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"[\"'“‘`]([^\"'“”‘’`]+)[\"'”’`]")
_WORD = re.compile(r"[^\W\d_][\w-]*")
_QUESTION_SHOWN = 300
_DEEPEST = 8


class DemoChatClient(BaseChatClient):
    """Streams a short Markdown answer that says that it is a demo and repeats the question.

    Where tools are offered and the question names one of them, or has the numbers that one needs, it calls that tool
    first and then answers with the result. Where `response_format` asks for JSON it makes up a value that fits.

    Args:
        delay: seconds before each streamed word.

    Example:
        >>> DemoChatClient(delay=0).as_agent().run_sync("Hello").text.splitlines()[0]
        'This is the **scripted demo** of nbagents: no model reads what you write. You wrote:'
    """

    model: str = "demo"
    provider = "demo"

    @exact_arguments()
    def __init__(self, *, delay: float = 0.02) -> None:
        self.delay = delay

    def __repr__(self) -> str:
        return f"DemoChatClient(delay={self.delay!r})"

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the answer to the newest question, or a call."""
        script = ScriptedChatClient([_reply(request)], delay=self.delay, model=self.model)
        async with aclosing(script.generate(request)) as updates:
            async for update in updates:
                yield update


def _reply(request: ChatRequest) -> ScriptedReply:
    since = _since_question(request.messages)
    question = since[0].text if since else ""
    call = _call(request, question, made=sum(len(message.calls) for message in request.messages))
    results = [result for message in since for result in message.results]
    if call is not None and not results:
        return ["Let me use ", f"`{call.name}`.", call]
    asked = request.options.get("response_format")
    schema = _asked_schema(asked)
    if schema is not None:
        return json.dumps(_Sample(question, schema).of(schema), ensure_ascii=False)
    return _with_results(results) if results else _greeting(question, request.functions)


def _greeting(question: str, tools: Sequence[ToolDefinition]) -> str:
    lines = ["This is the **scripted demo** of nbagents: no model reads what you write. You wrote:", ""]
    lines += [_quote(question or "(nothing)"), ""]
    if tools:
        names = ", ".join(f"`{tool.name}`" for tool in tools)
        lines += [f"There are tools here: {names}. Name one in your question, with numbers, and I call it.", ""]
    lines.append("For a real answer set `OPENAI_API_KEY`, or run `nbagents local install`.")
    return "\n".join(lines)


def _with_results(results: Sequence[FunctionResult]) -> str:
    told = [f"The tool `{result.name}` {'failed' if result.error else 'returned'}:" for result in results]
    shown = "\n\n".join(f"{line}\n\n{_quote(result.result)}" for line, result in zip(told, results, strict=True))
    return f"{shown}\n\nThis is the **scripted demo** of nbagents: the tool ran, but no model chose it."


def _quote(text: str) -> str:
    shown = text if len(text) <= _QUESTION_SHOWN else f"{text[:_QUESTION_SHOWN]}…"
    return "\n".join(f"> {line}" for line in shown.splitlines() or [""])


def _since_question(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the newest user message and what follows it."""
    for start in reversed(range(len(messages))):
        if messages[start].role == "user":
            return messages[start:]
    return ()


def _call(request: ChatRequest, question: str, *, made: int) -> FunctionCall | None:
    """Return the call of the first fitting tool, if there is one."""
    choice = request.options.get("tool_choice")
    if choice == "none":
        return None
    tools = request.functions
    if isinstance(choice, Mapping):
        named = choice.get("function", {}).get("name")
        tools = [tool for tool in tools if tool.name == named]
    forced = choice == "required" or isinstance(choice, Mapping)
    chosen = next((tool for tool in tools if _names(question, tool)), None)
    chosen = chosen or next((tool for tool in tools if _has_numbers_for(question, tool)), None)
    chosen = chosen or (tools[0] if forced and tools else None)
    if chosen is None:
        return None
    return FunctionCall(f"call_{made + 1}", chosen.name, _Sample(question, chosen.parameters).of(chosen.parameters))


def _names(question: str, tool: ToolDefinition) -> bool:
    words = re.escape(tool.name).replace("_", "[_ ]")
    return re.search(rf"\b{words}\b", question, re.IGNORECASE) is not None


def _has_numbers_for(question: str, tool: ToolDefinition) -> bool:
    properties = tool.parameters.get("properties", {})
    needed = [name for name in tool.parameters.get("required", ()) if _is_number(properties.get(name, {}))]
    return 0 < len(needed) <= len(_NUMBER.findall(question))


def _is_number(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") in ("integer", "number")


def _asked_schema(response_format: Any) -> Mapping[str, Any] | None:
    made = output_format(response_format)
    if made is not None:
        return made.schema
    if not isinstance(response_format, Mapping) or response_format.get("type") not in ("json_schema", "json_object"):
        return None
    schema: Mapping[str, Any] = response_format.get("json_schema", {}).get("schema", {"type": "object"})
    return schema


class _Sample:
    """Makes up values that fit a JSON schema, out of the words and numbers of a question, each one used once."""

    def __init__(self, question: str, root: Mapping[str, Any]) -> None:
        self._root = root
        self._numbers: Iterator[str] = iter(_NUMBER.findall(question))
        words = _WORD.findall(question)
        names = [word for word in words[1:] if word[0].isupper()]
        self._texts: Iterator[str] = iter([*_QUOTED.findall(question), *names, *words[-1:]])
        self._question = question

    def of(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """Return a value that fits `schema`: required properties only, null where that fits, else the first branch."""
        if isinstance(schema.get("$ref"), str):
            schema = self._at(schema["$ref"])
        for fixed in ("const", "default"):
            if fixed in schema:
                return schema[fixed]
        if schema.get("enum"):
            return next((v for v in schema["enum"] if str(v).lower() in self._question.lower()), schema["enum"][0])
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if any(branch.get("type") == "null" for branch in branches or ()):
            return None  # in strict schemas everything is required, and null where it is not
        if branches and depth < _DEEPEST:
            return self.of(branches[0], depth + 1)
        return self._of_type(schema, depth)

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            properties = schema.get("properties", {})
            names = schema.get("required", ()) if depth < _DEEPEST else ()
            return {name: self.of(properties.get(name, {}), depth + 1) for name in names}
        if kind == "array":
            item = schema.get("items", {})
            count = len(_NUMBER.findall(self._question)) if _is_number(item) else schema.get("minItems", 1)
            return [self.of(item, depth + 1) for _ in range(count)] if depth < _DEEPEST else []
        if kind == "integer":
            return int(float(next(self._numbers, "1")))
        if kind == "number":
            return float(next(self._numbers, "1"))
        if kind in ("boolean", "null"):
            return True if kind == "boolean" else None
        return next(self._texts, "demo")

    def _at(self, reference: str) -> Mapping[str, Any]:
        place: Any = self._root
        for step in reference.removeprefix("#/").split("/"):
            place = place.get(step, {}) if isinstance(place, Mapping) else {}
        return place if isinstance(place, Mapping) else {}
