"""What a person sees in JupyterLab: a cell that streams over HTTP, Stop, interrupts, reloads, the saved notebook."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.support.chunks import call, delta, finish, usage
from tests.support.lab import LabPage
from tests.support.raw_server import RawServer

SETUP = """
%load_ext nbagents
import time
from nbagents import Agent, Chat, OpenAIChatClient, tool

@tool
def temperature(city: str, unit: str = "C") -> dict:
    "The temperature in a city now."
    return {"city": city, "temperature": 21.5, "unit": unit}

@tool(approval="always")
def delete(path: str) -> str:
    "Delete a file."
    return f"{path} is gone"

client = OpenAIChatClient("test-model", api_key="unused", base_url="BASE")
helper = Agent(client, name="helper", tools=[temperature, delete])
"""
ANSWER = """\
It is **21.5 °C** in Rome. To draw it:

```python
import matplotlib.pyplot as plt

plt.bar(["Rome"], [21.5])  # one bar
plt.ylabel("°C")
```

| city | now |
|---|---|
| Rome | 21.5 °C |

- warm, so $E = mc^2$ holds
- and *dry*
"""
HOSTILE = """\
<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg onload="window.hacked=3"></svg>
<iframe srcdoc="<script>parent.hacked=4</script>"></iframe><style>body{display:none}</style>

