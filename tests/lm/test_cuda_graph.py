"""Kernels recorded on a GPU and played back do what they do when they are launched."""

import numpy as np
import pytest
import torch

from elmore.corpus.stream import Direction, TBPTTBatch
from elmore.lm.batches import BatchEncoder
from elmore.lm.language_model import LanguageModel
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.train.prefetch import to_device
from tests.support import toy_corpus

ROWS, STEPS = 6, 5
TYPES = [
    "<S>",
    "</S>",
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "considerably",
    "overlengthened",
    "mat",
    ".",
]


def model(dropout: float) -> LanguageModel:
    torch.manual_seed(0)
    shape = BiLMConfig(
        characters=CharCNNConfig(filters=((1, 8), (3, 24)), num_highways=1),
        lstm=LSTMConfig(cell_dim=64, output_dim=16),
        dropout=dropout,
    )
    softmax = Softmax(SoftmaxConfig(kind="full"), len(TYPES), 16)
    return LanguageModel(BiLM(shape), softmax).cuda().train()


def batches() -> list:
    rng = np.random.default_rng(0)
    maker = BatchEncoder(
        TYPES, ByteAlphabet(), np.arange(len(TYPES)), padding_id=ByteAlphabet.padding
    )
    result = []
    for _ in range(4):
        ways = [
            Direction(
                rng.integers(len(TYPES), size=(ROWS, STEPS)),
                rng.integers(len(TYPES), size=(ROWS, STEPS)),
                rng.random((ROWS, STEPS)) < 0.2,
            )
            for _ in range(2)
        ]
        result.append(maker.encode(TBPTTBatch(np.arange(len(TYPES)), *ways)))
    return result


def losses_and_gradients(network: LanguageModel, bf16: bool) -> list[torch.Tensor]:
    result, carried = [], None
    for number, batch in enumerate(batches()):
        torch.manual_seed(number)
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            output = network(to_device(batch, torch.device("cuda")), carried)
        output.loss.backward()
        carried = {name: part.detach() for name, part in output.state.items()}
        result.append(output.loss.detach())
        result += [weight.grad.clone() for weight in network.parameters()]
        network.zero_grad(set_to_none=True)
    return result


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
@pytest.mark.parametrize("softmax", ["sampled", "adaptive"])
def test_training_with_a_cuda_graph_learns_what_eager_training_does(tmp_path, softmax):
    """With batches of one shape, and the rare words found beforehand."""
    corpus = toy_corpus.prepare_corpus(tmp_path, "toy", toy_corpus.sentences(300))
    result = []
    for recorded in (False, True):
        settings = toy_corpus.recipe("model.dropout=0", f"softmax.kind={softmax}")
        training = toy_corpus.training(corpus, settings)
        training.module.cuda().train()
        if recorded:
            training.capture_cuda_graph()
        carried, losses = None, []
        for number in range(4):
            batch = to_device(training.make_batch(number), torch.device("cuda"))
            output = training.module(batch, carried)
            output.loss.backward()
            losses += [
                output.loss.detach(),
                *(w.grad.clone() for w in training.module.parameters()),
            ]
            carried = {name: part.detach() for name, part in output.state.items()}
            training.module.zero_grad(set_to_none=True)
        result.append(losses)
    for one, other in zip(*result, strict=True):
        assert (one - other).norm() <= 1e-5 * one.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_cuda_graph_trains_as_eager_execution_does(dropout, bf16):
    launched = losses_and_gradients(model(dropout), bf16)
    network = model(dropout)
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16, cache_enabled=False):
        network.capture_cuda_graph(to_device(batches()[0], torch.device("cuda")))
    played = losses_and_gradients(network, bf16)
    for one, other in zip(launched, played, strict=True):
        # Not to the bit: words that stand in several places gather their gradients in any order.
        assert (one - other).norm() <= (1e-2 if bf16 else 1e-6) * one.norm()
    assert (dropout > 0) == bool((launched[0] - losses_and_gradients(model(0.0), bf16)[0]).abs())
