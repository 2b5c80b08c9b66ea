"""Mentions, and which earlier one each goes back to, learned together (Lee et al., 2017).

A biLSTM reads each sentence. All spans of a document up to some width are scored as mentions; the
best are kept, and each looks back at the nearest of them. What is learned is that a span goes back
to any that is truly of its cluster, or to none.

Beyond the paper, true mentions are all kept in training, and the score of a mention also learns by
itself what is one (`mention_loss`). Otherwise a mention that is not kept teaches nothing, and with
few documents the model settles where none is kept.

Spans are scored a piece of the text at a time, and pairs some at a time, so that in prediction
memory grows with the tokens, and with the kept spans times `max_antecedents`, by a number each.

Shapes: T tokens of a document, S width of what the encoder gives, I of its input, M spans, A
earlier ones that each looks back at, C = 1 + A choices.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from elmore.tasks.coref import antecedents
from elmore.tasks.coref.antecedents import PairScore
from elmore.tasks.coref.config import CorefModelConfig
from elmore.tasks.coref.span_vectors import Score, SpanVectors
from elmore.tasks.coref.spans import candidates, clusters_from_antecedents, prune_spans
from elmore.tasks.embedding.network import PackedTokens, Widths
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Features, Loss, TaskHead

_STARTS = 4096  # tokens whose spans are scored at a time


class Text(NamedTuple):
    """A document, or a run of its sentences: one token after another."""

    states: Float[Tensor, "T S"]
    inputs: Float[Tensor, "T I"]
    speakers: Int[Tensor, " T"]
    rows: range
    """Its sentences in the batch."""
    lengths: list[int]
    """Of these, in tokens."""


class Linked(NamedTuple):
    """The spans kept of a document, and how well each goes back to none and to those before."""

    spans: list[tuple[int, int]]
    """First and last token."""
    mention: Float[Tensor, " M"]
    """How much of a mention each is."""
    scores: Float[Tensor, "M C"]
    earlier: Int[Tensor, "M A"]
    there: Bool[Tensor, "M A"]


class CorefHead(TaskHead):
    """Clusters of two mentions and more, which never cross one another."""

    takes_packed = True
    unit = "spans"

    def __init__(self, config: CorefModelConfig, widths: Widths, max_tokens: int) -> None:
        super().__init__()
        self.config, self.max_tokens = config, max_tokens
        self.input_dropout = VariationalDropout(config.input_dropout)
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiLSTM(widths.input, config.hidden_dim, config.num_layers, config.dropout)
        self.spans = SpanVectors(config, self.encoder.output_dim + widths.output, widths.input)
        self.mention = Score(config.score_dim, config.dropout)
        self.pair = PairScore(config, self.spans.output_dim)

    def forward(self, embedded: PackedTokens, features: Features) -> Loss:
        """Return the loss, counted by the spans that are kept.

        Of a document beyond `max_tokens`, training sees a run of sentences that is drawn anew.
        """
        total, count = embedded.vectors.new_zeros(()), 0
        mentions = features["mentions"].tolist()
        for text in self.texts(embedded, features):
            if not len(text.states):
                continue
            true = self._true(text, mentions)
            found = self.score_antecedents(text, true)
            clusters = [true.get(span, 0) for span in found.spans]
            labels = torch.tensor(clusters, device=total.device)
            total = total + antecedents.loss(found.scores, labels, found.earlier, found.there)
            total = total + self.config.mention_loss * _mention_loss(found.mention, labels > 0)
            count += len(clusters)
        return Loss(total, torch.tensor(count, device=total.device))

    def predict(self, embedded: PackedTokens, features: Features) -> list[list[list[list[int]]]]:
        """Return clusters of mentions, as sentence, first token and the one after the last."""
        return [self._clusters(text) for text in self.texts(embedded, features)]

    def texts(self, embedded: PackedTokens, features: Features) -> Iterator[Text]:
        """Encode a batch, and give its documents one by one."""
        lengths = embedded.mask.sum(dim=1).tolist()
        starts = list(accumulate(lengths, initial=0))
        bounds = pairwise(accumulate(features["rows"].tolist(), initial=0))
        runs = [range(*bound) for bound in bounds]
        if self.training:
            lengths = [min(length, self.max_tokens) for length in lengths]
            runs = [_run(rows, lengths, self.max_tokens) for rows in runs]
        chosen = [row for rows in runs for row in rows]
        tokens = [torch.arange(starts[row], starts[row] + lengths[row]) for row in chosen]
        index = torch.cat([torch.arange(0), *tokens]).to(embedded.mask.device)
        inputs, above = (
            part.index_select(0, index) for part in (embedded.vectors, embedded.output_elmo)
        )
        sizes = torch.tensor([lengths[row] for row in chosen], dtype=torch.long)
        inputs = self.input_dropout.forward_packed(inputs, sizes)
        encoded = self.encoder.forward_packed(inputs, sizes)
        states = self.dropout.forward_packed(torch.cat([encoded, above], dim=-1), sizes)
        done = 0
        for rows, here in zip(runs, sizes.split([len(rows) for rows in runs]), strict=True):
            end = done + int(here.sum())
            speakers = features["speakers"][rows.start : rows.stop]
            speakers = speakers.repeat_interleave(here.to(speakers.device), output_size=end - done)
            yield Text(states[done:end], inputs[done:end], speakers, rows, here.tolist())
            done = end

    def kept(self, text: Text) -> list[tuple[int, int]]:
        """Choose the spans that look most like mentions, as first and last token."""
        num_tokens = len(text.states)
        with torch.no_grad():  # what is kept is scored again
            pieces = [
                self.mention(
                    self.spans.mention_hidden_all_spans(text.states, text.inputs, begin, end)
                )
                for begin in range(0, num_tokens, _STARTS)
                for end in (min(begin + _STARTS, num_tokens),)
            ]
        scores = torch.cat(pieces).cpu().numpy()
        allowed = candidates(text.lengths, self.config.max_width)
        return prune_spans(scores, allowed, max(1, int(self.config.spans_per_token * num_tokens)))

    def score_antecedents(self, text: Text, also: Iterable[tuple[int, int]] = ()) -> Linked:
        """Score what each kept span, and each of some more, goes back to."""
        kept = sorted({*self.kept(text), *also})
        spans = torch.tensor(kept, device=text.states.device)
        vectors = self.spans(text.states, text.inputs, spans)
        mention = self.mention(self.spans.first(vectors))
        most = self.config.max_antecedents
        earlier, there = antecedents.candidate_antecedents(len(kept), most, spans.device)
        pair = self.pair(vectors, text.speakers[spans[:, 0]], earlier)
        scores = antecedents.antecedent_scores(mention, pair, earlier, there)
        return Linked(kept, mention, scores, earlier, there)

    def _true(self, text: Text, mentions: list[list[int]]) -> dict[tuple[int, int], int]:
        """Return the clusters of the true mentions that can be found, by first and last token."""
        before = dict(zip(text.rows, accumulate(text.lengths, initial=0), strict=False))
        length = dict(zip(text.rows, text.lengths, strict=True))
        return {
            (before[row] + first, before[row] + last): cluster
            for row, first, last, cluster in mentions
            if last < length.get(row, 0) and last - first < self.config.max_width
        }

    def _clusters(self, text: Text) -> list[list[list[int]]]:
        if not len(text.states):
            return []
        found = self.score_antecedents(text)
        best = found.scores.argmax(dim=1)
        # of column 0, which is none, the first; it is not used
        chosen = found.earlier.gather(1, (best - 1).clamp(min=0)[:, None]).squeeze(1)
        links = torch.where(best > 0, chosen, -1).tolist()
        places = _places(text)
        first = text.rows.start
        mentions = [
            [places[start][0] - first, places[start][1], places[end][1] + 1]
            for start, end in found.spans
        ]
        return [
            [mentions[number] for number in cluster] for cluster in clusters_from_antecedents(links)
        ]


def _mention_loss(scores: Float[Tensor, " M"], true: Bool[Tensor, " M"]) -> Float[Tensor, ""]:
    """Take a score for the log-odds of being a mention."""
    target = true.to(scores.dtype)
    return functional.binary_cross_entropy_with_logits(scores, target, reduction="sum")


def _places(text: Text) -> list[tuple[int, int]]:
    """Return the row and the column of each token."""
    rows = zip(text.rows, text.lengths, strict=True)
    return [(row, column) for row, length in rows for column in range(length)]


def _run(rows: range, lengths: list[int], max_tokens: int) -> range:
    """Draw sentences that follow one another, of so many tokens in all, or the one there is.

    None starts so late that more would fit in. The engine seeds the draw by the step.
    """
    totals = list(accumulate((lengths[row] for row in rows), initial=0))
    if totals[-1] <= max_tokens:
        return rows
    starts = sum(totals[-1] - total >= max_tokens for total in totals[:-1])
    first = int(torch.randint(starts, ()))
    last = max(first + 1, sum(total - totals[first] <= max_tokens for total in totals) - 1)
    return rows[first:last]
