"""`%%recording`: a cell whose model requests are recorded, and replayed when it runs again."""

from __future__ import annotations

import re
import sys
from typing import Any, get_args

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import cell_magic

from nbagents.clients.tape import RecordingMode, Tape
from nbagents.core import NBAgentsError
from nbagents.core.clients import stand_in
from nbagents.notebook.transform import AgentCell

USAGE = """\
%%recording PATH [--mode auto|record|replay] [--timing]

  PATH       a JSON Lines file; quote it if it holds spaces
  --mode     auto: replay what the file holds, record the rest (this is the default)
             record: ask for everything again; replay: ask for nothing
  --timing   let replayed streams come as slowly as they were recorded"""

_CELL = re.compile(r"[ \t]*%%recording(?:[ \t]+(.*))?$")
_WORD = re.compile(r""""([^"]*)"|'([^']*)'|(\S+)""")


class RecordingCell:
    """Turn a cell that begins with `%%recording` into a call that begins the recording, and the rest of the cell.

    So the rest may await, show its last value and be a cell of `%%agent` or of another magic.
    """

    has_side_effects = True
    """IPython leaves it out when it asks whether a cell is complete."""

    def __call__(self, lines: list[str]) -> list[str]:
        first = next((place for place, line in enumerate(lines) if line.strip()), None)
        match = _CELL.match(lines[first].rstrip("\r\n")) if first is not None else None
        if first is None or match is None:
            return lines
        rest = lines[first + 1 :]
        begins = next((place for place, line in enumerate(rest) if line.strip()), 0)
        if rest and rest[begins].lstrip().startswith("%%"):
            rest = cell_magic(AgentCell()(rest[begins:]))  # type: ignore[no-untyped-call]
        call = f"__import__('nbagents.notebook.recorded_cell', fromlist=['begin']).begin({match.group(1) or ''!r})\n"
        return [call, *rest]


def begin(options: str) -> None:
    """Record and replay from here to the end of the cell.

    Raises:
        UsageError: options that cannot be read, or no file to replay.
    """
    shell: Any = get_ipython()
    try:
        tape = _tape(options)
    except NBAgentsError as error:
        raise UsageError(str(error)) from None
    before = stand_in.get()

    def end(_result: Any) -> None:
        stand_in.set(before)
        shell.events.unregister("post_run_cell", end)
        if tape.recorded:
            sys.stderr.write(f"Recorded {tape.recorded} of {tape.recorded + tape.replayed} replies in {tape.path}.\n")

    stand_in.set(tape.answer)
    shell.events.register("post_run_cell", end)


def _tape(options: str) -> Tape:
    words = [next(filter(None, groups), "") for groups in _WORD.findall(options)]
    path: str | None = None
    mode: Any = "auto"
    timing = False
    while words:
        word = words.pop(0)
        if word == "--timing":
            timing = True
        elif word == "--mode":
            if not words or words[0] not in get_args(RecordingMode):
                raise UsageError(f"--mode is one of {', '.join(get_args(RecordingMode))}.\n\n{USAGE}")
            mode = words.pop(0)
        elif word.startswith("-") or path is not None:
            raise UsageError(f"Not understood: {word}\n\n{USAGE}")
        else:
            path = word
    if path is None:
        raise UsageError(f"A path is missing.\n\n{USAGE}")
    return Tape(path, mode, timing=timing)
