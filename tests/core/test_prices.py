"""What runs cost."""

import warnings
from dataclasses import replace

import genai_prices
import pytest
from genai_prices import calc_price

from nbagents import Agent, RunBudget, ScriptedChatClient, Usage, runs_df, set_price, tool, tool_call
from nbagents.core import prices
from nbagents.core.errors import BudgetExceededError, ConfigurationError
from nbagents.core.prices import request_cost, warn_of_unknown_price

# US dollars per million tokens of input, cached input, input written to the cache, and output, as the providers' price
# lists had them in November 2026: openai.com/api/pricing, ai.google.dev/pricing, anthropic.com/pricing, x.ai/api.
GOLDEN = {
    "gpt-4o-mini": (0.15, 0.075, None, 0.60),
    "gpt-4o": (2.50, 1.25, None, 10.00),
    "gpt-4.1": (2.00, 0.50, None, 8.00),
    "gpt-5-mini": (0.25, 0.025, None, 2.00),
    "gpt-5": (1.25, 0.125, None, 10.00),
    "o3": (2.00, 0.50, None, 8.00),
    "o4-mini": (1.10, 0.275, None, 4.40),
    "gemini-2.5-flash": (0.30, 0.03, None, 2.50),
    "claude-sonnet-4-5": (3.00, 0.30, 3.75, 15.00),
    "claude-haiku-4-5": (1.00, 0.10, 1.25, 5.00),
    "grok-4": (3.00, 0.75, None, 15.00),
}
SOME = Usage(input_tokens=100_000, output_tokens=20_000, cached_input_tokens=40_000, reasoning_tokens=15_000)
MILLIONS = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cached_input_tokens=500_000, reasoning_tokens=400_000)


@pytest.mark.parametrize(("model", "prices"), GOLDEN.items())
def test_known_models_cost_what_they_cost_each_token_once(model, prices):
    dear, cached, written, output = prices
    assert request_cost(model, SOME) == pytest.approx((60_000 * dear + 40_000 * cached + 20_000 * output) / 1e6)
    if written is not None:
        usage = replace(SOME, cache_write_tokens=10_000)
        by_hand = 50_000 * dear + 40_000 * cached + 10_000 * written + 20_000 * output
        assert request_cost(model, usage) == pytest.approx(by_hand / 1e6)


@pytest.mark.parametrize("model", GOLDEN)
def test_the_table_itself_has_these_prices(model):
    price = calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model_ref=model).model_price
    fields = (price.input_mtok, price.cache_read_mtok, price.cache_write_mtok, price.output_mtok)
    bases = [getattr(field, "base", field) for field in fields]  # some prices rise for long prompts
    assert [None if base is None else float(base) for base in bases] == list(GOLDEN[model])


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openai:gpt-4o", "gpt-4o"),
        ("azure/gpt-4o-mini", "gpt-4o-mini"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("gemini/gemini-2.5-flash", "gemini-2.5-flash"),
        ("anthropic/claude-haiku-4-5", "claude-haiku-4-5"),
        ("openrouter/openai/gpt-4o", "gpt-4o"),
        ("xai/grok-4", "grok-4"),
    ],
)
def test_dated_names_and_names_with_a_provider_cost_the_same(name, model):
    assert request_cost(name, SOME) == pytest.approx(request_cost(model, SOME))


@pytest.mark.parametrize(
    "model",
    [
        "ft:gpt-4o-mini-2024-07-18:acme::x1",
        "openai/ft:gpt-4o-mini-2024-07-18:acme::x1",
        "my-model",
        "nobody/gpt-4o",
        "meta-llama/Llama-3.3-70B-Instruct",
        "/models/llama.gguf",
        "/",
        "",
    ],
)
def test_the_cost_of_an_unknown_model_is_missing(model):
    assert request_cost(model, MILLIONS) is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(input_tokens=1), Usage(output_tokens=1)])
def test_the_cost_of_unknown_counts_is_missing(usage):
    assert request_cost("gpt-4o", usage) is None


def test_counts_that_contradict_each_other_have_no_cost():
    set_price("acme-0", input=1, output=1)
    for model in ("gpt-4o", "acme-0"):
        assert request_cost(model, Usage(10, 10, cached_input_tokens=20)) is None


