import gc

from nbagents import Agent, OpenAIChatClient


def test_a_client_dropped_with_its_stream_closes_its_connections_on_the_loop_thread(raw_server):
    """Several times: what the garbage collector takes together differs from run to run."""
    raw_server.reply_text("Hello you")
    for _ in range(8):
        agent = Agent(OpenAIChatClient("m", base_url=raw_server.base_url))
        assert "".join(update.text for update in agent.stream_sync("Hi")) == "Hello you"
        del agent
        gc.collect()
    # The loop thread may have held on to the last one for another moment.
    raw_server.wait_until(lambda: gc.collect() >= 0 and raw_server.open_connections == 0, timeout=20)
