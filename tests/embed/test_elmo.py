import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import elmore
from elmore.model import native
from elmore.model.native_bilm import NativeTokenEncoder
from tests.support import numpy_elmo, simulated_bf16
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

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


def test_fine_tuned_every_weight_learns_and_the_embedder_given_is_left_alone(embedder):
    before = embedder.embed(BATCH)[0].vectors
    mixer = elmore.Elmo(embedder, dropout=0.0, freeze=False)
    np.testing.assert_array_equal(mixer.embedder.embed(BATCH)[0].vectors, before)
    (mixer(BATCH).mixes[0] ** 2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in mixer.parameters())
    torch.optim.SGD(mixer.parameters(), lr=0.1).step()
    tuned = mixer.embedder.embed(BATCH)[0].vectors
    assert np.abs(tuned - before).max() > 1e-4
    np.testing.assert_array_equal(embedder.embed(BATCH)[0].vectors, before)


def test_vectors_have_no_dropout_even_while_the_model_trains(embedder):
    mixer = elmore.Elmo(embedder, freeze=False).train()
    first, second = (mixer.embedder.embed(BATCH)[0].vectors for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert mixer.bilm.training
    assert (mixer(BATCH).mixes[0] != mixer(BATCH).mixes[0]).any()


def test_embedding_in_one_thread_leaves_dropout_to_another_that_trains(embedder, monkeypatch):
    mixer = elmore.Elmo(embedder, dropout=0.0, freeze=False).train()
    quiet = mixer.embedder.embed(BATCH)[0].vectors
    torch.manual_seed(1)
    noisy = mixer(BATCH).mixes[0].detach()
    inside, trained = threading.Barrier(3), threading.Event()
    here = threading.get_ident()

    encode = NativeTokenEncoder.__call__

    def wait_for_training(*arguments):
        if threading.get_ident() != here and not trained.is_set():
            inside.wait(60)
            assert trained.wait(60)
        return encode(*arguments)

    monkeypatch.setattr(NativeTokenEncoder, "__call__", wait_for_training)
    with ThreadPoolExecutor(2) as pool:
        texts = ([[f"new{n}"], *BATCH[:1] * n] for n in (1, 70))  # a word that is not cached
        few, many = (pool.submit(mixer.embedder.embed, batch) for batch in texts)
        inside.wait(60)  # both are in the middle of it
        assert mixer.bilm.training
        assert mixer.bilm.dropout.training
        torch.manual_seed(1)
        assert torch.equal(mixer(BATCH).mixes[0], noisy)
        mixer.train()  # as training loops do at any time
        trained.set()
        for result in (few, many):
            np.testing.assert_allclose(result.result()[-1].vectors, quiet, atol=1e-6)
    assert mixer.bilm.training


def test_mixers_over_one_embedder_do_not_touch_each_other(embedder):
    tuned, frozen = (
        elmore.Elmo(embedder, dropout=0.0, freeze=False),
        elmore.Elmo(embedder, dropout=0),
    )
    tuned.train()
    assert_close(frozen(BATCH).mixes[0], frozen(BATCH).mixes[0])
    tuned(BATCH).mixes[0].sum().backward()
    assert all(p.grad is not None for p in tuned.bilm.parameters())
    assert not any(p.requires_grad for p in frozen.bilm.parameters())


@pytest.mark.parametrize("kwargs", [{"initial_state": "warm"}, {"stateful": True}])
def test_a_module_that_moves_takes_its_states_along(files, kwargs):
    mixer = elmore.Elmo(elmore.load(*files[0], **kwargs)).eval()
    expected = mixer(BATCH).mixes[0]
    moved = elmore.Elmo(elmore.load(*files[0], **kwargs)).eval()
    moved.double()
    assert_close(moved(BATCH).mixes[0].float(), expected)
    moved.float()
    moved(BATCH)  # what it carried was double


PRECISIONS = [
    pytest.param("exact", lambda patch: None, id="exact"),
    pytest.param("fast", simulated_bf16.simulate_bf16_units, id="bf16"),
    pytest.param(
        "fast",
        lambda patch: None,
        id="int8",
        marks=pytest.mark.skipif(
            not native.has_int8_dot(), reason="this CPU has no dot products of bytes"
        ),
    ),
]
precisions = pytest.mark.parametrize(("precision", "give"), PRECISIONS)


@precisions
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.double], ids=str)
@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bfloat16 says so, and goes on
def test_a_converted_module_computes_in_its_new_dtype(monkeypatch, files, precision, give, dtype):
    give(monkeypatch)
    expected = elmore.Elmo(elmore.load(*files[0], device="cpu")).eval()(BATCH).mixes[0]
    mixer = elmore.Elmo(elmore.load(*files[0], device="cpu", precision=precision)).eval()
    assert mixer(BATCH).mixes[0].dtype == torch.float
    result = mixer.to(dtype)(BATCH).mixes[0]
    assert result.dtype == dtype
    close = (
        {"rtol": 0.03, "atol": 0.03} if dtype == torch.bfloat16 else {"rtol": 5e-3, "atol": 5e-3}
    )
    assert_close(result.float(), expected, **close)
    for texts in (BATCH[:1], BATCH[:1] * 100):  # side by side, and through the lanes
        vectors = mixer.embedder.embed(texts)[-1].vectors
        assert_close(torch.from_numpy(vectors), expected[0], **close)
    assert mixer.float()(BATCH).mixes[0].dtype == torch.float
    assert mixer.embedder.is_fast == (precision == "fast")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_a_module_runs_on_a_gpu_and_back_on_the_cpu_after_moves(files, precision):
    mixer = elmore.Elmo(elmore.load(*files[0], device="cpu", precision=precision)).eval()
    expected, close = mixer(BATCH).mixes[0], {"rtol": 0.03, "atol": 0.03}
    moved = mixer.to("cuda")(BATCH)
    assert moved.mixes[0].is_cuda
    assert_close(moved.mixes[0].cpu(), expected, **close)
    for texts in (BATCH[:1], BATCH[:1] * 100):
        vectors = mixer.embedder.embed(texts)[-1].vectors
        assert_close(torch.from_numpy(vectors), expected[0], **close)
    assert torch.equal(mixer.cpu()(BATCH).mixes[0], expected)


