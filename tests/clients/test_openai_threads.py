"""Threads at OpenAI, conversations and chains of responses: by the contract, with a server that remembers."""

from typing import ClassVar

import pytest

from nbagents import Agent, OpenAIResponsesClient
from tests.core.thread_contract import ThreadContract
from tests.support import responses_events as wire


def items_of(reply):
    """A scripted reply as the items that the server says."""
    if isinstance(reply, str) or callable(reply):
        return reply
    return [
        wire.said(piece) if isinstance(piece, str) else wire.called(f"call_{id(piece)}", piece.name, piece.arguments)
        for piece in reply
    ]


class OnServer(ThreadContract):
    settings: ClassVar = {}

    @pytest.fixture(autouse=True)
    def server(self, responses_server):
        self.server = responses_server

    def agent(self, *replies, **settings):
        self.server.replies = [items_of(reply) for reply in replies]
        client = OpenAIResponsesClient("test-model", base_url=self.server.base_url, max_retries=0, **self.settings)
        return Agent(client, **settings)

    def asked(self):
        return self.server.count()


class TestConversation(OnServer):
    kind = "an OpenAI conversation"
    settings: ClassVar = {"conversations": True}

    def kept(self, session, thread_id):
        return thread_id in self.server.conversations


class TestChain(OnServer):
    kind = "a chain of OpenAI responses"
    made_by_create = False

    def kept(self, session, thread_id):
        return bool(self.server.responses)
