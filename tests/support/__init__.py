"""The real parts that the tests run against: servers, kernels, a browser.

Fixtures, in every test module, nothing to import, started when first asked for:

    no_leaks     None       fails a test that leaves threads, tasks, TCP connections, open files or processes
    unused_port  int        a loopback port where nothing listens
    raw_server   RawServer  plays exact bytes; new for each test
    llmock       LLMock     PyPI llmock; one process per session, reset before each test
    aimock       AIMock     npm @copilotkit/aimock --strict on tests/servers/fixtures; its journal is reset
    postgres     Postgres   Debian's PostgreSQL server; one process per session
    postgres_url str        the URL of an empty database on it; new for each test
    kernel       Kernel     a fresh ipykernel of this environment
    each_kernel  Kernel     the same test on this ipykernel and, as `slow`, on 6.31 and 7.3
    lab          Lab        one JupyterLab server per session
    lab_page     LabPage    a fresh page on it; one Chromium per session; for plain (not async) test functions

    from tests.support import require
    require(condition, what)        skip, or fail if NBAGENTS_REQUIRE_ALL=1
    from tests.support.leaks import assert_no_leaks
    assert_no_leaks(allow_threads=("nbagents",), within=5.0)        for `with` and `async with`

RawServer. One reply per request, in order, the last one for ever; every `reply...` returns the server.

    from tests.support.chunks import delta, call, finish, usage, message, sse, DONE
    delta("Hel") delta(refusal="No") delta("B", choice=1)       a chunk with this delta
    call(0, "c1", "add", '{"a":') call(0, args='1}') call(None, ...)      a tool-call entry
        None as index: no index; what is not given is absent; id, name or args None: null
    finish("stop") usage(10, 5) message("Hi", [("c1", "add", {"a": 1})], refusal=...) (a plain reply's body)

    tests.support.responses_events: the same for OpenAI's Responses, and a service that remembers and judges
    tests.support.anthropic_events: the same for Anthropic's API, as bytes for `.reply`; a judge of requests

    .reply(*chunks, done=True, end="clean", split=None, delay=0.0, status=200, headers=None)
        a stream. A chunk is a dict with "choices" or "error" (a full chunk; a missing id, object, created or
        model is added), any other dict (a delta), str or bytes (sent as they are), a threading.Event (the
        server waits until the test sets it: no sleeps needed)
        end: "clean"; "cut" (the body never ends); "reset" (RST); "stall" (silent until hung up)
        done=False: no [DONE]. split=n: n bytes per HTTP chunk. delay: seconds before each chunk
    .reply_text("Hello you") .reply_calls(("c1", "add", {"a": 1}), content=None)    stream or plain, as asked
    .reply_json(body, status=200, headers=None)    body: message(...), or any JSON
    .reply_raw(data, status=200, content_type="text/html", headers=None)
    .reply_with(lambda body: ...)     list of chunks, dict (JSON), bytes (HTML); raise Refuse("why") for a 400
    .strict = True                    400 for what picky providers refuse (tests/support/strict.py)
    .base_url .port .models (answer of GET /models) .requests: list of JSON bodies (POST only)
    .headers: list of dicts, names in lower case (POST only) .paths (GET too)
    .connections, .open_connections, .hang_ups (replies that the client did not wait for): int
    .wait_until(lambda: server.hang_ups == 1, timeout=5.0)

LLMock  .base_url .scenario([{"type": "reply", "text": "Hi"}, ...]) .requests() .reset()
        .verdict() -> {"passed": bool, "findings": [{"code": "retry_after_ignored", ...}], ...}
AIMock  .base_url .journal() .reset()    the user's last message chooses the fixture (tests/servers/fixtures)

Postgres .url(database="postgres") .port .password .execute(statement, database="postgres") -> rows

Kernel  .run(code, timeout=60) -> Result .submit(code) -> Execution .wait(execution, timeout=60) -> Result
        .interrupt() .restart() .wait_for(condition, timeout=30) -> the condition's value
        .wait_output(execution, text, timeout=30)      before an interrupt: that the cell runs
        .comms: {comm_id: Comm} with .comm_id .target .state .messages (custom contents) .closed
        .comm_msg(comm_id, content, subshell=False) .comm_update(comm_id, state, subshell=False)
        .comm_click(comm_id) .answer_input(text)
        .iopub (every message so far) .version (of ipykernel, a tuple) .cwd (Path) .subshells (bool)
Result  .ok .status ("ok", "error", "aborted") .outputs (nbformat dicts, display updates folded in)
        .stdout .stderr .text (stdout and text/plain) .error (None, or .name .value .traceback) .duration (s)
        tests.support.kernels.start_kernel(python=sys.executable, cwd=None): a context manager for more

Lab      .url .root (Path) .write_notebook(cells, name=None) -> name
LabPage  .open(name or list of cell sources) .run_cell(i, wait=True) .run_all(wait=True)
         .wait_prompt(i, timeout=60, after="") -> its number .wait_idle() .interrupt() .restart() .reload()
         .shutdown_kernel() .save() -> the saved notebook as a dict
         .cell(i) .output(i) (one element for each output) .new_view(i) -> Locators .prompt(i) -> "", "*" or "3"
         .page: Playwright's Page   .screenshot(name) -> Path; a failed test leaves one
         .foreign_requests .console_errors: lists of str
         with .measure() as traffic: ...    traffic.bytes_received (websocket), traffic.long_tasks (ms each)
"""

import os

import pytest


def require(condition: object, what: str) -> None:
    """Skip the test where a part of the environment is missing, or fail it when NBAGENTS_REQUIRE_ALL=1."""
    if condition:
        return
    if os.environ.get("NBAGENTS_REQUIRE_ALL") == "1":
        pytest.fail(f"missing: {what} (NBAGENTS_REQUIRE_ALL=1)", pytrace=False)
    pytest.skip(f"missing: {what}")
