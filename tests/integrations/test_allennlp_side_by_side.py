"""The same calls to AllenNLP's own module, as simple-elmo-pytorch has it, and to ours."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from elmore.integrations import allennlp
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

peer = pytest.importorskip(
    "simple_elmo_pytorch.models.elmo", reason="`make test-integrations` installs the peer"
)

HISTORY = [
    [["The", "bank", "of", "the", "river"], ["x" * 70]],
    [["a"], ["naïve", "日本"], ["d", ".", "."], ["</S>", "a"]],
    [["once", "more", "once"]],
    [["The"], [], ["bank", "."]],
    [["The"], ["<S>"], ["bank", "."], ["a"], ["b"]],
]


@pytest.fixture(autouse=True)
def _whole_peer(monkeypatch):
    from simple_elmo_pytorch.models import scalar_mix

    # The package forgot this import when it cut AllenNLP down; the value is AllenNLP's.
    tiny = SimpleNamespace(tiny_value_of_dtype=lambda dtype: 1e-13)
    monkeypatch.setattr(scalar_mix, "util", tiny, raising=False)


@pytest.fixture
def files(tmp_path, rng):
    settings = bilm_options(n_highway=2, dim=32, projection_dim=8, filters=[[1, 8], [5, 16]])
    return tuple(map(str, write_bilm(tmp_path, settings, bilm_weights(settings, rng, scale=2.0))))


def both(files, num_mixes: int = 2, **kwargs) -> list[torch.nn.Module]:
    options = {"dropout": 0.0} | kwargs
    return [package.Elmo(*files, num_mixes, **options) for package in (peer, allennlp)]


def same(theirs, ours) -> None:
    assert torch.equal(theirs["mask"].bool(), ours["mask"])
    pairs = zip(ours["elmo_representations"], theirs["elmo_representations"], strict=True)
    for result, expected in pairs:
        assert_close(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch", HISTORY)
def test_both_have_the_same_character_ids(batch):
    assert torch.equal(allennlp.batch_to_ids(batch), peer.batch_to_ids(batch))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_layer_norm": True},
        {"keep_sentence_boundaries": True},
        {"keep_sentence_boundaries": True, "do_layer_norm": True},
        {"scalar_mix_parameters": [0.5, -1.0, 2.0]},
        {"requires_grad": True},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.parametrize("training", [False, True])
def test_batch_after_batch_both_give_the_same(files, options, training):
    theirs, ours = (module.train(training) for module in both(files, **options))
    for batch in HISTORY:
        ids = allennlp.batch_to_ids(batch)
        same(theirs(ids), ours(ids))


def test_both_take_more_dimensions(files):
    theirs, ours = both(files)
    ids = allennlp.batch_to_ids([["a", "b"], ["c"], ["d", "e"], ["f"]]).view(2, 1, 2, 2, 50)
    for _ in range(2):
        same(theirs(ids), ours(ids))


def test_both_carry_and_reset_the_same_state(files):
    theirs, ours = both(files)
    resets = [None, torch.tensor([True, False, False, True]), None]
    for batch, reset in zip(HISTORY[:3], resets, strict=True):
        ids = allennlp.batch_to_ids(batch)
        same(theirs(ids), ours(ids))
        memories = [module._elmo_lstm._elmo_lstm for module in (theirs, ours)]
        for result, expected in zip(memories[1]._states, memories[0]._states, strict=True):
            assert_close(result, expected, rtol=0, atol=1e-5)
        for memory in memories:
            memory.reset_states(reset)


def test_a_training_step_changes_both_models_equally(files):
    theirs, ours = both(files, requires_grad=True)
    for batch in HISTORY[:2]:
        for module in (theirs, ours):
            result = module(allennlp.batch_to_ids(batch))["elmo_representations"]
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
            (result[0].square().sum() + result[1].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    expected, result = theirs.state_dict(), ours.state_dict()
    moved = both(files)[0].state_dict()
    assert set(result) == set(expected)
    for name, tensor in expected.items():
        if name.endswith("_char_embedding_weights"):  # they train the row of no character too
            result[name], tensor = result[name][1:], tensor[1:]
        assert_close(result[name], tensor, rtol=0, atol=1e-5)
        assert not torch.equal(expected[name], moved[name]), name


def test_a_checkpoint_survives_a_round_trip(files):
    theirs, ours = both(files)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.mul_(1.1)
    ours.load_state_dict(theirs.state_dict())
    back, _ = both(files)
    back.load_state_dict(ours.state_dict())
    ids = allennlp.batch_to_ids(HISTORY[0])
    result = ours(ids)
    same(theirs(ids), result)
    same(back(ids), result)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_both_mix_alike(layer_norm):
    mixes = [x.ScalarMix(3, layer_norm, [0.1, 2.0, -1.0]) for x in (peer, allennlp)]
    tensors = [torch.randn(2, 4, 6) for _ in range(3)]
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    theirs, ours = (mix(tensors, mask) for mix in mixes)
    assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_the_embedder_gives_the_layers_of_their_bilm(files):
    theirs, ours = peer.ElmoBiLmSentence(*files), allennlp.ElmoEmbedder(*files)
    for batch in HISTORY:
        result = theirs(allennlp.batch_to_ids(batch))["activations"]
        for row, layers in enumerate(ours.embed_batch(batch)):
            length = len(batch[row])
            expected = torch.stack([layer[row, 1 : length + 1] for layer in result])
            assert_close(torch.from_numpy(layers), expected, rtol=0, atol=1e-5)
