"""Tools that run at OpenAI: how they are asked for, and how their calls and results come back and go out again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nbagents.clients.wire_text import clean_text, clean_values, read_id
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    DataContent,
    FunctionCall,
    HostedToolCall,
    HostedToolResult,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.hosted import HostedTool

RAW_KEY = "item"
"""Where a hosted call and its result keep the fields of their item that the content has no place for."""

_INCLUDED = {
    "code_interpreter": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
    "web_search": "web_search_call.action.sources",
}
"""What has to be asked for, so that results come back and not only calls."""
_OURS_TO_ANSWER = {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call"}
"""Calls that wait for an answer from here: nobody gives one, and without it they cannot be sent again."""
_IMAGE_TYPES = {"svg": "image/svg+xml", "jpg": "image/jpeg"}

HostedContent = HostedToolCall | HostedToolResult | ApprovalRequest


class HostedTools:
    """The tools that a client of OpenAI's Responses has methods for. Each takes the service's own settings."""

    def get_web_search_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that searches the web.

        Args:
            settings: `search_context_size`, `user_location`, `filters` and others of OpenAI's `web_search`.
        """
        return HostedTool("web_search", settings)

    def get_file_search_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that searches vector stores.

        Args:
            settings: `vector_store_ids`, which it needs, `max_num_results`, `filters`, `ranking_options`.
        """
        if not settings.get("vector_store_ids"):
            raise ConfigurationError("A file search needs vector_store_ids=[...]: the stores that it searches.")
        return HostedTool("file_search", settings)

    def get_code_interpreter_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that runs Python code in a container.

        Args:
            settings: `container`, its id or its settings; a new one of the service's choice by default.
        """
        return HostedTool("code_interpreter", {"container": {"type": "auto"}, **settings})

    def get_image_generation_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that draws images; they come back as content.

        Args:
            settings: `size`, `quality`, `background`, `output_format` and others.
        """
        return HostedTool("image_generation", settings)

    def get_mcp_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that lets the service talk to an MCP server.

        Args:
            settings: `server_label` and `server_url` (or `connector_id`), which it needs; `headers`, `authorization`,
                `allowed_tools`, `require_approval`, which is `"always"` at the service unless it is given.
        """
        if not settings.get("server_label") or not (settings.get("server_url") or settings.get("connector_id")):
            raise ConfigurationError("An MCP tool needs server_label= and server_url= (or connector_id=).")
        return HostedTool("mcp", settings)

    def get_shell_tool(self, **settings: Any) -> HostedTool:
        """Return the tool that runs shell commands in a container of the service.

        Args:
            settings: `environment`; a new container by default.

        Raises:
            ConfigurationError: the environment is this machine, where nothing is run for a service.
        """
        environment = settings.get("environment", {"type": "container_auto"})
        if isinstance(environment, Mapping) and environment.get("type") == "local":
            raise ConfigurationError(
                "A shell tool with the environment 'local' would run here, which no client does.",
                hint="Give the agent a function of yours that runs commands, or use a container.",
            )
        return HostedTool("shell", {**settings, "environment": environment})


def included(tools: Iterable[object]) -> list[str]:
    """Return what a request with `tools` asks for besides."""
    hosted = {tool.type: None for tool in tools if isinstance(tool, HostedTool)}
    return [asked for kind, asked in _INCLUDED.items() if kind in hosted]


def hosted_contents(item: Mapping[str, Any]) -> list[HostedContent]:
    """Return an output item as a call and, once the service has one, its result."""
    read = _READERS.get(item["type"])
    return list(read(item)) if read is not None else [_call(item, str(item["type"]))]


