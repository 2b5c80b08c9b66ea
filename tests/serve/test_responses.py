"""The forms of an answer, and how one is chosen."""

import io
import json

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.jobs.arrow import Layout
from elmore.embed.jobs.journal import Row
from elmore.serve import chunks, responses
from elmore.serve.responses import ARROW, JSON, NPY
from elmore.serve.texts import TokenizedTexts

TOKENS = [["a", "bank"], [], ["x"]]
VECTORS = [np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros((0, 4), np.float32)]
VECTORS.append(np.full((1, 4), 0.25, np.float32))
NOTHING = np.zeros((0, 4), np.float32)


def texts_of(tokens: list[list[str]]) -> TokenizedTexts:
    """Return texts that were lists of tokens."""
    return TokenizedTexts(tokens, [None] * len(tokens))


TEXTS = TokenizedTexts(TOKENS, [[(0, 1), (2, 6)], [], None])


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/x-npy", NPY),
        ("APPLICATION/X-NPY", NPY),
        ("text/html, application/vnd.apache.arrow.stream", ARROW),
        ("application/json;q=0.5, application/x-npy;q=0.9", NPY),
        ("application/x-npy;q=0, */*;q=0.1", JSON),
        ("application/x-npy;q=often, application/json", JSON),
        ("application/json;q=0, */*", NPY),
        ("*/*;q=0.5, application/vnd.apache.arrow.stream", ARROW),
        ("application/x-npy, application/json", NPY),
        ("application/*;q=0, */*", None),
        ("text/html", None),
        ("application/json;q=0", None),
        ("nonsense", None),
    ],
)
def test_the_media_type_with_the_highest_quality_is_chosen(accept, media_type):
    assert responses.negotiate(accept) == media_type


@given(st.text(max_size=60))
def test_any_header_gives_a_form_or_none(accept):
    assert responses.negotiate(accept) in (*responses.MEDIA_TYPES, None)


def test_json_holds_tokens_offsets_and_vectors():
    result = json.loads(responses.embed_response(TEXTS, VECTORS, NOTHING, JSON).body)["sentences"]
    assert [sentence["tokens"] for sentence in result] == TOKENS
    assert [sentence["offsets"] for sentence in result] == [[[0, 1], [2, 6]], [], None]
    for sentence, vectors in zip(result, VECTORS, strict=True):
        assert sentence["vectors"] == vectors.tolist()


def test_json_is_exact_to_seven_digits(rng):
    vectors = rng.normal(size=(3, 64)).astype(np.float32)
    result = json.loads(responses.encode_response([[]] * 3, vectors, JSON).body)["vectors"]
    np.testing.assert_allclose(result, vectors, rtol=0, atol=1e-7)


def test_a_numpy_file_holds_all_tokens_and_its_header_parts_them():
    answer = responses.embed_response(TEXTS, VECTORS, NOTHING, NPY)
    array = np.load(io.BytesIO(answer.body), allow_pickle=False)
    lengths = [int(number) for number in answer.headers[responses.LENGTHS].split(",")]
    assert lengths == [2, 0, 1]
    parts = np.split(array, np.cumsum(lengths)[:-1], axis=-2)
    for part, vectors in zip(parts, VECTORS, strict=True):
        np.testing.assert_array_equal(part, vectors)


def test_a_numpy_file_of_all_layers_is_layers_by_tokens_by_width():
    stacks = [np.stack([vectors, vectors + 1]) for vectors in VECTORS]
    answer = responses.embed_response(TEXTS, stacks, np.zeros((2, 0, 4), np.float32), NPY)
    assert np.load(io.BytesIO(answer.body)).shape == (2, 3, 4)


