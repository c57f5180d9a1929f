"""`Chat` in a real kernel: messages of the widget, the stored copy, every place that a click may arrive on."""

from __future__ import annotations

import time

import pytest

from tests.support.kernels import Comm, Kernel

SETUP = """
import asyncio, gc, weakref
from nbagents import Agent, Chat, ScriptedChatClient, run_log, tool, tool_call
log = []
@tool
async def wait() -> str:
    open("begun", "w").close()
    await asyncio.sleep(20)
    return "waited"
@tool(approval="always")
def delete(path: str) -> str:
    log.append(f"deleted {path}")
    return "gone"
def scripted(*replies, **settings):
    return Agent(ScriptedChatClient(list(replies), **settings), name="helper", tools=[wait, delete])
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def chats(each_kernel: Kernel) -> Kernel:
    assert each_kernel.run(SETUP).ok
    return each_kernel


def panel(kernel: Kernel) -> Comm:
    return [comm for comm in kernel.comms.values() if "snapshot" in comm.state][-1]


def shown(comm: Comm) -> str:
    """Return what a view has drawn, as text: the whole as it was sent last, and the messages since."""
    return str([comm.state["snapshot"], comm.messages])


def test_a_message_is_answered_whether_or_not_a_cell_runs(chats: Kernel) -> None:
    """C12: no other cell has to run; on a subshell too, where the kernel has them."""
    chats.run("chat = Chat(scripted(*['The answer.'] * 3, delay=0.01)); chat")
    places = [False, True] if chats.subshells else [False]
    for n, subshell in enumerate(places, 1):
        chats.comm_msg(panel(chats).comm_id, {"type": "send", "text": f"Question {n}"}, subshell=subshell)
        chats.wait_for(lambda n=n: shown(panel(chats)).count("answer.") == n and panel(chats).state["state"] == "idle")
        assert f"Question {n}" in shown(panel(chats))
    assert chats.run("len(chat.session.state['messages'])").text == str(2 * len(places))


def test_stop_works_after_the_cell_has_returned(chats: Kernel) -> None:
    chats.run("chat = Chat(scripted(['One moment. ', tool_call('wait')], 'Fine.')); chat")
    chats.run("handle = chat.send('Go')")
    chats.wait_for(lambda: (chats.cwd / "begun").exists())
    pressed = time.monotonic()
    chats.wait_for(lambda: panel(chats).state["state"] == "running")
    chats.comm_msg(panel(chats).comm_id, {"type": "stop"})
    chats.wait_for(lambda: panel(chats).state["state"] == "idle" and "Stopped." in shown(panel(chats)))
    assert "One moment." in shown(panel(chats))
    assert time.monotonic() - pressed < 2
    assert chats.run("run_log().runs()[-1].events[-1].payload['stop_reason']").text == "'cancelled'"
    assert chats.run("print(chat.send('Again').result().text)").stdout == "Fine.\n"


def test_stop_right_after_sending_ends_the_run_before_it_begins(chats: Kernel) -> None:
    chats.run("chat = Chat(scripted('Never.', 'Fine.', delay=5)); chat")
    chats.comm_msg(panel(chats).comm_id, {"type": "send", "text": "Go"})
    chats.comm_msg(panel(chats).comm_id, {"type": "stop"})
    chats.run("chat._conversation.end(5); import time; time.sleep(0.2)")
    chats.wait_for(lambda: panel(chats).state["state"] == "idle")
    assert "Never." not in shown(panel(chats))


def test_an_approval_works_after_the_cell_has_returned(chats: Kernel) -> None:
    """C13: nothing hangs; a click resumes the run, once."""
    chats.run("chat = Chat(scripted([tool_call('delete', path='data/x')], 'It is gone.')); chat")
    assert chats.run("print(chat.send('Delete it').result().stop_reason)").stdout == "approval_required\n"
    chats.wait_for(lambda: "data/x" in shown(panel(chats)))
    request = chats.run("print(run_log().runs()[-1].first('approval.requested').payload['id'])").stdout.strip()
    for _ in range(2):
        chats.comm_msg(panel(chats).comm_id, {"type": "answer", "id": request, "approved": True})
    chats.wait_for(lambda: "It is gone." in shown(panel(chats)))
    assert chats.run("log, len(chat._conversation.agent.client.requests)").text == "(['deleted data/x'], 2)"


def test_a_late_view_gets_the_whole_and_a_gap_is_made_up_for(chats: Kernel) -> None:
    """C17: turns before the display are in the state; a view that asks gets what it lacks."""
    chats.run("chat = Chat(scripted('First reply.', 'Second reply.'))")
    chats.run("chat.send('One').result(), chat.send('Two').result()")
    result = chats.run("chat")
    assert all(text in str(panel(chats).state["snapshot"]) for text in ("One", "First", "Two", "Second reply."))
    assert WIDGET in result.outputs[0]["data"]
    comm = panel(chats)
    seen = comm.state["snapshot"]["seq"]
    before = len(comm.messages)
    chats.comm_msg(comm.comm_id, {"type": "sync", "seq": seen})
    chats.comm_msg(comm.comm_id, {"type": "sync", "seq": seen - 1})
    chats.wait_for(lambda: len(comm.messages) > before)
    (whole,) = comm.messages[before:]
    assert (whole["type"], whole["seq"]) == ("whole", seen)
    assert "Second reply." in str(whole["ops"])


def test_the_transcript_is_stored_beside_the_widget_and_freezing_replaces_it(chats: Kernel) -> None:
    """C18: the copy is as new as the last run; frozen, no widget view is left."""
    shown = chats.run("chat = Chat(scripted('First *reply*.', 'Second reply.')); chat")
    assert [WIDGET in output["data"] for output in shown.outputs] == [True, False]
    chats.run("chat.send('One').result()")
    chats.wait_for(lambda: "<em>reply</em>" in shown.outputs[1]["data"]["text/html"])
    assert "First *reply*." in shown.outputs[1]["data"]["text/markdown"]
    chats.run("chat.send('Two').result()")
    frozen = chats.run("chat.freeze()")
    assert frozen.outputs == []
    live, copy = shown.outputs
    assert set(live["data"]) == {"text/html", "text/markdown", "text/plain"}
    assert "Second reply." in live["data"]["text/html"]
    assert copy["data"] == {"text/plain": ""}
    assert panel(chats).closed
    assert "closed" in chats.run("chat.send('Three')").error.value
    assert "Second reply." in chats.run("chat").outputs[0]["data"]["text/plain"]
    assert "Second reply." in chats.run("print(chat.to_markdown())").stdout


def test_a_closed_chat_is_freed(chats: Kernel) -> None:
    chats.run("chat = Chat(scripted('ok')); chat.send('Hi').result(); dead = weakref.ref(chat)")
    chats.run("chat.close(); del chat")
    assert chats.run("import time; time.sleep(0.2); gc.collect(); dead() is None").text == "True"
    from_here = [comm for comm in chats.comms.values() if not comm.closed]
    assert from_here == []
