"""In bulk, a sentence gets the same bits for any budget, order, batch and cache."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.embed import device, networks, packed, torch_device
from elmore.embed.cuda_graph import CUDAGraphRunner
from elmore.embed.torch_device import TorchDevice
from elmore.embed.windows import Window
from elmore.embed.word_tables import ProjectionCache
from elmore.model import native
from elmore.model.lstm import eager
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm
from tests.support.simulated_cuda_graphs import simulate_cuda_graphs
from tests.support.sweeps import pick

WORDS = ["the", "bank", "of", "naïve", "x" * 60, "日本", "<S>", "a", "b", "reconstruction"]
sentences = st.lists(st.lists(st.sampled_from(WORDS), max_size=40), min_size=1, max_size=30)


def embedder(folder, dim: int = 40, width: int = 8, **kwargs) -> elmore.Embedder:
    settings = bilm_options(dim=dim, projection_dim=width, filters=[[1, 9], [3, 7], [7, 5]])
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(folder, settings, weights), **kwargs)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return embedder(tmp_path_factory.mktemp("model"))


def bits(elmo: elmore.Embedder, texts: list[list[str]], **kwargs) -> list[bytes]:
    other = elmore.Embedder(elmo.bundle, **kwargs)
    return [result.vectors.tobytes() for result in other.stream(texts, layers="all")]


@given(sentences, st.randoms(), st.integers(1, 2000), st.sampled_from([0, 0.0001, 256]))
@settings(max_examples=pick(12, 60))
def test_budget_order_and_cache_change_no_bit(elmo, texts, random, budget, cache):
    expected = bits(elmo, texts)
    order = list(range(len(texts)))
    random.shuffle(order)
    result = bits(elmo, [texts[i] for i in order], token_budget=budget, cache_megabytes=cache)
    assert result == [expected[i] for i in order]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("dim", "width"), [(40, 8), (40, 10), *pick([(300, 10)], [(1000, 64), (1000, 10)])]
)
def test_other_texts_change_no_bit_for_any_number_of_threads(tmp_path, threads, dim, width):
    elmo = embedder(tmp_path, dim, width)
    rng = np.random.default_rng(1)
    texts = [list(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(pick(50, 80))]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = bits(elmo, texts)
        assert bits(elmo, texts[::-1], token_budget=300)[::-1] == together
        assert [bits(elmo, [text])[0] for text in texts[:10]] == together[:10]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 6, 7, 8])
@pytest.mark.parametrize("width", [10, 50, 125, 1000, 1024, 4096])
def test_the_same_row_gets_the_same_bits_wherever_it_stands(threads, width):
    """What torch works on element by element is cut where no element is computed otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for at_least in (4, 6, 12, 24, 48, 96):
            rows = torch_device.rows_for_bitwise_stability(at_least, width)
            assert at_least <= rows < at_least + 64 * threads
            same = torch.randn(4 * width, 1).expand(-1, rows).contiguous()  # rows are columns here
            i, f, g, o = same.chunk(4)
            result = torch.sigmoid(o) * torch.tanh(torch.sigmoid(f) + torch.sigmoid(i) * g.tanh())
            assert (result == result[:, :1]).all()
    finally:
        torch.set_num_threads(before)


def test_a_window_is_filled_and_nothing_runs_alone(elmo, monkeypatch):
    run, counts = packed._run_packed, []

    def counting(runtime, known, text, lengths, *rest):
        counts.append(len(lengths))
        return run(runtime, known, text, lengths, *rest)

    monkeypatch.setattr(packed, "_run_packed", counting)
    bits(elmo, [["the", "bank", "of"]] * 400, token_budget=512)
    assert counts == [102, 102, 98, 98]


@given(sentences)
@settings(max_examples=pick(6, 30))
def test_bulk_agrees_with_a_single_call(elmo, texts):
    for result, text in zip(elmo.stream(texts, layers="all"), texts, strict=True):
        assert result.tokens == text
        (single,) = elmo.embed([text], layers="all")
        np.testing.assert_allclose(result.vectors, single.vectors, rtol=0, atol=1e-5)


@pytest.mark.parametrize("start", ["zero", "warm"])
def test_many_texts_in_one_call_agree_with_single_calls(tmp_path, start):
    elmo = embedder(tmp_path, initial_state=start)
    texts = [["the", "bank"] * n for n in range(60)]
    for result, text in zip(elmo.embed(texts, layers="top"), texts, strict=True):
        single = elmo.embed([text], layers="top")[0].vectors
        np.testing.assert_allclose(result.vectors, single, rtol=0, atol=1e-5)


def test_models_of_words_and_of_both_stream_too(tmp_path, rng):
    many_langs(tmp_path, rng)
    elmo = elmore.load(tmp_path)
    texts = [["the", "zebra", "日本"], [], ["a"] * 30] * 20
    for result, text in zip(elmo.stream(texts), texts, strict=True):
        single = elmo.embed([text])[0].vectors
        np.testing.assert_allclose(result.vectors, single, rtol=0, atol=1e-5)


