"""TBPTTDataset against their definition: one array, cut into blocks, shuffled, read in rows."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.corpus.shards import TokenStream
from elmore.corpus.stream import NO_TARGET, StreamConfig, TBPTTDataset, eval_batches
from elmore.errors import ConfigError, DataError


def tokens_of(lengths: list[int], num_shards: int = 1) -> TokenStream:
    """Sentences of these lengths, words 2, 3, 4 ..., so that each position is known by its word."""
    cuts = [len(lengths) * i // num_shards for i in range(num_shards + 1)]
    shards, starts, word = [], [], 2
    for a, b in pairwise(cuts):
        if a == b:
            continue
        shard: list[int] = []
        begins = []
        for length in lengths[a:b]:
            begins.append(len(shard))
            shard += [0, *range(word, word + length)]
            word += length
        shards.append(np.array(shard, np.uint32))
        starts.append(np.array(begins, np.int64))
    return TokenStream(shards, starts, 1 << 32)


def everything(tokens: TokenStream) -> list[int]:
    return tokens.take(np.arange(tokens.num_tokens)).tolist()


def virtual(tokens: TokenStream, block: int, seed: int, epoch: int) -> list[int]:
    """The text of one epoch, by the definition, and the boundary after it."""
    text, starts = everything(tokens), tokens.starts.tolist()
    cuts = {0, len(text)}
    if block:
        for goal in range(0, len(text), block):
            cuts.add(min([start for start in starts if start >= goal], default=len(text)))
    order = sorted(cuts)
    blocks = [text[a:b] for a, b in pairwise(order)]
    shuffled = np.random.default_rng([seed, epoch]).permutation(len(blocks))
    return [token for i in shuffled for token in blocks[i]] + [0]


def read(window, direction):
    return window.types[direction.index]


@pytest.mark.parametrize(
    ("num_tokens", "processes", "rows"),
    [
        *((10**6, 1, 64), (64_000, 1, 64), (32_000, 1, 32), (23_978, 1, 23), (900, 1, 1)),
        *((10, 1, 1), (23_978, 4, 20), (10, 4, 4)),
    ],
)
def test_a_short_text_is_read_in_fewer_streams(num_tokens, processes, rows):
    config = StreamConfig(batch_size=64, unroll_steps=20, min_batches=50)
    fitted = config.fit_to(num_tokens, multiple_of=processes)
    assert fitted == replace(config, batch_size=rows)
    assert StreamConfig(batch_size=64).fit_to(num_tokens) == StreamConfig(batch_size=64)


texts = st.builds(
    tokens_of, st.lists(st.integers(1, 9), min_size=6, max_size=40), st.integers(1, 4)
)
configs = st.builds(
    StreamConfig,
    batch_size=st.integers(1, 4),
    unroll_steps=st.integers(1, 3),
    reset_probability=st.sampled_from([0.0, 0.3, 1.0]),
    shuffle_block=st.sampled_from([0, 1, 5, 16, 1000]),
)


@given(texts, configs, st.integers(0, 5), st.integers(0, 60))
def test_a_window_is_what_the_definition_says(tokens, config, seed, step):
    streams = TBPTTDataset(tokens, config, seed=seed)
    B, T = config.batch_size, config.unroll_steps
    length = tokens.num_tokens // B // T * T
    assert streams.batches_per_epoch == length // T
    epoch, k = divmod(step, length // T)
    text = virtual(tokens, config.shuffle_block, seed, epoch)
    window = streams.batch(step)
    forward, backward = read(window, window.forward), read(window, window.backward)
    for r in range(B):
        for j in range(T):
            p, q = r * length + k * T + j, (r + 1) * length - k * T - j
            assert forward[r, j] == text[p]  # a 0 is <S>
            assert window.forward.targets[r, j] == (text[p + 1] or 1)  # a 0 is </S>
            assert backward[r, j] == (text[q] or 1)
            assert window.backward.targets[r, j] == text[q - 1]
            first = k == 0 and j == 0
            for resets, boundary in (
                (window.forward, text[p] == 0),
                (window.backward, text[q] == 0),
            ):
                if first or (boundary and config.reset_probability == 1):
                    assert resets.resets[r, j]
                elif not boundary or config.reset_probability == 0:
                    assert not resets.resets[r, j]
    assert window.types.tolist() == sorted({*forward.ravel().tolist(), *backward.ravel().tolist()})


@given(texts, configs, st.integers(0, 30), st.integers(0, 4))
def test_the_rows_of_all_ranks_are_the_rows_of_one(tokens, config, step, cut):
    cut = min(cut, config.batch_size)
    whole = TBPTTDataset(tokens, config, seed=3).batch(step)
    for rows in (range(cut), range(cut, config.batch_size)):
        if not rows:
            continue
        part = TBPTTDataset(tokens, config, seed=3, rows=rows).batch(step)
        for name in ("forward", "backward"):
            one, all_ = getattr(part, name), getattr(whole, name)
            np.testing.assert_array_equal(read(part, one), read(whole, all_)[rows])
            np.testing.assert_array_equal(one.targets, all_.targets[rows])
            np.testing.assert_array_equal(one.resets, all_.resets[rows])


@given(texts, configs, st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_a_window_depends_on_its_number_alone(tokens, config, steps):
    """Whatever was asked before: that is what makes a resumed run exact."""
    streams = TBPTTDataset(tokens, config, seed=0)
    for step in steps:
        old, new = streams.batch(step), TBPTTDataset(tokens, config, seed=0).batch(step)
        for one, other in zip(
            (old.types, *old[1], *old[2]), (new.types, *new[1], *new[2]), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_an_epoch_reads_almost_every_token_once():
    tokens = tokens_of([5] * 40)
    streams = TBPTTDataset(
        tokens, StreamConfig(batch_size=4, unroll_steps=3, shuffle_block=10), seed=1
    )
    windows = [streams.batch(step) for step in range(streams.batches_per_epoch)]
    seen = np.concatenate([read(window, window.forward).ravel() for window in windows])
    words = seen[seen > 1]
    assert len(words) == len(set(words.tolist()))
    assert len(seen) == 4 * (240 // 4 // 3) * 3


def test_epochs_and_seeds_have_orders_of_their_own():
    tokens = tokens_of([7] * 60)
    streams = TBPTTDataset(
        tokens, StreamConfig(batch_size=2, unroll_steps=4, shuffle_block=16), seed=1
    )
    other = TBPTTDataset(
        tokens, StreamConfig(batch_size=2, unroll_steps=4, shuffle_block=16), seed=2
    )
    first = streams.batch(0).forward.targets
    assert (first != streams.batch(streams.batches_per_epoch).forward.targets).any()
    assert (first != other.batch(0).forward.targets).any()


def test_resets_are_as_frequent_as_asked_and_drawn_for_each_direction_and_epoch():
    tokens = tokens_of([3] * 20_000)  # a boundary at every fourth position
    B, T = 10, 1000
    streams = TBPTTDataset(
        tokens,
        StreamConfig(batch_size=B, unroll_steps=T, reset_probability=0.25, shuffle_block=0),
        seed=1,
    )
    length = streams.batches_per_epoch * T
    drawn: dict[tuple[int, str], set[int]] = {}
    for step in range(2 * streams.batches_per_epoch):
        epoch, k = divmod(step, streams.batches_per_epoch)
        window = streams.batch(step)
        for r, j in np.argwhere(window.forward.resets):
            drawn.setdefault((epoch, "f"), set()).add(r * length + k * T + j)
        for r, j in np.argwhere(window.backward.resets):
            drawn.setdefault((epoch, "b"), set()).add((r + 1) * length - k * T - j)
    for positions in drawn.values():
        assert all(position % 4 == 0 for position in positions)
        # A quarter of 20,000 boundaries, and of each pair of draws a quarter of a quarter,
        # give or take six standard deviations
        assert abs(len(positions) - 5000) < 6 * np.sqrt(20_000 * 0.25 * 0.75) + B
    for one, other in combinations(drawn.values(), 2):
        assert abs(len(one & other) - 1250) < 6 * np.sqrt(20_000 * 0.0625) + B


def test_too_little_text_says_what_there_is_and_what_to_lower():
    result = (
        "12 tokens, too few for 4 rows of 20 steps; lower stream.batch_size or stream.unroll_steps"
    )
    with pytest.raises(DataError, match=result):
        TBPTTDataset(tokens_of([5, 5]), StreamConfig(batch_size=4, unroll_steps=20), seed=0)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"batch_size": 0}, "stream.batch_size must be at least 1, found 0"),
        ({"unroll_steps": -1}, "stream.unroll_steps must be at least 1, found -1"),
        ({"shuffle_block": -1}, "stream.shuffle_block must be at least 0, found -1"),
        ({"reset_probability": 1.5}, "stream.reset_probability must be from 0 to 1, found 1.5"),
        ({"reset_probability": float("nan")}, "stream.reset_probability must be"),
    ],
)
def test_an_invalid_layout_is_refused(options, found):
    with pytest.raises(ConfigError, match=found):
        StreamConfig(**options)


@given(texts, st.integers(1, 60), st.integers(1, 7), st.sampled_from([0.0, 1.0]))
def test_reading_makes_every_token_a_target_once_in_each_direction(tokens, rows, steps, reset):
    text = everything(tokens)
    forward: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    backward: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
    for number, window in enumerate(
        eval_batches(tokens, batch_size=rows, unroll_steps=steps, reset_probability=reset)
    ):
        for pairs, direction in ((forward, window.forward), (backward, window.backward)):
            assert direction.targets.shape == (rows, steps)
            inputs = read(window, direction)
            boundary = inputs == (0 if direction is window.forward else 1)
            expected = boundary & bool(reset)
            expected[:, 0] |= number == 0
            present = direction.targets != NO_TARGET
            np.testing.assert_array_equal(direction.resets[present], expected[present])
            for r, j in np.argwhere(present):
                pairs[r].append((int(inputs[r, j]), int(direction.targets[r, j])))
    # Forward: what follows each token of the text; a boundary closes the sentence before it.
    after = [token or 1 for token in [*text[1:], 0]]
    assert [pair for row in forward for pair in row] == list(zip(text, after, strict=True))
    # Backward: each row from its right to its left, so that the rows in turn give the text again.
    before = [pair for row in backward for pair in reversed(row)]
    assert [target for _, target in before] == text
    assert [source for source, _ in before] == after
    # Each row opens with a sentence, and no row has more than its share and one sentence.
    assert all(row[0][0] == 0 for row in forward if row)
    assert max(map(len, forward)) <= len(text) / rows + 11
