"""A teacher for the toy language: wider than the student of `toy_corpus.RECIPE`, not trained.

What it says at a token depends on the words before, which is all that its students can learn.

Used by lm/test_bilm_runner, lm/test_distillation, lm/test_distilled_runs, lm/test_cuda_graph,
contracts/test_ranks and contracts/test_resume.
"""

from pathlib import Path

import numpy as np
import torch

from elmore import config
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights import folder
from elmore.weights.bundle import Bundle, Card

SHAPE = {
    "characters": {"embedding_dim": 4, "filters": [[1, 6], [2, 6]], "num_highways": 1},
    "lstm": {"cell_dim": 16, "output_dim": 8, "num_layers": 2},
    "dropout": 0.5,
}
CARD = Card(name="Miss Toy", licence="CC0-1.0", data="no text")


def bilm(**lstm: int) -> BiLM:
    """Give a network whose weights are large enough for every part to matter."""
    shape = {**SHAPE, "lstm": {**SHAPE["lstm"], **lstm}}
    model = BiLM(config.build(BiLMConfig, shape, "tests/support/toy_teacher.py"))
    rng = np.random.RandomState(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.from_numpy(0.5 * rng.standard_normal(tuple(weight.shape))))
    return model


def softmax(words: Vocabulary, width: int) -> Softmax:
    """Give a full softmax over these words, for soft targets."""
    result = Softmax(SoftmaxConfig(kind="full"), len(words), width)
    rng = np.random.RandomState(8)
    with torch.no_grad():
        for weight in result.parameters():
            weight.copy_(torch.from_numpy(rng.standard_normal(tuple(weight.shape))))
    return result


def save(path: Path, words: Vocabulary | None = None, **lstm: int) -> Path:
    """Write it as a model folder, with a softmax over these words if there are any."""
    model = bilm(**lstm)
    own = softmax(words, model.config.lstm.output_dim) if words else None
    folder.save(Bundle(model, ByteAlphabet(), words, CARD, softmax=own), path)
    return path
