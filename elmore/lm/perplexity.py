"""Full-softmax perplexity and bits per character of a language model on a text.

    perplexity = exp(mean over the tokens of -log P)        per direction; then the geometric mean

Tokens are the words and, once per sentence, its end (backward: its start). Words that the softmax
does not know count as `<UNK>`, which favours a small vocabulary; bits per character therefore add
the cost of spelling each of them under a unigram model of bytes. Characters are those of the words,
and one space after each.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.corpus.shards import Corpus, TokenStream
from elmore.corpus.stream import Direction, TBPTTBatch, eval_batches
from elmore.lm.batches import BatchEncoder
from elmore.lm.language_model import LanguageModel, Predictions
from elmore.lm.unknown_word_cost import UnknownWordCost
from elmore.model.softmax import Softmax
from elmore.text.characters import Alphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.distributed import SINGLE_PROCESS, DistEnv, all_reduce_sum
from elmore.train.prefetch import to_device

_UNROLL_STEPS = 64


class Perplexity(NamedTuple):
    """Scores of a text."""

    forward: float
    backward: float
    perplexity: float
    bits_per_character: float
    tokens: int
    oov: float
    """Fraction of the words that the softmax does not know."""


@torch.no_grad()
def measure_perplexity(
    model: LanguageModel,
    encoder: BatchEncoder,
    tokens: TokenStream,
    unknown_word_cost: UnknownWordCost,
    *,
    reset_state: bool = True,
    batch_size: int = 64,
    dist_env: DistEnv = SINGLE_PROCESS,
    merged_ids: Int[Tensor, " words"] | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Perplexity:
    """Run a text once through each direction and return its perplexity.

    Args:
        model: The model.
        encoder: Encodes the types of the corpus for the model.
        tokens: The text.
        unknown_word_cost: Cost of the types that the softmax does not know.
        reset_state: Reset the recurrent state at each sentence; else carry it through the text.
        batch_size: Number of parallel streams, divided among the processes.
        dist_env: This process and the number of processes.
        merged_ids: Word ids that count as one word, the first of them.
        progress: Called with the fraction done and the number of tokens.
    """
    size = dist_env.world_size
    rows = size * max(1, min(batch_size, tokens.num_sentences) // size)
    batches = eval_batches(
        tokens,
        batch_size=rows,
        unroll_steps=_UNROLL_STEPS,
        reset_probability=1.0 if reset_state else 0.0,
    )
    device = next(model.parameters()).device
    total = torch.zeros(3, dtype=torch.float64, device=device)
    state = None
    for source in _select_rows(batches, dist_env.local_rows(rows)):
        batch = to_device(encoder.encode(source), device)
        directions, state = model.predictions(batch, state)
        for direction, predictions in enumerate(directions):
            total[direction] += _nll(model, predictions, merged_ids).double().sum()
        total[2] += len(directions[0].targets)
        if progress is not None:
            done = int(total[2].item()) * size
            progress(min(1.0, done / tokens.num_tokens), done)
    forward, backward, count = all_reduce_sum(dist_env, total)
    both = (forward + backward) / 2
    counts = unknown_word_cost.count(tokens)
    bits = both.item() / math.log(2) + counts.unknown_bits
    return Perplexity(
        (forward / count).exp().item(),  # torch returns infinity where math.exp overflows
        (backward / count).exp().item(),
        (both / count).exp().item(),
        bits / max(1, counts.characters),
        int(count),
        counts.unknown / max(1, counts.words),
    )


def _select_rows(batches: Iterator[TBPTTBatch], rows: range) -> Iterator[TBPTTBatch]:
    """Select the rows of one process."""
    own = slice(rows.start, rows.stop)
    for batch in batches:
        directions = [Direction(*(part[own] for part in each)) for each in batch[1:]]
        yield TBPTTBatch(batch.types, *directions)


def _nll(
    model: LanguageModel, predictions: Predictions, merged_ids: Int[Tensor, " words"] | None
) -> Float[Tensor, " M"]:
    states, targets = predictions
    nll = model.softmax.nll(states, targets)
    if merged_ids is None or len(merged_ids) < 2:
        return nll
    assert isinstance(model.softmax, Softmax), "only plain softmaxes are extended"
    nll = nll.clone()
    weight, bias = model.softmax.weight, model.softmax.bias
    for chunk in torch.isin(targets, merged_ids).nonzero().squeeze(1).split(1024):
        chunk_states, own = states[chunk], targets[chunk]
        own_logits = (chunk_states * weight[own]).sum(dim=1) + bias[own]
        merged_logits = torch.addmm(bias[merged_ids], chunk_states, weight[merged_ids].T)
        nll[chunk] += own_logits - merged_logits.logsumexp(dim=1)
    return nll


def build_encoders(
    corpus: Corpus,
    model: LanguageModel,
    alphabet: Alphabet,
    vocabulary: Vocabulary,
    byte_counts: Sequence[int] | None,
) -> tuple[BatchEncoder, UnknownWordCost]:
    """Encode the types of a corpus for a model, and compute the cost of its unknown words."""
    targets = corpus.word_ids(vocabulary)
    characters = model.bilm.config.characters
    padding_id = characters.padding_id if characters else None
    (unknown_id,) = vocabulary.ids([vocabulary.marks.unknown])
    types = corpus.types
    return (
        BatchEncoder(types, alphabet, targets, padding_id=padding_id),
        UnknownWordCost(types, targets, int(unknown_id), byte_counts),
    )