[click](javascript:window.hacked=5) [data](data:text/html,<script>window.hacked=6</script>)
![pixel](http://127.0.0.1:1/p.png) $\\href{javascript:window.hacked=9}{x}$

<a href="x" onclick="window.hacked=7">link</a> `</code><img src=x onerror=window.hacked=8>`

```html
</code></pre><script>window.hacked=10</script>
```
"""


def setup(server: RawServer) -> str:
    return SETUP.replace("BASE", server.base_url)


def streamed(text: str, *gates: threading.Event) -> list[Any]:
    """Return `text` as chunks of a few characters, the gates in its middle."""
    pieces: list[Any] = [delta(text[i : i + 7]) for i in range(0, len(text), 7)]
    half = len(pieces) // 2
    return [*pieces[:half], *gates, *pieces[half:], finish("stop"), usage(20, 60)]


def asks_for_temperature(server: RawServer) -> None:
    server.reply(
        delta("Let me look that up. "),
        call(0, "call_1", "temperature", '{"city": '),
        call(0, args='"Rome"}'),
        finish("tool_calls"),
        usage(12, 9),
    )


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def test_a_cell_streams_an_answer_with_a_tool_card_that_lasts(
    lab_page: LabPage, raw_server: RawServer, gate: threading.Event
) -> None:
    """C18 in a browser, and the notebook opened again without what made it."""
    asks_for_temperature(raw_server)
    raw_server.reply(*streamed(ANSWER, gate))
    lab_page.open([setup(raw_server), "%%agent -n helper\nHow warm is it in Rome?"]).run_cell(0)
    assert lab_page.output(0).count() == 0
    lab_page.run_cell(1, wait=False)
    output = lab_page.output(1)
    live = output.locator(".nbagents-view")
    expect(live.locator("details.nbagents-tool")).to_contain_text("temperature")
    expect(live).to_contain_text("21.5 °C")
    expect(live.get_by_role("button", name="Stop")).to_be_visible()
    expect(live.get_by_role("log")).to_have_attribute("aria-busy", "true")
    lab_page.screenshot("cell-streaming")
    gate.set()
    lab_page.wait_prompt(1)
    expect(live).to_have_count(0)
    check_answer(output)
    lab_page.screenshot("cell-done")
    (saved,) = lab_page.save()["cells"][1]["outputs"]
    assert set(saved["data"]) == {"text/html", "text/markdown", "text/plain"}
    lab_page.shutdown_kernel()
    lab_page.open(lab_page.name)
    check_answer(lab_page.output(1))
    assert lab_page.foreign_requests == []


def check_answer(output: Locator) -> None:
    expect(output).to_have_count(1)
    expect(output.locator("strong", has_text="21.5 °C")).to_have_count(1)
    expect(output.locator("pre code")).to_contain_text('plt.ylabel("°C")')
    expect(output.locator("table td").last).to_have_text("21.5 °C")
    expect(output.locator("math, mjx-container").first).to_be_visible()
    card = output.locator("details.nbagents-tool")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("Rome")


def test_stop_ends_a_slow_cell_within_a_second(lab_page: LabPage, raw_server: RawServer) -> None:
    raw_server.reply(delta("This will take "), end="stall")
    lab_page.open([setup(raw_server), "%%agent -n helper\nGo", "1 + 1"]).run_cell(0).run_cell(1, wait=False)
    expect(lab_page.output(1)).to_contain_text("This will take")
    pressed = time.monotonic()
    lab_page.output(1).get_by_role("button", name="Stop").click()
    lab_page.wait_prompt(1)
    assert time.monotonic() - pressed < 1
    raw_server.wait_until(lambda: raw_server.hang_ups == 1)
    expect(lab_page.output(1)).to_contain_text("This will take")
    expect(lab_page.output(1)).to_contain_text("topped")
    lab_page.run_cell(2)
    expect(lab_page.output(2)).to_have_text("2")


@pytest.mark.parametrize("cell", ["%%agent -n helper\nGo", "%agent -n helper Go"], ids=["awaited", "blocking"])
def test_an_interrupt_ends_a_cell_within_two_seconds(lab_page: LabPage, raw_server: RawServer, cell: str) -> None:
    """C10 in a browser."""
    raw_server.reply(delta("This will take "), end="stall").reply_text("Back again.")
    lab_page.open([setup(raw_server), cell, "%agent -n helper Again"]).run_cell(0).run_cell(1, wait=False)
    raw_server.wait_until(lambda: len(raw_server.requests) == 1)
    pressed = time.monotonic()
    lab_page.interrupt()
    lab_page.wait_prompt(1)
    assert time.monotonic() - pressed < 2
    expect(lab_page.output(1).last).to_contain_text("KeyboardInterrupt")
    lab_page.run_cell(2)
    expect(lab_page.output(2)).to_contain_text("Back again.")


def test_run_all_with_three_agent_cells(lab_page: LabPage, raw_server: RawServer) -> None:
    for number in range(3):
        raw_server.reply_text(f"Reply number {number}.")
    lab_page.open([setup(raw_server), *(f"%%agent -n helper\nQuestion {n}" for n in range(3))]).run_all()
    for number in range(3):
        expect(lab_page.output(number + 1)).to_have_count(1)
        expect(lab_page.output(number + 1)).to_contain_text(f"Reply number {number}.")


def test_a_chat_is_written_to_reloaded_viewed_twice_and_stored(lab_page: LabPage, raw_server: RawServer) -> None:
    """C17 in a browser: every view shows the same; the stored copy is there without the widget."""
    asks_for_temperature(raw_server)
    raw_server.reply(*streamed(ANSWER))
    raw_server.reply_text("You are welcome.")
    lab_page.open([setup(raw_server), "chat = Chat(helper)\nchat"]).run_all()
    chat = lab_page.output(1).locator(".nbagents-chat")
    field = chat.get_by_role("textbox")
    field.fill("How warm is it")
    field.press("Shift+Enter")
    field.press_sequentially("in Rome?")
    field.press("Enter")
    check_answer(chat.get_by_role("log"))
    expect(chat).to_contain_text("How warm is it\nin Rome?", use_inner_text=True)
    expect(field).to_have_value("")
    field.fill("Thank you!")
    chat.get_by_role("button", name="Send").click()
    expect(chat).to_contain_text("You are welcome.")
    expect(chat.get_by_role("button", name="Stop")).to_be_hidden()
    expect(lab_page.output(1).locator("[data-nbagents-saved]")).to_be_hidden()
    view = lab_page.new_view(1)
    expect(view).to_contain_text("You are welcome.")
    check_answer(view.get_by_role("log"))
    whole = chat.get_by_role("log").inner_html()
    lab_page.save()
    lab_page.reload()
    check_answer(chat.get_by_role("log"))
    assert chat.get_by_role("log").inner_html() == whole
    lab_page.shutdown_kernel()
    lab_page.open(lab_page.name)
    stored = lab_page.output(1).locator("[data-nbagents-saved]")
    expect(stored).to_be_visible()
    check_answer(stored)
    expect(stored).to_contain_text("You are welcome.")


def test_a_page_loaded_again_in_the_middle_shows_what_there_is_and_goes_on(
    lab_page: LabPage, raw_server: RawServer, gate: threading.Event
) -> None:
    asks_for_temperature(raw_server)
    raw_server.reply(*streamed(ANSWER, gate))
    lab_page.open([setup(raw_server), "chat = Chat(helper)\nchat", "chat.send('How warm?'); None"]).run_all()
    log = lab_page.output(1).get_by_role("log")
    expect(log).to_contain_text("To draw it")
    lab_page.save()
    lab_page.reload()
    expect(log).to_contain_text("To draw it")
    expect(log).to_have_attribute("aria-busy", "true")
    gate.set()
    check_answer(log)
    expect(log).to_have_attribute("aria-busy", "false")


def test_keyboard_alone_stops_and_typing_reaches_no_shortcut(
    lab_page: LabPage, raw_server: RawServer, gate: threading.Event
) -> None:
    raw_server.reply(delta("This will take "), end="stall")
    lab_page.open([setup(raw_server), "chat = Chat(helper)\nchat"]).run_all()
    chat = lab_page.output(1).locator(".nbagents-chat")
    field = chat.get_by_role("textbox")
    field.press_sequentially("dd aa xx Go")
    field.press("Enter")
    expect(chat).to_contain_text("This will take")
    field.press("Escape")
    expect(chat.get_by_role("button", name="Stop")).to_be_hidden()
    expect(chat).to_contain_text("topped")
    expect(field).to_be_focused()
    assert lab_page.page.locator(".jp-Notebook-cell").count() == 2


def test_an_approval_shows_the_arguments_and_goes_on_when_clicked(lab_page: LabPage, raw_server: RawServer) -> None:
    """C13 in a browser, after the cell has returned."""
    for _ in range(2):
        raw_server.reply_calls(("c1", "delete", {"path": "data/<b>old</b>.csv"}))
        raw_server.reply_text("So be it.")
    lab_page.open([setup(raw_server), "chat = Chat(helper)\nchat"]).run_all()
    chat = lab_page.output(1).locator(".nbagents-chat")
    chat.get_by_role("textbox").fill("Delete it")
    chat.get_by_role("textbox").press("Enter")
    expect(chat).to_contain_text("data/<b>old</b>.csv")
    lab_page.screenshot("approval")
    chat.get_by_role("button", name="Approve").click()
    expect(chat).to_contain_text("So be it.")
    expect(chat.get_by_role("button", name="Approve")).to_have_count(0)
    assert "is gone" in json.dumps(raw_server.requests[-1])
    chat.get_by_role("textbox").fill("And that")
    chat.get_by_role("textbox").press("Enter")
    chat.get_by_role("button", name="Deny").click()
    expect(chat.get_by_text("So be it.")).to_have_count(2)
    assert "denied" in json.dumps(raw_server.requests[-1])


def test_hostile_text_is_inert_everywhere(lab_page: LabPage, raw_server: RawServer) -> None:
    hostile_call = json.dumps({"city": HOSTILE, "unit": "<img src=x onerror=window.hacked=11>"})
    for _ in range(2):
        raw_server.reply(call(0, "c1", "temperature", hostile_call), finish("tool_calls"))
        raw_server.reply(*streamed(HOSTILE))
    cells = [setup(raw_server), "%%agent -n helper\nGo", "chat = Chat(helper)\nchat"]
    lab_page.open(cells).run_all()
    field = lab_page.output(2).get_by_role("textbox")
    field.fill(HOSTILE)
    field.press("Enter")
    for output in (lab_page.output(1), lab_page.output(2).first):
        expect(output.locator("a.nbagents-image").last).to_be_visible()
        expect(output.locator("pre code").last).to_contain_text("window.hacked=10")
        for link in output.locator("a:not(.nbagents-image)").all():
            assert (link.get_attribute("href") or "").startswith(("http:", "https:", "mailto:"))
    lab_page.save()
    lab_page.reload()
    expect(lab_page.output(1).locator("pre code").last).to_contain_text("window.hacked=10")
    assert lab_page.page.evaluate("() => window.hacked") is None
    assert lab_page.foreign_requests == []
    assert lab_page.page.evaluate("() => getComputedStyle(document.body).display") != "none"
    lab_page.output(2).first.locator("a.nbagents-image").first.click()
    expect(lab_page.output(2).first.locator("img")).to_have_count(1)
    assert lab_page.foreign_requests == ["http://127.0.0.1:1/p.png"]
