"""The JSON Schema of specs: what editors complete and check by. It is made from the models."""

from __future__ import annotations

from typing import Any, Literal

from nbagents.core.errors import ConfigurationError
from nbagents.spec.faults import nearest
from nbagents.spec.models import AgentSpec, ConfigSpec
from nbagents.spec.registry import AGENT_TYPES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLACEHOLDER = {"type": "string", "pattern": r"\$\{"}
_IS_SCHEMA = {"properties": {"type": {"type": "string"}}, "required": ["type"]}
"""What tells a JSON schema, as `outputs`, from fields by name."""
_NOT_TEXT = ("integer", "number", "boolean")
_KINDS = ("agent", "config")


def spec_schema(kind: Literal["agent", "config"] = "agent") -> dict[str, Any]:
    """Return the JSON Schema of a file: of one agent, or of several with a runtime.

    Where a number or a boolean stands, a placeholder may stand too.

    Raises:
        ConfigurationError: another kind.

    Example:
        >>> "instructions" in spec_schema()["properties"]
        True
    """
    if kind not in _KINDS:
        raise ConfigurationError(f"There is no schema {kind!r}.", hint=nearest(kind, _KINDS))
    agent: dict[str, Any] = _with_placeholders(AgentSpec.model_json_schema(by_alias=True))
    agent["properties"]["type"]["examples"] = AGENT_TYPES.names()
    outputs = agent["properties"]["outputs"]
    fields, _ = outputs.pop("oneOf")
    outputs |= {"type": "object", "if": _IS_SCHEMA, "else": fields}
    if kind == "agent":
        return {"$schema": DIALECT, **agent}
    parts = agent.pop("$defs")
    config: dict[str, Any] = _with_placeholders(ConfigSpec.model_json_schema(by_alias=True))
    config["properties"]["agents"]["items"] = {"$ref": "#/$defs/AgentSpec"}
    config["$defs"] = {**config.get("$defs", {}), **parts, "AgentSpec": agent}
    return {"$schema": DIALECT, **config}


def _with_placeholders(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_placeholders(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _with_placeholders(one) for key, one in schema.items()}
    if made.get("type") not in _NOT_TEXT:
        return made
    kept = {key: made.pop(key) for key in ("title", "description", "default") if key in made}
    return {"anyOf": [made, _PLACEHOLDER], **kept}
