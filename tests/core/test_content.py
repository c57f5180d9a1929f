"""Images and files as content, records that keep what they do not know, tools that a service runs."""

import base64
import json
import pickle
import struct
import wave
import zipfile
from io import BytesIO

import pytest
from matplotlib.figure import Figure

from nbagents import (
    Agent,
    AgentResponse,
    ChatResponse,
    DataContent,
    Message,
    ScriptedChatClient,
    Usage,
    tool,
    tool_call,
)
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.content import (
    ApprovalRequest,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    TextContent,
    content_from_dict,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.media import image_size, media_type_of
from nbagents.core.results import function_result, result_text


def png(width=2, height=1):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\x00\x00\x00"


def drawn(kind, **settings):
    file = BytesIO()
    Figure(figsize=(1, 0.5), dpi=40).savefig(file, format=kind, **settings)
    return file.getvalue()


def silence():
    file = BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(20))
    return file.getvalue()


def archive():
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("a.txt", "a")
    return file.getvalue()


MEDIA = {
    "image/png": drawn("png"),
    "image/jpeg": drawn("jpg"),
    "image/webp": drawn("webp"),
    "image/gif": b"GIF89a" + struct.pack("<HH", 40, 20),
    "image/tiff": b"II*\x00....",
    "image/bmp": b"BM\x20\x00\x00\x00\x00\x00\x00\x00",
    "image/avif": b"\x00\x00\x00\x1cftypavif",
    "image/heic": b"\x00\x00\x00\x18ftypheic",
    "application/pdf": drawn("pdf"),
    "audio/wav": silence(),
    "audio/mpeg": b"ID3\x04\x00",
    "audio/ogg": b"OggS\x00\x02",
    "audio/flac": b"fLaC\x00",
    "audio/mp4": b"\x00\x00\x00\x20ftypM4A ",
    "video/mp4": b"\x00\x00\x00\x20ftypisom",
    "video/quicktime": b"\x00\x00\x00\x14ftypqt  ",
    "video/webm": b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm",
    "application/zip": archive(),
    "application/gzip": b"\x1f\x8b\x08",
}


@pytest.mark.parametrize(("kind", "data"), MEDIA.items(), ids=MEDIA.keys())
def test_the_media_type_is_told_by_the_first_bytes_whatever_the_name(kind, data):
    content = DataContent.from_bytes(data, name="holiday.txt" if kind != "application/zip" else None)
    assert (content.media_type, content.data) == (kind, data)
    assert DataContent.from_uri(content.uri) == DataContent.from_bytes(data)


@pytest.mark.parametrize("header", [b"\xff\xfb\x90\x00", b"\xff\xf3\x40\xc0", b"\xff\xe3\x18\xc4"])
def test_mp3_frames_are_told_from_other_files_that_begin_with_ff(header):
    assert media_type_of(header) == "audio/mpeg"
    assert media_type_of(b"\xff\xfeh\x00i\x00") == "application/octet-stream"  # UTF-16 text


def test_what_the_bytes_do_not_tell_the_suffix_does():
    assert media_type_of(b"a,b\n1,2\n", "table.CSV") == "text/csv"
    assert media_type_of(archive(), "report.docx").endswith("wordprocessingml.document")
    assert media_type_of(archive(), "report.unheard-of") == "application/zip"
    assert media_type_of(b"", None) == media_type_of(b"\x00\x01", "x.bin") == "application/octet-stream"


@pytest.mark.parametrize("kind", ["image/png", "image/jpeg", "image/webp", "image/gif"])
def test_the_size_of_an_image_is_read_and_a_cut_one_has_none(kind):
    assert image_size(MEDIA[kind]) == (40, 20)
    assert DataContent.from_bytes(MEDIA[kind]).summary == f"[{kind}, 40x20]"
    assert image_size(MEDIA[kind][:9]) is None


def test_the_size_of_a_lossless_webp_is_read():
    lossless = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 39 | 19 << 14) + bytes(10)
    assert image_size(lossless) == (40, 20)


