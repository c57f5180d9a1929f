"""Runs at given times, for plots to draw: what a real run would have logged, with a clock that the test sets."""

from __future__ import annotations

from typing import Any

from nbagents.core.content import FunctionCall
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.runlog import run_log
from nbagents.core.usage import Usage

START = 1_767_225_600.0
"""The beginning of 2026, UTC."""


class DrawnRun:
    """A run in the log, written step by step; `at` and durations are seconds."""

    def __init__(
        self, agent: str = "helper", *, at: float = 0.0, run_id: str, parent: str | None = None, model: str = "model-a"
    ) -> None:
        self.run_id = run_id
        self.now = START + at
        self.model = model
        self.record = run_log().open(run_id)
        self.step = 0
        self._log(
            "run.started",
            agent=agent,
            agent_id="agent",
            session_id=f"session-of-{run_id}",
            parent_run_id=parent,
            model=model,
            provider="openai",
            params={},
            input=[],
            budget={},
            tags={},
        )

    def _log(self, name: str, **payload: Any) -> None:
        self.record.append(RunEvent(self.run_id, len(self.record.events) + 1, name, self.now, payload))

    def request(
        self,
        seconds: float,
        *,
        ttft: float | None = None,
        tokens: tuple[int, int, int] | None = (100, 0, 10),
        error: str | None = None,
        model: str | None = None,
    ) -> DrawnRun:
        """A request that took `seconds`; `tokens` are input, cached input and output."""
        self.step += 1
        asked = {
            "request_id": f"{self.run_id}-{self.step}",
            "step": self.step,
            "attempt": 1,
            "model": model or self.model,
        }
        self._log("llm.requested", **asked)
        self.now += seconds
        usage = (
            Usage(tokens[0], tokens[2], tokens[0] + tokens[2], cached_input_tokens=tokens[1])
            if tokens is not None
            else None
        )
        end = {"usage": usage, "latency_s": seconds, "ttft_s": ttft}
        if error is None:
            texts = {"text": "", "reasoning": ""}
            deltas = {"n_deltas": 0, "first_delta_at": None, "last_delta_at": None}
            self._log("llm.succeeded", **asked, **end, **texts, **deltas, finish_reason="stop", replayed=False)
        else:
            self._log("llm.failed", **asked, **end, error={"type": error, "code": "error", "message": "no"}, text="")
        return self

    def call(self, tool: str, seconds: float | None, *, status: str = "ok") -> DrawnRun:
        """A call of a tool; None seconds: it has no end yet."""
        call = FunctionCall("", tool, {}, f"call-{self.run_id}-{len(self.record.events)}")
        names = {"tool_id": tool, "call_id": "", "id": call.id, "step": self.step}
        self._log("message.added", message=Message("assistant", [call]))
        self._log("tool.called", **names, params={})
        if seconds is None:
            return self
        self.now += seconds
        if status == "ok":
            self._log("tool.succeeded", **names, result="", duration_s=seconds)
        else:
            self._log(
                "tool.failed", **names, error="no", error_type=None, traceback=None, duration_s=seconds, status=status
            )
        return self

    def wait(self, seconds: float) -> DrawnRun:
        """Time that passes; less than 0 sets the clock back."""
        self.now += seconds
        return self

    def note(self, text: str) -> DrawnRun:
        """What a person says of it."""
        self._log("run.noted", text=text, thumb=None)
        return self

    def end(self, stop_reason: str = "completed", error: str | None = None) -> DrawnRun:
        """The end."""
        described = {"type": error, "code": "error", "message": "no"} if error is not None else None
        self._log(
            "run.ended",
            stop_reason=stop_reason,
            finish_reason=None,
            error=described,
            output_text="",
            usage=None,
            usage_complete=False,
            warnings=[],
        )
        run_log().close(self.record)
        return self


def busy_runs(number: int) -> None:
    """Runs of three agents and two models that overlap; every tenth fails and every twenty-fifth goes on."""
    for i in range(number):
        run = DrawnRun(f"agent-{i % 3}", at=2.0 * i, run_id=f"run-{i}", model=f"model-{'ab'[i % 2]}")
        run.request(1.0 + i % 4, ttft=0.2 + 0.1 * (i % 5), tokens=(100, 30 * (i % 3), 10))
        run.call("search" if i % 2 else "read", 0.5 + i % 3, status="error" if i % 7 == 0 else "ok")
        run.request(1.0, ttft=0.3, error="ServerError" if i % 10 == 9 else None)
        if i % 10 == 9:
            run.end("failed", "ServerError")
        elif i % 25 != 24:
            run.end()


def sub_agents() -> None:
    """A run `top` whose tool `ask` runs a sub-agent, `sub`, one of whose calls fails."""
    top = DrawnRun("boss", run_id="top").request(1.0, ttft=0.25)
    sub = DrawnRun("clerk", at=1.0, run_id="sub", parent="top", model="model-b")
    sub.request(0.5).call("look_up", 0.5, status="error").request(1.0).end()
    top.call("ask", 2.0).request(1.0).end()
