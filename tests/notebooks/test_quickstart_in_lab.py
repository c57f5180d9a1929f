"""The quickstart as a newcomer meets it: Run All in JupyterLab, then a question in the chat panel."""

from __future__ import annotations

import nbformat

from tests.support.lab import Lab, LabPage
from tests.support.tools import ROOT

QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def test_run_all_passes_and_the_chat_goes_on(lab: Lab, lab_page: LabPage) -> None:
    document = nbformat.read(QUICKSTART, as_version=4)
    code = [place for place, cell in enumerate(document.cells) if cell.cell_type == "code"]
    for place in code:
        document.cells[place].update(outputs=[], execution_count=None)
    nbformat.write(document, lab.root / "quickstart.ipynb")
    lab_page.open("quickstart.ipynb")
    lab_page._command("notebook:run-all-cells")
    for place in code:
        lab_page.wait_prompt(place, timeout=120)

    (chat,) = [place for place in code if "Chat(weather" in document.cells[place].source]
    panel = lab_page.cell(chat)
    panel.get_by_role("textbox").last.fill("And in Oslo?")
    lab_page.page.keyboard.press("Enter")
    panel.get_by_text("I cannot say.").first.wait_for()

    panel.locator("[data-nbagents-saved]").get_by_text("I cannot say.").wait_for(state="attached")

    assert lab_page.foreign_requests == []
    lab_page.save()
    saved = nbformat.read(lab.root / "quickstart.ipynb", as_version=4)
    outputs = [output for cell in saved.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [output.get("data", {}) for output in outputs]
    assert len([data for data in shown if WIDGET_VIEW in data]) == 1  # the chat, which stays live
    assert any("I cannot say." in data.get("text/html", "") for data in shown if WIDGET_VIEW not in data)
