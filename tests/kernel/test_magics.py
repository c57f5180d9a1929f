"""`%%agent`, `%agent` and `%nbagents` in a real kernel."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.kernels import Kernel, Result

SETUP = """
%load_ext nbagents
import asyncio, threading
from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
log = []
@tool
def add(a: int, b: int) -> int:
    return a + b
@tool
async def wait() -> str:
    open("begun", "w").close()
    await asyncio.sleep(20)
    open("late.txt", "w").close()
    return "waited"
@tool(approval="always")
def delete(path: str) -> str:
    log.append(f"deleted {path}")
    return "gone"
def scripted(*replies, name="helper", **settings):
    return Agent(ScriptedChatClient(list(replies), **settings), name=name, tools=[add, wait, delete])
def texts(agent, session):
    return [m.text for m in asyncio.run(agent.thread(session).get_messages())]
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def magics(kernel: Kernel) -> Kernel:
    return loaded(kernel)


@pytest.fixture
def each_magics(each_kernel: Kernel) -> Kernel:
    return loaded(each_kernel)


def loaded(kernel: Kernel) -> Kernel:
    result = kernel.run(SETUP)
    assert result.ok, result
    assert result.outputs == []
    return kernel


def view(kernel: Kernel, field: str = "snapshot") -> Any:
    """Return the widget model of the newest transcript."""
    return [comm for comm in kernel.comms.values() if field in comm.state][-1]


def the_output(result: Result) -> dict[str, Any]:
    """Return the data of the one output, which is the lasting form."""
    assert len(result.outputs) == 1, result.outputs
    data: dict[str, Any] = result.outputs[0]["data"]
    assert set(data) == {"text/html", "text/markdown", "text/plain"}
    return data


def test_a_cell_streams_and_leaves_one_lasting_output(magics: Kernel) -> None:
    """C18: exactly one output, no widget view, and nothing arrives after the cell is idle."""
    magics.run("helper = scripted(['Let me see. ', tool_call('add', a=1, b=2)], 'It is **3**, \"sure\".', delay=0.02)")
    result = magics.run("%%agent -n helper\nWhat is 1+2?")
    assert result.ok
    data = the_output(result)
    assert "<strong>3</strong>" in data["text/html"]
    assert "add" in data["text/plain"]
    assert 'It is **3**, "sure".' in data["text/markdown"]
    shown = view(magics)
    assert [m["type"] for m in shown.messages].count("patch") > 2
    assert shown.closed
    magics.run("import time; time.sleep(0.3)")
    kinds = [(m["msg_type"], m["content"].get("execution_state")) for m in magics.iopub]
    idle = [i for i, kind in enumerate(kinds) if kind == ("status", "idle")]
    assert {kind for kind, _ in kinds[idle[-2] + 1 :]} == {"status", "execute_input"}


def test_the_session_is_remembered_by_name_until_it_is_new(magics: Kernel) -> None:
    magics.run("helper = scripted(*['ok'] * 9); sent = lambda: len(helper.client.requests[-1].messages)")
    for options, messages in [("", 1), ("", 3), ("-s trip", 1), ("-s trip", 3), ("-s trip --new", 1), ("", 5)]:
        assert magics.run(f"%%agent -n helper {options}\nHi").ok
        assert magics.run("sent()").text == str(messages)
    assert magics.run("r = %agent -n helper -s trip don't split me\nprint(r.text, sent())").text == "ok 3\n"
    assert magics.run("helper.client.requests[-1].messages[-1].text").text == '"don\'t split me"'


@pytest.mark.parametrize(
    "cell",
    [
        "{b: a for a, b in pairs}",
        'log({"level": "x"})',
        "const s = `${x}`; {}",
        r"\frac{a}{b} {In[3]} {x}",
        ">>> 1 + 1\n... \nIn [1]: x",
        "  indented\n\n    more ' and \" and \\",
        "what is --model in argparse?",
        "%agent\n%%agent",
    ],
)
def test_the_cell_reaches_the_model_as_it_was_typed(magics: Kernel, cell: str) -> None:
    """C100, C102."""
    magics.run("a = b = x = 'VALUE'; helper = scripted('ok')")
    assert magics.run(f"%%agent -n helper\n{cell}").ok
    assert magics.run("print(helper.client.requests[0].messages[0].text, end='')").stdout == cell


