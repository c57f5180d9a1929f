"""Conversations with a model whose words are known, and what its requests bring."""

from __future__ import annotations

from nbagents import ScriptedChatClient, SummarizationReducer


def scripted(turns=200):
    return ScriptedChatClient([f"Answer {number}." for number in range(turns)])


def talk(agent, session, turns, **settings):
    responses = [agent.run_sync(f"Question {number}?", session=session, **settings) for number in range(turns)]
    return responses, [request.messages for request in agent.client.requests[-turns:]]


def texts(request):
    return [message.text for message in request]


def summing(limit=8, **settings):
    writer = ScriptedChatClient([f"Summary {number}." for number in range(50)])
    return writer, SummarizationReducer(max_messages=limit, client=writer, **settings)
