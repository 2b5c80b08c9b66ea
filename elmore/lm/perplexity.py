"""How well a language model knows a text: perplexity by the full softmax, bits per character.

    perplexity = exp(mean over the tokens of -log P)        per direction; then the geometric mean

Tokens are the words and, once per sentence, its end (backward: its start). Words that the softmax
does not know count as `<UNK>`, so a small vocabulary has an easy life; bits per character charge
each of them its spelling, under a model that knows how often each byte occurs and nothing else.
The characters are those of the words, and one after each for the space.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.corpus.shards import Corpus, Tokens
from elmore.corpus.stream import Direction, Window, reading
from elmore.lm.batches import Batches
from elmore.lm.language_model import LanguageModel, Predictions
from elmore.lm.spelling import Spelling
from elmore.model.softmax import Softmax
from elmore.text.characters import Alphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.distributed import SINGLE_PROCESS, DistEnv, all_reduce_sum
from elmore.train.prefetch import to_device

State = Literal["sentence", "carried"]
_ROWS, _STEPS = 64, 64


class Perplexity(NamedTuple):
    """Scores of a text."""

    forward: float
    backward: float
    perplexity: float
    bits_per_character: float
    tokens: int
    oov: float
    """Share of the words that the softmax does not know."""


@torch.no_grad()
def measure(
    model: LanguageModel,
    batches: Batches,
    tokens: Tokens,
    spelling: Spelling,
    *,
    state: State = "sentence",
    rows: int = _ROWS,
    dist_env: DistEnv = SINGLE_PROCESS,
    merged: Int[Tensor, " words"] | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Perplexity:
    """Read a text once in each direction, the state set anew at each sentence or carried on.

    Words in `merged` count as one, the first of them. Several processes share out the rows.
    """
    rows = dist_env.world_size * max(1, min(rows, tokens.num_sentences) // dist_env.world_size)
    reset = 1.0 if state == "sentence" else 0.0
    windows = reading(tokens, rows=rows, steps=_STEPS, reset=reset)
    device = next(model.parameters()).device
    total = torch.zeros(3, dtype=torch.float64, device=device)
    carried = None
    for window in _shared(windows, dist_env.local_rows(rows)):
        batch = to_device(batches.batch(window), device)
        found, carried = model.predictions(batch, carried)
        for direction, predictions in enumerate(found):
            total[direction] += _nll(model, predictions, merged).double().sum()
        total[2] += len(found[0].targets)
        if progress is not None:
            done = int(total[2].item()) * dist_env.world_size
            progress(min(1.0, done / tokens.num_tokens), done)
    forward, backward, count = all_reduce_sum(dist_env, total)
    both = (forward + backward) / 2
    words = spelling.of(tokens)
    bits = both.item() / math.log(2) + words.spelled_bits
    return Perplexity(
        (forward / count).exp().item(),  # infinite where math.exp would give up
        (backward / count).exp().item(),
        (both / count).exp().item(),
        bits / max(1, words.characters),
        int(count),
        words.unknown / max(1, words.count),
    )


def _shared(windows: Iterator[Window], rows: range) -> Iterator[Window]:
    """Keep the rows of one process."""
    here = slice(rows.start, rows.stop)
    for window in windows:
        mine = [Direction(*(part[here] for part in each)) for each in window[1:]]
        yield Window(window.types, *mine)


def _nll(
    model: LanguageModel, predictions: Predictions, merged: Int[Tensor, " words"] | None
) -> Float[Tensor, " M"]:
    states, targets = predictions
    nll = model.softmax.nll(states, targets)
    if merged is None or len(merged) < 2:
        return nll
    assert isinstance(model.softmax, Softmax), "only plain softmaxes are extended"
    nll = nll.clone()
    for some in torch.isin(targets, merged).nonzero().squeeze(1).split(1024):
        few, own = states[some], targets[some]
        weight, bias = model.softmax.weight, model.softmax.bias
        own_logits = (few * weight[own]).sum(dim=1) + bias[own]
        together = torch.addmm(bias[merged], few, weight[merged].T).logsumexp(dim=1)
        nll[some] += own_logits - together
    return nll


def prepared(
    corpus: Corpus,
    model: LanguageModel,
    alphabet: Alphabet,
    vocabulary: Vocabulary,
    byte_counts: Sequence[int] | None,
) -> tuple[Batches, Spelling]:
    """Look up and spell the types of a corpus as a model does."""
    targets = corpus.word_ids(vocabulary)
    characters = model.bilm.config.characters
    padding = characters.padding_id if characters else None
    (unknown,) = vocabulary.ids([vocabulary.marks.unknown])
    types = corpus.types
    return (
        Batches(types, alphabet, targets, padding=padding),
        Spelling(types, targets, int(unknown), byte_counts),
    )