def test_a_line_is_left_as_it_was_typed_too(magics: Kernel) -> None:
    """C100, C102: no braces, no dollars, and a question mark is no call for help."""
    magics.run("x = 'VALUE'; helper = scripted(*['ok'] * 3)")
    for line in ["what is --model in argparse?", "don't {x} $x", "C:\\My Docs\\a.yaml # note"]:
        assert magics.run(f"%agent -n helper {line}").ok
        assert magics.run("print(helper.client.requests[-1].messages[-1].text, end='')").stdout == line


def test_variables_are_filled_in_on_request_only(magics: Kernel) -> None:
    """C100."""
    magics.run("x, text = 3, '{x}'; helper = scripted('ok', 'ok'); asked = lambda: helper.client.requests[-1]")
    magics.run("%%agent -n helper --vars --new\n{x} {text} {exit} {unknown} {x + 1}")
    assert magics.run("print(asked().messages[-1].text)").stdout == "3 {x} {exit} {unknown} {x + 1}\n"
    magics.run("%%agent -n helper --new\n{x}")
    assert magics.run("print(asked().messages[-1].text)").stdout == "{x}\n"


def test_another_model_for_one_question(magics: Kernel) -> None:
    magics.run("helper = scripted('ok', 'ok')")
    magics.run('%%agent -n helper --model "my model" # note\nHi')
    magics.run("%%agent -n helper\nHi")
    assert magics.run("[r.options.get('model') for r in helper.client.requests]").text == "['my model', None]"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%agent --modle x\nHi", "There is no option --modle"),
        ("%agent -f a.yaml Hi", "There is no option -f"),
        ("%%agent\n\n", "There is no question"),
        ("%%agent -n nobody\nHi", "No variable holds an agent 'nobody'"),
        ("%agent --no-wait Hi", "--no-wait is for %%agent"),
        ("%nbagents", "%nbagents status"),
        ("%nbagents doctr", "Unknown: %nbagents doctr"),
        ("%nbagents config colour=red", "There is no setting 'colour'. The settings are: loop."),
        ("%nbagents config loop=uvloop", "It is one of: thread, same-thread."),
    ],
)
def test_a_wrong_line_gives_one_message_and_no_traceback(magics: Kernel, cell: str, message: str) -> None:
    """C102."""
    result = magics.run(cell)
    assert not result.ok
    assert message in result.stderr
    assert "Traceback" not in str(result.outputs)
    assert [o["output_type"] for o in result.outputs] == ["stream"]


def test_loading_twice_reloading_and_unloading_are_clean(magics: Kernel) -> None:
    """C103: one transformer each, the sessions stay, nothing is left after unloading, `%reset` does no harm."""
    names = (
        "[type(t).__name__ if type(t).__name__ != 'function' else t.__name__ for t in ip.input_transformers_cleanup]"
    )
    count = f"ip = get_ipython(); names = {names}; names.count('AgentCell'), names.count('agent_questions')"
    magics.run("helper = scripted(*['ok'] * 9)\nfrom nbagents.extension import load_ipython_extension")
    magics.run("%%agent -n helper\nHi")
    assert magics.run(count).text == "(1, 1)"
    magics.run("%load_ext nbagents")
    magics.run("load_ipython_extension(get_ipython())")
    assert magics.run(count).text == "(1, 1)"
    assert magics.run("%reload_ext nbagents").outputs == []
    assert magics.run(count).text == "(1, 1)"
    magics.run("%%agent -n helper\nHi")
    assert magics.run("len(helper.client.requests[-1].messages)").text == "3"
    magics.run("%unload_ext nbagents")
    assert magics.run(count).text == "(0, 0)"
    assert "UsageError" in magics.run("%%agent\nHi").stderr
    assert "UsageError" in magics.run("%nbagents status").stderr
    magics.run("%load_ext nbagents\nimport os; os.environ['NBAGENTS_CLIENT'] = 'demo'")
    assert magics.run("%%agent\nHi").ok
    magics.run("%reset -f")
    again = magics.run("%%agent\nHi")
    assert again.ok
    assert "scripted demo" in the_output(again)["text/plain"]


