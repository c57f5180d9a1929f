"""The browser fixture drives JupyterLab as a person does."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.lab import LabPage

pytestmark = pytest.mark.slow  # what it drives is driven by tests/browser all the same

COUNTER = """
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = '''export default {
        render({ model, el }) {
            const button = document.createElement("button");
            button.className = "count";
            const show = () => { button.textContent = "n=" + model.get("n"); };
            button.onclick = () => model.send({ add: 1 });
            model.on("change:n", show);
            show();
            el.append(button);
        }
    }'''
    n = traitlets.Int(0).tag(sync=True)

    def __init__(self):
        super().__init__()
        self.on_msg(lambda widget, content, buffers: widget.set_trait("n", widget.n + content["add"]))

counter = Counter()
counter
"""

FREEZE = """() => {
    setTimeout(() => { const end = performance.now() + 210; while (performance.now() < end); });
}"""


def test_cells_run_and_what_is_saved_is_on_disk(lab_page: LabPage) -> None:
    lab_page.open(["1 + 1", "print('x' * 5)"]).run_cell(0)
    expect(lab_page.output(0)).to_have_text("2")
    lab_page.run_all()
    assert (lab_page.wait_prompt(0), lab_page.wait_prompt(1)) == (2, 3)
    first, second = lab_page.save()["cells"]
    assert first["outputs"][0]["data"] == {"text/plain": ["2"]}
    assert second["outputs"][0]["text"] == ["xxxxx\n"]
    assert lab_page.foreign_requests == []


def test_a_widget_answers_clicks_in_the_cell_a_second_view_and_after_a_reload(lab_page: LabPage) -> None:
    lab_page.open([COUNTER]).run_cell(0)
    button = lab_page.output(0).locator("button.count")
    button.click()
    expect(button).to_have_text("n=1")
    view = lab_page.new_view(0).locator("button.count")
    view.click()
    expect(button).to_have_text("n=2")
    lab_page.save()
    lab_page.reload()
    expect(lab_page.output(0).locator("button.count")).to_have_text("n=2")


def test_an_interrupt_ends_a_running_cell(lab_page: LabPage) -> None:
    lab_page.open(["print('go', flush=True)\nimport time\ntime.sleep(60)"]).run_cell(0, wait=False)
    expect(lab_page.output(0)).to_contain_text("go")
    assert lab_page.prompt(0) == "*"
    lab_page.interrupt()
    lab_page.wait_prompt(0, timeout=20)
    expect(lab_page.output(0).last).to_contain_text("KeyboardInterrupt")


def test_traffic_and_freezes_are_measured(lab_page: LabPage) -> None:
    lab_page.open(["print('x' * 100_000)"])
    with lab_page.measure() as traffic:
        lab_page.run_cell(0)
        lab_page.page.evaluate(FREEZE)
        lab_page.page.wait_for_function("() => window.longTasks.some(duration => duration >= 200)")
    assert 100_000 < traffic.bytes_received < 150_000
    assert max(traffic.long_tasks) >= 200
    assert lab_page.screenshot("measured").stat().st_size > 0


def test_requests_to_other_hosts_are_seen(lab_page: LabPage) -> None:
    lab_page.open(["from IPython.display import HTML\nHTML('<img src=\"http://127.0.0.1:1/x.png\">')"]).run_cell(0)
    expect(lab_page.output(0).locator("img")).to_have_count(1)
    lab_page.page.wait_for_load_state("networkidle")
    assert set(lab_page.foreign_requests) == {"http://127.0.0.1:1/x.png"}
