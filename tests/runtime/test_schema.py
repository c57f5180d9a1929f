"""The page of the kinds of chunks is made from the code."""

from __future__ import annotations

from pathlib import Path

import jsonschema

from nbagents.runtime import RunStreamChunk, RunStreamChunkKind, payload_schemas
from nbagents.runtime.schema import schema_page
from tests.support.tools import check


def test_each_kind_has_a_schema_that_is_closed_and_says_what_its_fields_are() -> None:
    schemas = payload_schemas()
    assert set(schemas) == set(RunStreamChunkKind)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        for form in (schema, *schema.get("$defs", {}).values()):
            fields = form.get("properties", {})
            assert all(field.get("description") for field in fields.values())
            assert form.get("additionalProperties", False) is False
            assert set(form.get("required", ())) == set(fields)


def test_the_page_names_every_kind_and_every_field(tmp_path: Path) -> None:
    page = check("-m", "nbagents.runtime.schema", cwd=tmp_path)
    assert page == f"{schema_page()}\n"
    for kind, schema in payload_schemas().items():
        section = page.partition(f"## {kind}\n")[2].partition("\n## ")[0]
        forms = [schema, *schema.get("$defs", {}).values()] if "anyOf" in schema else [schema]
        assert all(f"| `{name}` |" in section for form in forms for name in form.get("properties", {}))
    assert all(f"| `{name}` |" in page for name in RunStreamChunk.model_fields)


def test_importing_the_runtime_is_cheap(tmp_path: Path) -> None:
    loaded = check("-c", "import sys, nbagents.runtime; print(*sys.modules)", cwd=tmp_path).split()
    assert {"pandas", "matplotlib", "openai", "IPython", "numpy"}.isdisjoint(loaded)
