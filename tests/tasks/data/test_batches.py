import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.data import batches

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=300)


@given(LENGTHS, st.integers(1, 40), st.integers(0, 5))
def test_an_epoch_has_every_example_once_and_even_batches(lengths, size, epoch):
    dealt = batches.epoch_batches(lengths, size, seed=1, epoch=epoch)
    assert sorted(i for batch in dealt for i in batch) == list(range(len(lengths)))
    assert len(dealt) == batches.num_batches(len(lengths), size)
    sizes = [len(batch) for batch in dealt]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


def test_an_epoch_is_a_matter_of_the_seed_and_its_number():
    lengths = np.random.default_rng(0).integers(1, 60, 200).tolist()
    first = batches.epoch_batches(lengths, 8, seed=1, epoch=0)
    assert first == batches.epoch_batches(lengths, 8, seed=1, epoch=0)
    assert first != batches.epoch_batches(lengths, 8, seed=1, epoch=1)
    assert first != batches.epoch_batches(lengths, 8, seed=2, epoch=0)


def test_sentences_of_a_batch_are_alike_in_length():
    lengths = np.random.default_rng(0).integers(1, 60, 400).tolist()
    spread = [
        max(lengths[i] for i in batch) - min(lengths[i] for i in batch)
        for batch in batches.epoch_batches(lengths, 8, seed=1, epoch=0)
    ]
    assert np.mean(spread) < 3  # 46 on average, were they dealt out at random
