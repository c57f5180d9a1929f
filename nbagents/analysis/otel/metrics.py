"""The metrics of runs as they happen: how long operations take, and how many tokens requests use."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.metrics import Meter

from nbagents.analysis.otel.attributes import Attributes

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_DIMENSIONS = (
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"),
    *("gen_ai.agent.name", "gen_ai.tool.name", "server.address", "server.port", "error.type"),
)
"""The attributes of a span that its measurements have too: few values each."""


class RunMetrics:
    """The two histograms of the conventions, with the buckets that they recommend."""

    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def record(self, attributes: Attributes, seconds: float, context: Context) -> None:
        """Take note of an operation that is over.

        Args:
            attributes: all that its span has.
            seconds: how long it took.
            context: has its span, for exemplars.
        """
        dimensions = {name: attributes[name] for name in _DIMENSIONS if name in attributes}
        if attributes.get("nbagents.status") == "invalid":
            dimensions.pop("gen_ai.tool.name", None)  # a model can make up any
        self._duration.record(max(seconds, 0.0), dimensions, context)
        if attributes["gen_ai.operation.name"] != "chat" or "nbagents.replayed" in attributes:
            return  # each token counts once, and those of a recording not again
        counted = {name: value for name, value in dimensions.items() if name != "error.type"}
        for kind in ("input", "output"):
            if (count := attributes.get(f"gen_ai.usage.{kind}_tokens")) is not None:
                self._tokens.record(count, {**counted, "gen_ai.token.type": kind}, context)
