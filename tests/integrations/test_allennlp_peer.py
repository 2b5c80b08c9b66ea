"""Side by side with AllenNLP's own module, as it lives on in the package simple-elmo-pytorch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import elmore
from elmore.weights import pretrained
from elmore.weights.convert import bilm_tf
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

peer = pytest.importorskip(
    "simple_elmo_pytorch.models.elmo", reason="`make test-integrations` installs the peer"
)

HISTORY = [
    [["The", "bank", "of", "the", "river"], ["x" * 70]],
    [["a"], ["naïve", "日本"], ["d", ".", "."]],
    [["once", "more", "</S>"]],
]


@pytest.fixture
def files(tmp_path, rng):
    settings = bilm_options(n_highway=2, dim=32, projection_dim=8, filters=[[1, 8], [5, 16]])
    return write_bilm(tmp_path, settings, bilm_weights(settings, rng, scale=2.0))


def theirs(files, **kwargs) -> torch.nn.Module:
    return peer.Elmo(str(files[0]), str(files[1]), 2, dropout=0.0, **kwargs).eval()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_batch_after_batch_both_give_the_same_mixes_and_masks(files, layer_norm, monkeypatch):
    from simple_elmo_pytorch.models import scalar_mix

    # The package forgot this import when it cut AllenNLP down; the value is AllenNLP's.
    tiny = SimpleNamespace(tiny_value_of_dtype=lambda dtype: 1e-13)
    monkeypatch.setattr(scalar_mix, "util", tiny, raising=False)
    reference = theirs(files, do_layer_norm=layer_norm)
    kind = "allennlp" if layer_norm else False
    ours = elmore.Elmo(elmore.load(*files, stateful=True), 2, layer_norm=kind).eval()
    for batch in HISTORY:
        expected, result = reference(peer.batch_to_ids(batch)), ours(batch)
        assert torch.equal(expected["mask"].bool(), result.mask)
        for a, b in zip(result.mixes, expected["elmo_representations"], strict=True):
            assert_close(a, b, rtol=0, atol=1e-5)


def test_the_state_dict_of_a_trained_module_is_read_with_its_mixes(files, tmp_path):
    reference = theirs(files)
    with torch.no_grad():
        for number, weight in enumerate(reference.scalar_mix_1.scalar_parameters):
            weight.fill_(number / 3)
        reference.scalar_mix_1.gamma.fill_(1.7)
    torch.save(reference.state_dict(), tmp_path / "model.th")
    elmo = elmore.load(files[0], tmp_path / "model.th", stateful=True)
    expected = reference(peer.batch_to_ids(HISTORY[0]))["elmo_representations"][1]
    for row, sentence in zip(
        expected, elmo.embed(HISTORY[0], layers=elmo.bundle.mixes[1]), strict=True
    ):
        vectors = row[: len(sentence.tokens)].detach().numpy()
        np.testing.assert_allclose(sentence.vectors, vectors, rtol=0, atol=1e-5)


def test_simple_elmo_reads_what_convert_writes(files, tmp_path):
    bilm_tf.write_bilm_tf(pretrained.load(*files), tmp_path / "back")
    back = (tmp_path / "back" / "options.json", tmp_path / "back" / "weights.hdf5")
    batch = peer.batch_to_ids(HISTORY[0])
    for a, b in zip(
        theirs(files)(batch)["elmo_representations"],
        theirs(back)(batch)["elmo_representations"],
        strict=True,
    ):
        assert torch.equal(a, b)
