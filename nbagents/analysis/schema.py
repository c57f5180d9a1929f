"""The columns of all tables as one page: `python -m nbagents.analysis.schema` prints it as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nbagents.analysis.columns import TABLES
from nbagents.analysis.frames import SCHEMA_VERSION, Column
from nbagents.analysis.usage import GROUPINGS, SUMS


def schema_page() -> str:
    """Return the page: each table with its columns, their dtypes and what they say.

    Example:
        >>> schema_page().splitlines()[0]
        '# Tables of nbagents, schema version 1'
    """
    usage = f"one row for each group: the columns of `by` ({', '.join(GROUPINGS)}, tags.NAME), then these sums"
    tables = [_table(name, doc, columns) for name, (columns, doc) in TABLES.items()]
    title = f"# Tables of nbagents, schema version {SCHEMA_VERSION}"
    return "\n\n".join([title, *tables, _table("usage_df", usage, SUMS)])


def _table(name: str, doc: str, columns: Sequence[Column]) -> str:
    rows = "\n".join(f"| `{column.name}` | {column.dtype_name} | {_cell(column.doc)} |" for column in columns)
    return f"## {name}\n\n{doc[0].upper()}{doc[1:]}.\n\n| column | dtype | meaning |\n|---|---|---|\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(f"{schema_page()}\n")
