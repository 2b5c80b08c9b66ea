"""BiDAF with self-attention (Clark and Gardner, 2018; Seo et al., 2017).

One encoder runs over passage and question; the passage attends to the question, then to itself; two
recurrent layers on top score each token as the first and as the last of the answer. A passage may
be embedded sentence by sentence: its sentences are rows of the batch, and the row after them is its
question.

Shapes: B examples, T tokens of the passage, J of the question, N answers, W windows, S tokens of a
batch.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PackedTokens, PaddedTokens, Widths
from elmore.tasks.layers.bidaf import BiAttention, SelfAttention
from elmore.tasks.layers.encoders import BiGRU, BiLSTM, VariationalDropout
from elmore.tasks.squad.spans import best_spans, window_starts
from elmore.tasks.task import Features, Loss, TaskHead

_MIN_BATCH = 32  # windows per batch, if there are more windows than examples


@dataclass(frozen=True, kw_only=True)
class SquadModelConfig:
    """The network, and the window over long passages."""

    hidden_dim: int = 90
    """Width of one direction."""
    cell: Literal["lstm", "gru"] = "lstm"
    """Kind of the recurrent layers; the paper's are GRUs."""
    dropout: float = 0.2
    """On the input of each layer."""
    max_span: int = 17
    """Tokens of the longest answer that is predicted."""
    window: int = 400
    """Tokens of a passage that are encoded together. Windows over a longer passage overlap by half:
    in training the first that contains an answer is used, in prediction all of them."""

    def __post_init__(self) -> None:
        if self.hidden_dim < 1 or self.max_span < 1 or not 0 <= self.dropout < 1:
            raise ConfigError(
                "model.hidden_dim and model.max_span must be at least 1 and model.dropout from 0 "
                f"to below 1, found {self.hidden_dim}, {self.max_span} and {self.dropout}"
            )
        if self.window < 2 * self.max_span:
            raise ConfigError(
                f"model.window ({self.window}) must be at least twice model.max_span "
                f"({self.max_span}), or an answer may be whole in none"
            )