def hosted_item(call: HostedToolCall, result: HostedToolResult | None) -> Iterator[dict[str, Any]]:
    """Yield a call, with its result, as the service takes it again; nothing if it came from elsewhere or is not done.

    Args:
        call: as `hosted_contents` made it.
        result: the result of the same id, if there is one.
    """
    raw = (call.extra or {}).get(RAW_KEY)
    if not isinstance(raw, Mapping) or raw.get("status") in ("in_progress", "searching", "generating", "interpreting"):
        return
    kind = raw.get("type")
    write = _WRITERS.get(str(kind))
    if write is not None:
        yield clean_values({**raw, **write(call, result)})
        if kind == "shell_call" and result is not None:
            held = (result.extra or {}).get(RAW_KEY, {})
            yield clean_values({**held, "call_id": call.id, "output": result.result})
    elif isinstance(kind, str) and kind not in _OURS_TO_ANSWER:
        yield clean_values(raw)


def approval_items(content: ApprovalRequest | ApprovalResponse) -> Iterator[dict[str, Any]]:
    """Yield what the service asked a person, or the answer, as the service takes it; nothing if it did not ask."""
    raw = (content.extra or {}).get(RAW_KEY)
    if isinstance(content, ApprovalRequest):
        if isinstance(raw, Mapping):
            yield {**clean_values(raw), "id": content.id}
    elif content.service is not None:
        answer = {"type": "mcp_approval_response", "approval_request_id": content.id, "approve": content.approved}
        yield {**answer, **({"reason": clean_text(content.reason)} if content.reason else {})}


def _id(item: Mapping[str, Any]) -> str:
    return read_id(item.get("id")) or ""


def _call_id(item: Mapping[str, Any]) -> str:
    return read_id(item.get("call_id")) or _id(item)


def _call(item: Mapping[str, Any], kind: str, *held: str, id: str | None = None, **fields: Any) -> HostedToolCall:
    """The call that an item is; what is not `held` in its fields stays beside them."""
    raw = {name: value for name, value in item.items() if name not in held and value is not None}
    return HostedToolCall(kind, _id(item) if id is None else id, extra={RAW_KEY: raw}, **fields)


def _result(item: Mapping[str, Any], kind: str, **fields: Any) -> Iterator[HostedToolResult]:
    """The result that an item has, once it is done."""
    status = item.get("status")
    error = item.get("error")
    if error is None and status in ("failed", "incomplete"):
        error = f"The service reports that it {'failed' if status == 'failed' else 'was not completed'}."
    if error is not None or status in (None, "completed"):
        yield HostedToolResult(kind, _id(item), error=_error_text(error), **fields)