@precisions
def test_a_module_runs_with_its_current_weights(monkeypatch, files, precision, give):
    give(monkeypatch)
    mixer = elmore.Elmo(elmore.load(*files[0], device="cpu", precision=precision)).eval()
    before = mixer(BATCH).mixes[0]
    saved = {name: weight.clone() for name, weight in mixer.state_dict().items()}
    assert "bilm.forward_layers.0.recurrent" in saved
    again = copy.deepcopy(mixer)
    mixer.load_state_dict({name: weight * 0.5 for name, weight in saved.items()})
    exact = elmore.Elmo(elmore.load(*files[0], device="cpu")).eval()
    exact.load_state_dict(mixer.state_dict())
    halved = mixer(BATCH).mixes[0]
    assert (halved - exact(BATCH).mixes[0]).norm() < 0.05 * halved.norm()
    assert (halved - before).norm() > 0.2 * before.norm()
    mixer.load_state_dict(saved, assign=True)
    assert torch.equal(mixer(BATCH).mixes[0], before)
    assert torch.equal(again(BATCH).mixes[0], before)


@precisions
def test_weights_written_through_data_are_read_after_a_move_to_the_same_device(
    monkeypatch, files, precision, give
):
    give(monkeypatch)
    embedder = elmore.load(*files[0], device="cpu", precision=precision)
    before = embedder.embed(BATCH[:1])[0].vectors
    for weight in embedder.bundle.model.parameters():
        weight.data.mul_(0.5)
    result = embedder.to(embedder.device).embed(BATCH[:1])[0].vectors
    expected = elmore.Embedder(embedder.bundle, device="cpu", precision=precision)
    np.testing.assert_array_equal(result, expected.embed(BATCH[:1])[0].vectors)
    assert np.abs(result - before).max() > 0.01


