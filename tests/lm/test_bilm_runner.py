"""A biLM run over batches gives the layers that it gives one token after another."""

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