def _web_search(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    action = item.get("action") or {}
    asked = {name: value for name, value in action.items() if name != "sources" and value is not None}
    yield _call(item, "web_search", "action", arguments=asked or None)
    yield from _result(item, "web_search", result=action.get("sources"))


def _file_search(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    asked = {"queries": item.get("queries") or []}
    yield _call(item, "file_search", "queries", "results", arguments=asked)
    yield from _result(item, "file_search", result=item.get("results"))


def _code_interpreter(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    code = {"code": item.get("code") or ""}
    yield _call(item, "code_interpreter", "code", "outputs", arguments=code)
    outputs = item.get("outputs") or ()
    logs = [output.get("logs") or "" for output in outputs if output.get("type") == "logs"]
    images = [output["url"] for output in outputs if output.get("type") == "image" and output.get("url")]
    found = "\n".join(logs) if logs else None
    items = tuple(DataContent(url, "image/png") for url in images)
    yield from _result(item, "code_interpreter", result=found, items=items)


def _image_generation(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    prompt = item.get("revised_prompt")
    asked = {"prompt": prompt} if prompt else None
    held = ("result", "revised_prompt", "error")
    yield _call(item, "image_generation", *held, arguments=asked)
    format = item.get("output_format") or "png"
    kind = _IMAGE_TYPES.get(format, f"image/{format}")
    drawn = item.get("result")
    items = (DataContent(f"data:{kind};base64,{drawn}", kind),) if drawn else ()
    if items or item.get("status") in ("failed", "incomplete") or item.get("error"):
        yield from _result(
            {**item, "status": item.get("status") if not items else None}, "image_generation", items=items
        )


def _mcp_call(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    asked = _json_or_text(item.get("arguments"))
    held = ("name", "server_label", "arguments", "output", "error")
    fields = {"arguments": asked, "name": read_id(item.get("name")), "server": read_id(item.get("server_label"))}
    yield _call(item, "mcp", *held, **fields)
    if item.get("output") is not None or item.get("error") is not None or item.get("status") in ("completed", "failed"):
        yield from _result(item, "mcp", result=item.get("output"))


def _mcp_approval(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    id, server = _id(item), read_id(item.get("server_label")) or ""
    if not id:
        raise ValueError("what has no id cannot be answered")
    asked = _json_or_text(item.get("arguments"))
    call = FunctionCall(id, f"{server}.{item.get('name')}", asked if isinstance(asked, dict | str) else None)
    yield ApprovalRequest(id, call, server, extra={RAW_KEY: dict(item)})


def _mcp_list_tools(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    label = read_id(item.get("server_label"))
    yield _call(item, "mcp_list_tools", "server_label", "tools", "error", server=label)
    if item.get("tools") or item.get("error"):
        yield from _result(item, "mcp_list_tools", result=item.get("tools"))


def _shell(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    yield _call(item, "shell", "call_id", "action", id=_call_id(item), arguments=item.get("action"))


def _shell_output(item: Mapping[str, Any]) -> Iterator[HostedContent]:
    raw = {name: value for name, value in item.items() if name not in ("call_id", "output") and value is not None}
    yield HostedToolResult("shell", _call_id(item), item.get("output"), extra={RAW_KEY: raw})


_READERS: dict[str, Callable[[Mapping[str, Any]], Iterator[HostedContent]]] = {
    "code_interpreter_call": _code_interpreter,
    "file_search_call": _file_search,
    "image_generation_call": _image_generation,
    "mcp_approval_request": _mcp_approval,
    "mcp_call": _mcp_call,
    "mcp_list_tools": _mcp_list_tools,
    "shell_call": _shell,
    "shell_call_output": _shell_output,
    "web_search_call": _web_search,
}


def _code_outputs(result: HostedToolResult | None) -> list[dict[str, Any]]:
    if result is None:
        return []
    logs = [{"type": "logs", "logs": result.result}] if result.result is not None else []
    return [*logs, *({"type": "image", "url": image.uri} for image in result.items)]


def _mcp_fields(call: HostedToolCall, result: HostedToolResult | None) -> dict[str, Any]:
    asked = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    fields = {"name": call.name, "server_label": call.server, "arguments": asked}
    if result is None:
        return fields
    return {**fields, "output": result.result, **({"error": result.error} if result.error else {})}


_WRITERS: dict[str, Callable[[HostedToolCall, HostedToolResult | None], dict[str, Any]]] = {
    "code_interpreter_call": lambda call, result: {"code": call.arguments["code"], "outputs": _code_outputs(result)},
    "file_search_call": lambda call, result: {**call.arguments, "results": result.result if result else None},
    "image_generation_call": lambda call, result: {
        "result": result.items[0].uri.partition(",")[2] if result and result.items else None
    },
    "mcp_call": _mcp_fields,
    "mcp_list_tools": lambda call, result: {
        "server_label": call.server,
        "tools": (result.result if result else None) or [],
    },
    "shell_call": lambda call, result: {"call_id": call.id, "action": call.arguments},
    "web_search_call": lambda call, result: {"action": call.arguments or {}},
}


def _json_or_text(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _error_text(error: Any) -> str | None:
    if error is None or isinstance(error, str):
        return error
    told = error.get("message") if isinstance(error, Mapping) else None
    return told if isinstance(told, str) else json.dumps(error, ensure_ascii=False, default=str)
