"""What tokens cost: the one place that knows the price table of `genai-prices` (extra `prices`)."""

from __future__ import annotations

import importlib.util
import math
import threading
import warnings
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from nbagents.core.callables import depth_of_caller
from nbagents.core.errors import ConfigurationError
from nbagents.core.usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

MILLION = 1_000_000

_PROVIDERS = {
    **{"azure_openai": "azure", "azure_ai": "azure", "bedrock": "aws", "fireworks_ai": "fireworks", "xai": "x-ai"},
    **{"gemini": "google", "vertex_ai": "google", "models": "google", "together_ai": "together"},
}
"""Prefixes of model names, as proxies and gateways write them, that `genai-prices` has under another word."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens; what is None costs as much as other input."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


_own: dict[str, Price] = {}
_warned: set[str] = set()
_lock = threading.Lock()


def set_price(
    model: str, *, input: float, output: float, cached_input: float | None = None, cache_write: float | None = None
) -> None:
    """Set what a model costs, over the price table: for fine-tuned and private models.

    Args:
        model: the name that the client uses or the service returns; the former goes first.
        input: US dollars per million input tokens.
        output: US dollars per million output tokens, reasoning included.
        cached_input: US dollars per million input tokens read from the cache; `input` by default.
        cache_write: US dollars per million input tokens written to the cache; `input` by default.

    Raises:
        ConfigurationError: no name, or a price that is no number from 0.
    """
    if not isinstance(model, str) or not model:
        raise ConfigurationError(f"model is the name of a model, not {model!r}.")
    price = Price(input, output, cached_input, cache_write)
    for field in fields(price):
        value = getattr(price, field.name)
        if value is None and field.name not in ("input", "output"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ConfigurationError(
                f"{field.name} is a number from 0, in US dollars per million tokens, not {value!r}."
            )
    with _lock:
        _own[model] = price


def request_cost(model: str, usage: Usage | None, *, asked: str = "") -> float | None:
    """US dollars of one request; None, never 0, if the model has no known price or the counts were not reported.

    Cached, written and sounding tokens are part of the input, reasoning and sounding ones of the output: each is priced
    once. The table ships with `genai-prices`; nothing is fetched. A fine-tuned model has a price of its own, which is
    unknown until `set_price`.

    Args:
        model: the model that answered.
        usage: what it reported.
        asked: the model that was asked for: a price that was set for it goes first, and the price table is asked for it
            where the name of the model that answered says nothing.
    """
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    own = _own.get(asked) or _own.get(model)
    if own is not None:
        return _own_cost(own, usage, usage.input_tokens, usage.output_tokens)
    known = next((name for name in (model, asked) if _entry(name)), None)
    return None if known is None else _table_cost(known, usage)


def has_price(model: str) -> bool:
    """Whether the price of `model` is known."""
    return model in _own or _entry(model) is not None


def known_prices() -> int:
    """Return a number that is another one when `set_price` has changed what something costs."""
    with _lock:
        return hash(frozenset(_own.items()))


def warn_of_unknown_price(model: str, *, asked: str = "") -> None:
    """Say once for each model that its cost is missing."""
    if has_price(model) or has_price(asked):
        return
    missing = importlib.util.find_spec("genai_prices") is None
    with _lock:
        if (told := "" if missing else model) in _warned:
            return
        _warned.add(told)
    what = "Costs are" if missing else f"The price of the model {model!r} is unknown: its cost is"
    fix = "`pip install genai-prices`, or use set_price()" if missing else "use set_price()"
    warnings.warn(f"{what} missing in the tables. To have it: {fix}.", stacklevel=depth_of_caller())


def _own_cost(price: Price, usage: Usage, sent: int, received: int) -> float | None:
    cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
    if cached + written > sent:
        return None  # the counts contradict each other
    dear = price.input if price.cache_write is None else price.cache_write
    cheap = price.input if price.cached_input is None else price.cached_input
    dollars = (sent - cached - written) * price.input + cached * cheap + written * dear + received * price.output
    return dollars / MILLION


@lru_cache(maxsize=100_000)  # a calculation takes 0.2 ms, and every table asks again
def _table_cost(model: str, usage: Usage) -> float | None:
    import genai_prices

    sounds = {"input_audio_tokens": usage.audio_input_tokens, "output_audio_tokens": usage.audio_output_tokens}
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        **{name: count for name, count in sounds.items() if count},
    )
    try:
        calculated = _calculated(counts, model)
    except ValueError:  # the counts contradict each other: more cached tokens than tokens
        return None
    price = calculated.model_price
    unpriced = any(
        count and getattr(price, f"{name.removesuffix('_tokens')}_mtok", None) is None for name, count in sounds.items()
    )
    return None if unpriced else float(calculated.total_price)  # sound costs a multiple of text


def _calculated(usage: Any, model: str) -> PriceCalculation:
    import genai_prices

    entry = _entry(model)
    assert entry is not None
    provider, name = entry
    return genai_prices.calc_price(usage, model_ref=name, provider_id=provider)


@lru_cache(maxsize=512)
def _entry(model: str) -> tuple[str | None, str] | None:
    """Provider and name under which the table has `model`; None if it does not know it.

    A prefix is taken for the provider where it is one: `openai/gpt-4o`, `azure/gpt-4o`, `models/gemini-2.5-pro`.
    """
    if not model or "ft:" in model or not _installed():  # a fine-tuned model is dearer than its base
        return None
    if _in_table(None, model):
        return None, model
    for sign in "/:":
        prefix, found, name = model.partition(sign)
        provider = _PROVIDERS.get(prefix, prefix)
        if found and name and _in_table(provider, name):
            return provider, name
    return None


@cache
def _installed() -> bool:
    return importlib.util.find_spec("genai_prices") is not None


def _in_table(provider: str | None, name: str) -> bool:
    import genai_prices

    try:
        found = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=1, output_tokens=1), model_ref=name, provider_id=provider
        )
    except LookupError:
        return False
    return provider in (None, found.provider.id)  # words that only resemble a provider are found too
