"""How a front end turns a kernel's messages into the outputs of a cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Message = dict[str, Any]
Output = dict[str, Any]


def fold(messages: Iterable[Message], execution_id: str) -> list[Output]:
    """Return the outputs of one execution as nbformat has them, with later display updates folded in.

    A display update is applied wherever its display id was shown, whichever cell sent it.
    """
    outputs: list[Output] = []
    shown: dict[str, list[Output]] = {}
    clear_next = False
    for message in messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "update_display_data":
            for output in shown.get(content["transient"]["display_id"], []):
                output.update(data=content["data"], metadata=content["metadata"])
        if message["parent_header"].get("msg_id") != execution_id:
            continue
        if kind == "clear_output":
            clear_next = content["wait"]
            if not clear_next:
                outputs.clear()
        elif kind in _SHAPES:
            if clear_next:
                outputs.clear()
                clear_next = False
            _append(outputs, _SHAPES[kind](content))
            if display_id := content.get("transient", {}).get("display_id"):
                shown.setdefault(display_id, []).append(outputs[-1])
    return outputs


def _append(outputs: list[Output], output: Output) -> None:
    last = outputs[-1] if outputs else {}
    if output["output_type"] == "stream" == last.get("output_type") and output["name"] == last["name"]:
        last["text"] += output["text"]
    else:
        outputs.append(output)


_SHAPES = {
    "stream": lambda c: {"output_type": "stream", "name": c["name"], "text": c["text"]},
    "display_data": lambda c: {"output_type": "display_data", "data": c["data"], "metadata": c["metadata"]},
    "execute_result": lambda c: {
        "output_type": "execute_result",
        "data": c["data"],
        "metadata": c["metadata"],
        "execution_count": c["execution_count"],
    },
    "error": lambda c: {
        "output_type": "error",
        "ename": c["ename"],
        "evalue": c["evalue"],
        "traceback": c["traceback"],
    },
}
