"""The kernel driver runs cells, folds their outputs, interrupts, and talks to widgets in real kernels."""

from __future__ import annotations

from tests.support.kernels import Kernel


def test_cells_run_in_order_and_share_a_state(kernel: Kernel) -> None:
    first, second = kernel.submit("x = 20; print('one')"), kernel.submit("x + 1")
    assert kernel.wait(second).text == "21"
    assert kernel.wait(first).stdout == "one\n"
    assert kernel.run("import os; os.getcwd()").text == repr(str(kernel.cwd))


def test_an_error_ends_the_queue(kernel: Kernel) -> None:
    failing, queued = kernel.submit("import time; time.sleep(0.2); 1 / 0"), kernel.submit("'never'")
    failed = kernel.wait(failing)
    assert failed.error is not None
    assert (failed.error.name, failed.outputs[-1]["output_type"]) == ("ZeroDivisionError", "error")
    assert kernel.wait(queued).status == "aborted"
    assert kernel.run("'again'").text == "'again'"


def test_display_updates_are_folded_into_the_output_that_they_change(kernel: Kernel) -> None:
    shown = kernel.run("from IPython.display import HTML\nh = display(HTML('a'), display_id=True)")
    assert [output["data"]["text/html"] for output in shown.outputs] == ["a"]
    assert kernel.run("h.update(HTML('b'))").outputs == []
    assert [output["data"]["text/html"] for output in shown.outputs] == ["b"]


def test_an_interrupt_ends_a_cell_and_the_next_one_works(each_kernel: Kernel) -> None:
    cell = each_kernel.submit("print('go', flush=True)\nimport time\ntime.sleep(30)")
    each_kernel.wait_output(cell, "go")
    each_kernel.interrupt()
    stopped = each_kernel.wait(cell, timeout=10)
    assert stopped.error is not None
    assert stopped.error.name == "KeyboardInterrupt"
    assert each_kernel.run("1 + 1").text == "2"


def test_a_cell_sent_among_other_requests_runs(each_kernel: Kernel) -> None:
    """ipykernel 7.3 overlooks one of them now and then."""
    for _ in range(10):
        for _ in range(3):
            each_kernel._client.kernel_info()
        assert each_kernel.run("1 + 1").text == "2"


def test_a_click_reaches_python(each_kernel: Kernel) -> None:
    each_kernel.run(
        "import ipywidgets\nclicks = []\nbutton = ipywidgets.Button(description='Go')\n"
        "button.on_click(lambda b: (clicks.append(1), setattr(b, 'description', 'Gone')))"
    )
    (button,) = [comm for comm in each_kernel.comms.values() if "description" in comm.state]
    for subshell in (False, True)[: 1 + each_kernel.subshells]:
        each_kernel.comm_click(button.comm_id, subshell=subshell)
    each_kernel.wait_for(lambda: button.state["description"] == "Gone")
    expected = "[1, 1]" if each_kernel.subshells else "[1]"
    each_kernel.wait_for(lambda: each_kernel.run("clicks").text == expected)


def test_custom_messages_and_traits_pass_both_ways(kernel: Kernel) -> None:
    kernel.run(
        "import anywidget, traitlets\n"
        "class W(anywidget.AnyWidget):\n"
        "    _esm = 'export default { render() {} }'\n"
        "    n = traitlets.Int(0).tag(sync=True)\n"
        "w = W()\n"
        "w.on_msg(lambda _, content, buffers: w.send({'echo': content}))"
    )
    (comm,) = [comm for comm in kernel.comms.values() if "n" in comm.state]
    kernel.comm_msg(comm.comm_id, {"say": "hi"})
    kernel.wait_for(lambda: comm.messages == [{"echo": {"say": "hi"}}])
    kernel.comm_update(comm.comm_id, {"n": 7})
    assert kernel.run("w.n").text == "7"
    kernel.run("w.close()")
    assert comm.closed


def test_input_is_answered(kernel: Kernel) -> None:
    cell = kernel.submit("input('Name? ')")
    assert kernel.answer_input("Ada") == "Name? "
    assert kernel.wait(cell).text.endswith("'Ada'")


def test_a_restart_forgets(kernel: Kernel) -> None:
    kernel.run("x = 1")
    kernel.restart()
    forgotten = kernel.run("x").error
    assert forgotten is not None
    assert forgotten.name == "NameError"


def test_the_kernel_sees_no_key_and_no_settings_of_the_user(kernel: Kernel) -> None:
    seen = kernel.run("import os; sorted(k for k in os.environ if 'API_KEY' in k or k.startswith('NBAGENTS_'))")
    assert seen.text in ("[]", "['NBAGENTS_REQUIRE_ALL']", "['NBAGENTS_TEST_CACHE']")
