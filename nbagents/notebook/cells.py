"""What an `%%agent` cell and an `%agent` line do: find agent and session, run, show the reply, end clearly."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from IPython import get_ipython
from IPython.core.error import UsageError

from nbagents.core import Agent, AgentResponse, AgentSession, NBAgentsError
from nbagents.core.errors import RunCancelledError
from nbagents.core.updates import BEGINS_AGAIN
from nbagents.notebook.options import AgentOptions, OptionError, parse_options
from nbagents.notebook.outputs import CellOutput, reply_output
from nbagents.notebook.state import notebook_state
from nbagents.notebook.variables import fill_variables
from nbagents.widgets.conversation import AgentHandle, Conversation
from nbagents.widgets.places import in_kernel

CLEAN_UP = 1.5  # seconds that an interrupted cell waits for its run


@dataclass(frozen=True, slots=True)
class Question:
    """What a cell or line asks, of whom, in which conversation."""

    agent: Agent
    session: AgentSession
    text: str
    options: AgentOptions

    @property
    def run_options(self) -> dict[str, Any] | None:
        """Options of its run, over the agent's."""
        return {"model": self.options.model} if self.options.model else None


def run_line(line: str, cell: str | None) -> AgentResponse[Any] | None:
    """Ask and block; the text streams to standard output if it is a cell (which then gives nothing back).

    Raises:
        UsageError: wrong options, an unknown agent, no text.
        NBAgentsError: the run failed.
        KeyboardInterrupt: it was interrupted, and the run stopped.
    """
    question = read_question(line, cell)
    _say_notice()
    asked: dict[str, Any] = {"session": question.session, "options": question.run_options}
    try:
        if cell is None:
            return question.agent.run_sync(question.text, **asked)
        with question.agent.stream_sync(question.text, **asked) as updates:
            for update in updates:
                _write(BEGINS_AGAIN if update.retracts else update.text)
    except (NBAgentsError, KeyboardInterrupt) as error:
        raise concise(error) from None
    _write("\n")
    return None


async def run_cell(line: str, cell: str) -> None:
    """Ask and stream the reply into the cell; this is what `%%agent` is turned into.

    Raises:
        UsageError: wrong options, an unknown agent, no text.
        NBAgentsError: the run failed; what there is of the reply stays in the output.
        KeyboardInterrupt: the cell was interrupted, and the run stopped.
    """
    question = read_question(line, cell)
    try:
        if in_kernel():
            await _show_reply(question)
        else:
            await _print_reply(question)
    except NBAgentsError as error:
        raise concise(error) from None


def read_question(line: str, cell: str | None) -> Question:
    """Read the options line and the text of a cell (None: the text is on the line).

    Raises:
        UsageError: wrong options, an unknown agent, no text.
    """
    namespace = _user_variables()
    try:
        options, text = parse_options(line)
        if cell is not None:
            text = "\n".join(part for part in ("" if text.startswith("#") else text, cell.rstrip("\n")) if part)
        elif options.no_wait:
            raise OptionError("--no-wait is for %%agent; use agent.start() for a handle.")
        if not text.strip():
            raise OptionError("There is no question.")
        agent = notebook_state().agent(options.name, namespace)
    except (OptionError, NBAgentsError) as error:
        raise UsageError(str(error)) from None
    if options.vars:
        text = fill_variables(text, namespace)
    session = notebook_state().session(agent, options.session, new=options.new)
    return Question(agent, session, text, options)


async def _show_reply(question: Question) -> None:
    conversation = Conversation(question.agent, question.session, draws_questions=False)
    if notice := notebook_state().take_notice():
        conversation.note(notice)
    output = reply_output(conversation, cell_waits=not question.options.no_wait)
    output.open()
    try:
        handle = conversation.send(question.text, question.run_options)
    except NBAgentsError:
        output.settle()
        raise
    if question.options.no_wait and output.is_live:
        handle.add_done_callback(lambda _: output.settle())
    else:
        await _wait_for(handle, output)


async def _wait_for(handle: AgentHandle, output: CellOutput) -> None:
    try:
        await handle
    except asyncio.CancelledError:
        await _stop(handle)
        raise concise(KeyboardInterrupt("the run was stopped")) from None
    except RunCancelledError:
        return  # by the Stop button: the transcript says so
    finally:
        output.settle()


async def _stop(handle: AgentHandle) -> None:
    """Stop the run and give it a moment to clean up."""
    handle.stop()

    async def ended() -> None:
        try:
            await handle
        except NBAgentsError:
            return

    await asyncio.wait({asyncio.ensure_future(ended())}, timeout=CLEAN_UP)


async def _print_reply(question: Question) -> None:
    """Stream plain text: a terminal draws no widgets."""
    _say_notice()
    reply = question.agent.run(question.text, stream=True, session=question.session, options=question.run_options)
    async with reply:
        async for update in reply:
            _write(BEGINS_AGAIN if update.retracts else update.text)
    _write("\n")


def _say_notice() -> None:
    if notice := notebook_state().take_notice():
        sys.stderr.write(f"{notice}\n")


def concise(error: BaseException) -> BaseException:
    """Have IPython show `error` as one line: the frames of a magic are not the user's."""
    error._render_traceback_ = lambda: [f"{type(error).__name__}: {error}"]  # type: ignore[attr-defined]
    return error


def _user_variables() -> dict[str, Any]:
    """The variables that the user has made, without what IPython puts there (`In`, `exit`, `_` ...)."""
    shell = get_ipython()
    hidden = shell.user_ns_hidden
    return {name: value for name, value in shell.user_ns.items() if hidden.get(name, shell) is not value}


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
