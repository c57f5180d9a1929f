"""What tokens cost: the one place that knows the price table of `genai-prices` (extra `prices`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache

from nbagents.core.usage import Usage

UNPRICED_PROVIDERS = frozenset({"demo", "local", "scripted"})
"""Nobody sells these, so no price is missing: their cost is unknown, without a warning."""


def run_cost(model: str, usages: Iterable[Usage | None], *, provider: str | None = None) -> float | None:
    """US dollars of several requests to one model; None once the price or a count is unknown, never 0 for unknown.

    Prices are those that ship with `genai-prices`; nothing is fetched.
    """
    costs = [request_cost(model, usage, provider=provider) for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def request_cost(model: str, usage: Usage | None, *, provider: str | None = None) -> float | None:
    """US dollars of one request; None if the model has no known price or the counts were not reported."""
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    if provider in UNPRICED_PROVIDERS or not has_price(model):
        return None
    import genai_prices

    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return float(genai_prices.calc_price(counts, model_ref=model).total_price)


@cache
def has_price(model: str) -> bool:
    """Whether the price of `model` is known; warns once for each model that has none."""
    try:
        import genai_prices
    except ImportError:
        return False
    try:
        genai_prices.calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model_ref=model)
    except LookupError:
        warnings.warn(f"The price of the model {model!r} is unknown; its cost is missing.", stacklevel=2)
        return False
    return True
