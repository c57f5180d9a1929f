"""Instructions as templates."""

from datetime import date

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


class Account:
    """An argument that can do more than be read."""

    name = "Ada"
    _pin = "1234"

    def __init__(self) -> None:
        self.closed = False
        self.tags = {"vip": True}

    def close(self) -> None:
        self.closed = True


ATTACKS = [
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id') }}",
    "{{ lipsum.__globals__ }}",
    "{{ account|attr('__class__') }}",
    "{{ account['__init__'].__globals__ }}",
    "{{ '{0.__class__}'.format(account) }}",
    "{{ '{a.__init__.__globals__}'.format_map({'a': account}) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ account._pin }}",
    "{{ account.close() }}",
    "{{ xs.append(1) }}",
    "{{ account.tags.update({'a': 1}) }}",
    "{{ function() }}",
    "{{ path.unlink() }}",
    "{% include 'x' %}",
    "{% import 'os' as os %}",
]
ENDLESS = [
    "{{ range(10**9)|length }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{% set n = namespace(v='ab') %}{% for i in range(60) %}{% set n.v = n.v ~ n.v %}{% endfor %}",
    "{% set n = namespace(v='ab') %}{% for i in range(60) %}{% set n.v = n.v + n.v %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(50) }}",
    "{% for i in range(50000) %}{{ 'x' * 100 }}{% endfor %}",
    "{{ 'a'|center(10**9)|length }}",
    "{{ 'a'|indent(10**9) }}",
    "{{ 'a'.center(10**9)|length }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%999999999d'|format(1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 10**9) }}",
]


@pytest.mark.parametrize("attack", [*ATTACKS, *ENDLESS, "{{ 1 / 0 }}", "{{ '%x' % 'a' }}", "{% if %}", "{{ x }"])
def test_jinja2_is_sandboxed_and_comes_to_an_end(attack, tmp_path):
    file = tmp_path / "kept"
    file.touch()
    account = Account()
    arguments = {"xs": [], "account": account, "function": lambda: "called", "path": file}
    with pytest.raises(ConfigurationError):
        PromptTemplate("jinja2").render(attack, arguments)
    assert (account.closed, account.tags, arguments["xs"], file.exists()) == (False, {"vip": True}, [], True)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{ account.name }} {{ account.tags.vip }}", "Ada True"),
        ("{% for k, v in account.tags.items() %}{{ loop.index }}/{{ loop.length }} {{ k }}{% endfor %}", "1/1 vip"),
        ("{{ day.strftime('%Y') }} {{ ' a '.strip()|upper ~ '!' ~ 1 }}", "2026 A!1"),
        ("{{ '%d of {}'|format(5000000) }} {{ '{:>3}'.format(7000000) }}", "5000000 of {} 7000000"),
        ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ dict(a=1).a }}", "ab1"),
        ("{% for x in [1, 2] if x > 1 %}{{ x }}{{ loop.cycle('a') }}{% else %}none{% endfor %}", "2a"),
        ("{% set _steps = 1 %}{% for x in xs %}{{ x }}{% else %}none{% endfor %}", "none"),
    ],
)
def test_jinja2_reads_structured_arguments(text, rendered):
    arguments = {"account": Account(), "day": date(2026, 11, 30), "xs": []}
    assert PromptTemplate("jinja2").render(text, arguments) == rendered


@pytest.mark.parametrize("template", ["nbagents", "jinja2"])
def test_values_are_never_templates_themselves(template):
    value = "{{$other}} {{ other }} {% if 1 %}x{% endif %} \\1 \\g<0>"
    text = "{{$name}}" if template == "nbagents" else "{{ name }}"
    assert PromptTemplate(template).render(text, {"name": value, "other": "LEAK"}) == value


async def test_names_may_be_of_any_script_and_values_of_any_type(ask):
    text = "{{$größe}} {{$who}} {{$n}} {{$a.b}} {{$}} {{ no }}"
    arguments = {"größe": 1.5, "who": {"name": "Zoë"}, "n": None}
    assert (
        await system_of(ask, text, arguments, template="nbagents") == '1.5 {"name": "Zoë"} None {{$a.b}} {{$}} {{ no }}'
    )


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


@pytest.mark.parametrize("wrong", [["x"], "abc", 3, {1: 2}])
def test_arguments_that_are_no_mapping_of_names_are_an_error_at_the_call(wrong):
    with pytest.raises(ConfigurationError, match="arguments"):
        Agent(ScriptedChatClient(["ok"]), "x", arguments=wrong)
    with pytest.raises(ConfigurationError, match="arguments"):
        Agent(ScriptedChatClient(["ok"]), "x").run("q", arguments=wrong)


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


async def test_instructions_that_name_an_argument_but_are_no_template_warn_once(ask, recwarn):
    text = "Help {{$who}} with {{$what}} and {{other}}."
    with pytest.warns(UserWarning, match=r'\{\{\$who\}\} in them: pass template="nbagents"'):
        agent = Agent(ScriptedChatClient(["ok"] * 3), text, arguments={"who": "Ada"})
    await ask(agent, "q", arguments={"what": "x"})
    agent = Agent(ScriptedChatClient(["ok"] * 3), text, arguments={"other": 1})
    await ask(agent, "q")
    assert list(recwarn) == []
    with pytest.warns(UserWarning, match=r"\{\{\$what\}\}"):
        await ask(agent, "q", arguments={"what": "x"})
    await ask(agent, "q", arguments={"what": "x"})
    assert await system_of(ask, text, arguments={"who": "Ada", "what": 1}, template="nbagents")
    assert list(recwarn) == []