def test_a_file_becomes_content_with_its_name(tmp_path):
    path = tmp_path / "report.pdf"
    path.write_bytes(MEDIA["application/pdf"])
    content = DataContent.from_file(path)
    assert (content.media_type, content.name, content.data) == ("application/pdf", "report.pdf", path.read_bytes())
    assert content.summary == f"[application/pdf, report.pdf, {len(content.data)} bytes]"
    assert DataContent.from_file(str(path), "application/x-own").media_type == "application/x-own"


def test_a_file_is_sent_under_its_name():
    content = DataContent.from_bytes(MEDIA["application/pdf"], name="report.pdf")
    (sent,) = wire_messages([Message("user", ["Read this.", content])])
    assert sent["content"][1] == {"type": "file", "file": {"filename": "report.pdf", "file_data": content.uri}}


URIS = {
    "data:image/png;base64,AAAA": ("image/png", bytes(3)),
    "DATA:image/png;BASE64,AA AA\n": ("image/png", bytes(3)),
    "data:image/png;base64,AAA%3D": ("image/png", bytes(2)),
    "data:audio/L16;rate=8000;base64,AAAA": ("audio/L16;rate=8000", bytes(3)),
    "data:text/csv,a%2Cb": ("text/csv", b"a,b"),
    "data:,a%20b": ("text/plain", b"a b"),
    f"data:;base64,{base64.b64encode(png()).decode()}": ("image/png", png()),
    "data:;base64,AAAA": ("application/octet-stream", bytes(3)),
}


@pytest.mark.parametrize(("uri", "expected"), URIS.items())
def test_data_uris_of_every_form_are_read_and_written_in_one(uri, expected):
    content = DataContent.from_uri(uri)
    assert (content.media_type, content.data) == expected
    assert content.uri == f"data:{expected[0]};base64,{base64.b64encode(expected[1]).decode()}"


