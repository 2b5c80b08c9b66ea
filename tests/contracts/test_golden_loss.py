"""The first 50 losses of `tiny` on a small text are known, and stay what they are.

`golden_loss.txt` holds them with all the digits of float64. They may change where the definition of
the model, its training or the layout of the text does; then `python -m
tests.contracts.test_golden_loss` writes them anew. The first weights are drawn by numpy, whose
old generator gives the same numbers on every machine, unlike torch's.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.corpus.shards import Corpus
from elmore.lm import config
from elmore.train import optimizers
from elmore.train.distributed import SINGLE_PROCESS
from elmore.train.loop import Step, run_steps
from tests.support import toy_corpus

STORED = Path(__file__).with_name("golden_loss.txt")
NUM_STEPS = 50


def updates(corpus: Corpus, dtype: torch.dtype) -> Iterator[Step]:
    """The recipe as it is, in batches that fit the text."""
    chosen = (
        "stream.batch_size=8",
        "stream.unroll_steps=6",
        f"train.precision={str(dtype).split('.')[1]}",
        "train.warmup_fraction=1",  # the losses were stored with the whole warm-up
    )
    recipe = config.read_pretrain_recipe("tiny", chosen)
    training = toy_corpus.training(corpus, recipe)
    module = training.module.to(dtype)
    rng = np.random.RandomState(0)
    with torch.no_grad():
        for weight in module.parameters():  # vectors and the characters' table are never large
            scale = 0.1 if weight.dim() == 1 else weight[0].numel() ** -0.5
            weight.copy_(torch.from_numpy(scale * rng.standard_normal(tuple(weight.shape))))
    optimizer = optimizers.build_optimizer(module, recipe.train)
    total = recipe.train.num_steps(training.batches_per_epoch)
    device = torch.device("cpu")
    return run_steps(
        training, optimizer, recipe.train, num_steps=total, device=device, dist_env=SINGLE_PROCESS
    )


def losses(corpus: Corpus, dtype: torch.dtype) -> list[float]:
    result = updates(corpus, dtype)
    return [next(result).loss.item() for _ in range(NUM_STEPS)]


def text(folder: Path) -> Corpus:
    return toy_corpus.prepare_corpus(
        folder, "golden", toy_corpus.sentences(300, seed=2), min_count=3
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [pytest.param(torch.float64, 1e-8, marks=pytest.mark.slow), (torch.float32, 1e-3)],
)
def test_the_first_losses_are_the_stored_ones(tmp_path, dtype, tolerance):
    expected = [float(line) for line in STORED.read_text().split()]
    result = losses(text(tmp_path), dtype)
    np.testing.assert_allclose(result, expected, rtol=tolerance)
    assert result[-1] < 0.8 * result[0]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        curve = losses(text(Path(place)), torch.float64)
    STORED.write_text("".join(f"{loss!r}\n" for loss in curve))
