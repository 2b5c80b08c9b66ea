"""Word by word, forward only: the vectors of the batch, however a text is split into calls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.model import native
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.numpy_elmo import NumpyElmo
from tests.support.sweeps import pick

OPTIONS = bilm_options(dim=40, projection_dim=16)
WEIGHTS = bilm_weights(OPTIONS, np.random.default_rng(0))
WORDS = ["the", "bank", "of", "naïve", "x" * 60, "日本"]
pieces = st.lists(st.lists(st.sampled_from(WORDS), max_size=5), max_size=8)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_bilm(tmp_path_factory.mktemp("model"), OPTIONS, WEIGHTS)


def read(elmo, pieces, *, cells=False):
    """The layers of all pieces, their cells, and the state after them."""
    state, vectors, memory = None, [], []
    for piece in [[], *pieces]:
        text, state = elmo.step(piece, state, layers="all", cells=cells)
        vectors.append(text.vectors)
        memory.append(text.cells)
    joined = np.concatenate(memory, axis=1) if cells else None
    return np.concatenate(vectors, axis=1), joined, state


@pytest.mark.skipif(not native.available(), reason="there is no native library here")
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_any_split_gives_the_bits_of_the_batch(files, precision):
    elmo = elmore.load(*files, device="cpu", precision=precision)

    @given(pieces, st.booleans())
    @settings(max_examples=pick(25, 100), deadline=None)
    def check(pieces, cells):
        words = [word for piece in pieces for word in piece]
        others = [["the", "bank"], WORDS, WORDS * 3]
        _, batch, *_ = elmo.embed([WORDS, words, *others], layers="all", direction="forward")
        vectors, _, state = read(elmo, pieces, cells=cells)
        assert vectors.tobytes() == batch.vectors.tobytes()
        _, _, whole = read(elmo, [words])
        assert state.output.tobytes() == whole.output.tobytes()
        assert state.cell.tobytes() == whole.cell.tobytes()

    check()


@given(pieces)
@settings(max_examples=pick(8, 40), deadline=None)
def test_with_torch_any_split_gives_the_same_bits_and_nearly_those_of_the_batch(files, pieces):
    elmo = elmore.load(*files, device="cpu")
    elmo.bundle.model.use_backend("eager")
    words = [word for piece in pieces for word in piece]
    vectors, _, state = read(elmo, pieces)
    whole, _, end = read(elmo, [words])
    assert vectors.tobytes() == whole.tobytes()
    assert state.cell.tobytes() == end.cell.tobytes()
    (batch,) = elmo.embed([words], layers="all", direction="forward")
    np.testing.assert_allclose(vectors, batch.vectors, rtol=0, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("layers", ["all", "average", "top", 1, [0, "top"]])
def test_one_direction_is_its_half_of_both(files, direction, layers):
    elmo = elmore.load(*files, device="cpu")
    texts = [WORDS, [], WORDS[:2], WORDS * 40]
    half = elmo.width // 2
    chosen = slice(half) if direction == "forward" else slice(half, None)
    both = elmo.embed(texts, layers=layers)
    alone = elmo.embed(texts, layers=layers, direction=direction)
    for one, other in zip(alone, both, strict=True):
        assert np.array_equal(one.vectors, other.vectors[..., chosen])
    assert next(elmo.stream(texts, direction=direction)).vectors.shape == (len(WORDS), half)


def test_cells_are_those_of_the_definition(files):
    elmo = elmore.load(*files, device="cpu")
    text, _ = elmo.step(WORDS, cells=True)
    reference = NumpyElmo(OPTIONS, WEIGHTS)
    for number in range(len(WORDS)):
        state = reference.lstm.grown(None, 1, np.float64)
        tokens = reference.token_vectors(["<S>", *WORDS[: number + 1]])
        reference.lstm.run(tokens, state, 0)
        for layer in range(2):
            expected, _ = state[0, layer]
            np.testing.assert_allclose(text.cells[layer, number], expected[0], atol=1e-5)


def test_a_text_is_continued_from_one_state_twice_and_the_state_stays(files):
    elmo = elmore.load(*files, device="cpu")
    _, state = elmo.step(["the", "bank"])
    before = state.output.tobytes(), state.cell.tobytes()
    first, second = (elmo.step(["of"], state)[0].vectors for _ in range(2))
    assert np.array_equal(first, second)
    assert (state.output.tobytes(), state.cell.tobytes()) == before


def test_a_warm_start_is_that_of_the_batch(files):
    elmo = elmore.load(*files, device="cpu", initial_state="warm")
    (batch,) = elmo.embed([WORDS], direction="forward")
    text, _ = elmo.step(WORDS)
    np.testing.assert_allclose(text.vectors, batch.vectors, rtol=0, atol=1e-6)
