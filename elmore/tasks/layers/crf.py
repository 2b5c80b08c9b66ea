"""A linear-chain conditional random field over labels (Lafferty et al., 2001).

    score(y) = sum_t scores[t, y_t] + sum_t transitions[y_t, y_t+1],   y framed by start and end
    p(y)     = exp(score(y) - log sum over all paths y' of exp(score(y')))

Everything is in logarithms and in float32 at least, whatever the scores come in.

Shapes: B sentences, T tokens, K labels, S = K + 2 states: the labels, then start and end.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

# Not infinity, whose gradient is no number. Beside any real score its exponential is exactly 0.
_FORBIDDEN = -1e30


class CRF(nn.Module):
    """A linear-chain CRF: learned transition scores, negative log-likelihood, Viterbi decoding.

    Transition scores start at zero. `allowed` restricts transitions (rows from, columns to, the
    last two are start and end): forbidden paths are neither decoded nor part of the partition
    function, and a gold path that takes one raises an error. Some path must be allowed at every
    length. The mask must be true for a prefix of each row; an empty sentence has one path, without
    labels and with probability 1.
    """

    allowed: Tensor | None
    rows_are_lookups = True  # for optimizers: a row is the scores of one label

    def __init__(self, num_labels: int, allowed: Bool[Tensor, "S S"] | None = None) -> None:
        super().__init__()
        num_states = num_labels + 2
        if allowed is not None and allowed.shape != (num_states, num_states):
            raise ValueError(
                f"{num_labels} labels, start and end make {num_states} states; allowed has shape "
                f"{tuple(allowed.shape)}"
            )
        self.num_labels = num_labels
        self.transitions = nn.Parameter(torch.zeros(num_states, num_states))
        self.register_buffer("allowed", allowed, persistent=False)  # the labels determine it

    def forward(
        self,
        scores: Float[Tensor, "B T K"],
        labels: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, " B"]:
        """Return the negative log-likelihood of the labels of each sentence."""
        scores = _to_float32(scores)
        if not scores.shape[1]:
            return scores.sum(dim=(1, 2))
        return self.log_partition(scores, mask) - self._path_score(scores, labels, mask)

    def log_partition(
        self, scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, " B"]:
        """Return the log of the partition function; there must be at least one column."""
        scores = _to_float32(scores)
        between, start, end = _split(self._transitions())
        total = start + scores[:, 0]  # (B, K): over all paths up to here, by their last label
        for t in range(1, scores.shape[1]):
            longer = (total[:, :, None] + between).logsumexp(dim=1) + scores[:, t]
            total = torch.where(mask[:, t, None], longer, total)
        return (total + end).logsumexp(dim=1).masked_fill(~mask[:, 0], 0.0)

    def marginals(
        self, scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T K"]:
        """Return the probability of each label at each place: the gradient of the log-partition."""
        if not scores.shape[1]:
            return _to_float32(scores)
        with torch.enable_grad():
            leaf = _to_float32(scores).detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_partition(leaf, mask).sum(), leaf)
        return gradient

    def decode(self, scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"]) -> list[list[int]]:
        """Return the best path of each sentence."""
        return viterbi(scores, mask, self._transitions())

    def _path_score(
        self,
        scores: Float[Tensor, "B T K"],
        labels: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, " B"]:
        start, end = self.num_labels, self.num_labels + 1
        padded = nn.functional.pad(labels.masked_fill(~mask, end), (1, 1), value=end)  # (B, T + 2)
        padded[:, 0] = start
        leaving, entering = padded[:, :-1], padded[:, 1:]
        real = torch.cat(
            [mask[:, :1], mask], dim=1
        )  # without what leaves the end, and without empty rows
        if self.allowed is not None and bool((real & ~self.allowed[leaving, entering]).any()):
            raise ValueError("the gold labels of a sentence take a forbidden transition")
        moves = self._transitions()[leaving, entering].masked_fill(~real, 0.0)
        stays = scores.gather(2, labels.masked_fill(~mask, 0)[:, :, None]).squeeze(2)
        return moves.sum(dim=1) + stays.masked_fill(~mask, 0.0).sum(dim=1)

    def _transitions(self) -> Float[Tensor, "S S"]:
        if self.allowed is None:
            return self.transitions
        return self.transitions.masked_fill(~self.allowed, _FORBIDDEN)


@torch.no_grad()
def viterbi(
    scores: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"], transitions: Float[Tensor, "S S"]
) -> list[list[int]]:
    """Return the best path of each sentence (Viterbi, 1967)."""
    if not scores.shape[1]:
        return [[] for _ in scores]
    scores = _to_float32(scores)
    between, start, end = _split(_to_float32(transitions))
    stay = torch.arange(scores.shape[2], device=scores.device)
    best = start + scores[:, 0]
    pointers = []  # for each later token and label, the previous label on the best path
    for t in range(1, scores.shape[1]):
        longer, pointer = (best[:, :, None] + between).max(dim=1)
        inside = mask[:, t, None]
        best = torch.where(inside, longer + scores[:, t], best)
        pointers.append(torch.where(inside, pointer, stay))  # padding keeps the label
    path = [(best + end).argmax(dim=1)]
    for pointer in reversed(pointers):
        path.append(pointer.gather(1, path[-1][:, None]).squeeze(1))
    rows = torch.stack(path[::-1], dim=1).tolist()
    return [row[:length] for row, length in zip(rows, mask.sum(dim=1).tolist(), strict=True)]


def transition_scores(allowed: Bool[Tensor, "S S"]) -> Float[Tensor, "S S"]:
    """Return transition scores: 0 if allowed, very low if not."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, _FORBIDDEN)


def _split(
    transitions: Float[Tensor, "S S"],
) -> tuple[Float[Tensor, "K K"], Float[Tensor, " K"], Float[Tensor, " K"]]:
    """Return the transitions between labels, from the start, and to the end."""
    k = len(transitions) - 2
    return transitions[:k, :k], transitions[k, :k], transitions[:k, k + 1]


def bio_transitions(labels: Sequence[str]) -> Bool[Tensor, "S S"]:
    """Return the allowed transitions of BIO: an I- only follows a B- or I- of its type."""
    for label in labels:
        if label != "O" and label[:2] not in ("B-", "I-"):
            raise ValueError(f"expected labels such as O, B-person and I-person, found {label!r}")
    num_states = len(labels) + 2
    start, end = num_states - 2, num_states - 1
    allowed = torch.ones(num_states, num_states, dtype=torch.bool)
    for to, label in enumerate(labels):
        if label.startswith("I-"):
            before = (f"B-{label[2:]}", label)
            allowed[:, to] = torch.tensor([other in before for other in (*labels, "", "")])
    allowed[:, start] = False
    allowed[end, :] = False
    return allowed


def _to_float32(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
