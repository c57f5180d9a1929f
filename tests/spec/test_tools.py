"""The list of tools of a spec: an allow-list of what the program passes, what its service runs, what it may import."""

from __future__ import annotations

from typing import Any

import pytest

from nbagents import Agent, HostedTool, OpenAIResponsesClient, ScriptedChatClient, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.spec import AgentRegistry
from tests.spec.parts import MenuPlugin, add, faults_of, places

RESPONSES = {"type": "openai_responses", "model": {"id": "m", "connection": {"endpoint": "http://localhost:9/v1"}}}


def made(payload: dict[str, Any], **settings: Any) -> Agent:
    if "model" not in payload:
        settings.setdefault("client", ScriptedChatClient(["Hi"]))
    return AgentRegistry.create_from_dict(payload, **settings)


def names(agent: Agent) -> list[str]:
    return [one.tool_id if isinstance(one, FunctionTool) else one.name for one in agent.tools]


def test_the_list_is_the_allow_list() -> None:
    given = [MenuPlugin(), add]
    assert names(made({"tools": ["add", "MenuPlugin.get_price"]}, tools=given)) == ["add", "MenuPlugin.get_price"]
    assert names(made({"tools": ["get_price"]}, tools=given)) == ["MenuPlugin.get_price"]
    assert names(made({"tools": []}, tools=given)) == []
    with pytest.warns(UserWarning, match="no agent of the spec has a list `tools`"):
        assert names(made({}, tools=given)) == []


def test_an_unknown_tool_names_what_there_is() -> None:
    payload: dict[str, Any] = {"tools": [{"id": "MenuPlugin.get_special"}, "sub", {}, "add", "add"]}
    told = [(place, text) for place, _, text in faults_of(payload, tools=[MenuPlugin(), add], client=_client())]
    assert told == [
        ("tools[0]", "there is no tool 'MenuPlugin.get_special'. Did you mean 'MenuPlugin.get_specials'?"),
        ("tools[1]", "there is no tool 'sub'. There are: MenuPlugin.get_specials, MenuPlugin.get_price, add."),
        ("tools[2]", "the field 'id' is missing. It names a function, or type names a tool of the service."),
        ("tools[4]", "the tool 'add' is there twice."),
    ]
    assert "pass tools=[...]" in faults_of({"tools": ["add"]}, client=_client())[0][2]


def test_a_name_that_several_tools_have_wants_the_group() -> None:
    ((_, _, told),) = faults_of({"tools": ["get_price"]}, tools=[MenuPlugin(), MenuPlugin()], client=_client())
    assert told == (
        "'get_price' is the name of several tools. Write one of MenuPlugin.get_price and MenuPlugin_2.get_price."
    )


def test_a_spec_may_describe_and_restrict_a_tool() -> None:
    options = {"approval": "always", "timeout": 2.5}
    agent = made({"tools": [{"id": "add", "description": "Sums up.", "options": options}]}, tools=[add])
    (one,) = agent.tools
    assert isinstance(one, FunctionTool)
    assert (one.definition.description, one.approval, one.timeout) == ("Sums up.", "always", 2.5)
    assert (add.approval, add.timeout) == ("never", None), "the program's own tool stays as it is"
    payload = {"tools": [{"id": "add", "options": {"aproval": "always"}}]}
    ((_, _, told),) = faults_of(payload, tools=[add], client=_client())
    assert told == "aproval: there is no field 'aproval'. Did you mean 'approval'?"


def test_what_needs_approval_by_the_file_ends_the_run_with_a_request() -> None:
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"])
    agent = made({"tools": [{"id": "add", "options": {"approval": "always"}}]}, tools=[add], client=client)
    assert agent.run_sync("1 + 2?").stop_reason == "approval_required"


def test_an_import_path_works_only_for_modules_that_the_program_allows() -> None:
    payload = {"tools": ["tests.spec.parts:add"]}
    ((place, _, told),) = faults_of(payload, client=_client())
    assert place == "tools[0]"
    assert told == (
        "the program does not allow tools of the module 'tests.spec.parts'. "
        "If it should, pass allowed_modules=['tests.spec.parts']."
    )
    assert names(made(payload, allowed_modules=["tests.spec.parts"])) == ["add"]
    assert places(payload, allowed_modules=["tests.spec"], client=_client()) == ["tools[0]"]
    for wrong in ("tests.spec.parts:nope", "tests.spec.parts:MenuPlugin", "tests.spec.nope:add"):
        module = wrong.partition(":")[0]
        assert places({"tools": [wrong]}, allowed_modules=[module], client=_client()) == ["tools[0]"]
    with pytest.raises(ConfigurationError, match="allowed_modules is a list"):
        made(payload, allowed_modules="tests.spec.parts")


def test_hosted_tools_are_listed_by_type() -> None:
    listed: list[Any] = [
        {"type": "web_search", "options": {"search_context_size": "low"}},
        "add",
        {"type": "code_interpreter"},
    ]
    agent = made({**RESPONSES, "tools": listed}, tools=[add])
    assert agent.tools[0] == HostedTool("web_search", {"search_context_size": "low"})
    assert names(agent) == ["web_search", "add", "code_interpreter"]
    assert agent.tools[2] == OpenAIResponsesClient("m", base_url="http://localhost:9/v1").get_code_interpreter_tool()


def test_a_hosted_tool_that_the_client_has_not_is_a_fault() -> None:
    payload: dict[str, Any] = {"tools": [{"type": "web_search"}, {"type": "functon", "id": "a"}]}
    assert places(payload, client=_client()) == ["tools[0]", "tools[1]"]
    payload = {**RESPONSES, "tools": [{"type": "file_search"}, {"type": "web_serch"}]}
    told = [text for _, _, text in faults_of(payload)]
    assert "vector_store_ids" in told[0]
    assert told[1] == "OpenAIResponsesClient runs no tool of the type 'web_serch'. Did you mean 'web_search'?"


def test_agents_are_tools_too() -> None:
    helper = Agent(ScriptedChatClient(["42"]), name="helper", description="Knows.")
    client = ScriptedChatClient([[tool_call("helper", messages="?")], "It is 42."])
    agent = made({"tools": [{"id": "helper"}]}, tools=[helper], client=client)
    assert agent.run_sync("What is it?").text == "It is 42."


def _client() -> ScriptedChatClient:
    return ScriptedChatClient(["Hi"])
