"""Structured output: the schema that a `response_format` asks for and the value that a reply holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nbagents.core.errors import ConfigurationError

_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\n?```\s*$", re.S)


class OutputFormat:
    """A type or JSON schema that the reply must fit.

    Args:
        asked: a pydantic model, dataclass, TypedDict, union, list or scalar type, or a JSON schema.

    Raises:
        ConfigurationError: something that has no schema.
    """

    def __init__(self, asked: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        from nbagents.core.schema import portable_hint

        self._adapter: TypeAdapter[Any] | None = None
        self._wrapped = False
        if isinstance(asked, Mapping):
            self.name = "output"
            self.schema: dict[str, Any] = dict(asked)
            return
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(asked, "__name__", "output"))[:64]
        try:
            self._adapter = TypeAdapter(portable_hint(asked))
            schema = self._adapter.json_schema()
        except (PydanticUserError, TypeError) as error:
            raise ConfigurationError(
                f"response_format={asked!r} has no JSON schema: {str(error).splitlines()[0]}",
                hint="Pass a pydantic model, a dataclass, a TypedDict, a plain type or a JSON schema.",
            ) from error
        if schema.get("type") != "object":  # services ask for an object at the root
            self._wrapped = True
            definitions = schema.pop("$defs", None)
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
            if definitions:
                schema["$defs"] = definitions
            schema["additionalProperties"] = False
        self.schema = schema

    def to_option(self) -> dict[str, Any]:
        """Return the Chat Completions form."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema}}

    def parse(self, text: str) -> Any:
        """Return the value that `text` holds, with or without a Markdown fence.

        Raises:
            ValueError: it is no JSON or does not fit.
        """
        fenced = _FENCE.match(text)
        value = json.loads(fenced.group(1) if fenced else text)
        if self._wrapped and isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        return value if self._adapter is None else self._adapter.validate_python(value)


def output_format(asked: Any) -> OutputFormat | None:
    """Return the format that `asked` (the option `response_format`) means; None for none or a wire form."""
    if asked is None or (isinstance(asked, Mapping) and asked.get("type") in ("json_object", "text", "json_schema")):
        return None
    return OutputFormat(asked)
