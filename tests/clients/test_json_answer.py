import json
from itertools import pairwise
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from nbagents.clients.json_answer import AnswerDecoder

# Lone surrogates occur in what models write: json.loads keeps them, so does the decoder.
texts = st.text(st.characters(codec=None) | st.sampled_from('"\\/\n\t\b😀é\ud83d\ude00'))


def encodings(text):
    """Encode each character in one of the forms that JSON allows."""
    return st.randoms(use_true_random=False).map(lambda random: "".join(encoded(c, random) for c in text))


def encoded(character, random: Random):
    forms = [json.dumps(character)[1:-1], "".join(f"\\u{unit:04X}" for unit in units(character))]
    if character not in '"\\' and ord(character) >= 0x20:
        forms.append(character)
    if character == "/":
        forms.append("\\/")
    return random.choice(forms)


def units(character):
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2)]


def pieces(text, cuts):
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@given(st.data(), texts, st.lists(st.integers(0, 2000)))
def test_any_cut_of_any_encoding_gives_the_same_text(data, text, cuts):
    document = '{\n "answer" : "' + data.draw(encodings(text)) + '"}'
    decoder = AnswerDecoder()
    assert "".join(decoder.feed(piece) for piece in pieces(document, cuts)) == json.loads(document)["answer"]
    assert decoder.kind == "answer"
    assert decoder.raw == document


@given(st.data(), texts)
def test_text_is_given_out_as_soon_as_it_is_certain(data, text):
    """At most the two escapes of one character are held back."""
    document = '{"answer":"' + data.draw(encodings(text))
    decoder = AnswerDecoder()
    got = "".join(decoder.feed(character) for character in document)
    complete = json.loads(document + '"}')["answer"]
    assert complete.startswith(got)
    assert len(complete) - len(got) <= 1


@given(
    st.sampled_from(['{"tool": "add", "arguments": {"answer": "no"}}', '{"answer": {"a": 1}}', "{}", "{x"]), st.data()
)
def test_another_object_gives_no_text(document, data):
    decoder = AnswerDecoder()
    cuts = data.draw(st.lists(st.integers(0, 60)))
    assert "".join(decoder.feed(piece) for piece in pieces(document, cuts)) == ""
    assert decoder.kind == "object"


@given(st.text(min_size=1).filter(lambda text: text.strip() and not text.lstrip().startswith("{")), st.data())
@example("Hello", None)
def test_a_reply_that_is_no_object_is_text(text, data):
    cuts = data.draw(st.lists(st.integers(0, 60))) if data else [1, 2]
    decoder = AnswerDecoder()
    assert "".join(decoder.feed(piece) for piece in pieces(text, cuts)) == text
    assert decoder.kind == "text"


def test_broken_escapes_lose_nothing_else():
    decoder = AnswerDecoder()
    assert decoder.feed(r'{"answer": "a\uZZZZb\qc"}') == "a�bqc"