def test_the_first_default_agent_says_which_client_it_has(magics: Kernel) -> None:
    magics.run("import os; os.environ['NBAGENTS_CLIENT'] = 'demo'")
    assert "NBAGENTS_CLIENT" in the_output(magics.run("%%agent\nHi"))["text/plain"]
    assert "NBAGENTS_CLIENT" not in the_output(magics.run("%%agent\nHi"))["text/plain"]


@pytest.mark.parametrize("cell", ["%%agent -n helper\nGo", "%agent -n helper Go"])
def test_an_interrupt_stops_the_run_and_the_session_goes_on(each_magics: Kernel, cell: str) -> None:
    """C10: within two seconds, the file is never written, the partial turn is balanced."""
    kernel = each_magics
    kernel.run("helper = scripted(['One moment. ', tool_call('wait')], 'Fine.')")
    running = kernel.submit(cell)
    wait_for_tool(kernel)
    pressed = time.monotonic()
    kernel.interrupt()
    result = kernel.wait(running)
    assert time.monotonic() - pressed < 2
    assert result.error is not None
    assert result.error.name == "KeyboardInterrupt"
    assert len(result.error.traceback.splitlines()) == 1
    if cell.startswith("%%"):
        lasting = result.outputs[0]["data"]
        assert WIDGET not in lasting
        assert "One moment." in lasting["text/plain"]
        assert [o["output_type"] for o in result.outputs] == ["display_data", "error"]
    assert kernel.run("run_log().runs()[-1].events[-1].payload['stop_reason']").text == "'cancelled'"
    after = kernel.run(cell.replace("Go", "Again"))
    assert after.ok
    assert "Fine." in after.text
    kernel.run("import time; time.sleep(0.2)")
    assert not (kernel.cwd / "late.txt").exists()


def wait_for_tool(kernel: Kernel) -> None:
    """Return once the tool has begun, as the kernel's file system says: a blocked kernel answers nothing."""
    kernel.wait_for(lambda: (kernel.cwd / "begun").exists())


def test_three_queued_cells_run_one_after_the_other(each_magics: Kernel) -> None:
    each_magics.run("helper = scripted(*[f'Reply {i}.' for i in range(3)], delay=0.02)")
    cells = [each_magics.submit(f"%%agent -n helper\nQuestion {i}") for i in range(3)]
    for i, cell in enumerate(cells):
        result = each_magics.wait(cell)
        assert result.ok
        assert f"Reply {i}." in the_output(result)["text/plain"]
    assert each_magics.run("len(helper.client.requests[-1].messages)").text == "5"


def test_a_stop_click_ends_the_awaited_cell(magics: Kernel) -> None:
    """The click reaches Python while the cell runs; the cell ends well, with the partial reply."""
    magics.run("helper = scripted(['One moment. ', tool_call('wait')], 'Fine.')")
    running = magics.submit("%%agent -n helper\nGo")
    wait_for_tool(magics)
    pressed = time.monotonic()
    magics.comm_msg(view(magics).comm_id, {"type": "stop"})
    result = magics.wait(running)
    assert time.monotonic() - pressed < 2
    assert result.ok
    assert "One moment." in the_output(result)["text/plain"]
    assert "stopped" in the_output(result)["text/plain"].lower()
    assert "Fine." in magics.run("%%agent -n helper\nAgain").text


def test_the_stop_button_is_shown_only_where_its_click_arrives(each_magics: Kernel) -> None:
    """A cell that waits on ipykernel 6 hears no widget: there the view names the interrupt button."""
    kernel = each_magics
    kernel.run("helper = scripted('One.', 'Two.')")
    kernel.run("%%agent -n helper\nGo")
    assert view(kernel).state["can_stop"] is (kernel.version >= (7, 0))
    kernel.run("%%agent -n helper --no-wait\nGo")
    assert view(kernel).state["can_stop"] is True


