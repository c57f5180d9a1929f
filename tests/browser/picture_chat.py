"""The picture of the README, taken anew: `pytest tests/browser/picture_chat.py` writes notebooks/images/chat.png."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.chunks import call, delta, finish, usage
from tests.support.lab import LabPage
from tests.support.raw_server import RawServer

PICTURE = Path(__file__).parents[2] / "notebooks" / "images" / "chat.png"
SETUP = """
from nbagents import Agent, Chat, OpenAIChatClient, tool

@tool
def daily_highs(city: str, days: int) -> list[float]:
    "Highest temperatures of the last days, in °C, oldest first."
    return [24.1, 25.3, 27.8, 28.4, 26.9, 25.0, 24.6][-days:]

client = OpenAIChatClient("gpt-5-mini", api_key="unused", base_url="BASE")
agent = Agent(client, name="assistant", tools=[daily_highs])
"""
ANSWER = """\
It was warmest on **Thursday**, with 28.4 °C; the week's mean was $\\bar t = 26.0$ °C.

```python
import pandas as pd

highs = pd.Series([24.1, 25.3, 27.8, 28.4, 26.9, 25.0, 24.6], index="Mo Tu We Th Fr Sa Su".split())
highs.plot.bar(ylabel="°C", title="Rome")
```
"""


@pytest.mark.timeout(120)
def test_take_the_picture(lab_page: LabPage, raw_server: RawServer) -> None:
    gate = threading.Event()
    arguments = '{"city": "Rome", "days": 7}'
    raw_server.reply(call(0, "call_1", "daily_highs", arguments), finish("tool_calls"), usage(148, 21))
    raw_server.reply(*[delta(ANSWER[i : i + 5]) for i in range(0, len(ANSWER), 5)], finish("stop"), usage(201, 117))
    raw_server.reply(delta("Sure. The mean of three days takes the edges off: "), gate, finish("stop"), usage(330, 64))
    lab_page.page.set_viewport_size({"width": 1180, "height": 860})
    cells = [SETUP.replace("BASE", raw_server.base_url).strip(), "chat = Chat(agent)\nchat"]
    lab_page.open(lab_page.lab.write_notebook(cells, "weather.ipynb"))
    lab_page.page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
    lab_page.run_all()
    chat = lab_page.output(1).locator(".nbagents-chat")
    field = chat.get_by_role("textbox")
    for question, answer in [("How warm was it in Rome this week?", "highs.plot.bar"), ("Smooth it, please.", "edges")]:
        field.fill(question)
        field.press("Enter")
        expect(chat.get_by_role("log")).to_contain_text(answer)
    expect(chat.get_by_role("button", name="Stop")).to_be_visible()
    lab_page.cell(1).scroll_into_view_if_needed()
    lab_page.page.locator(".jp-NotebookPanel-notebook").evaluate("panel => panel.scrollTo(0, 1e6)")
    PICTURE.parent.mkdir(exist_ok=True)
    lab_page.page.screenshot(path=PICTURE)
    gate.set()
    expect(chat.get_by_role("button", name="Stop")).to_be_hidden()
    assert PICTURE.stat().st_size < 200_000
