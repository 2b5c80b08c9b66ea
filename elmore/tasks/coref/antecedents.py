"""Antecedent scores (Lee et al., 2017).

    s(i, j) = m(i) + m(j) + a(i, j),   s(i, epsilon) = 0
    P(j)    = softmax of s(i, ·) over the dummy antecedent epsilon and the candidates

m is the mention score of a span, a the antecedent score of a pair of spans.

Shapes: M spans in the order of the text, A candidate antecedents of each, C = 1 + A choices, the
first of which is epsilon, G width of a span representation.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.tasks.coref.config import CorefModelConfig
from elmore.tasks.coref.span_vectors import Score

_PAIRS = 1 << 14  # pairs scored at a time
_NEVER = -1e30  # not -inf, whose gradient is nan
_BUCKETS = (2, 3, 4, 5, 8, 16, 32, 64)  # distances, in spans, at which a new bucket begins


def candidate_antecedents(
    num_spans: int, most: int, device: torch.device
) -> tuple[Int[Tensor, "M A"], Bool[Tensor, "M A"]]:
    """Return the spans before each span, the nearest first, and a mask of existing ones."""
    back = torch.arange(1, max(1, min(most, num_spans - 1)) + 1, device=device)
    earlier = torch.arange(num_spans, device=device)[:, None] - back
    return earlier.clamp(min=0), earlier >= 0


class PairScore(nn.Module):
    """The antecedent score a(i, j): from both spans, their product, and features of the pair.

    Features are the distance, whether the speaker is the same, and the genre of the document.
    """

    def __init__(self, config: CorefModelConfig, span_dim: int, num_genres: int = 0) -> None:
        super().__init__()
        self.later = nn.Linear(span_dim, config.score_dim)
        self.earlier = nn.Linear(span_dim, config.score_dim, bias=False)
        self.product = nn.Linear(span_dim, config.score_dim, bias=False)
        self.distances = nn.Embedding(len(_BUCKETS) + 1, config.feature_dim)
        self.speakers = nn.Embedding(3, config.feature_dim)  # unknown, another, the same
        self.genres = None
        if config.use_genre:  # 0 is unknown, and a vector of zeros
            self.genres = nn.Embedding(1 + num_genres, config.feature_dim, padding_idx=0)
        num_features = 3 if config.use_genre else 2
        self.features = nn.Linear(num_features * config.feature_dim, config.score_dim, bias=False)
        self.score = Score(config.score_dim, config.dropout)

    def forward(
        self,
        spans: Float[Tensor, "M G"],
        speakers: Int[Tensor, " M"],
        earlier: Int[Tensor, "M A"],
        genre: Int[Tensor, ""],
    ) -> Float[Tensor, "M A"]:
        """Score each span with its candidate antecedents; speaker 0 and genre 0 are unknown."""
        num_earlier = earlier.shape[1]
        buckets = torch.tensor(_BUCKETS, device=spans.device)
        away = torch.arange(1, num_earlier + 1, device=spans.device)
        distances = self.distances(torch.bucketize(away, buckets, right=True))  # (A, features)
        as_later, as_earlier = self.later(spans), self.earlier(spans)
        scores = []
        for rows in torch.arange(len(spans), device=spans.device).split(
            max(1, _PAIRS // num_earlier)
        ):
            candidates, speaker = earlier[rows], speakers[rows, None]
            same = 1 + (speaker == speakers[candidates]).long()
            same = same.masked_fill((speaker == 0) | (speakers[candidates] == 0), 0)
            features = [distances.expand(len(rows), -1, -1), self.speakers(same)]
            if self.genres is not None:
                features.append(self.genres(genre).expand_as(features[0]))
            first = as_later[rows, None] + as_earlier[candidates]
            first = first + self.features(torch.cat(features, dim=-1))
            first = first + self.product(spans[rows, None] * spans[candidates])
            scores.append(self.score(first))
        return torch.cat(scores)


def antecedent_scores(
    mention: Float[Tensor, " M"],
    pair: Float[Tensor, "M A"],
    earlier: Int[Tensor, "M A"],
    there: Bool[Tensor, "M A"],
) -> Float[Tensor, "M C"]:
    """Return s(i, j) for the dummy antecedent, which comes first, and for all candidates."""
    scores = (mention[:, None] + mention[earlier] + pair).masked_fill(~there, _NEVER)
    return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=1)


def loss(
    scores: Float[Tensor, "M C"],
    clusters: Int[Tensor, " M"],
    earlier: Int[Tensor, "M A"],
    there: Bool[Tensor, "M A"],
) -> Float[Tensor, ""]:
    """Return the negative log of the summed P of all gold antecedents, summed over spans.

    The gold antecedent of a span without a cluster (0), or without an earlier candidate of its
    cluster, is epsilon.
    """
    right = there & (clusters[:, None] == clusters[earlier]) & (clusters[:, None] > 0)
    right = torch.cat([~right.any(dim=1, keepdim=True), right], dim=1)
    true = scores.masked_fill(~right, _NEVER).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - true).sum()