def test_an_address_stays_one():
    content = DataContent.from_uri("https://example.org/a/b%20c.JPG?size=2")
    assert (content.media_type, content.name) == ("image/jpeg", "b c.JPG")
    assert content.summary == "[image/jpeg, https://example.org/a/b%20c.JPG?size=2]"
    assert DataContent.from_uri("https://example.org").media_type == "application/octet-stream"
    assert DataContent.from_uri("gs://bucket/x", "image/png").media_type == "image/png"
    with pytest.raises(ConfigurationError, match=r"address.*from_bytes"):
        _ = content.data


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: DataContent.from_uri("data:image/png;base64,A"), "valid base64"),
        (lambda: DataContent.from_uri("data:image/png;base64,AAA\u2028"), "valid base64"),
        (lambda: DataContent.from_uri("data:image/png;base64,A-_A"), "valid base64"),
        (lambda: DataContent.from_uri("data:image/png;base64,AA!AA"), "valid base64"),
        (lambda: DataContent("data:image/png;base64,A!", "image/png").data, "valid base64"),
        (lambda: DataContent.from_uri("data:image/png"), "comma"),
        (lambda: DataContent.from_uri("cat.png"), "from_file"),
        (lambda: DataContent.from_uri("C:\\cat.png"), "from_file"),
        (lambda: DataContent.from_uri("file:///cat.png"), "from_file"),
        (lambda: DataContent.from_uri("http://[half"), "no address"),
        (lambda: DataContent.from_uri(3), "int"),
        (lambda: DataContent.from_bytes("text"), r"bytes, not str.*from_file"),
        (lambda: DataContent.from_bytes(b"", "png"), "media_type"),
        (lambda: DataContent("image/png", "https://example.org/x.png"), "uri"),
        (lambda: DataContent.from_file("/no/such/file"), "No such file"),
        (lambda: DataContent.from_file("nul\0"), "cannot be read"),
        (lambda: DataContent.from_file(b"x"), "bytes"),
    ],
)
def test_what_is_no_content_is_one_clear_error(wrong, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        wrong()
    assert len(str(caught.value)) < 300


def test_neither_bytes_nor_passwords_show_in_a_repr():
    """C108"""
    shown = repr(Message("user", ["see", DataContent.from_bytes(bytes(9_000), name="x.bin")]))
    assert len(shown) < 500
    assert "characters]" in shown
    assert "hunter2" not in repr(DataContent.from_uri("https://ada:hunter2@example.org/x.png"))


HOSTED = [
    HostedToolCall("web_search", "ws_1", {"type": "search", "query": "owls"}),
    HostedToolCall("mcp", "mcp_1", {"a": [1, None]}, "roll", "dice"),
    HostedToolResult("code_interpreter", "ci_1", [{"type": "logs", "logs": "3"}], (DataContent.from_bytes(png()),)),
    HostedToolResult("shell", "sh_1", {"stdout": "", "exit_code": 1}, error="exit code 1"),
]


@pytest.mark.parametrize("content", HOSTED, ids=[f"{c.type} {c.kind}" for c in HOSTED])
def test_calls_and_results_of_hosted_tools_survive_json(content):
    once = json.dumps(content_to_dict(content))
    assert content_from_dict(json.loads(once)) == content
    assert json.dumps(content_to_dict(content_from_dict(json.loads(once)))) == once


async def test_hosted_calls_come_back_as_content_of_the_reply_and_nothing_is_run_for_them(ask):
    agent = Agent(ScriptedChatClient([["Looking. ", *HOSTED, "Done."]]))
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert (response.text, response.stop_reason) == ("Looking. Done.", "completed")
    assert [c for c in response.messages[0].contents if c in HOSTED] == HOSTED
    (stored,) = [m for m in await agent.thread(session).get_messages() if m.role == "assistant"]
    assert stored == response.messages[0]


def test_unknown_fields_of_content_are_kept_at_every_depth():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}, "signature": [1]}
    records = [
        {"type": "text", "text": "x", "citations": [{"url": "u"}], "extra": "really"},
        {"type": "function_result", "call_id": "c", "name": "f", "result": "3", "value": "of another version"},
        {"type": "approval_request", "id": "a", "call": call},
        {
            "type": "hosted_tool_result",
            "kind": "image_generation",
            "id": "i",
            "items": [{"type": "data", "uri": "https://example.org/x", "media_type": "image/png", "detail": "high"}],
        },
    ]
    for record in records:
        assert content_to_dict(content_from_dict(record)) == record
    assert content_from_dict(records[0]).extra["citations"] == [{"url": "u"}]
    assert content_from_dict(call).extra == {"signature": [1]}


