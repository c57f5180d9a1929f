"""The command `nbagents`: its arguments, and what it prints. The work is done elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nbagents import __version__
from nbagents.core import NBAgentsError

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 1 with one line of explanation on stderr."""
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = chosen.command
    try:
        return command(chosen)
    except NBAgentsError as error:
        print(f"nbagents: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # who reads has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
        return 1
    except KeyboardInterrupt:
        print("nbagents: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nbagents", description="Language-model agents for the notebook.")
    parser.add_argument("--version", action="version", version=f"nbagents {__version__}")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_demo, _add_local, _add_run, _add_replay, _add_validate, _add_schema):
        add(subcommands)
    return parser


def _add_demo(subcommands: Subcommands) -> None:
    demo = subcommands.add_parser("demo", help="the quickstart notebook in ./nbagents-demo, opened in JupyterLab")
    demo.add_argument("--no-browser", action="store_true", help="run it to its end instead and write quickstart.html")
    demo.add_argument("--force", action="store_true", help="overwrite a copy that you have edited")
    demo.set_defaults(command=_demo)


def _demo(chosen: argparse.Namespace) -> int:
    from nbagents.notebook.demo import run_demo

    return run_demo(browser=not chosen.no_browser, force=chosen.force, say=print)


def _add_local(subcommands: Subcommands) -> None:
    local = subcommands.add_parser("local", help="the model that runs on this machine, without a key")
    actions = local.add_subparsers(required=True, metavar="ACTION")
    install = actions.add_parser("install", help="fetch its weights, about 93 MB, unless they are there")
    install.add_argument("--path", action="store_true", help="print nothing but the path of the weights")
    install.set_defaults(command=_local_install)


def _local_install(chosen: argparse.Namespace) -> int:
    from nbagents.clients.local import local_extra_installed
    from nbagents.clients.weights import find_weights, install_weights

    present = find_weights()
    path = present or install_weights(progress=not chosen.path)
    if chosen.path:
        print(path)
        return 0
    print(f"The weights {'are there already' if present else 'have been fetched'}: {path}")
    if not local_extra_installed():
        print("The model needs llama.cpp too. Run: pip install xllamacpp")
    return 0


def _add_run(subcommands: Subcommands) -> None:
    run = subcommands.add_parser(
        "run",
        help="run an agent of a file, YAML or JSON",
        description="Run an agent of a file. Its replies go to stdout as they come, what its tools do goes to stderr.",
        epilog="Exit status: 0 it has answered, or refused; 1 the file has faults, or the run failed; 2 wrong "
        "arguments; 3 a call waits for approval; 4 a limit has ended the run; 130 interrupted.",
    )
    run.add_argument("file")
    run.add_argument("prompt", help="what it is asked; - reads it from stdin")
    run.add_argument("--agent", metavar="ID", help="which agent, where the file has several")
    run.add_argument("--settings", metavar="FILE", help="values of ${Section:Key}, YAML or JSON")
    run.add_argument(
        "--allow-module", metavar="NAME", action="append", default=[], help="a module whose functions may be tools"
    )
    run.add_argument("--stream", choices=("text", "jsonl"), default="text", help="jsonl: a line for each chunk")
    run.set_defaults(command=_run)


def _run(chosen: argparse.Namespace) -> int:
    from nbagents.runtime.terminal import run_in_terminal

    return run_in_terminal(
        chosen.file,
        chosen.prompt,
        agent_id=chosen.agent,
        settings=chosen.settings,
        allowed_modules=chosen.allow_module,
        stream=chosen.stream,
    )


def _add_replay(subcommands: Subcommands) -> None:
    replay = subcommands.add_parser(
        "replay",
        help="show a run that `run --stream jsonl` has written",
        epilog="Exit status: 0 it was shown, however it ended; 1 the file cannot be read; 2 wrong arguments.",
    )
    replay.add_argument("file", help="- reads stdin")
    replay.set_defaults(command=_replay)


def _replay(chosen: argparse.Namespace) -> int:
    from nbagents.runtime.terminal import replay_in_terminal

    return replay_in_terminal(chosen.file)


def _add_validate(subcommands: Subcommands) -> None:
    validate = subcommands.add_parser(
        "validate",
        help="check a file of agents, YAML or JSON, without making any",
        description="Check a file of one agent or several. Functions that it lists as tools are taken for granted.",
        epilog="Exit status: 0 the file is valid; 1 it has faults, each shown with its line, or cannot be read; "
        "2 wrong arguments.",
    )
    validate.add_argument("file")
    validate.add_argument("--settings", metavar="FILE", help="values of ${Section:Key}, YAML or JSON")
    validate.add_argument(
        "--without-values", action="store_true", help="take placeholders for granted that have no value here"
    )
    validate.set_defaults(command=_validate)


def _validate(chosen: argparse.Namespace) -> int:
    from nbagents.spec import read_settings, validate_file

    settings = read_settings(chosen.settings) if chosen.settings is not None else None
    faults = validate_file(chosen.file, settings=settings, complete=not chosen.without_values)
    for fault in faults:
        print(f"{chosen.file}: {fault}")
    if not faults:
        print(f"{chosen.file}: valid")
    return 1 if faults else 0


def _add_schema(subcommands: Subcommands) -> None:
    schema = subcommands.add_parser("schema", help="the JSON Schema of a file, for editors")
    schema.add_argument("kind", choices=("agent", "config"), help="of one agent, or of several with their runtime")
    schema.set_defaults(command=_schema)


def _schema(chosen: argparse.Namespace) -> int:
    import json

    from nbagents.spec import spec_schema

    print(json.dumps(spec_schema(chosen.kind), indent=2))
    return 0
