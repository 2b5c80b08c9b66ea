"""Kernels recorded on a GPU and played back do what they do when they are launched."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.corpus.stream import Direction, TBPTTBatch
from elmore.lm.batches import BatchEncoder
from elmore.lm.config import DistillationConfig
from elmore.lm.distillation import DistilledLanguageModel
from elmore.lm.language_model import LanguageModel
from elmore.lm.pretrain import pretrain
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.prefetch import to_device
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle
from elmore.weights.folder import save
from tests.support import toy_corpus, toy_teacher

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
        output.objective.backward()
        carried = {name: part.detach() for name, part in output.state.items()}
        result += [part.float() for part in output.sums]
        result += [part.float().clone() for _, part in sorted(carried.items())]
        result += [weight.grad.clone() for weight in network.parameters()]
        network.zero_grad(set_to_none=True)
    return result


def student(dropout: float, teacher: Bundle) -> DistilledLanguageModel:
    """That model with a teacher, and maps to its layers that are not 0."""
    plain = model(dropout)
    share = 0.5 if teacher.softmax else 0.0
    settings = DistillationConfig(teacher="toy", weight=2.0, soft_targets=share)
    result = DistilledLanguageModel(plain.bilm, plain.softmax, teacher, settings)
    for weight in result.layer_maps.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return result.cuda().train()


def load_teacher(folder: Path, storage: str) -> Bundle:
    """A toy teacher as a file holds it; in int8, as large models are shared."""
    words = Vocabulary(("<S>", "</S>", "<UNK>", *TYPES[3:]))  # as many as the student's
    path = toy_teacher.save(folder / "float32", words, cell_dim=128, output_dim=32)
    save(pretrained.load(path), folder / "stored", storage=storage)
    teacher = pretrained.load(folder / "stored")
    kinds = {buffer.dtype for buffer in teacher.model.buffers()}
    assert (torch.int8 in kinds) == (storage == "int8")
    return teacher


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_student_and_its_teacher_train_in_two_graphs_as_eagerly(tmp_path, dropout, bf16, storage):
    teacher = load_teacher(tmp_path, storage)
    launched = losses_and_gradients(student(dropout, teacher), bf16)
    network = student(dropout, teacher)
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16, cache_enabled=False):
        network.capture_cuda_graph(to_device(batches()[0], torch.device("cuda")))
    replays = []
    for runner in (network._runner, network._teacher):
        captured = runner._captured
        counted = partial(count_call, replays, captured.run)
        runner._captured = captured._replace(run=counted)
    played = losses_and_gradients(network, bf16)
    assert len(replays) == 2 * len(batches())
    for frozen in (teacher.model, teacher.softmax):
        assert not any(weight.requires_grad for weight in frozen.parameters())
    for one, other in zip(launched, played, strict=True):
        assert (one - other).norm() <= (1e-2 if bf16 else 1e-6) * one.norm()


def count_call(calls: list, run: Callable, *inputs: torch.Tensor) -> tuple:
    calls.append(run)
    return run(*inputs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
def test_on_a_gpu_a_teacher_in_bf16_says_nearly_what_it_says_in_float32():
    teacher = Bundle(toy_teacher.bilm(), ByteAlphabet())
    batch = to_device(batches()[0], torch.device("cuda"))
    with torch.no_grad():
        exact, _ = student(0.0, teacher)._teacher.run(batch, None)
        with torch.autocast("cuda", torch.bfloat16):
            rounded, _ = student(0.0, teacher)._teacher.run(batch, None)
    for direction in (0, 1):
        for one, other in zip(exact[direction], rounded[direction], strict=True):
            assert one.dtype == other.dtype == torch.float32
            assert 0 < (one - other).norm() <= 5e-2 * one.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_a_run_with_a_teacher_in_graphs_follows_one_without_graphs(tmp_path, precision):
    """A deterministic run has no graphs; the rest of it differs by rounding."""
    corpus = toy_corpus.prepare_corpus(tmp_path, "toy", toy_corpus.sentences(300))
    teacher = toy_teacher.save(tmp_path / "teacher")
    curves = []
    for name in ("true", "false"):
        settings = toy_corpus.recipe(
            "model.dropout=0", f"train.precision={precision}", f"train.deterministic={name}",
            "train.steps=12", "train.log_every=1", f"distillation.teacher={teacher}",
        )  # fmt: skip
        reports = list(pretrain(settings, corpus.path, tmp_path / name, device="cuda"))
        curves.append([report.metrics for report in reports])
    bound = 5e-2 if precision == "bf16" else 1e-2  # AdamW enlarges rounding in its first updates
    for one, other in zip(*curves, strict=True):
        for key in ("loss", "auxiliary_loss"):
            assert other[key] == pytest.approx(one[key], rel=bound)
