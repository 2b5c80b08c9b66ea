"""A biLM run over batches gives the layers that it gives one token after another."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.lm.bilm_runner import BiLMRunner
from elmore.model.bilm import BiLM
from tests.support import toy_corpus, toy_teacher


@torch.no_grad()
def layers_by_token(bilm: BiLM, batch, direction: int, row: int) -> np.ndarray:
    """The layers (L, T, D) of a row, token by token, from zeros at its start and at each reset."""
    rows = [letters for words in batch.words for letters in words.characters]
    mask = torch.ones(1, 1, dtype=torch.bool)
    result = []
    for step, number in enumerate(batch.index[direction, row].tolist()):
        vector = bilm.tokens(rows[number][None], None)
        if step == 0 or batch.resets[direction, row, step]:
            states = bilm.zero_state(1, vector).direction(direction)
        outputs, states = bilm.run_direction(direction, vector[None], mask, states, training=False)
        result.append([output[0, 0].numpy() for output in outputs])
    return np.stack(result, axis=1)


@pytest.mark.parametrize("lowest", [0, -1])
def test_every_layer_from_the_lowest_is_returned_for_each_direction(corpus, lowest):
    batch = toy_corpus.training(corpus).make_batch(3)
    assert batch.resets.any()
    bilm = toy_teacher.bilm().double().eval()
    found, _ = BiLMRunner(bilm, lowest_layer=lowest).run(batch, None)
    for direction, layers in enumerate(found):
        assert len(layers) == (2 if lowest == 0 else 1)
        for row in range(4):
            expected = layers_by_token(bilm, batch, direction, row)[lowest:]
            assert_close(torch.stack([layer[row] for layer in layers]), torch.from_numpy(expected))


def test_under_autocast_the_state_is_rounded_only_where_there_are_gradients(corpus):
    batch = toy_corpus.training(corpus).make_batch(0)
    runner = BiLMRunner(toy_teacher.bilm())
    with torch.autocast("cpu", torch.bfloat16):
        assert runner._inputs(batch, None)[2].dtype == torch.bfloat16
        with torch.no_grad():
            assert runner._inputs(batch, None)[2].dtype == torch.float32


@pytest.mark.parametrize("fails", [False, True])
def test_a_graph_is_captured_in_a_stream_of_its_device_and_torch_keeps_its_own(
    corpus, monkeypatch, fails
):
    """Whether or not the capture fails; torch's part, which needs a GPU, is a stub here."""
    seen: list[object] = []

    @contextlib.contextmanager
    def enter_device(device: torch.device) -> Iterator[None]:
        seen.append(f"current device {device}")
        try:
            yield
        finally:
            seen.append("previous device")

    def capture(module: torch.nn.Module, _: tuple[torch.Tensor, ...]) -> torch.nn.Module:
        seen.append(torch.cuda.graph.default_capture_stream)
        if fails:
            raise torch.OutOfMemoryError
        return module

    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", "stream of the first capture")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "device", enter_device)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    batch = toy_corpus.training(corpus).make_batch(0)
    runner = BiLMRunner(toy_teacher.bilm())
    with pytest.raises(torch.OutOfMemoryError) if fails else contextlib.nullcontext():
        runner.capture_cuda_graph(batch)
    assert seen == ["current device cpu", "stream of cpu", "previous device"]
    assert torch.cuda.graph.default_capture_stream == "stream of the first capture"


def test_a_captured_graph_lets_gradients_come_from_another_stream_without_a_warning(
    corpus, monkeypatch
):
    """Torch keeps the autograd graph of the capture; its part, which needs a GPU, is a stub."""
    warns: list[bool] = []
    context = contextlib.nullcontext()
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: context)
    monkeypatch.setattr(
        torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", warns.append
    )

    def capture(module: torch.nn.Module, _: object) -> torch.nn.Module:
        assert warns == [False]  # it runs the module backward
        return module

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    BiLMRunner(toy_teacher.bilm()).capture_cuda_graph(toy_corpus.training(corpus).make_batch(0))
    assert warns == [False]
