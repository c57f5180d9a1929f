"""A wrong argument is one error at the call that names the right one."""

import inspect
from pathlib import Path

import pytest

from nbagents import (
    Agent,
    AgentSession,
    BaseAgent,
    FileHistoryProvider,
    LocalChatClient,
    Message,
    OpenAIChatClient,
    RecordedChatClient,
    RunBudget,
    ScriptedChatClient,
    SQLHistoryProvider,
)
from nbagents.core.arguments import RunSettings, exact_arguments
from nbagents.core.errors import ConfigurationError

CLIENT = ScriptedChatClient([])
AGENT = Agent(CLIENT, "Help.")


@pytest.mark.parametrize(
    ("call", "settings", "told"),
    [
        (lambda **k: Agent(CLIENT, **k), {"instruction": "x"}, "Agent has no argument 'instruction'.*'instructions'"),
        (lambda **k: Agent(CLIENT, **k), {"temperature": 0}, r"option of the model.*options=\{'temperature'"),
        (lambda **k: Agent(**k), {"tools": []}, "Agent: missing a required argument: 'client'"),
        (lambda: Agent(CLIENT, "x", "y"), {}, "Agent: too many positional arguments"),
        (CLIENT.as_agent, {"tool": []}, "'tools'"),
        (RunBudget, {"max_step": 3}, "RunBudget has no argument 'max_step'.*'max_steps'"),
        (RunBudget, {"colour": 3}, "There are: max_steps, max_tool_calls"),
        (AGENT.as_tool, {"sesion": "fresh"}, "Agent.as_tool has no argument 'sesion'.*'session'"),
        (AGENT.create_session, {"id": "x"}, "There are: session_id"),
        (AGENT.get_session, {}, "missing a required argument: 'service_session_id'"),
        (AGENT.run, {"store": True}, r"option of the model.*options=\{'store'"),
        (AGENT.run_sync, {"sesion": None}, "Agent.run_sync has no argument 'sesion'.*'session'"),
        (AGENT.stream_sync, {"stream": True}, "Agent.stream_sync has no argument 'stream'"),
        (AGENT.start, {"onmessage": print}, "'on_message'"),
        (lambda **k: CLIENT.get_response("q", **k), {"strem": True}, "'stream'"),
        (OpenAIChatClient, {"model": "m", "base_ulr": "x"}, "OpenAIChatClient has no argument 'base_ulr'.*'base_url'"),
        (OpenAIChatClient, {}, "OpenAIChatClient: missing a required argument: 'model'"),
        (lambda **k: ScriptedChatClient([], **k), {"dealy": 1}, "ScriptedChatClient has no argument 'dealy'.*'delay'"),
        (LocalChatClient, {"n_ctxt": 1}, "LocalChatClient has no argument 'n_ctxt'.*'n_ctx'"),
        (lambda **k: RecordedChatClient("x.jsonl", **k), {"mod": "auto"}, "RecordedChatClient has no argument 'mod'"),
        (FileHistoryProvider, {"foldr": "x"}, "FileHistoryProvider has no argument 'foldr'.*'folder'"),
        (SQLHistoryProvider, {"ulr": "sqlite://"}, "SQLHistoryProvider has no argument 'ulr'.*'url'"),
        (lambda **k: Message("user", **k), {"content": "x"}, "Message has no argument 'content'.*'contents'"),
        (Message, {}, "Message: missing a required argument: 'role'"),
        (AgentSession, {"sesion_id": "x"}, "AgentSession has no argument 'sesion_id'.*'session_id'"),
    ],
)
def test_an_argument_that_does_not_exist_names_the_one_that_was_meant(call, settings, told):
    with pytest.raises(ConfigurationError, match=told):
        call(**settings)


@pytest.mark.parametrize("wrong", [{"base_ulr": "x"}, {"max_retries": -1}, {"positional": True}])
def test_no_variable_of_the_traceback_shows_the_key_beside_a_wrong_argument(wrong):
    key = "sk-" + "k1" * 20
    with pytest.raises(ConfigurationError) as caught:
        OpenAIChatClient("m", key) if "positional" in wrong else OpenAIChatClient("m", api_key=key, **wrong)
    shown = [entry.frame.f_locals for entry in caught.traceback if entry.path != Path(__file__)]
    assert shown
    assert key not in repr(shown)


@pytest.mark.parametrize(
    ("replies", "delay", "told"),
    [
        (lambda request: "x", 0, "list with one item.*not function"),
        ("x", 0, r"list with one item.*Use \['x'\]"),
        (None, 0, "list with one item.*not NoneType"),
        (["a"], "1", "delay is a number of seconds from 0, not '1'"),
        (["a"], None, "delay is a number of seconds from 0, not None"),
        (["a"], -1, "delay is a number of seconds from 0, not -1"),
    ],
)
def test_a_script_that_is_no_list_or_a_delay_that_is_no_number_is_told_at_once(replies, delay, told):
    with pytest.raises(ConfigurationError, match=told):
        ScriptedChatClient(replies, delay=delay)


def test_a_type_error_of_the_function_itself_stays_what_it_is():
    @exact_arguments()
    def broken(number):
        return "a" + number

    with pytest.raises(TypeError, match="str") as caught:
        broken(1)
    assert not isinstance(caught.value, ConfigurationError)


def test_signatures_are_exact_for_people_and_editors():
    """One list of what a run takes: type checkers read it by `Unpack`, notebooks by the signature."""
    for call in (Agent.run, Agent.run_sync, Agent.stream_sync, Agent.start):
        parameters = inspect.signature(call).parameters
        assert RunSettings.__annotations__.keys() | {"messages", "options"} <= parameters.keys()
        assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        documented = inspect.getdoc(Agent.run)
        assert all(f"{name}:" in documented for name in parameters if name != "self")
    assert list(inspect.signature(Agent).parameters)[:3] == ["client", "instructions", "id"]
    assert "max_steps" in inspect.signature(RunBudget).parameters
    assert Agent.run_sync.__doc__ or inspect.getdoc(Agent.run_sync) == inspect.getdoc(BaseAgent.run_sync)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"client": ScriptedChatClient}, r"not the class ScriptedChatClient. Pass ScriptedChatClient\(\.\.\.\)"),
        ({"client": str}, "Pass OpenAIChatClient"),
        ({"budget": {"max_steps": 5, "max_tokens": 9}}, r"Pass RunBudget\(max_steps=5, max_tokens=9\)"),
        ({"budget": 5}, r"Pass RunBudget\(max_steps=5\)"),
        ({"history": "chats"}, r"Pass FileHistoryProvider\('chats'\)"),
        ({"history": Path("chats")}, r"Pass FileHistoryProvider\('chats'\)"),
    ],
)
def test_what_stands_in_the_place_of_an_object_names_the_object(settings, told):
    with pytest.raises(ConfigurationError, match=told):
        Agent(**{"client": ScriptedChatClient([]), **settings})
    if "budget" in settings:
        with pytest.raises(ConfigurationError, match=told):
            Agent(ScriptedChatClient([])).run("q", **settings)
