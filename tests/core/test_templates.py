"""Instructions as templates."""

import pytest

from nbagents import Agent, PromptTemplate, ScriptedChatClient, ToolContext, tool, tool_call
from nbagents.core.errors import ConfigurationError

CURLY = 'Reply as {"name": "x"} to {q}; \\frac{a}{b}; { } {context}'


async def system_of(ask, instructions, run_arguments=None, **settings):
    client = ScriptedChatClient(["ok"])
    await ask(Agent(client, instructions, **settings), "q", arguments=run_arguments)
    first = client.requests[0].messages[0]
    return first.text if first.role == "system" else None


async def test_plain_instructions_are_sent_as_they_are(ask):
    """C105"""
    assert await system_of(ask, CURLY, {"q": "x"}) == CURLY


async def test_only_marked_names_are_replaced_and_values_are_not_looked_through_again(ask):
    """C105"""
    text = await system_of(ask, CURLY + " {{$q}} {{ $q }}", {"q": '{"a": 1} {{$q}}'}, template="nbagents")
    assert text == CURLY + ' {"a": 1} {{$q}} {"a": 1} {{$q}}'


async def test_arguments_of_the_run_override_those_of_the_agent_and_change_nothing(ask):
    given = {"name": "Ada", "mood": "calm"}
    text = await system_of(
        ask, "{{$name}} {{$mood}} {{$items}}", {"name": "Bob", "items": [1]}, template="nbagents", arguments=given
    )
    assert text == "Bob calm [1]"
    assert given == {"name": "Ada", "mood": "calm"}


@pytest.mark.parametrize(("template", "text"), [("nbagents", "{{$absent}}"), ("jinja2", "{{ absent }}")])
def test_a_missing_argument_is_an_error_at_the_call_or_empty_by_policy(template, text):
    agent = Agent(ScriptedChatClient(["ok"]), text, template=template, arguments={"there": 1})
    with pytest.raises(ConfigurationError, match=r"absent.*Given: there"):
        agent.run("q")
    assert PromptTemplate(template, missing="empty").render(text, {}) == ""


async def test_jinja2_has_logic_and_escapes_no_html(ask):
    text = "{% for x in xs %}<{{ x }}>{% endfor %}"
    assert await system_of(ask, text, {"xs": ["a&b"]}, template="jinja2") == "<a&b>"


@pytest.mark.parametrize(
    "attack",
    ["{{ ''.__class__.__mro__ }}", "{{ xs.append(1) }}", "{{ cycler.__init__.__globals__.os.popen('id') }}"],
)
def test_jinja2_is_sandboxed(attack):
    with pytest.raises(ConfigurationError):
        PromptTemplate("jinja2").render(attack, {"xs": []})


async def test_instructions_that_render_to_nothing_send_no_system_message(ask):
    assert await system_of(ask, "{{$x}}", {"x": " "}, template="nbagents") is None
    assert await system_of(ask, "") is None


async def test_a_change_of_the_instructions_counts_at_the_next_run(ask):
    client = ScriptedChatClient(["ok", "ok"])
    agent = Agent(client, "one {{$x}}", template="nbagents", arguments={"x": 1})
    session = agent.create_session()
    await ask(agent, "q", session=session)
    agent.instructions = "two {{$x}}"
    await ask(agent, "q", session=session)
    assert [r.messages[0].text for r in client.requests] == ["one 1", "two 1"]
    assert all(m.role != "system" for m in await agent.thread(session).get_messages())


async def test_structured_arguments_reach_tools(ask):
    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        return context.arguments["who"]["name"]

    agent = Agent(ScriptedChatClient([[tool_call("look")], "ok"]), tools=[look])
    response = await ask(agent, "q", arguments={"who": {"name": "Ada"}})
    assert response.messages[1].results[0].result == "Ada"


def test_an_unknown_format_is_an_error():
    with pytest.raises(ConfigurationError, match="'handlebars'"):
        Agent(ScriptedChatClient([]), "x", template="handlebars")