def test_a_very_long_sentence_works(tmp_path):
    length = pick(10_000, 100_000)
    settings = bilm_options(dim=16, projection_dim=8, n_layers=1)
    weights = bilm_weights(settings, np.random.default_rng(0))
    elmo = elmore.load(*write_bilm(tmp_path, settings, weights))
    (result,) = elmo.stream([["word", "after"] * (length // 2)])
    assert result.vectors.shape == (length, 16)
    assert np.isfinite(result.vectors).all()
    start = elmo.embed([["word", "after"] * 300], layers="all")[0].vectors[:, :100, :8]
    (long,) = elmo.stream([["word", "after"] * 1500], layers="all")
    np.testing.assert_allclose(long.vectors[:, :100, :8], start, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_bytes", [0, 400])
def test_the_memory_for_gate_inputs_changes_no_bit(elmo, monkeypatch, num_bytes):
    rng = np.random.default_rng(2)
    texts = [list(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(80)]
    expected = bits(elmo, texts)
    monkeypatch.setattr(device, "CPU", device.CPU._replace(projection_bytes=num_bytes))
    assert bits(elmo, texts) == expected


@pytest.mark.parametrize("num_bytes", [400, 1e9])
@pytest.mark.parametrize("network_of", [networks.network_of, torch_device.torch_network])
def test_gate_inputs_that_are_not_looked_up_have_the_same_bits(
    elmo, monkeypatch, network_of, num_bytes
):
    texts = [WORDS, WORDS[3:], WORDS[:2] * 200, []]  # a long one, which runs apart from the others
    monkeypatch.setattr(networks, "network_of", network_of)
    expected = bits(elmo, texts)
    limits = device.CPU._replace(looks_up_projections=False, projection_bytes=num_bytes)
    monkeypatch.setattr(device, "CPU", limits)
    monkeypatch.setattr(ProjectionCache, "__call__", lambda *_, **__: pytest.fail("looked up"))
    assert bits(elmo, texts) == expected


@pytest.mark.skipif(not native.has_int8_dot(), reason="this CPU has no int8 dot products")
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_words_that_each_step_projects_have_the_same_bits(tmp_path, monkeypatch, precision):
    elmo = embedder(tmp_path, dim=70, width=32)
    rng = np.random.default_rng(4)
    texts = [list(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(80)]
    texts.append(WORDS * 40)  # runs apart from the others, in fewer rows
    monkeypatch.setattr(device.HostDevice, "projects_in_steps", lambda *_: False)
    expected = bits(elmo, texts, precision=precision)
    monkeypatch.setattr(device.HostDevice, "projects_in_steps", lambda *_: True)
    monkeypatch.setattr(packed, "ProjectionTable", lambda *_: pytest.fail("a table was made"))
    assert bits(elmo, texts, precision=precision) == expected


@pytest.mark.skipif(not native.has_int8_dot(), reason="this CPU has no int8 dot products")
@pytest.mark.parametrize(
    ("precision", "num_texts", "width", "has_unit", "num_tables"),
    [
        ("fast", 32, 32, True, 0),
        ("fast", 32, 32, False, 2),
        ("exact", 32, 32, True, 2),
        ("fast", 31, 32, True, 2),
        ("fast", 32, 257, True, 2),
    ],
)
def test_a_matrix_unit_needs_no_tables_of_gate_inputs_in_bulk(
    tmp_path, monkeypatch, precision, num_texts, width, has_unit, num_tables
):
    elmo = elmore.Embedder(embedder(tmp_path, 300, width).bundle, precision=precision)
    made, table = [], packed.ProjectionTable
    monkeypatch.setattr(device, "has_matrix_unit", lambda: has_unit)
    monkeypatch.setattr(packed, "ProjectionTable", lambda *args: made.append(args) or table(*args))
    elmo.embed([WORDS] * num_texts)
    assert len(made) == num_tables
    num_cached = [len(cache._cache._lru) for cache in elmo.runtime.projections]
    assert num_cached == [len(WORDS) if num_tables else 0] * 2


def test_chunks_of_several_lengths_change_no_bit(tmp_path, monkeypatch):
    """As CUDA graphs of a large GPU, where products of upper layers have one shape in any chunk."""
    elmo = embedder(tmp_path, dim=64)
    elmo.bundle.model.use_backend("eager")
    rows, steps = 8, 4
    monkeypatch.setattr(eager, "_CHUNK_ROWS", rows * steps)
    few = device.CPU._replace(max_rows=rows, chunk_steps=steps, max_chunk_steps=steps)
    monkeypatch.setattr(device, "CPU", few)
    rng = np.random.default_rng(3)
    texts = [list(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(pick(40, 400))]
    texts.insert(20, WORDS * 5)  # a long one, in fewer rows
    monkeypatch.setattr(packed, "SHORT", 32)
    expected = bits(elmo, texts)
    monkeypatch.setattr(device, "CPU", few._replace(max_chunk_steps=4 * steps))
    replays = simulate_cuda_graphs(monkeypatch)
    monkeypatch.setattr(TorchDevice, "capture", lambda device, stack: CUDAGraphRunner(stack))
    place, lengths = TorchDevice.place, set()

    def record(device, plan, chunk):
        num_steps, num_rows = plan.forward.shape
        lengths.update((min(chunk, num_steps - at), num_rows) for at in range(0, num_steps, chunk))
        return place(device, plan, chunk)

    monkeypatch.setattr(TorchDevice, "place", record)
    for budget in (150, 300, 5000):
        assert bits(elmo, texts, token_budget=budget) == expected
    assert lengths == {(4, 8), (8, 8), (12, 8), (16, 8), (24, 4), (32, 4)}
    assert replays


@pytest.mark.parametrize("limits", [device.GPU, device.LARGE_GPU])
def test_products_of_upper_layers_have_one_shape_in_chunks_of_any_length(limits):
    """A GPU may compute products of other shapes with other bits."""
    num_rows = limits.max_rows
    while num_rows >= packed.MIN_ROWS:
        shortest, longest = packed.chunk_lengths(num_rows, limits)  # all are multiples of the first
        assert shortest % (eager._CHUNK_ROWS // num_rows) == 0
        assert longest % shortest == 0
        num_rows //= 2


def test_a_word_that_recurs_is_projected_once_also_in_later_calls(elmo, monkeypatch):
    project, projected = ProjectionCache.project, []

    def counting(cache, vectors):
        projected.append(len(vectors))
        return project(cache, vectors)

    monkeypatch.setattr(ProjectionCache, "project", counting)
    other = elmore.Embedder(elmo.bundle)
    for _ in range(2):
        list(other.stream([["the", "bank", "of"]] * 2000))
    other.embed([["of", "the"]])
    first, *rest = projected
    assert rest == [first]  # once in each direction


@pytest.mark.parametrize(("text", "in_window"), [("Two words. And more.", 4), ("", 40)])
def test_no_more_texts_are_held_than_of_two_windows(elmo, text, in_window):
    taken = []

    def texts():
        for number in range(300):
            taken.append(number)
            yield text

    bounded = elmore.Embedder(elmo.bundle, token_budget=40)
    result = bounded.stream(texts(), split_sentences=True)
    read, held = [], []
    for number, _ in enumerate(result):
        read.append(len(taken) - number)
        if number % 100 == 99:
            held.append(sum(len(it.num_words) for it in gc.get_objects() if type(it) is Window))
    assert max(read) == 2 * in_window + 1
    assert 0 < max(held) <= 2 * in_window


def test_empty_sentences_alone_need_no_row(elmo):
    result = list(elmo.stream([[]] * 100, layers="all"))
    assert [sentence.vectors.shape for sentence in result] == [
        (elmo.num_layers, 0, elmo.width)
    ] * 100


def test_a_gpu_that_runs_out_of_memory_continues_with_smaller_batches(elmo, monkeypatch, caplog):
    """No GPU is needed to see it: the error is raised where one would raise it."""
    run, asked = packed._run_packed, []

    def small(runtime, known, text, *rest):
        asked.append(len(text))
        if len(text) > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(runtime, known, text, *rest)

    monkeypatch.setattr(networks, "network_of", torch_device.torch_network)
    texts = [["the", "bank"] * 5] * 100
    expected = bits(elmo, texts)
    monkeypatch.setattr(packed, "_run_packed", small)
    assert bits(elmo, texts) == expected
    assert max(asked) > 100
    assert "continuing with" in caplog.text
    with pytest.raises(elmore.DataError, match="a sentence of 202 tokens does not fit"):
        bits(elmo, [["a"] * 200])


def test_a_gpu_that_has_no_memory_for_long_chunks_continues_with_shorter_ones(elmo, monkeypatch):
    """However few tokens run at a time, a chunk takes memory for all of its rows and steps."""
    place, chunks = TorchDevice.place, []

    def small(device, plan, chunk):
        chunks.append(chunk)
        if chunk > shortest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return place(device, plan, chunk)

    shortest = device.CPU.chunk_steps
    monkeypatch.setattr(networks, "network_of", torch_device.torch_network)
    texts = [["the", "bank"] * 5]
    expected = bits(elmo, texts)
    monkeypatch.setattr(device, "CPU", device.CPU._replace(max_chunk_steps=4 * shortest))
    monkeypatch.setattr(TorchDevice, "place", small)
    assert bits(elmo, texts) == expected
    assert chunks == [4 * shortest, 2 * shortest, shortest]


def test_what_a_batch_had_is_freed_before_memory_is_given_back(elmo, monkeypatch):
    """The error refers to the frames of the batch; what they hold cannot be given back."""
    run, held, alive = packed._run_packed, [], []

    def small(runtime, known, text, *rest):
        if len(text) > 100:
            layers = np.empty(len(text))
            held.append(weakref.ref(layers))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(runtime, known, text, *rest)

    monkeypatch.setattr(networks, "network_of", torch_device.torch_network)
    monkeypatch.setattr(packed, "_run_packed", small)

    def free(_):
        alive.extend(each() is not None for each in held)

    monkeypatch.setattr(TorchDevice, "free_memory", free)
    bits(elmo, [["the", "bank"] * 5] * 20)
    assert alive
    assert not any(alive)
