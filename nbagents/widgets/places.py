"""Where output goes: a kernel or a terminal, whether a person with a browser is at the other end, and how to put it
there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from IPython import get_ipython
from IPython.display import publish_display_data

WAIT = "NBAGENTS_WAIT"
"""Set to 1 where nobody looks at the outputs: cells wait for their agents and show the lasting form at once."""


def in_kernel() -> bool:
    """Tell whether this code runs in a Jupyter kernel, not in a script or a terminal."""
    return hasattr(get_ipython(), "kernel")


def front_end_listens() -> bool:
    """Tell whether a person can see and click a widget here.

    A program that executes notebooks (nbclient, papermill, nbval, nbconvert) says in each request that nobody can
    answer `input()`; every front end for people says the opposite.
    """
    if not in_kernel() or os.environ.get(WAIT) == "1":
        return False
    request = get_ipython().kernel.get_parent("shell")
    return bool(request.get("content", {}).get("allow_stdin", True))


def delivers_clicks() -> bool:
    """Tell whether a widget's messages reach Python while a cell awaits: from ipykernel 7 on."""
    version: str = get_ipython().kernel.implementation_version
    return int(version.partition(".")[0]) >= 7


def show(
    bundle: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any] | None = None,
    display_id: str | None = None,
    update: bool = False,
) -> None:
    """Display a MIME bundle here, or with `update` wherever `display_id` was displayed; from any thread."""
    transient = {"display_id": display_id} if display_id else {}
    publish_display_data(bundle, metadata, transient=transient, update=update)  # type: ignore[no-untyped-call]