def test_arrow_has_the_columns_of_our_parquet_files():
    table = pyarrow.ipc.open_stream(responses.embed_response(TEXTS, VECTORS, NOTHING, ARROW).body)
    rows = table.read_all().to_pylist()
    assert [row["line"] for row in rows] == [0, 1, 2]
    assert [row["tokens"] for row in rows] == TOKENS
    assert [row["vectors"] for row in rows] == [vectors.tolist() for vectors in VECTORS]


def test_arrow_of_all_layers_has_a_column_for_each():
    stacks = [np.stack([vectors, vectors + 1]) for vectors in VECTORS]
    answer = responses.embed_response(TEXTS, stacks, np.zeros((2, 0, 4), np.float32), ARROW)
    rows = pyarrow.ipc.open_stream(answer.body).read_all().to_pylist()
    assert rows[0]["layer_1"] == (VECTORS[0] + 1).tolist()


def test_one_vector_for_each_text_in_every_form():
    vectors = np.arange(8, dtype=np.float32).reshape(2, 4)
    npy, arrow = (
        responses.encode_response(TOKENS[:2], vectors, media_type).body
        for media_type in (NPY, ARROW)
    )
    np.testing.assert_array_equal(np.load(io.BytesIO(npy)), vectors)
    rows = pyarrow.ipc.open_stream(arrow).read_all().to_pylist()
    assert [row["vectors"] for row in rows] == vectors.tolist()


@pytest.mark.parametrize("media_type", responses.MEDIA_TYPES)
def test_no_text_is_an_answer_too(media_type):
    assert responses.embed_response(texts_of([]), [], NOTHING, media_type).body
    assert responses.encode_response([], NOTHING, media_type).body


def test_half_characters_are_written_in_every_form():
    tokens = [["\ud800"]]
    for media_type in responses.MEDIA_TYPES:
        assert responses.embed_response(
            texts_of(tokens), [np.zeros((1, 4), np.float32)], NOTHING, media_type
        ).body


@pytest.mark.parametrize("media_type", responses.MEDIA_TYPES)
def test_a_long_answer_comes_in_pieces_of_bounded_size(media_type, monkeypatch, rng):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 100)
    monkeypatch.setattr(chunks, "BATCH_BYTES", 500)
    vectors = [rng.normal(size=(2, n, 4)).astype(np.float32) for n in (1, 0, 60, 3, 3)]
    tokens = [["word"] * array.shape[1] for array in vectors]
    nothing = np.zeros((2, 0, 4), np.float32)
    answer = responses.embed_response(texts_of(tokens), vectors, nothing, media_type)
    *result, last = answer.chunks()
    assert len(result) > 5
    assert all(100 <= len(piece) < 200 for piece in result)
    assert len(last) < 200
    if media_type == NPY:
        saved = io.BytesIO()
        np.save(saved, np.concatenate(vectors, axis=1))
        assert answer.body == saved.getvalue()
        assert answer.headers["Content-Length"] == str(len(answer.body))
    elif media_type == ARROW:
        table = pyarrow.ipc.open_stream(answer.body).read_all()
        assert table.column("layer_1").to_pylist() == [array[1].tolist() for array in vectors]
        assert [len(each) for each in table.column("line").chunks] == [2, 1, 2]
    else:
        sentences = json.loads(answer.body)["sentences"]
        for sentence, array in zip(sentences, vectors, strict=True):
            result = np.reshape(sentence["vectors"], array.shape)
            np.testing.assert_allclose(result, array, rtol=0, atol=1e-7)


def test_written_chunks_share_memory_with_the_arrays():
    """No copy of a long text is made, neither as a numpy file nor as Arrow."""
    vectors = np.zeros((1 << 16, 4), np.float32)
    (numbers,) = chunks.array_bytes([vectors])
    assert np.shares_memory(numbers, vectors)
    row = Row(0, "", ["a"] * len(vectors), vectors)
    parts = chunks.arrow_stream([row], Layout(width=4))
    largest = max((np.frombuffer(part, np.uint8) for part in parts), key=len)
    assert np.shares_memory(largest, vectors)
