"""Caches of words: bounded, shared by threads, and the same vectors whatever they hold."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.device import HOST, Network, native_network
from elmore.embed.networks import network_of
from elmore.embed.torch_device import torch_network
from elmore.embed.word_tables import MISSING, LRUTable, ProjectionCache, TokenVectorCache
from elmore.model.bilm import BACKWARD, FORWARD, BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.text.characters import ByteAlphabet, WordAlphabet
from elmore.text.vocabulary import Vocabulary

LSTM = LSTMConfig(cell_dim=16, output_dim=8)
ROW = 4 * LSTM.output_dim / 1e6  # megabytes of a vector
WORDS = [f"word-{number}" for number in range(40)]


@pytest.fixture
def model() -> BiLM:
    characters = CharCNNConfig(filters=((1, 8), (3, 8)), num_highways=1)
    return BiLM(BiLMConfig(characters=characters, lstm=LSTM)).eval()


@pytest.fixture
def encoded(model, monkeypatch) -> list[str]:
    """The words that were encoded from their letters, in order."""
    seen: list[str] = []
    encode = TokenVectorCache._encode

    def counting(self, words):
        seen.extend(words)
        return encode(self, words)

    monkeypatch.setattr(TokenVectorCache, "_encode", counting)
    return seen


@pytest.fixture(params=["native", "torch"])
def network(model, request) -> Network:
    if request.param == "torch":
        return torch_network(model.requires_grad_(False))
    if (native := model.pack()) is None:
        pytest.skip("there is no native library here")
    return native_network(native, fast=False)


def definition(model, words) -> torch.Tensor:
    characters, _ = ByteAlphabet().encode(words)
    with torch.no_grad():
        return model.tokens(torch.from_numpy(characters), None)


def assert_close(vectors, expected) -> None:
    torch.testing.assert_close(torch.as_tensor(vectors), expected)


def test_cached_words_are_not_encoded_again(model, network, encoded):
    vectors = TokenVectorCache(network, ByteAlphabet())
    first = vectors(WORDS)
    assert_close(first, definition(model, WORDS))
    assert np.array_equal(vectors(WORDS[::-1]), np.asarray(first)[::-1])
    assert encoded == WORDS


def test_the_least_recently_used_word_is_dropped_first(model, network, encoded):
    vectors = TokenVectorCache(network, ByteAlphabet(), megabytes=3.5 * ROW)
    for words in (["a", "b", "c"], ["a"], ["d"], ["a", "c", "d"], ["b"]):
        assert_close(vectors(words), definition(model, words))
    assert encoded == ["a", "b", "c", "d", "b"]


def test_a_word_of_many_letters_is_not_cached(network, encoded):
    vectors = TokenVectorCache(network, ByteAlphabet())
    for _ in range(2):
        vectors(["x" * 101, "y"])
    assert encoded == ["x" * 101, "y", "x" * 101]


def test_a_gpu_without_memory_for_a_larger_table_keeps_the_present_one(model, encoded, monkeypatch):
    """No GPU is needed to see it: the error is raised where one would raise it."""
    network = torch_network(model.requires_grad_(False))
    vectors = TokenVectorCache(network, ByteAlphabet())
    vectors(WORDS[:10])
    empty = network.device.empty

    def small(rows, *rest):
        if rows > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return empty(rows, *rest)

    monkeypatch.setattr(network.device, "empty", small)
    for begin in (0, 10, 20):
        words = WORDS[begin : begin + 10]
        assert_close(vectors(words), definition(model, words))
    vectors(WORDS[20:30])
    assert encoded == WORDS[:30]


def test_words_of_a_table_need_no_letters():
    words = Vocabulary(("<S>", "</S>", "<UNK>", "a", "b"))
    config = BiLMConfig(
        characters=None,
        words=WordsConfig(num_words=len(words), dim=LSTM.output_dim),
        projection=False,
        lstm=LSTM,
    )
    model = BiLM(config).eval()
    result = TokenVectorCache(network_of(model), WordAlphabet(words))(["b", "unheard", "a"])
    with torch.no_grad():
        assert_close(result, model.tokens(None, torch.tensor([4, 2, 3])))


def test_a_word_requested_twice_is_encoded_once(model, network, encoded):
    vectors = TokenVectorCache(network, ByteAlphabet())
    words = ["b", "a", "b", "c", "a"]
    for _ in range(2):
        assert_close(vectors(words), definition(model, words))
        words = ["d", *words]
    assert encoded == ["b", "a", "c", "d"]


@pytest.mark.parametrize("megabytes", [0, 20 * ROW, 100])
def test_threads_get_the_vectors_that_one_thread_gets(network, megabytes):
    vectors = TokenVectorCache(network, ByteAlphabet(), megabytes=megabytes)
    expected = TokenVectorCache(network, ByteAlphabet())(WORDS)
    chosen = [np.random.default_rng(seed).permutation(len(WORDS))[:15] for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        result = pool.map(lambda at: vectors([WORDS[i] for i in at]), chosen)
        for at, each in zip(chosen, result, strict=True):
            assert np.array_equal(each, expected[at])


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
def test_gate_inputs_are_the_input_projection_of_each_word(model, network, direction):
    vectors = torch.randn(len(WORDS), LSTM.output_dim)
    (rows,) = network.device.put([vectors.numpy()])
    cache = ProjectionCache(network, direction, megabytes=1)
    asked = []

    def lookup(at):
        asked.extend(at)
        return rows[at]

    layer = model.stacks[direction][0]
    with torch.no_grad():
        expected = vectors @ layer.input.T
    for _ in range(2):
        assert_close(cache(WORDS, lookup), expected)
    out = network.device.empty(len(WORDS), 4 * LSTM.cell_dim)
    assert cache(WORDS, lookup, out=out) is out
    assert_close(out, expected)
    assert asked == list(range(len(WORDS)))
    out = network.device.empty(len(WORDS), 4 * LSTM.cell_dim)
    assert cache.project(rows, out=out) is out
    assert_close(out, expected)


LETTERS = "abcdefghi"


def run_out_of_memory(_arrays):
    raise MemoryError


def value(word: str) -> list[float]:
    return [float(ord(word))]


@given(st.integers(0, 5), st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)))
def test_a_row_of_the_table_is_that_of_its_word(capacity, calls):
    lru = LRUTable(capacity, 1, HOST)
    for words in calls:
        before = lru.lookup(words)
        new = [word for word, row in zip(words, before, strict=True) if row == MISSING]
        lru.insert(new, np.array([value(word) for word in new]).reshape(-1, 1))
        rows = lru.lookup(words)
        for word, row in zip(words, rows.tolist(), strict=True):
            assert row == MISSING or lru.table[row].tolist() == value(word)
        if len(words) <= capacity:
            assert (rows != MISSING).all()
        assert len(lru) <= capacity


@given(st.integers(0, 2**32), st.integers(8, 40))
def test_what_is_dropped_was_used_before_everything_that_stays(seed, capacity):
    rng, letters = np.random.default_rng(seed), [chr(ord("A") + i) for i in range(60)]
    calls = [rng.choice(letters, rng.integers(1, 8), replace=False).tolist() for _ in range(60)]
    lru, used = LRUTable(capacity, 1, HOST), {}
    for number, words in enumerate(calls):
        missing = {w for w, row in zip(words, lru.lookup(words), strict=True) if row == MISSING}
        new = [word for word in words if word in missing]
        old = dict(used)
        if number % 3 == 0:  # memory runs out, and the same is tried again
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(HOST, "put", run_out_of_memory)
                with pytest.raises(MemoryError):
                    lru.insert(new, np.zeros((len(new), 1)))
        lru.insert(new, np.array([value(word) for word in new]).reshape(-1, 1))
        used |= dict.fromkeys(words, number)
        dropped = {w for w in used if w not in lru._rows}
        stay = used.keys() - dropped - set(words)
        assert not dropped & set(words)
        assert max((old[w] for w in dropped), default=-1) <= min((old[w] for w in stay), default=99)
        for word in dropped:
            del used[word]
        assert len(used) == len(lru)


@pytest.mark.parametrize("capacity", [4, 9])
def test_a_table_that_was_interrupted_at_any_line_has_only_right_rows(capacity):
    """By Ctrl-C in a notebook, for example, whose embedder goes on to be used."""
    texts = ["abcd", "ebfg", "hiab", "cdef"]
    lines, insert = [], LRUTable.insert

    def trace(frame, event, _):
        if frame.f_globals is not insert.__globals__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == stop:
                raise KeyboardInterrupt
        return trace

    stop, interrupted = 0, True
    while interrupted:
        stop, interrupted = stop + 1, False
        lines.clear()
        lru, before = LRUTable(capacity, 1, HOST), sys.gettrace()
        for words in texts:
            new = [w for w, row in zip(words, lru.lookup(words), strict=True) if row == MISSING]
            sys.settrace(trace)
            try:
                lru.insert(new, np.array([value(word) for word in new]).reshape(-1, 1))
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.settrace(before)
            for word, row in zip(LETTERS, lru.lookup(LETTERS), strict=True):
                assert row == MISSING or lru.table[row].tolist() == value(word)
    assert stop > 50
    assert len(lru) == capacity


def test_a_full_table_replaces_the_least_recently_used_word():
    lru = LRUTable(2, 1, HOST)
    lru.insert("ab", np.array([value("a"), value("b")]))
    lru.lookup("a")
    lru.insert("c", np.array([value("c")]))
    assert (lru.lookup("abc") == MISSING).tolist() == [False, True, False]