def test_text_with_fields_of_its_own_does_not_melt_into_its_neighbours():
    cited = TextContent("b", extra={"citations": ["u"]})
    message = Message("assistant", ["a", cited, "c", "d"])
    assert message.contents == (TextContent("a"), cited, TextContent("cd"))
    response = ChatResponse([message])
    assert ChatResponse.from_updates(response.to_updates()) == response
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize(
    "record",
    [
        {"type": "text", "text": 3},
        {"type": "text"},
        {"type": ["text"]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": 3},
        {"type": "function_call", "call_id": "c", "name": "f", "invalid": "yes"},
        {"type": "approval_request", "id": "a", "call": {"type": "text", "text": "x"}},
        {"type": "approval_request", "id": "a", "call": None},
        {"type": "function_result", "call_id": "c", "name": "f", "result": "", "items": 3},
        {"type": "function_result", "call_id": "c", "name": "f", "result": "", "items": ["x"]},
        {"type": "usage", "usage": {"tokens": 3}},
        {"type": "usage", "usage": 3},
        "text",
        None,
    ],
    ids=str,
)
def test_a_record_that_is_none_is_an_error_of_ours(record):
    with pytest.raises(ConfigurationError):
        content_from_dict(record)
    with pytest.raises(ConfigurationError):
        Message.from_dict({"role": "user", "contents": [record]})


@pytest.mark.parametrize("record", [None, "x", {}, {"role": "user", "contents": "x"}, {"role": "user", "contents": 3}])
def test_a_message_record_that_is_none_is_an_error_of_ours(record):
    with pytest.raises(ConfigurationError):
        Message.from_dict(record)


async def test_a_response_survives_json_without_value_session_and_raw_form():
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    agent = Agent(ScriptedChatClient([tool_call("add", a=1, b=2), "3"]), tools=[add])
    response = await agent.run("1 + 2?", options={"response_format": int})
    response.raw_representation = object()
    once = json.dumps(response.to_dict())
    read = AgentResponse.from_dict(json.loads(once))
    assert read == response
    assert (read.value, read.session, read.raw_representation) == (None, None, None)
    assert json.dumps(read.to_dict()) == once
    assert json.loads(once)["version"] == 1
    assert "version" not in json.loads(once)["messages"][0]


def test_unknown_fields_of_a_response_are_kept_and_other_versions_are_an_error():
    record = ChatResponse([Message("assistant", "x")], model="m", usage=Usage(1, 2), created_at=12.5).to_dict()
    newer = {**record, "mood": {"calm": True}}
    assert ChatResponse.from_dict(newer).to_dict() == newer
    agents = AgentResponse([Message("assistant", "x")], warnings=["odd"]).to_dict()
    assert AgentResponse.from_dict(agents).warnings == ["odd"]
    for wrong in ({**record, "version": 2}, agents, {**record, "messages": None}, {**record, "usage": 3}, [], None):
        with pytest.raises(ConfigurationError):
            ChatResponse.from_dict(wrong)


CALL = FunctionCall("c1", "draw", {}, "id1")


class Sketch:
    def __init__(self, drawn):
        self.drawn = drawn

    def _repr_png_(self):
        return self.drawn


IMAGES = {
    "content": DataContent.from_bytes(png(640, 480)),
    "bytes": png(640, 480),
    "an object that draws itself": Sketch(png(640, 480)),
    "base64 and metadata, as IPython's images give": Sketch((base64.b64encode(png(640, 480)).decode(), {"width": 1})),
}


@pytest.mark.parametrize("value", IMAGES.values(), ids=IMAGES.keys())
def test_an_image_that_a_tool_returns_is_an_item_of_its_result(value):
    result = function_result(CALL, value)
    assert (result.call_id, result.name, result.id) == ("c1", "draw", "id1")
    assert result.result == "[image/png, 640x480]"
    assert [item.data for item in result.items] == [png(640, 480)]
    assert result.value is value


def test_figures_and_axes_are_drawn():
    figure = Figure(figsize=(2, 1))
    axes = figure.subplots()
    for value in (figure, axes):
        result = function_result(CALL, value)
        assert result.items[0].media_type == "image/png"
        assert result.result.startswith("[image/png, ")
        assert image_size(result.items[0].data) is not None


def test_images_among_texts_and_in_data_are_named_where_they_stand():
    image = DataContent.from_bytes(png(3, 4))
    lines = function_result(CALL, ["Before:", image, TextContent("After:"), image])
    assert lines.result == "Before:\n[image/png, 3x4]\nAfter:\n[image/png, 3x4]"
    assert lines.items == (image, image)
    data = function_result(CALL, {"rows": 2, "plots": [image]})
    assert json.loads(data.result) == {"rows": 2, "plots": ["[image/png, 3x4]"]}
    assert data.items == (image,)


@pytest.mark.parametrize("value", ["text", 3, None, {"a": [1]}, ["a", "b"], b"\x00\x01", Sketch(None), {1, 2}])
def test_what_is_no_image_has_no_items(value):
    assert function_result(CALL, value) == FunctionResult("c1", "draw", result_text(value), "id1")


def test_items_survive_json_and_the_value_does_not():
    result = function_result(CALL, Sketch(png()))
    read = content_from_dict(json.loads(json.dumps(content_to_dict(result))))
    assert read == result
    assert read.value is None
    assert isinstance(read, FunctionResult)
    assert content_from_dict(content_to_dict(ApprovalRequest("a", CALL))) == ApprovalRequest("a", CALL)
