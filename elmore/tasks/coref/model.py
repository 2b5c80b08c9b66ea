"""End-to-end coreference resolution (Lee et al., 2017).

A biLSTM encodes each sentence. All spans up to a width get a mention score; the best are kept, and
each is compared with the nearest spans before it. The loss is the marginal log-likelihood of all
gold antecedents, or of the dummy antecedent.

Unlike in the paper, all gold mentions are kept in training, and the mention score has a loss of its
own (`mention_loss`). Otherwise a mention that is pruned gives no gradient, and with few documents
the model ends up pruning all of them.

Spans and pairs are scored in chunks, so the memory of prediction grows with the number of tokens,
and with the number of kept spans times `max_antecedents`, by one number each.

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
from elmore.tasks.coref.spans import candidate_spans, clusters_from_antecedents, prune_spans
from elmore.tasks.embedding.network import PackedTokens, Widths
from elmore.tasks.layers.encoders import BiLSTM, VariationalDropout
from elmore.tasks.task import Features, Loss, TaskHead

_STARTS = 4096  # tokens whose spans are scored at a time


class Text(NamedTuple):
    """A document, or a run of its sentences, packed."""

    states: Float[Tensor, "T S"]
    inputs: Float[Tensor, "T I"]
    speakers: Int[Tensor, " T"]
    genre: Int[Tensor, ""]
    rows: range
    """Rows of its sentences in the batch."""
    lengths: list[int]
    """Lengths of the sentences."""


class AntecedentScores(NamedTuple):
    """The kept spans of a document, and the scores of their candidate antecedents."""

    spans: list[tuple[int, int]]
    """First and last token."""
    mention: Float[Tensor, " M"]
    """Mention scores."""
    scores: Float[Tensor, "M C"]
    earlier: Int[Tensor, "M A"]
    there: Bool[Tensor, "M A"]


class CorefHead(TaskHead):
    """Predicts clusters of two or more mentions, which never cross."""

    takes_packed = True
    unit = "spans"

    def __init__(
        self, config: CorefModelConfig, widths: Widths, max_tokens: int, num_genres: int = 0
    ) -> None:
        super().__init__()
        self.config, self.max_tokens = config, max_tokens
        self.input_dropout = VariationalDropout(config.input_dropout)
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiLSTM(widths.input, config.hidden_dim, config.num_layers, config.dropout)
        self.spans = SpanVectors(config, self.encoder.output_dim + widths.output, widths.input)
        self.mention = Score(config.score_dim, config.dropout)
        self.pair = PairScore(config, self.spans.output_dim, num_genres)

    def forward(self, embedded: PackedTokens, features: Features) -> Loss:
        """Return the loss, and the number of kept spans.

        Of a document longer than `max_tokens`, a random run of sentences is used.
        """
        total, count = embedded.vectors.new_zeros(()), 0
        mentions = features["mentions"].tolist()
        for text in self.texts(embedded, features):
            if not len(text.states):
                continue
            gold = self._true(text, mentions)
            scored = self.score_antecedents(text, gold)
            clusters = [gold.get(span, 0) for span in scored.spans]
            labels = torch.tensor(clusters, device=total.device)
            total = total + antecedents.loss(scored.scores, labels, scored.earlier, scored.there)
            total = total + self.config.mention_loss * _mention_loss(scored.mention, labels > 0)
            count += len(clusters)
        return Loss(total, torch.tensor(count, device=total.device))

    def predict(self, embedded: PackedTokens, features: Features) -> list[list[list[list[int]]]]:
        """Return clusters of mentions: sentence, first token, the token after the last."""
        return [self._clusters(text) for text in self.texts(embedded, features)]

    def texts(self, embedded: PackedTokens, features: Features) -> Iterator[Text]:
        """Encode a batch and yield its documents."""
        lengths = embedded.mask.sum(dim=1).tolist()
        starts = list(accumulate(lengths, initial=0))
        bounds = pairwise(accumulate(features["rows"].tolist(), initial=0))
        runs = [range(*bound) for bound in bounds]
        if self.training:
            lengths = [min(length, self.max_tokens) for length in lengths]
            runs = [_sample_run(rows, lengths, self.max_tokens) for rows in runs]
        chosen = [row for rows in runs for row in rows]
        tokens = [torch.arange(starts[row], starts[row] + lengths[row]) for row in chosen]
        index = torch.cat([torch.arange(0), *tokens]).to(embedded.mask.device)
        inputs, output_elmo = (
            part.index_select(0, index) for part in (embedded.vectors, embedded.output_elmo)
        )
        sizes = torch.tensor([lengths[row] for row in chosen], dtype=torch.long)
        inputs = self.input_dropout.forward_packed(inputs, sizes)
        encoded = self.encoder.forward_packed(inputs, sizes)
        states = self.dropout.forward_packed(torch.cat([encoded, output_elmo], dim=-1), sizes)
        done = 0
        documents = zip(
            runs, sizes.split([len(rows) for rows in runs]), features["genres"], strict=True
        )
        for rows, here, genre in documents:
            end = done + int(here.sum())
            speakers = features["speakers"][rows.start : rows.stop]
            speakers = speakers.repeat_interleave(here.to(speakers.device), output_size=end - done)
            yield Text(states[done:end], inputs[done:end], speakers, genre, rows, here.tolist())
            done = end

    def select_spans(self, text: Text) -> list[tuple[int, int]]:
        """Return the spans with the best mention scores, as first and last token."""
        num_tokens = len(text.states)
        with torch.no_grad():  # kept spans are scored again, with gradients
            pieces = [
                self.mention(
                    self.spans.mention_hidden_all_spans(text.states, text.inputs, begin, end)
                )
                for begin in range(0, num_tokens, _STARTS)
                for end in (min(begin + _STARTS, num_tokens),)
            ]
        scores = torch.cat(pieces).cpu().numpy()
        allowed = candidate_spans(text.lengths, self.config.max_width)
        return prune_spans(scores, allowed, max(1, int(self.config.spans_per_token * num_tokens)))

    def score_antecedents(
        self, text: Text, extra: Iterable[tuple[int, int]] = ()
    ) -> AntecedentScores:
        """Score what each kept span, and each of some more, goes back to."""
        selected = sorted({*self.select_spans(text), *extra})
        spans = torch.tensor(selected, device=text.states.device)
        vectors = self.spans(text.states, text.inputs, spans)
        mention = self.mention(self.spans.first(vectors))
        max_antecedents = self.config.max_antecedents
        earlier, there = antecedents.candidate_antecedents(
            len(selected), max_antecedents, spans.device
        )
        pair = self.pair(vectors, text.speakers[spans[:, 0]], earlier, text.genre)
        scores = antecedents.antecedent_scores(mention, pair, earlier, there)
        return AntecedentScores(selected, mention, scores, earlier, there)

    def _true(self, text: Text, mentions: list[list[int]]) -> dict[tuple[int, int], int]:
        """Return the clusters of predictable gold mentions, by first and last token."""
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
        scored = self.score_antecedents(text)
        best = scored.scores.argmax(dim=1)
        # for column 0, the dummy antecedent, any index will do: it is not used
        chosen = scored.earlier.gather(1, (best - 1).clamp(min=0)[:, None]).squeeze(1)
        links = torch.where(best > 0, chosen, -1).tolist()
        positions = _token_positions(text)
        first = text.rows.start
        mentions = [
            [positions[start][0] - first, positions[start][1], positions[end][1] + 1]
            for start, end in scored.spans
        ]
        return [
            [mentions[number] for number in cluster] for cluster in clusters_from_antecedents(links)
        ]


def _mention_loss(scores: Float[Tensor, " M"], true: Bool[Tensor, " M"]) -> Float[Tensor, ""]:
    """Return the binary cross-entropy of mention scores."""
    target = true.to(scores.dtype)
    return functional.binary_cross_entropy_with_logits(scores, target, reduction="sum")


def _token_positions(text: Text) -> list[tuple[int, int]]:
    """Return row and column of each token."""
    rows = zip(text.rows, text.lengths, strict=True)
    return [(row, column) for row, length in rows for column in range(length)]


def _sample_run(rows: range, lengths: list[int], max_tokens: int) -> range:
    """Draw consecutive sentences of at most `max_tokens` tokens, or a single longer one.

    The start is drawn so that the run is as long as possible. The training loop seeds the random
    generator for each step.
    """
    totals = list(accumulate((lengths[row] for row in rows), initial=0))
    if totals[-1] <= max_tokens:
        return rows
    starts = sum(totals[-1] - total >= max_tokens for total in totals[:-1])
    first = int(torch.randint(starts, ()))
    last = max(first + 1, sum(total - totals[first] <= max_tokens for total in totals) - 1)
    return rows[first:last]