def test_sound_is_priced_once_and_as_sound_or_not_at_all():
    usage = Usage(1_000_000, 1_000_000, audio_input_tokens=100_000, audio_output_tokens=200_000)
    by_hand = 900_000 * 4 + 100_000 * 32 + 800_000 * 16 + 200_000 * 64
    assert request_cost("gpt-realtime", usage) == pytest.approx(by_hand / 1e6)
    assert request_cost("gpt-4o", usage) is None
    assert request_cost("gpt-4o", Usage(10, 10, audio_input_tokens=0)) is not None


def test_a_price_can_be_set():
    set_price("acme-1", input=2, output=4, cached_input=1, cache_write=3)
    usage = replace(MILLIONS, cache_write_tokens=100_000)
    assert request_cost("acme-1", usage) == pytest.approx(0.4 * 2 + 0.5 * 1 + 0.1 * 3 + 4)
    set_price("acme-1", input=1, output=0)
    assert request_cost("acme-1", usage) == pytest.approx(1)


def test_a_price_that_was_set_goes_before_the_table_by_the_name_that_was_asked_for():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prices, "_own", {})
        set_price("gpt-4o", input=1, output=1)
        assert request_cost("gpt-4o-2024-08-06", MILLIONS, asked="gpt-4o") == pytest.approx(2)
        set_price("deployment", input=3, output=3)
        assert request_cost("gpt-4o", MILLIONS, asked="deployment") == pytest.approx(6)
    assert request_cost("gpt-4o", MILLIONS, asked="deployment") == request_cost("gpt-4o", MILLIONS)
    assert request_cost("snapshot-7", MILLIONS, asked="gpt-4o") == request_cost("gpt-4o", MILLIONS)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "1", None])
def test_what_is_no_price_is_refused(bad):
    for name in ("input", "output", "cached_input", "cache_write"):
        if bad is None and name.startswith("cache"):
            continue
        with pytest.raises(ConfigurationError, match=f"{name} is a number from 0"):
            set_price("acme-1", **({"input": 1, "output": 1} | {name: bad}))
    with pytest.raises(ConfigurationError, match="name of a model"):
        set_price("", input=1, output=1)


def test_an_unknown_price_is_told_once():
    with pytest.warns(UserWarning, match="'acme-2'"):
        warn_of_unknown_price("acme-2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown_price("acme-2")
        warn_of_unknown_price("gpt-4o")


def test_a_model_that_answers_under_another_name_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown_price("snapshot-8", asked="gpt-4o")


def test_tables_warn_once_for_each_model_not_for_each_run():
    class Client(ScriptedChatClient):
        provider = "acme"

    agent = Agent(Client(["x"] * 3, model="acme-5"))
    for _ in range(3):
        agent.run_sync("q")
    with pytest.warns(UserWarning, match="'acme-5'") as warned:
        rows = runs_df()
    assert len(rows) == 3
    assert rows.cost_usd.isna().all()
    assert not rows.cost_complete.any()
    assert [one.filename for one in warned] == [__file__]


def test_a_cost_limit_without_a_price_is_an_error_before_the_first_request():
    agent = Agent(ScriptedChatClient(["x"], model="acme-3"))
    with pytest.raises(ConfigurationError, match="max_cost_usd"):
        agent.run("q", budget=RunBudget(max_cost_usd=1))
    assert agent.client.requests == []


async def test_a_cost_limit_stops_the_run(ask):
    set_price("acme-4", input=1_000_000, output=1_000_000)
    client = ScriptedChatClient([[tool_call("f")], "never"], model="acme-4")
    agent = Agent(client, tools=[tool(name="f")(lambda: 1)])
    with pytest.raises(BudgetExceededError, match=r"cost \$"):
        await ask(agent, "q", budget=RunBudget(max_cost_usd=0.5))
    assert len(client.requests) == 1


async def test_a_request_that_reports_nothing_does_not_lift_the_cost_limit(ask):
    class Client(ScriptedChatClient):
        async def generate(self, request):
            silent = not self.requests
            async for update in super().generate(request):
                kept = [content for content in update.contents if not (silent and content.type == "usage")]
                yield replace(update, contents=kept)

    set_price("acme-6", input=1_000_000, output=1_000_000)
    client = Client([[tool_call("f")], [tool_call("f")], "never"], model="acme-6")
    agent = Agent(client, tools=[tool(name="f")(lambda: 1)])
    with pytest.raises(BudgetExceededError, match=r"cost \$"):
        await ask(agent, "q", budget=RunBudget(max_cost_usd=0.5))
    assert len(client.requests) == 2
