import numpy as np
import pytest
import torch
from torch.testing import assert_close

import elmore
from tests import numpy_elmo
from tests.foreign import bilm_options, bilm_weights, write_bilm

BATCH = [["The", "bank", "of", "the", "river"], ["a"], []]


@pytest.fixture
def files(tmp_path, rng):
    settings = bilm_options()
    weights = bilm_weights(settings, rng)
    return write_bilm(tmp_path, settings, weights), numpy_elmo.NumpyElmo(settings, weights)


@pytest.fixture
def embedder(files):
    return elmore.load(*files[0])


def test_an_untrained_mix_is_the_average_of_embed(embedder):
    mixed = elmore.Elmo(embedder, num_mixes=2).eval()(BATCH)
    assert len(mixed.mixes) == 2
    assert mixed.mask.tolist() == [[True] * 5, [True] + [False] * 4, [False] * 5]
    for mix in mixed.mixes:
        assert mix.shape == (3, 5, embedder.width)
        assert (mix[~mixed.mask] == 0).all()
        for row, sentence in zip(mix, embedder.embed(BATCH), strict=True):
            assert_close(row[: len(sentence.tokens)], torch.from_numpy(sentence.vectors))


def test_frozen_only_the_mixes_learn(embedder):
    mixer = elmore.Elmo(embedder, dropout=0.0)
    before = [weight.clone() for weight in mixer.bilm.parameters()]
    optimizer = torch.optim.SGD([p for p in mixer.parameters() if p.requires_grad], lr=0.1)
    (mixer(BATCH).mixes[0] ** 2).sum().backward()
    optimizer.step()
    assert sum(p.numel() for p in mixer.parameters() if p.requires_grad) == 3 + 1
    assert (mixer.mixes[0].weights != 0).all()
    assert all(torch.equal(a, b) for a, b in zip(before, mixer.bilm.parameters(), strict=True))


def test_fine_tuned_every_weight_gets_a_gradient_and_the_embedder_follows(embedder):
    mixer = elmore.Elmo(embedder, dropout=0.0, freeze=False)
    before = embedder.embed(BATCH)[0].vectors
    (mixer(BATCH).mixes[0] ** 2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in mixer.parameters())
    torch.optim.SGD(mixer.parameters(), lr=0.1).step()
    mixer.eval()
    assert np.abs(embedder.embed(BATCH)[0].vectors - before).max() > 1e-4


def test_dropout_acts_on_the_mixes_in_training_and_a_frozen_bilm_has_none(embedder):
    mixer = elmore.Elmo(embedder, dropout=0.5).train()
    assert not mixer.bilm.training
    first, second = mixer(BATCH).mixes[0], mixer(BATCH).mixes[0]
    assert (first != second).any()
    mixer.eval()
    assert_close(mixer(BATCH).mixes[0], mixer(BATCH).mixes[0])
    assert elmore.Elmo(embedder, freeze=False).train().bilm.training


def test_boundaries_may_be_kept(embedder):
    inner = elmore.Elmo(embedder).eval()(BATCH)
    whole = elmore.Elmo(embedder, keep_boundaries=True).eval()(BATCH)
    assert whole.mask.sum(dim=1).tolist() == [7, 3, 2]
    assert_close(whole.mixes[0][0, 1:6], inner.mixes[0][0])


def test_fixed_weights_select_and_do_not_learn(embedder):
    mixer = elmore.Elmo(embedder, weights=[-9e10, 1.0, -9e10]).eval()
    top = embedder.embed(BATCH, layers=1)[0].vectors
    assert_close(mixer(BATCH).mixes[0][0], torch.from_numpy(top))
    assert not any(p.requires_grad for p in mixer.parameters())


def test_last_only_is_the_top_layer(embedder):
    mixer = elmore.Elmo(embedder, last_only=True).eval()
    top = embedder.embed(BATCH, layers="top")[0].vectors
    assert_close(mixer(BATCH).mixes[0][0], torch.from_numpy(top))


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_the_batch_norms_count_the_positions_that_each_release_counts(files, kind):
    paths, reference = files
    mixed = elmore.Elmo(elmore.load(*paths), layer_norm=kind).eval()(BATCH)
    if kind == "allennlp":
        layers, mask = numpy_elmo.padded(reference.layers_with_boundaries(BATCH)[0])
        expected = numpy_elmo.layer_norm_allennlp(layers, mask).mean(axis=0)[:, 1:-1]
    else:
        layers, mask = numpy_elmo.padded(reference.layers(BATCH)[0])
        expected = numpy_elmo.layer_norm_bilm(layers, mask).mean(axis=0)
    inside = mixed.mask.numpy()
    found = mixed.mixes[0].detach().numpy()
    np.testing.assert_allclose(found[inside], expected[inside], atol=1e-5, rtol=0)
    assert (found[~inside] == 0).all()


def test_the_token_norm_keeps_the_promise_of_sameness(embedder):
    mixer = elmore.Elmo(embedder, layer_norm="token").eval()
    together, alone = mixer(BATCH).mixes[0], mixer(BATCH[1:2]).mixes[0]
    assert_close(together[1, :1], alone[0])


def test_the_penalty_sums_over_the_mixes_and_shares_say_what_weighs(embedder):
    mixer = elmore.Elmo(embedder, num_mixes=2)
    with torch.no_grad():
        mixer.mixes[0].weights.copy_(torch.tensor([1.0, 2.0, 3.0]))
        mixer.mixes[1].gamma.fill_(0.5)
    assert_close(mixer.penalty(0.001), torch.tensor(0.014))
    first, second = mixer.shares()
    assert first["shares"] == pytest.approx(np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum())
    assert second == {"shares": pytest.approx([1 / 3] * 3), "gamma": 0.5}
