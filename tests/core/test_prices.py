"""What runs cost."""

import warnings

import pytest

from nbagents import Agent, RunBudget, ScriptedChatClient, Usage, set_price, tool, tool_call
from nbagents.core.errors import BudgetExceededError, ConfigurationError
from nbagents.core.prices import request_cost, run_cost, warn_of_unknown_price

# US dollars for a million input tokens, half of them read from the cache, and a million output tokens, as the
# providers published them in November 2026 and genai-prices 0.2.3 has them.
GOLDEN = {
    "gpt-4o-mini": 0.7125,
    "gpt-4o-mini-2024-07-18": 0.7125,
    "gpt-4o": 11.875,
    "gpt-4.1": 9.25,
    "gpt-5-mini": 2.1375,
    "gpt-5-mini-2025-08-07": 2.1375,
    "o4-mini": 5.0875,
    "gemini-2.5-flash": 2.665,
    "deepseek-chat": 0.635,
    "grok-4": 16.875,
}
MILLIONS = Usage(input_tokens=1_000_000, output_tokens=1_000_000, cached_input_tokens=500_000, reasoning_tokens=400_000)


@pytest.mark.parametrize(("model", "dollars"), GOLDEN.items())
def test_known_models_cost_what_they_cost(model, dollars):
    assert request_cost(model, MILLIONS) == pytest.approx(dollars)


@pytest.mark.parametrize("model", ["ft:gpt-4o-mini-2024-07-18:acme::x1", "my-model", ""])
def test_the_cost_of_an_unknown_model_is_missing(model):
    assert request_cost(model, MILLIONS) is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(input_tokens=1), Usage(output_tokens=1)])
def test_the_cost_of_unknown_counts_is_missing(usage):
    assert request_cost("gpt-4o", usage) is None
    assert run_cost("gpt-4o", [MILLIONS, usage]) is None
    assert run_cost("gpt-4o", []) is None


def test_a_price_can_be_set():
    set_price("acme-1", input=2, output=4, cached_input=1)
    assert request_cost("acme-1", MILLIONS) == pytest.approx(0.5 * 2 + 0.5 * 1 + 4)
    with pytest.raises(ConfigurationError, match="from 0"):
        set_price("acme-1", input=-1, output=0)


def test_an_unknown_price_is_told_once():
    with pytest.warns(UserWarning, match="'acme-2'"):
        warn_of_unknown_price("acme-2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown_price("acme-2")
        warn_of_unknown_price("gpt-4o")


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
