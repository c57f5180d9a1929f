"""What tokens cost: the one place that knows the price table of `genai-prices` (extra `prices`)."""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from nbagents.core.errors import ConfigurationError
from nbagents.core.usage import Usage

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached_input: float


_own: dict[str, Price] = {}
_warned: set[str] = set()
_lock = threading.Lock()


def set_price(model: str, *, input: float, output: float, cached_input: float | None = None) -> None:
    """Set what a model costs, over the price table: for fine-tuned and private models.

    Args:
        model: the name that the client uses or the service returns.
        input: US dollars per million input tokens.
        output: US dollars per million output tokens, reasoning included.
        cached_input: US dollars per million input tokens read from the cache; `input` by default.

    Raises:
        ConfigurationError: a price below 0.
    """
    price = Price(input, output, input if cached_input is None else cached_input)
    if min(price.input, price.output, price.cached_input) < 0:
        raise ConfigurationError(f"A price is a number from 0, in US dollars per million tokens, not {price}.")
    with _lock:
        _own[model] = price


def run_cost(model: str, usages: Iterable[Usage | None]) -> float | None:
    """US dollars of several requests to one model; None once the price or a count is unknown, never 0 for unknown."""
    costs = [request_cost(model, usage) for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if costs and len(known) == len(costs) else None


def request_cost(model: str, usage: Usage | None) -> float | None:
    """US dollars of one request; None if the model has no known price or the counts were not reported.

    Cached tokens are part of the input and reasoning tokens part of the output: each is priced once. The table ships
    with `genai-prices`; nothing is fetched. A fine-tuned model has a price of its own, which is unknown until
    `set_price`.
    """
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    own = _own.get(model)
    if own is not None:
        cached = min(usage.cached_input_tokens or 0, usage.input_tokens)
        sent = (usage.input_tokens - cached) * own.input + cached * own.cached_input
        return (sent + usage.output_tokens * own.output) / MILLION
    return _table_cost(model, usage) if has_price(model) else None


def has_price(model: str) -> bool:
    """Whether the price of `model` is known."""
    return model in _own or _in_table(model)


def warn_of_unknown_price(model: str) -> None:
    """Say once for each model that its cost is missing."""
    if has_price(model):
        return
    missing = importlib.util.find_spec("genai_prices") is None
    with _lock:
        if (told := "" if missing else model) in _warned:
            return
        _warned.add(told)
    what = "Costs are" if missing else f"The price of the model {model!r} is unknown: its cost is"
    fix = "`pip install genai-prices`, or use set_price()" if missing else "use set_price()"
    warnings.warn(f"{what} missing in the tables. To have it: {fix}.", stacklevel=2)


def _table_cost(model: str, usage: Usage) -> float:
    import genai_prices

    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return float(genai_prices.calc_price(counts, model_ref=model).total_price)


@cache
def _in_table(model: str) -> bool:
    try:
        import genai_prices
    except ImportError:
        return False
    try:
        genai_prices.calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model_ref=model)
    except LookupError:
        return False
    return True
