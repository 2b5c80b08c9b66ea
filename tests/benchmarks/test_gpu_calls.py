"""benchmarks/gpu_calls.py: what two full windows of text ask of a small and of a large GPU."""

import importlib

import numpy as np
import pytest

from elmore.embed import device
from tests.support.scripts import ROOT


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("gpu_calls")


def test_a_large_gpu_runs_the_same_steps_in_a_quarter_of_the_calls_without_rare_words(script):
    rng = np.random.default_rng(0)
    ids = np.where(rng.random(480_000) < 0.3, rng.integers(0, 30_000, 480_000), 0)  # many are rare
    ends = np.cumsum(1 + rng.geometric(1 / 22, 30_000))
    texts = [part.astype(str).tolist() for part in np.split(ids, ends[ends < len(ids)])]
    assert max(map(len, texts)) <= 256  # a longer one would run apart
    small, large = (script.count(texts, each) for each in (device.GPU, device.LARGE_GPU))
    assert small["words"] == large["words"] == len(ids)
    assert large["steps x rows"] == small["steps x rows"] < 2.1 * len(ids)
    num_steps = small["steps x rows"] / 1024
    assert small[script.CALLS] == num_steps / 8
    batches = 4  # two windows, two directions
    assert num_steps / 32 <= large[script.CALLS] <= num_steps / 32 + batches
    assert small["products for rare words"] > small[script.CALLS] / 2
    assert large["products for rare words"] == 0
