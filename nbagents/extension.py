"""`%load_ext nbagents`: puts the magics into IPython and takes them out again, nothing more."""

from __future__ import annotations

from typing import Any

_TRANSFORMERS = "nbagents_input_transformers"


def load_ipython_extension(shell: Any) -> None:
    """Register `%agent`, `%%agent`, `%%recording` and `%nbagents`; idempotent."""
    from nbagents.notebook.magics import AgentMagics
    from nbagents.notebook.recorded_cell import RecordingCell
    from nbagents.notebook.transform import AgentCell, agent_questions

    unload_ipython_extension(shell)
    shell.register_magics(AgentMagics)
    transformers = [RecordingCell(), AgentCell(), agent_questions]
    shell.input_transformers_cleanup[:0] = transformers
    shell.meta[_TRANSFORMERS] = transformers


def unload_ipython_extension(shell: Any) -> None:
    """Remove what `load_ipython_extension` registered; agents and sessions are kept for the next time."""
    for transformer in shell.meta.pop(_TRANSFORMERS, ()):
        if transformer in shell.input_transformers_cleanup:
            shell.input_transformers_cleanup.remove(transformer)
    for kind, names in {"line": ("agent", "nbagents"), "cell": ("agent", "recording")}.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    shell.magics_manager.registry.pop("AgentMagics", None)
