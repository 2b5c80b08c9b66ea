"""The same vectors on a GPU: run there with `pytest -m gpu`."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
import torch

import elmore
from elmore.embed import device, packed
from elmore.embed.continuous import ContinuousBatcher
from elmore.embed.outputs import layer_selector
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
BATCH = [["The", "bank", "of", "the", "river"], ["naïve"], [], ["x" * 70, "日本"]]


def load(folder, rng, **kwargs):
    settings = bilm_options(dim=64, projection_dim=16, filters=[[1, 16], [3, 32], [5, 32]])
    return elmore.load(*write_bilm(folder, settings, bilm_weights(settings, rng)), **kwargs)


@pytest.mark.parametrize("start", ["zero", "warm"])
def test_vectors_on_a_gpu_are_those_of_the_cpu(tmp_path, rng, start):
    elmo = load(tmp_path, rng, device="cpu", initial_state=start)
    layers = [0, 1, 2, "cloze"]
    expected = elmo.embed(BATCH, layers=layers)
    result = elmo.to("cuda").embed(BATCH, layers=layers)
    assert elmo.device.type == "cuda"
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a.vectors, b.vectors, rtol=0, atol=1e-5)


def test_auto_is_the_gpu(tmp_path, rng):
    assert load(tmp_path, rng).device.type == "cuda"


def test_carried_state_moves_with_the_model(tmp_path, rng):
    elmo = load(tmp_path, rng, device="cpu", stateful=True)
    reference = elmore.Embedder(elmo.bundle, device="cpu", stateful=True)
    expected = [reference.embed(BATCH)[0].vectors for _ in range(2)]
    result = [elmo.embed(BATCH)[0].vectors, elmo.to("cuda").embed(BATCH)[0].vectors]
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_a_mixer_trains_on_a_gpu(tmp_path, rng):
    mixer = elmore.Elmo(load(tmp_path, rng), freeze=False, dropout=0.0)
    (mixer(BATCH).mixes[0] ** 2).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())


def many(rng, count: int = 400) -> list[list[str]]:
    return [
        list(rng.choice(["the", "bank", "of", "naïve", "日本"], rng.integers(0, 60)))
        for _ in range(count)
    ]


def test_bulk_on_a_gpu_equals_the_cpu_and_has_the_same_bits_in_any_batch(tmp_path, rng):
    elmo = load(tmp_path, rng, device="cpu")
    texts = many(rng)
    expected = list(elmo.stream(texts, layers="all"))
    elmo.to("cuda")
    result = list(elmo.stream(texts, layers="all"))
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a.vectors, b.vectors, rtol=0, atol=1e-5)
    other = elmore.Embedder(elmo.bundle, token_budget=500, cache_megabytes=0)
    for a, b in zip(other.stream(texts[::-1], layers="all"), result[::-1], strict=True):
        assert a.vectors.tobytes() == b.vectors.tobytes()


def test_a_cuda_graph_changes_no_bit(tmp_path, rng):
    elmo = load(tmp_path, rng, precision="fast")
    texts = many(rng, 4000)
    result = list(elmo.stream(texts, layers="all"))
    few = elmore.Embedder(elmo.bundle, precision="fast", token_budget=2000)
    for text, sentence in zip(texts[:300], result, strict=False):
        (alone,) = few.stream([text], layers="all")  # too short to be recorded
        assert alone.vectors.tobytes() == sentence.vectors.tobytes()


def set_chunk_steps(monkeypatch, most: int) -> None:
    """Let a GPU of any size run chunks of at most so many steps."""
    for name in ("GPU", "LARGE_GPU"):
        monkeypatch.setattr(device, name, device.GPU._replace(max_chunk_steps=most))


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_chunks_of_several_lengths_change_no_bit(tmp_path, rng, monkeypatch, precision):
    elmo = load(tmp_path, rng, precision=precision)
    texts = [*many(rng, 4000), ["the", "bank"] * 400]  # the last one in fewer rows
    results = []
    for most in (8, 16, 32):
        set_chunk_steps(monkeypatch, most)
        again = elmore.Embedder(elmo.bundle, precision=precision)
        for budget in (30000, 60000, 262144, 60000, 30000):
            again.runtime.token_budget = budget
            results.append([each.vectors.tobytes() for each in again.stream(texts, layers="all")])
    assert all(result == results[0] for result in results)


def test_graphs_of_shorter_chunks_keep_no_gate_inputs_of_their_own(tmp_path, rng, monkeypatch):
    settings = bilm_options(dim=512, projection_dim=32, filters=[[1, 64], [3, 128]])
    paths = write_bilm(tmp_path, settings, bilm_weights(settings, rng))
    texts = many(rng, 4000)
    set_chunk_steps(monkeypatch, 32)

    def allocated(budgets: list[int]) -> int:
        """Return what is left in memory after the texts are embedded with each budget."""
        elmo = elmore.load(*paths, device="cuda", precision="fast", cache_megabytes=0)
        before = torch.cuda.memory_allocated()
        for budget in budgets:
            elmo.runtime.token_budget = budget
            list(elmo.stream(texts, layers="average"))
        return torch.cuda.memory_allocated() - before

    of_long_chunks = allocated([200_000] * 3)
    assert allocated([9000, 16000, 200_000, 16000, 9000, 200_000]) < 1.25 * of_long_chunks


def test_a_gpu_that_runs_out_of_memory_continues_with_smaller_batches(tmp_path, rng, caplog):
    settings = bilm_options(dim=512, projection_dim=128, filters=[[1, 64], [3, 128]])
    paths = write_bilm(tmp_path, settings, bilm_weights(settings, rng))
    texts = many(rng, 16000)
    calm = elmore.load(*paths, device="cuda", token_budget=8192)
    expected = [result.vectors for result in calm.stream(texts)]
    torch.cuda.empty_cache()
    elmo = elmore.load(*paths, device="cuda", token_budget=1_000_000)
    free = 1e9 + torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(
        free / torch.cuda.get_device_properties(0).total_memory
    )
    try:
        result = [sentence.vectors for sentence in elmo.stream(texts)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "continuing with" in caplog.text
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layers", ["average", "all", 1, "cloze"])
def test_prefetched_windows_are_complete_and_in_order(tmp_path, rng, layers):
    elmo = load(tmp_path, rng, precision="fast", token_budget=1500)
    texts = [*many(rng), ["the", "bank"] * 400, *many(rng)]  # of other numbers of lanes too
    result = list(elmo.stream(texts, layers=layers))
    assert [sentence.tokens for sentence in result] == texts
    for text, sentence in list(zip(texts, result, strict=True))[::40]:
        (alone,) = elmo.stream([text], layers=layers)
        assert alone.vectors.tobytes() == sentence.vectors.tobytes()


def test_a_batch_is_launched_without_waiting_for_the_gpu(tmp_path, rng):
    elmo = load(tmp_path, rng, precision="fast")
    runtime = elmo.runtime
    texts = [*filter(None, many(rng)), ["the", "bank"] * 400]  # the last one in fewer rows
    words, lengths = list(chain.from_iterable(texts)), np.array([len(text) for text in texts])
    select = layer_selector([1, "cloze"], "float32")
    with runtime.device.inference():
        for _ in range(2):  # the words are cached, and the kernels compiled
            packed.Batch(runtime, words, lengths, select)
        torch.cuda.set_sync_debug_mode("error")
        try:
            packed.Batch(runtime, words, lengths, select)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_threads_share_the_graphs_and_caches_of_an_embedder(tmp_path, rng):
    elmo = load(tmp_path, rng, precision="fast", token_budget=2000)
    texts = many(rng, 600)
    expected = [text.vectors.tobytes() for text in elmo.stream(texts)]
    with ThreadPoolExecutor(4) as pool:
        parts = [texts[begin : begin + 150] for begin in range(0, 600, 150)]
        result = pool.map(
            lambda part: [text.vectors.tobytes() for text in elmo.stream(part)], parts
        )
    assert [one for part in result for one in part] == expected


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_sequences_that_join_and_leave_get_their_own_vectors(tmp_path, rng, precision):
    elmo = load(tmp_path, rng, precision=precision)
    texts = many(rng, 700)  # more than are read at a time
    batch, rows = ContinuousBatcher(elmo.runtime), []
    for begin in range(0, len(texts), 350):
        rows += batch.add([texts[begin : begin + 350]])[0]
        batch.step()
    batch.cancel(rows[100:120])
    rows, texts = rows[:100] + rows[120:], texts[:100] + texts[120:]
    while any(row.num_left for row in rows):
        batch.step()
    near = 1e-5 if precision == "exact" else 2e-2
    for row, expected in zip(rows, elmo.stream(texts, layers="all"), strict=True):
        result = row.layers.float().cpu().numpy()
        np.testing.assert_allclose(result, expected.vectors, rtol=0, atol=near)
