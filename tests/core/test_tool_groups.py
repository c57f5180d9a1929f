"""The `@tool` methods of objects: what they are called, for the model and in the log, and who may live with whom."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from nbagents import Agent, AgentSession, ScriptedChatClient, run_log, tool, tool_call, tool_calls_df
from nbagents.core.errors import ConfigurationError
from nbagents.core.toolset import collect_tools


@dataclass
class MenuPlugin:
    dish: str = "soup"

    @tool
    def get_specials(self) -> str:
        """The dish of the day."""
        return self.dish

    @tool(approval="always", name="order")
    def order_dish(self, count: int) -> str:
        """Order the dish of the day."""
        return f"{count} {self.dish}"


class BarPlugin:
    @tool
    async def get_specials(self) -> str:
        """The drink of the day."""
        return "beer"

    @staticmethod
    @tool
    def price(drink: str) -> int:
        """What a drink costs."""
        return len(drink)


def names(*tools):
    return {one.name: one.tool_id for one in collect_tools(tools)}


def results(response):
    return [result.result for message in response.messages for result in message.results]


def logged(response, name):
    return [event.payload["tool_id"] for event in run_log().get(response.run_id).named(name)]


def test_methods_of_one_object_keep_their_names_and_have_the_ids_of_their_group():
    assert names(MenuPlugin()) == {"get_specials": "MenuPlugin.get_specials", "order": "MenuPlugin.order"}
    assert names(MenuPlugin().get_specials) == {"get_specials": "MenuPlugin.get_specials"}
    assert names(BarPlugin())["price"] == "BarPlugin.price"


def test_methods_of_one_name_are_called_by_their_group_and_a_plain_function_keeps_its_name():
    def get_specials() -> str:
        """All of them."""
        return "all"

    assert names(get_specials, MenuPlugin(), BarPlugin(), MenuPlugin("pie")) == {
        "get_specials": "get_specials",
        "MenuPlugin-get_specials": "MenuPlugin.get_specials",
        "MenuPlugin-order": "MenuPlugin.order",
        "BarPlugin-get_specials": "BarPlugin.get_specials",
        "price": "BarPlugin.price",
        "MenuPlugin_2-get_specials": "MenuPlugin_2.get_specials",
        "MenuPlugin_2-order": "MenuPlugin_2.order",
    }


def test_an_object_that_is_given_twice_is_there_once_and_names_stay_when_tools_are_added():
    menu, pie = MenuPlugin(), MenuPlugin("pie")
    assert len(collect_tools([menu, menu, menu.get_specials])) == 2
    once = collect_tools([menu, pie])
    again = collect_tools([*once, pie, BarPlugin()])
    assert [one.tool_id for one in again[:4]] == [one.tool_id for one in once]
    assert once[0].definition.name == "MenuPlugin-get_specials"


async def test_an_object_of_a_class_that_is_defined_again_in_its_cell_replaces_that_of_the_agent(ask):
    def define(answer):
        class Cell:
            @tool
            def ask(self) -> str:
                """Ask."""
                return answer

        return Cell()

    client = ScriptedChatClient([[tool_call("ask")], "ok"])
    response = await ask(Agent(client, tools=define("old")), "q", tools=define("new"))
    assert response.messages[1].results[0].result == "new"
    assert [one.name for one in client.requests[0].tools] == ["ask"]
    both = collect_tools([define("first"), define("second")])
    assert [(one.tool_id, one()) for one in both] == [("Cell.ask", "first"), ("Cell_2.ask", "second")]


def test_a_group_may_have_a_name_of_its_own_and_every_name_is_one_that_services_take():
    kitchen = [one.in_group("Küche 7") for one in collect_tools(MenuPlugin())]
    named = names(*kitchen, MenuPlugin("pie"))
    assert next(iter(named.values())) == "Küche 7.get_specials"
    assert len(named) == 4
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in named)
    long = type("L" * 80, (MenuPlugin,), {})
    assert all(len(name) <= 64 for name in names(long(), MenuPlugin()))


def test_a_name_that_is_taken_after_all_is_an_error():
    @tool(name="MenuPlugin-get_specials")
    def other() -> None:
        """Do."""

    with pytest.raises(ConfigurationError, match="Two tools are called 'MenuPlugin-get_specials'"):
        collect_tools([MenuPlugin(), BarPlugin(), other])


@pytest.mark.parametrize(
    ("called", "answer"),
    [
        ("MenuPlugin-get_specials", "soup"),
        ("MenuPlugin.get_specials", "soup"),
        ("BarPlugin.get_specials", "beer"),
        ("price", "4"),
        ("BarPlugin-price", "4"),
    ],
)
async def test_the_model_may_call_by_name_or_id_and_log_and_table_tell_the_id(ask, called, answer):
    arguments = {"drink": "beer"} if "price" in called else {}
    client = ScriptedChatClient([[tool_call(called, **arguments)], "ok"])
    response = await ask(Agent(client, tools=[MenuPlugin(), BarPlugin()]), "q")
    tool_id = called.replace("-", ".") if called != "price" else "BarPlugin.price"
    assert results(response) == [answer]
    assert logged(response, "tool.called") == logged(response, "tool.succeeded") == [tool_id]
    assert tool_calls_df(response).tool.tolist() == [tool_id]


async def test_a_name_that_could_mean_two_is_answered_with_the_ones_that_there_are(ask):
    client = ScriptedChatClient([[tool_call("get_specials")], "ok"])
    response = await ask(Agent(client, tools=[MenuPlugin(), BarPlugin()]), "q")
    assert re.fullmatch(
        r"There is no tool 'get_specials'; did you mean '(Menu|Bar)Plugin-get_specials'\?", results(response)[0]
    )
    assert logged(response, "tool.failed") == ["get_specials"]


async def test_a_choice_by_id_reaches_the_client_as_the_name(ask):
    choice = {"type": "function", "function": {"name": "BarPlugin.get_specials"}}
    client = ScriptedChatClient([[tool_call("BarPlugin-get_specials")], "ok"])
    agent = Agent(client, tools=[MenuPlugin(), BarPlugin()], options={"tool_choice": choice})
    assert (await ask(agent, "q")).text == "ok"
    first, second = client.requests
    assert first.options["tool_choice"]["function"] == {"name": "BarPlugin-get_specials"}
    assert "tool_choice" not in second.options
    assert choice == {"type": "function", "function": {"name": "BarPlugin.get_specials"}}


async def test_an_approval_is_asked_for_by_id_and_holds_after_the_session_was_stored(ask):
    client = ScriptedChatClient([[tool_call("MenuPlugin.order", count=2)], "ordered"])
    agent = Agent(client, tools=[MenuPlugin(), BarPlugin()])
    session = agent.create_session()
    first = await ask(agent, "q", session=session)
    assert first.stop_reason == "approval_required"
    assert logged(first, "approval.requested") == ["MenuPlugin.order"]
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    second = await ask(agent, [one.approve() for one in first.approvals], session=session)
    assert (second.text, results(second)) == ("ordered", ["2 soup"])
    assert logged(second, "tool.called") == ["MenuPlugin.order"]
    assert tool_calls_df([first, second]).tool.tolist() == ["MenuPlugin.order"]


def test_a_method_of_the_class_instead_of_an_object_is_an_error_that_says_so():
    with pytest.raises(ConfigurationError, match=r"'get_specials' is a method without its object\. Pass the object"):
        Agent(ScriptedChatClient([]), tools=[MenuPlugin.get_specials])
    with pytest.raises(ConfigurationError, match=r"MenuPlugin'> is no tool\. .*an object that has @tool methods"):
        Agent(ScriptedChatClient([]), tools=[MenuPlugin])


async def test_an_object_can_be_given_alone_even_if_it_can_be_iterated(ask):
    class Shelf:
        def __iter__(self):
            return iter("ab")

        @tool
        def books(self) -> list[str]:
            """All books."""
            return list(self)

    client = ScriptedChatClient([[tool_call("books")], "ok"])
    assert results(await ask(Agent(client), "q", tools=Shelf())) == ['["a", "b"]']