@pytest.mark.parametrize("freeze", [True, False])
def test_loading_or_training_a_module_leaves_the_bundle_of_its_embedder_alone(embedder, freeze):
    bundle = replace(embedder.bundle, model=copy.deepcopy(embedder.bundle.model))
    before = [weight.clone() for weight in bundle.model.parameters()]
    mixer = elmore.Elmo(elmore.Embedder(bundle, device="cpu"), dropout=0.0, freeze=freeze)
    if not freeze:
        (mixer(BATCH).mixes[0] ** 2).sum().backward()
        torch.optim.SGD(mixer.parameters(), lr=0.1).step()
    halved = {name: weight * 0.5 for name, weight in mixer.state_dict().items()}
    parameters = list(mixer.parameters())
    nn.ModuleList([mixer]).load_state_dict({f"0.{name}": halved[name] for name in halved})
    assert all(torch.equal(mixer.state_dict()[name], halved[name]) for name in halved)
    assert all(a is b for a, b in zip(mixer.parameters(), parameters, strict=True))
    assert all(map(torch.equal, bundle.model.parameters(), before))


def test_a_module_loads_weights_after_it_was_copied_or_pickled(embedder):
    first = elmore.Elmo(embedder)
    for mixer in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        expected = [weight.clone() for weight in first.parameters()]
        mixer.load_state_dict({name: 2 * weight for name, weight in first.state_dict().items()})
        assert all(map(torch.equal, first.parameters(), expected))
        assert all(map(torch.equal, mixer.parameters(), (2 * weight for weight in expected)))


@precisions
def test_autocast_around_a_frozen_module_gives_near_vectors(monkeypatch, files, precision, give):
    give(monkeypatch)
    mixer = elmore.Elmo(elmore.load(*files[0], device="cpu", precision=precision)).eval()
    expected = mixer(BATCH).mixes[0]
    with torch.autocast("cpu", torch.bfloat16):
        result = mixer(BATCH).mixes[0]
    assert_close(result.float(), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("kwargs", [{}, {"layer_norm": "token"}, {"last_only": True}])
def test_a_saved_mix_embeds_as_the_module_does(embedder, kwargs):
    mixer = elmore.Elmo(embedder, **kwargs).eval()
    with torch.no_grad():
        mixer.mixes[0].weights += torch.arange(len(mixer.mixes[0].weights))
        mixer.mixes[0].gamma.fill_(1.5)
    (saved,) = mixer.saved()
    vectors = embedder.embed(BATCH, layers=saved)[0].vectors
    assert_close(torch.from_numpy(vectors), mixer(BATCH).mixes[0][0].detach())


def test_a_mix_that_depends_on_its_batch_cannot_be_saved(embedder):
    with pytest.raises(ValueError, match="depends on its batch"):
        elmore.Elmo(embedder, layer_norm="allennlp").saved()


def test_zero_mixes_are_refused(embedder):
    with pytest.raises(elmore.ConfigError, match="num_mixes must be at least 1"):
        elmore.Elmo(embedder, num_mixes=0)


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
    result = mixed.mixes[0].detach().numpy()
    np.testing.assert_allclose(result[inside], expected[inside], atol=1e-5, rtol=0)
    assert (result[~inside] == 0).all()


def test_the_token_norm_keeps_the_promise_of_sameness(embedder):
    mixer = elmore.Elmo(embedder, layer_norm="token").eval()
    together, alone = mixer(BATCH).mixes[0], mixer(BATCH[1:2]).mixes[0]
    assert_close(together[1, :1], alone[0])


def test_the_penalty_sums_over_the_mixes_and_layer_weights_are_normalized(embedder):
    mixer = elmore.Elmo(embedder, num_mixes=2)
    with torch.no_grad():
        mixer.mixes[0].weights.copy_(torch.tensor([1.0, 2.0, 3.0]))
        mixer.mixes[1].gamma.fill_(0.5)
    assert_close(mixer.penalty(0.001), torch.tensor(0.014))
    first, second = mixer.layer_weights()
    assert first["weights"] == pytest.approx(np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum())
    assert second == {"weights": pytest.approx([1 / 3] * 3), "gamma": 0.5}
