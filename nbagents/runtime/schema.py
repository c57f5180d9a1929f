"""The kinds of chunks and their payloads as one page: `python -m nbagents.runtime.schema` prints it as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.payloads import payload_schemas
from nbagents.runtime.results import RunResult


def schema_page() -> str:
    """Return the page: the chunk, the payload of each kind with its JSON schema, and the result.

    Example:
        >>> schema_page().splitlines()[0]
        '# The stream of a run'
    """
    chunk = RunStreamChunk.model_json_schema()
    parts = ["# The stream of a run", _table(chunk)]
    for kind, schema in payload_schemas().items():
        parts += [f"## {kind}", *_payload(schema)]
    return "\n\n".join([*parts, "## The result", _table(RunResult.model_json_schema(mode="serialization"))])


def _payload(schema: Mapping[str, Any]) -> list[str]:
    forms = [_resolved(form, schema) for form in schema.get("anyOf", [schema])]
    shown = [part for form in forms for part in (form["description"], _table(form))]
    return [*filter(None, shown), f"```json\n{json.dumps(schema)}\n```"]


def _resolved(form: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = form.get("$ref", "").rpartition("/")[2]
    return schema["$defs"][name] if name else form


def _table(schema: Mapping[str, Any]) -> str:
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    rows = [f"| `{name}` | {_type(field)} | {_cell(field.get('description', ''))} |" for name, field in fields.items()]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) if rows else ""


def _type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(form) for form in field["anyOf"])
    return str(field.get("$ref", "").rpartition("/")[2] or field.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(f"{schema_page()}\n")