def test_no_wait_returns_at_once_and_the_output_lasts_later(each_magics: Kernel) -> None:
    kernel = each_magics
    kernel.run("helper = scripted('Done at last.', delay=0.2)")
    result = kernel.run("%%agent -n helper --no-wait\nGo")
    assert WIDGET in result.outputs[0]["data"]
    kernel.wait_for(lambda: WIDGET not in result.outputs[0]["data"])
    assert "Done at last." in the_output(result)["text/plain"]
    kernel.wait_for(lambda: view(kernel).closed)


def test_a_failed_run_keeps_what_there_is_and_the_cell_says_why_in_one_line(magics: Kernel) -> None:
    failing = "['Half a ', 'reply', RuntimeError('the model is gone')]"
    magics.run(f"helper = scripted({failing}, {failing}, 'Fine.')")
    (error,) = magics.run("%agent -n helper Go").outputs
    assert len(error["traceback"]) == 1
    result = magics.run("%%agent -n helper\nGo")
    assert result.error is not None
    assert "the model is gone" in result.error.value
    assert len(result.error.traceback.splitlines()) == 1
    shown, error = result.outputs
    assert WIDGET not in shown["data"]
    assert "Half a reply" in shown["data"]["text/plain"]
    assert "the model is gone" in shown["data"]["text/plain"]
    assert error["output_type"] == "error"
    assert "Fine." in magics.run("%%agent -n helper\nAgain").text


def test_an_approval_in_a_cell_waits_for_its_buttons(magics: Kernel) -> None:
    """C13: the cell returns, the view stays, a click resumes the run, then the output becomes lasting."""
    magics.run("helper = scripted([tool_call('delete', path='data/x')], 'It is gone.')")
    result = magics.run("%%agent -n helper\nDelete it")
    assert result.ok
    assert WIDGET in result.outputs[0]["data"]
    assert "data/x" in result.outputs[0]["data"]["text/plain"]
    assert magics.run("log").text == "[]"
    request = magics.run("print(run_log().runs()[-1].first('approval.requested').payload['id'])").stdout.strip()
    for _ in range(2):
        magics.comm_msg(view(magics).comm_id, {"type": "answer", "id": request, "approved": True})
    magics.wait_for(lambda: WIDGET not in result.outputs[0]["data"])
    assert "It is gone." in the_output(result)["text/plain"]
    assert magics.run("log, len(helper.client.requests)").text == "(['deleted data/x'], 2)"


def test_keys_are_set_or_not_set_and_never_shown(magics: Kernel) -> None:
    """C108: no six characters of a key in status, widget state or outputs."""
    key = "kJ7pQ2vX9mL4tR8wZ1"
    magics.run(f"import os; os.environ['OPENAI_API_KEY'] = '{key}'\nfrom nbagents import OpenAIChatClient")
    magics.run("os.environ['OPENAI_BASE_URL'] = 'http://127.0.0.1:1/v1'; os.environ['NBAGENTS_MODEL'] = 'm'")
    before = len(magics.iopub)
    status = magics.run("%nbagents status").stdout
    assert "OPENAI_API_KEY set" in status
    assert "AZURE_OPENAI_API_KEY not set" in status
    failed = magics.run("%%agent\nHi")
    assert not failed.ok
    assert "OpenAIChatClient, model m" in magics.run("%nbagents status").stdout
    magics.run("from nbagents.notebook.state import notebook_state\nnotebook_state().default_agent")
    published = str(magics.iopub[before:])
    assert all(key[i : i + 6] not in published for i in range(len(key) - 5))


def test_the_loop_mode_is_a_setting(magics: Kernel) -> None:
    assert magics.run("%nbagents config").stdout == "loop=thread\n"
    assert magics.run("%nbagents config loop=same-thread").stdout == "loop=same-thread\n"
    assert "loop      same-thread" in magics.run("%nbagents status").stdout
    assert magics.run("%nbagents config loop=thread").stdout == "loop=thread\n"


def test_a_cell_blocks_where_cells_cannot_await(magics: Kernel) -> None:
    magics.run("helper = scripted('Blocking is fine.', delay=0.01)")
    magics.run("%autoawait False")
    assert magics.run("%%agent -n helper\nHi").stdout == "Blocking is fine.\n"
