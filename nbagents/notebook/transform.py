"""How IPython reads a cell of `%%agent`: as an awaited call, so that clicks reach Python while the cell runs."""

from __future__ import annotations

import re

_CELL = re.compile(r"[ \t]*%%agent(?:[ \t]+(.*))?$")
_QUESTION = re.compile(r"(?P<before>\s*(?:[\w., \t]+=\s*)?)%agent[ \t]+(?P<text>.*\?)\s*$")


class AgentCell:
    """Turn a cell that begins with `%%agent` into `await run_cell(options, text)`; leave any other cell.

    It runs before IPython's own transformations, which would take `>>>` and `In [1]:` out of the prompt. The call
    names nothing of the user's namespace, so that it also works after `%reset`.
    """

    has_side_effects = True
    """IPython leaves it out when it asks whether a cell is complete: a terminal's `%%agent` ends with an empty line."""

    def __call__(self, lines: list[str]) -> list[str]:
        first = next((place for place, line in enumerate(lines) if line.strip()), None)
        match = _CELL.match(lines[first].rstrip("\r\n")) if first is not None else None
        if first is None or match is None or not _awaits():
            return lines
        options, text = match.group(1) or "", "".join(lines[first + 1 :])
        return [f"await __import__('nbagents.notebook.cells', fromlist=['run_cell']).run_cell({options!r}, {text!r})\n"]


def _awaits() -> bool:
    """Tell whether cells may await here; with `%autoawait False` the cell magic blocks instead."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is None or bool(shell.autoawait)


def agent_questions(lines: list[str]) -> list[str]:
    """Keep the question mark of a line like `%agent Is this argparse?`: IPython would open the help on `argparse`."""
    if not any(_QUESTION.match(line) for line in lines):
        return lines
    from IPython.core.inputtransformer2 import make_tokens_by_line

    starts = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}  # not inside a string
    return [_as_call(line) if place in starts else line for place, line in enumerate(lines)]


def _as_call(line: str) -> str:
    match = _QUESTION.match(line)
    if match is None:
        return line
    return f"{match['before']}get_ipython().run_line_magic('agent', {match['text']!r})\n"
