"""What holds for every kind of thread: the test class of a kind inherits `ThreadContract` and says what it is."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from nbagents import (
    Agent,
    AgentSession,
    InMemoryHistoryProvider,
    LocalThread,
    Message,
    Thread,
    copy_thread,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.errors import ConfigurationError, SessionError, ThreadDeletedError

pytestmark = pytest.mark.filterwarnings("ignore:The service still stores")


@tool
def add(a: int, b: int) -> int:
    return a + b


def roundtrip(session: AgentSession) -> AgentSession:
    return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))


def shown(messages: list[Message]) -> list[tuple[str, str]]:
    """Role and what is said, called or answered."""
    return [
        (m.role, m.text or "".join(c.name for c in m.calls) or "".join(r.result for r in m.results)) for m in messages
    ]


SAID = [("user", "1 + 2?"), ("assistant", "add"), ("tool", "3"), ("assistant", "It is 3.")]


class ThreadContract(ABC):
    """The rules.

    Attributes:
        at_service: messages live at a service.
        made_by_create: `create` gives it an id; else the first reply does.
        flags: `accepts_external_messages` and `can_delete`.
        kind: what texts call it.
    """

    at_service: ClassVar[bool] = True
    made_by_create: ClassVar[bool] = True
    flags: ClassVar[tuple[bool, bool]] = (True, True)
    kind: ClassVar[str]

    @abstractmethod
    def agent(self, *replies: Any, **settings: Any) -> Agent:
        """Return an agent whose model gives these replies, and whose threads are of this kind."""

    @abstractmethod
    def asked(self) -> int:
        """How often the service was asked for something since the test began."""

    @abstractmethod
    def kept(self, session: AgentSession, thread_id: str) -> bool:
        """Whether the messages are still where they were."""

    async def talk(self, session: AgentSession) -> Agent:
        agent = self.agent([tool_call("add", a=1, b=2)], "It is 3.", "Yes.", tools=[add])
        await agent.run("1 + 2?", session=session)
        return agent

    async def test_it_says_what_it_can_do(self) -> None:
        thread = self.agent("ok").thread(AgentSession("trip"))
        assert isinstance(thread, Thread)
        assert thread.stores_locally is not self.at_service
        assert (thread.accepts_external_messages, thread.can_delete) == self.flags
        assert thread.can_read
        assert thread.kind == self.kind

    async def test_there_is_no_id_until_the_messages_live_somewhere(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        thread = agent.thread(session)
        assert thread.id == (None if self.at_service else "trip")
        await thread.create()
        assert (thread.id is not None) is self.made_by_create
        await agent.run("q", session=session)
        assert thread.id is not None
        assert agent.thread(roundtrip(session)).id == thread.id

    async def test_create_makes_one_thread_also_if_several_ask_at_once(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        await asyncio.gather(*[agent.thread(session).create() for _ in range(5)])
        first = agent.thread(session).id
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: asyncio.run(agent.thread(session).create()), range(3)))
        await agent.thread(roundtrip(session)).create()
        assert agent.thread(session).id == first
        assert self.asked() == (1 if self.at_service and self.made_by_create else 0)

    async def test_create_from_several_loops_at_once_makes_one(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: asyncio.run(agent.thread(session).create()), range(3)))
        assert self.asked() == (1 if self.at_service and self.made_by_create else 0)

    async def test_messages_come_oldest_first_with_calls_and_results(self) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session)
        messages = await agent.thread(roundtrip(session)).get_messages()
        assert shown(messages) == SAID
        (call,), (result,) = messages[1].calls, messages[2].results
        assert (result.call_id, result.name) == (call.call_id, "add")
        assert call.arguments == {"a": 1, "b": 2}
        assert shown(await agent.thread(session).get_messages()) == SAID

    async def test_without_an_id_the_service_is_not_asked_for_messages(self) -> None:
        agent = self.agent("ok")
        assert await agent.thread(AgentSession("trip")).get_messages() == []
        assert self.asked() == 0

    async def test_a_new_message_makes_the_thread_first(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        thread = agent.thread(session)
        if not thread.accepts_external_messages:
            with pytest.raises(SessionError, match=r"'trip' are stored by the service .*: .+"):
                await thread.on_new_message(Message("user", "x"))
            assert self.asked() == 0
            return
        await thread.on_new_message(Message("user", "Hello."), Message("assistant", "Hi."))
        await thread.on_new_message(Message("user", "I am Ada."))
        told = [("user", "Hello."), ("assistant", "Hi."), ("user", "I am Ada.")]
        assert shown(await thread.get_messages()) == told
        assert (thread.id is not None) is self.made_by_create
        session = roundtrip(session)
        await agent.run("Who am I?", session=session)
        after = [*told, ("user", "Who am I?"), ("assistant", "ok")]
        assert shown(await agent.thread(session).get_messages()) == after

    async def test_a_message_that_came_from_the_thread_is_left_out(self) -> None:
        session = AgentSession("trip")
        agent = self.agent([tool_call("add", a=1, b=2)], "It is 3.", "Yes.", tools=[add])
        response = await agent.run("1 + 2?", session=session)
        thread = agent.thread(session)
        if not thread.accepts_external_messages:
            return
        own = await thread.get_messages()
        for messages in (own, own[-1:], response.messages, [Message.from_dict(own[0].to_dict())]):
            await thread.on_new_message(*messages)
            assert shown(await thread.get_messages()) == SAID
        await thread.on_new_message(own[0], Message("user", "1 + 2?"))
        assert shown(await thread.get_messages()) == [*SAID, ("user", "1 + 2?")]

    async def test_words_alone_do_not_tell_where_a_message_came_from(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        if not agent.thread(session).accepts_external_messages:
            return
        message = Message("user", "Yes.")
        for given in (message, message, Message("user", "Yes.")):
            await agent.thread(session).on_new_message(given)
        thread = agent.thread(session)
        assert shown(await thread.get_messages()) == [("user", "Yes.")] * 3
        await thread.on_new_message(*await thread.get_messages())
        assert len(await thread.get_messages()) == 3

    async def test_a_message_is_known_again_in_another_program(self) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session)
        own = [Message.from_dict(message.to_dict()) for message in await agent.thread(session).get_messages()]
        run_log().clear()
        thread = agent.thread(roundtrip(session))
        if thread.accepts_external_messages:
            await thread.on_new_message(*own)
        assert shown(await thread.get_messages()) == SAID

    async def test_reduce_gives_none_without_a_reducer(self) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session)
        assert await agent.thread(session).reduce() is None
        assert shown(await agent.thread(session).get_messages()) == SAID

    async def test_delete_forgets_the_messages_once(self) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session)
        thread = agent.thread(session)
        id = thread.id
        assert self.kept(session, id)
        await asyncio.gather(thread.delete(), agent.thread(session).delete())
        asked = self.asked()
        await thread.delete()
        await agent.thread(roundtrip(session)).delete()
        assert self.asked() == asked
        assert self.kept(session, id) is not thread.can_delete

    async def test_delete_before_create_only_marks(self) -> None:
        agent, session = self.agent("ok"), AgentSession("trip")
        await agent.thread(session).delete()
        with pytest.raises(ThreadDeletedError):
            await agent.thread(session).create()
        assert self.asked() == 0

    @pytest.mark.parametrize("begun", [False, True])
    async def test_afterwards_everything_raises_one_error_before_any_request(self, begun: bool) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session) if begun else self.agent("ok")
        await agent.thread(session).delete()
        asked, told = self.asked(), set()
        for one in (session, roundtrip(session)):
            thread = agent.thread(one)
            for use in (
                thread.create,
                thread.get_messages,
                thread.reduce,
                lambda thread=thread: thread.on_new_message(Message("user", "x")),
                lambda one=one: agent.run("q", session=one),
                lambda one=one: agent.run("q", session=one, stream=True).get_final_response(),
                lambda thread=thread: copy_thread(thread, _local()),
                lambda thread=thread: copy_thread(_local(), thread),
            ):
                with pytest.raises(ThreadDeletedError) as caught:
                    await use()
                told.add(str(caught.value))
        assert len(told) == 1
        assert "'trip'" in told.pop()
        assert self.asked() == asked

    async def test_a_thread_that_is_deleted_while_a_run_goes_on_ends_it(self) -> None:
        session = AgentSession("trip")

        @tool
        async def forget() -> str:
            await agent.thread(session).delete()
            return "gone"

        agent = self.agent([tool_call("forget")], "ok", tools=[forget])
        with pytest.raises(ThreadDeletedError):
            await agent.run("q", session=session)
        assert agent.thread(session).deleted
        assert session.service_session_id is None

    async def test_a_thread_that_is_deleted_while_the_reply_arrives_is_gone_afterwards(self) -> None:
        session = AgentSession("trip")
        agent = self.agent("one", "two three four")
        await agent.run("q", session=session)

        async def leave() -> None:
            async for update in agent.run("r", session=session, stream=True):
                if update.text:
                    await agent.thread(session).delete()

        with pytest.raises(ThreadDeletedError):
            await leave()
        assert session.service_session_id is None
        assert set(session.state) == {"nbagents.deleted"}

    async def test_the_session_of_a_response_goes_on(self) -> None:
        agent = self.agent("Hello.", "Ada.")
        response = await agent.run("I am Ada.")
        response = await agent.run("Who am I?", session=response.session)
        after = [("user", "I am Ada."), ("assistant", "Hello."), ("user", "Who am I?"), ("assistant", "Ada.")]
        assert shown(await agent.thread(response.session).get_messages()) == after
        with pytest.raises(ConfigurationError, match=r"not AgentResponse.*response\.session"):
            agent.run("q", session=response)

    async def test_its_messages_can_be_copied_to_this_side(self) -> None:
        session = AgentSession("trip")
        agent = await self.talk(session)
        target = _local()
        assert shown(await copy_thread(agent.thread(session), target)) == SAID
        assert shown(await target.get_messages()) == SAID
        assert shown(await agent.thread(session).get_messages()) == SAID

    async def test_messages_of_this_side_can_be_copied_into_it(self) -> None:
        source = _local()
        agent, session = self.agent("Yes."), AgentSession("trip")
        scripted = await _scripted(source)
        target = agent.thread(session)
        if not target.accepts_external_messages:
            asked = self.asked()
            with pytest.raises(SessionError, match=r"'trip' are stored by the service"):
                await copy_thread(source, target)
            assert self.asked() == asked
            return
        assert shown(await copy_thread(source, target)) == scripted
        assert shown(await target.get_messages()) == scripted
        response = await agent.run("Sure?", session=session)
        after = [*scripted, ("user", "Sure?"), ("assistant", "Yes.")]
        assert shown(await agent.thread(response.session).get_messages()) == after

    async def test_runs_on_one_session_take_turns(self) -> None:
        """C72"""
        agent, session = self.agent("a", "b", "c"), AgentSession("trip")
        await asyncio.gather(*[agent.run("q", session=session) for _ in range(3)])
        messages = shown(await agent.thread(session).get_messages())
        assert messages == [("user", "q"), ("assistant", "a"), ("user", "q"), ("assistant", "b"), *messages[4:]]
        assert len(messages) == 6

    async def test_two_sessions_do_not_mix(self) -> None:
        agent = self.agent("a", "b", "c", "d")
        sessions = [agent.create_session(), agent.create_session()]
        for text in ("1", "2"):
            for session in sessions:
                await agent.run(text, session=session)
        left, right = [shown(await agent.thread(session).get_messages()) for session in sessions]
        assert left == [("user", "1"), ("assistant", "a"), ("user", "2"), ("assistant", "c")]
        assert right == [("user", "1"), ("assistant", "b"), ("user", "2"), ("assistant", "d")]


def _local() -> LocalThread:
    return LocalThread(AgentSession(), InMemoryHistoryProvider())


async def _scripted(source: Thread) -> list[tuple[str, str]]:
    """Put a turn with calls into `source`, of which one was never answered."""
    calls = [FunctionCall(f"c{b}", "add", {"a": 1, "b": b}, f"call_{b}") for b in (1, 2)]
    await source.on_new_message(
        Message("user", "1 + 2?"),
        Message("assistant", calls),
        Message("tool", [FunctionResult("c1", "add", "3", "call_1")]),
        Message("assistant", "It is 3."),
    )
    lost = "Interrupted: the result of this call was not stored."
    return [("user", "1 + 2?"), ("assistant", "addadd"), ("tool", "3"), ("tool", lost), ("assistant", "It is 3.")]
