from dataclasses import replace

import numpy as np
import pytest

import elmore
from elmore.errors import ConfigError, DataError
from elmore.weights.forward_state import ForwardState
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm


def make_embedder(path, seed=0, **changes):
    options = bilm_options(**changes)
    weights = bilm_weights(options, np.random.default_rng(seed))
    path.mkdir()
    return elmore.load(*write_bilm(path, options, weights), device="cpu")


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return make_embedder(tmp_path_factory.mktemp("models") / "first")


@pytest.fixture
def state(elmo) -> ForwardState:
    return elmo.step(["the", "bank"])[1]


def test_a_saved_state_continues_a_text_in_another_process(elmo, state, tmp_path):
    state.save(tmp_path / "new" / "state.npz")
    loaded = ForwardState.load(tmp_path / "new" / "state.npz")
    assert (loaded.model, loaded.precision) == (state.model, state.precision)
    found, expected = (elmo.step(["of"], one)[0].vectors for one in (loaded, state))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda state: "state", "what the last step returned, or None, found str"),
        (lambda state: replace(state, model="0" * 64), "of the model 000000000000, this is"),
        (
            lambda state: replace(state, precision="fast"),
            "in fast precision, this model runs in exact; load it with precision='fast'",
        ),
        (
            lambda state: replace(state, output=state.output[:1]),
            r"output has the shape \(1, 6\), expected \(2, 6\)",
        ),
        (
            lambda state: replace(state, cell=state.cell[:, :3]),
            r"cell has the shape \(2, 3\), expected",
        ),
        (
            lambda state: replace(state, cell=state.cell.astype("f8")),
            "cell must be finite float32, found float64",
        ),
        (
            lambda state: replace(state, cell=state.cell * np.float32("nan")),
            "cell must be finite float32, found NaN or infinity",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_in_one_sentence(elmo, state, damage, reason):
    with pytest.raises(DataError, match=reason):
        elmo.step(["of"], damage(state))


def test_a_state_of_other_weights_is_refused(elmo, state, tmp_path):
    other = make_embedder(tmp_path / "other", seed=1)
    with pytest.raises(DataError, match="pass a state of this model, or None to start a text"):
        other.step(["of"], state)


def test_a_state_of_earlier_weights_is_refused_after_training(state, tmp_path):
    elmo = make_embedder(tmp_path / "same")
    elmo.step(["of"], state)
    next(elmo.bundle.model.parameters()).mul_(2)
    with pytest.raises(DataError, match="the state is of the model"):
        elmo.step(["of"], state)


@pytest.mark.parametrize("layers", ["cloze", ["top", "cloze"]])
def test_layers_of_both_directions_are_refused(elmo, layers):
    with pytest.raises(ConfigError, match="needs both directions, found 'forward' alone"):
        elmo.step(["of"], layers=layers)
    with pytest.raises(ConfigError, match="needs both directions, found 'backward' alone"):
        elmo.embed([["of"]], layers=layers, direction="backward")


def test_an_unknown_direction_is_refused(elmo):
    with pytest.raises(ConfigError, match="'both', 'forward' or 'backward', found 'left'"):
        elmo.embed([["of"]], direction="left")


def test_a_stateful_embedder_refuses_one_direction(elmo):
    with pytest.raises(ConfigError, match="direction='forward': a stateful embedder runs both"):
        elmore.Embedder(elmo.bundle, stateful=True).embed([["of"]], direction="forward")


def test_a_string_is_tokenised_and_nothing_leaves_the_state_as_it_was(elmo, state):
    text, _ = elmo.step("can't", state)
    assert text.tokens == ["ca", "n't"]
    assert text.offsets == [(0, 2), (2, 5)]
    nothing, same = elmo.step("", state, layers="all", cells=True)
    assert nothing.vectors.shape == (3, 0, elmo.width // 2)
    assert nothing.cells.shape == (2, 0, elmo.bundle.config.lstm.cell_dim)
    assert same.cell.tobytes() == state.cell.tobytes()
