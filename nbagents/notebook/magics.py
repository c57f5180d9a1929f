"""The magics themselves: `%agent`, `%%agent` and `%%recording` where no transformer took them, and `%nbagents`."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from nbagents.core import AgentResponse, NBAgentsError
from nbagents.notebook import recorded_cell, status
from nbagents.notebook.cells import run_line
from nbagents.notebook.options import USAGE
from nbagents.notebook.state import notebook_state


@magics_class
class AgentMagics(Magics):
    """The magics of nbagents."""

    @no_var_expand
    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> AgentResponse[Any] | None:
        """Ask an agent and wait for the answer; interrupt to stop it.

        As `%%agent` its text streams into the cell; that form is an awaited cell of its own wherever cells can await.
        """
        return run_line(line, cell)

    @no_var_expand
    @cell_magic
    def recording(self, line: str, cell: str) -> None:
        """Run the cell and record its model requests; when it runs again they are replayed.

        As a cell's first line it is read before this; this is for `run_cell_magic`.
        """
        recorded_cell.begin(line)
        self.shell.run_cell(cell)  # type: ignore[union-attr]

    @no_var_expand
    @line_magic
    def nbagents(self, line: str) -> None:
        """Show what the magics use here, or change a setting."""
        command, _, rest = line.strip().partition(" ")
        if command == "status" and not rest.strip():
            text = status.status_text(notebook_state())
        elif command == "config":
            try:
                text = status.configure(rest.strip())
            except NBAgentsError as error:
                raise UsageError(str(error)) from None
        else:
            raise UsageError(f"Unknown: %nbagents {line.strip()}\n\n{status.USAGE}" if command else status.USAGE)
        sys.stdout.write(f"{text}\n")


AgentMagics.agent.__doc__ = f"{AgentMagics.agent.__doc__}\n\n{USAGE}\n"
AgentMagics.recording.__doc__ = f"{AgentMagics.recording.__doc__}\n\n{recorded_cell.USAGE}\n"
AgentMagics.nbagents.__doc__ = f"{AgentMagics.nbagents.__doc__}\n\n{status.USAGE}\n"
