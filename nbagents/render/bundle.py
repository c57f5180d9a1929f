"""What shows a response in a notebook: HTML, Markdown and plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbagents.render.transcript import Transcript

if TYPE_CHECKING:
    from nbagents.core.responses import AgentResponse


HOW_TO_ANSWER = (
    "Answer with agent.run_sync([r.approve() for r in response.approvals], session=response.session), "
    "or r.deny(reason) for a call that must not run."
)


def response_bundle(response: AgentResponse[Any]) -> dict[str, str]:
    """Return the MIME types of `response` and their values, the same each time."""
    transcript = Transcript.from_messages(response.messages)
    if response.approvals:
        transcript.note(HOW_TO_ANSWER)
    return {
        "text/html": transcript.to_html(),
        "text/markdown": transcript.to_markdown(),
        "text/plain": transcript.to_text(),
    }
