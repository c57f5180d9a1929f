"""Ways to run an agent, so that one test says what holds for all of them."""

from __future__ import annotations

import pytest


async def _plain(agent, messages=None, **settings):
    return await agent.run(messages, **settings)


async def _streamed(agent, messages=None, **settings):
    return await agent.run(messages, stream=True, **settings).get_final_response()


@pytest.fixture(params=[_plain, _streamed], ids=["plain", "streamed"])
def ask(request):
    """`await ask(agent, messages, **settings)` in both modes."""
    return request.param
