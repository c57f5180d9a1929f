import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nbagents import LocalChatClient, RecordedChatClient, ScriptedChatClient, default_client
from nbagents.clients import DemoChatClient, choose_client
from nbagents.clients.local import local_extra_installed
from nbagents.core.errors import ConfigurationError
from tests.support import require


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """No weights, and (as in all tests) no key."""
    monkeypatch.setattr("nbagents.clients.weights.find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))


@pytest.fixture
def weights(nothing_here, tmp_path, monkeypatch):
    require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
    path = tmp_path / "small.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setenv("NBAGENTS_LOCAL_MODEL", str(path))
    return path


def test_with_nothing_it_is_the_demo_and_says_so_in_one_line(nothing_here, capsys):
    client = default_client()
    assert isinstance(client, DemoChatClient)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "scripted demo" in shown.err
    for change in ("OPENAI_API_KEY", "nbagents local install", "NBAGENTS_CLIENT", "replay:PATH"):
        assert change in shown.err
    assert "scripted demo" in client.as_agent().run_sync("Hello").text


def test_quiet_says_nothing(nothing_here, capsys):
    default_client(quiet=True)
    assert capsys.readouterr().err == ""


def test_an_installed_model_comes_before_the_demo(weights, capsys):
    client = default_client()
    assert isinstance(client, LocalChatClient)
    assert client.model_path == weights
    assert "the local model small" in capsys.readouterr().err


def test_weights_alone_are_not_enough(weights, monkeypatch):
    monkeypatch.setattr("nbagents.clients.local.find_spec", lambda name: None)
    assert isinstance(default_client(quiet=True), DemoChatClient)


def test_a_key_comes_before_the_local_model_and_is_not_shown(weights, monkeypatch):
    """C93"""
    monkeypatch.setenv("OPENAI_API_KEY", "swordfish-swordfish")
    choice = choose_client()
    assert choice.client.provider == "openai"
    assert choice.client.model == "gpt-5-mini"
    assert "gpt-5-mini at OpenAI" in choice.text
    assert "swordfish" not in choice.text + repr(choice)
    monkeypatch.setenv("NBAGENTS_MODEL", "gpt-large")
    assert choose_client().client.model == "gpt-large"


def test_a_server_of_ones_own_is_asked_for_its_first_model_without_a_key(nothing_here, raw_server, monkeypatch):
    raw_server.models = ["llama", "other"]
    raw_server.reply_text("Hello you")
    monkeypatch.setenv("OPENAI_BASE_URL", raw_server.base_url)
    choice = choose_client()
    assert f"llama at {raw_server.base_url}" in choice.text
    assert choice.client.as_agent().run_sync("Hi").text == "Hello you"
    assert raw_server.requests[0]["model"] == "llama"


def test_a_named_model_is_not_asked_for(nothing_here, raw_server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", raw_server.base_url)
    monkeypatch.setenv("NBAGENTS_MODEL", "mine")
    assert default_client(quiet=True).model == "mine"
    assert raw_server.paths == []


def test_a_server_without_a_model_is_a_clear_error(nothing_here, raw_server, monkeypatch):
    raw_server.models = []
    monkeypatch.setenv("OPENAI_BASE_URL", raw_server.base_url)
    with pytest.raises(ConfigurationError, match="has no models"):
        default_client()


@pytest.fixture
def page():
    """A web server that answers every GET with `page.body`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", server.kind)
            self.send_header("Content-Length", str(len(server.body)))
            self.end_headers()
            self.wfile.write(server.body)

        def log_message(self, *arguments):
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>Sign in</html>"),
        ("application/json", b"<html>"),
        ("application/json", b'{"no": "list"}'),
        ("application/json", b'["x"]'),
        ("application/json", b'{"data": ["x"]}'),
    ],
)
def test_a_server_that_is_none_is_a_clear_error(nothing_here, page, monkeypatch, kind, body):
    page.kind, page.body = kind, body
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{page.server_port}/v1")
    with pytest.raises(ConfigurationError, match=r"does not tell its models.*NBAGENTS_MODEL"):
        default_client()


def test_a_server_that_does_not_answer_is_a_clear_error(nothing_here, unused_port, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{unused_port}/v1")
    with pytest.raises(ConfigurationError, match="does not tell its models"):
        default_client()


def test_the_variable_decides(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "swordfish-swordfish")
    path = tmp_path / "talk.jsonl"
    RecordedChatClient(path, ScriptedChatClient(["Recorded."])).as_agent().run_sync("Hi")
    for value, kind in (("demo", DemoChatClient), ("local", LocalChatClient), (f"replay:{path}", RecordedChatClient)):
        monkeypatch.setenv("NBAGENTS_CLIENT", value)
        assert isinstance(default_client(quiet=True), kind), value
    assert default_client(quiet=True).as_agent().run_sync("Hi").text == "Recorded."
    monkeypatch.setenv("NBAGENTS_CLIENT", "openai")
    assert default_client(quiet=True).provider == "openai"


@pytest.mark.parametrize("value", ["replay", "replay:", "OpenAI", "anthropic", "demo:x"])
def test_an_unknown_value_lists_the_known_ones(nothing_here, monkeypatch, value):
    monkeypatch.setenv("NBAGENTS_CLIENT", value)
    with pytest.raises(ConfigurationError, match=r"openai, local, demo, replay:PATH"):
        default_client()


def test_what_it_asks_for_must_be_there(nothing_here, tmp_path, monkeypatch):
    for value, missing in (
        ("openai", "OPENAI_API_KEY"),
        ("local", "nbagents"),
        (f"replay:{tmp_path / 'none.jsonl'}", "no recording"),
    ):
        monkeypatch.setenv("NBAGENTS_CLIENT", value)
        with pytest.raises(ConfigurationError, match=missing):
            default_client()