class SquadHead(TaskHead):
    """Predicts the span of the answer."""

    takes_packed = True
    unit = "questions"

    def __init__(self, config: SquadModelConfig, widths: Widths) -> None:
        super().__init__()
        self.max_span, self.window = config.max_span, config.window
        width = 2 * config.hidden_dim
        recurrent_layer = BiGRU if config.cell == "gru" else BiLSTM
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = recurrent_layer(widths.input, config.hidden_dim)
        self.attention = BiAttention(width + widths.output)
        self.merged = nn.Linear(self.attention.output_dim, width)
        self.reader = recurrent_layer(width, config.hidden_dim)
        self.self_attention = SelfAttention(width)
        self.residual = nn.Linear(self.self_attention.output_dim, width)
        self.start_reader = recurrent_layer(width, config.hidden_dim)
        self.start = nn.Linear(width, 1)
        self.end_reader = recurrent_layer(2 * width, config.hidden_dim)
        self.end = nn.Linear(width, 1)

    def forward(self, embedded: PackedTokens, features: Features) -> Loss:
        """Return the negative log of the summed probability of all gold spans."""
        passages, questions = _pairs(embedded, features["rows"])
        rows = torch.arange(len(passages), device=passages.starts.device)
        window = passages.cut(rows, features["windows"], self.window)
        starts, ends = self.scores(window, questions.whole(rows))
        losses = span_losses(starts, ends, window.mask, features["spans"])
        return Loss(losses.sum(), torch.tensor(len(losses), device=losses.device))

    def predict(self, embedded: PackedTokens, features: Features) -> list[list[int]]:
        """Return the first and the last token of each answer."""
        passages, questions = _pairs(embedded, features["rows"])
        lengths = passages.lengths.tolist()
        windows = [
            (row, start)
            for row, length in enumerate(lengths)
            for start in window_starts(length, self.window)
        ]
        answers: dict[int, tuple[float, list[int]]] = {}
        size = max(len(lengths), _MIN_BATCH)
        for first_window in range(0, len(windows), size):
            batch = windows[first_window : first_window + size]
            rows, starts = torch.tensor(batch, device=passages.starts.device).unbind(dim=1)
            window = passages.cut(rows, starts, self.window)
            scores = self.scores(window, questions.whole(rows))
            best = best_spans(*scores, window.mask, self.max_span)
            spans = zip(batch, *(part.tolist() for part in best), strict=True)
            for (row, start), first, last, score in spans:
                if row not in answers or score > answers[row][0]:
                    answers[row] = score, [start + first, start + last]
        return [answers[row][1] for row in range(len(lengths))]

    def scores(
        self, passages: PaddedTokens, questions: PaddedTokens
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return logits of each token of the passages as first and as last of the answer."""
        mask = passages.mask
        encoded = [self._encoded(texts) for texts in (passages, questions)]
        attended = self.attention(*encoded, mask, questions.mask)
        merged = self.merged(self.dropout(attended)).relu()
        read = self.reader(self.dropout(merged), mask)
        attended_self = self.self_attention(self.dropout(read), mask)
        merged = merged + self.residual(self.dropout(attended_self)).relu()
        firsts = self.start_reader(self.dropout(merged), mask)
        both = torch.cat([merged, firsts], dim=-1)
        lasts = self.end_reader(self.dropout(both), mask)
        return (
            self.start(self.dropout(firsts)).squeeze(-1),
            self.end(self.dropout(lasts)).squeeze(-1),
        )

    def _encoded(self, texts: PaddedTokens) -> Float[Tensor, "B T D"]:
        states = self.encoder(self.dropout(texts.vectors), texts.mask)
        return self.dropout(torch.cat([states, texts.output_elmo], dim=-1))


def span_losses(
    starts: Float[Tensor, "B T"],
    ends: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    spans: Int[Tensor, "B N 2"],
) -> Float[Tensor, " B"]:
    """Return -log sum over the gold spans of p(first) p(last); a span of -1 is padding."""
    log_probabilities = []
    for scores, positions in zip((starts, ends), spans.clamp(min=0).unbind(dim=2), strict=True):
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        log_probabilities.append(
            exact.masked_fill(~mask, -1e30).log_softmax(dim=1).gather(1, positions)
        )
    together = (log_probabilities[0] + log_probabilities[1]).masked_fill(
        spans[:, :, 0] < 0, float("-inf")
    )
    return -together.logsumexp(dim=1)


@dataclass(frozen=True)
class _Texts:
    """The passages, or the questions, of a batch, packed."""

    vectors: Float[Tensor, "S D"]
    output_elmo: Float[Tensor, "S E"]
    starts: Int[Tensor, " B"]
    """Index of the first token of each."""
    lengths: Int[Tensor, " B"]

    def __len__(self) -> int:
        return len(self.starts)

    def whole(self, rows: Int[Tensor, " W"]) -> PaddedTokens:
        return self.cut(rows, torch.zeros_like(rows), len(self.vectors))

    def cut(
        self, rows: Int[Tensor, " W"], begins: Int[Tensor, " W"], max_tokens: int
    ) -> PaddedTokens:
        """Return at most `max_tokens` tokens of some texts, each from its own start, padded."""
        left = self.lengths[rows] - begins
        offset = torch.arange(min(max_tokens, int(left.amax())), device=rows.device)
        mask = offset < left[:, None]
        index = (self.starts[rows] + begins)[
            :, None
        ] + offset  # after the end, it points into another text
        index = index.clamp(max=len(self.vectors) - 1)
        vectors, output_elmo = (
            part.index_select(0, index.flatten()).unflatten(0, index.shape) * mask[:, :, None]
            for part in (self.vectors, self.output_elmo)
        )
        return PaddedTokens(vectors, mask, output_elmo)


def _pairs(tokens: PackedTokens, rows: Int[Tensor, " B"]) -> tuple[_Texts, _Texts]:
    """Split a batch into passages and questions; `rows` are the sentences of each example."""
    lengths = tokens.mask.sum(dim=1)
    starts = lengths.cumsum(0) - lengths
    question_rows = rows.cumsum(0) - 1
    firsts, questions = starts[question_rows - rows + 1], starts[question_rows]
    return (
        _Texts(tokens.vectors, tokens.output_elmo, firsts, questions - firsts),
        _Texts(tokens.vectors, tokens.output_elmo, questions, lengths[question_rows]),
    )
