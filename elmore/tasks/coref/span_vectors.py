"""Span representations (Lee et al., 2017): both ends, an attended head, the width.

    g(i) = [x*_start; x*_end; sum_t a_t x_t; width],   a the softmax over the tokens of span i

x are the token vectors, x* the states of the encoder.

Shapes: T tokens, N tokens of which spans start, W widths, M spans, S width of x*, I of x, G of g,
H of a hidden layer.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.coref.config import CorefModelConfig
from elmore.tasks.layers.attention import masked_softmax

_SPANS = 1024  # spans whose tokens are gathered at a time


class Score(nn.Module):
    """A feed-forward score, given the pre-activations of its first hidden layer."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, first: Float[Tensor, "*some H"]) -> Float[Tensor, "*some"]:
        """Return the scores, at least in float32."""
        second = self.hidden(self.dropout(first.relu()))
        score = self.out(self.dropout(second.relu())).squeeze(-1)
        return score.to(torch.promote_types(score.dtype, torch.float32))


class SpanVectors(nn.Module):
    """Span representations, and the first layer of the mention score.

    That layer is linear, so for all spans of a text it is summed from the contributions of tokens,
    and only the spans that are kept need a representation.
    """

    def __init__(self, config: CorefModelConfig, state_dim: int, input_dim: int) -> None:
        super().__init__()
        self.max_width = config.max_width
        self.attention = nn.Linear(state_dim, 1)
        self.widths = nn.Embedding(config.max_width, config.feature_dim)
        self._parts = [state_dim, state_dim, input_dim, config.feature_dim]
        self.output_dim = sum(self._parts)
        self.first = nn.Linear(self.output_dim, config.score_dim)

    def forward(
        self,
        states: Float[Tensor, "T S"],
        inputs: Float[Tensor, "T I"],
        spans: Int[Tensor, "M 2"],
    ) -> Float[Tensor, "M G"]:
        """Return the representations of spans, given by first and last token."""
        start, end = spans.unbind(dim=1)
        tokens = start[:, None] + torch.arange(self.max_width, device=spans.device)
        inside = tokens <= end[:, None]
        tokens = tokens.clamp(max=len(states) - 1)
        weights = masked_softmax(self.attention(states).squeeze(-1)[tokens], inside)
        pieces = zip(weights.to(inputs.dtype).split(_SPANS), tokens.split(_SPANS), strict=True)
        heads = torch.cat(
            [(weight[:, None] @ inputs[those]).squeeze(1) for weight, those in pieces]
        )
        return torch.cat([states[start], states[end], heads, self.widths(end - start)], dim=-1)

    def mention_hidden_all_spans(
        self,
        states: Float[Tensor, "T S"],
        inputs: Float[Tensor, "T I"],
        begin: int,
        end: int,
    ) -> Float[Tensor, "N W H"]:
        """Return `first(forward(...))` for the spans of every width that start in [begin, end).

        The result for spans that exceed the text is meaningless.
        """
        by_start, by_end, by_head, by_width = self.first.weight.split(self._parts, dim=1)
        past = max(0, end + self.max_width - 1 - len(states))
        here = slice(begin, end + self.max_width - 1)

        def windows(tokens: Tensor) -> Tensor:
            """Return (N, W, D): each token and the tokens after it."""
            return functional.pad(tokens, (0, 0, 0, past)).unfold(0, self.max_width, 1).mT

        logits = windows(self.attention(states[here])).mT.expand(-1, self.max_width, -1)
        inside = torch.ones_like(logits, dtype=torch.bool).tril()
        weights = masked_softmax(logits, inside)  # (N, W, tokens of each span)
        heads = windows(functional.linear(inputs[here], by_head))
        starts = functional.linear(states[begin:end], by_start, self.first.bias)
        return (
            starts[:, None]
            + windows(functional.linear(states[here], by_end))
            + weights.to(heads.dtype) @ heads
            + functional.linear(self.widths.weight, by_width)
        )
