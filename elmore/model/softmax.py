"""Next-word losses: the full, the sampled and the adaptive softmax over V words.

    nll[m] = log(exp(own[m]) + sum_k exp(logits[m, k])) - own[m]        k: all words but the target

`own` is the logit of the target. The full softmax sums over all other words. The sampled one (Jean
et al., 2015) sums over n drawn words, each weighted by 1 / (n P): its expectation is the full sum.
Draws of the target itself are masked. The adaptive one (Grave et al., 2017) is exact and cheap:
rare words share one entry per tail among the frequent words, and each tail is a softmax of its own
in fewer dimensions.

`log_sum.py` sums over the other words; it never holds the logits of all positions and words.

Shapes: M positions, D width, V words, n words summed over.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.model import native, sampling
from elmore.model.config import SoftmaxConfig
from elmore.model.log_sum import log_sum_others
from elmore.model.native_softmax import NativeAdaptiveSoftmax, NativeSoftmax, NativeTail
from elmore.model.packed_weights import PackedWeights, as_weight, runs_natively
from elmore.model.rounding import round_straight_through
from elmore.model.weight_shapes import check_softmax, tail_cutoffs, tail_width

Rare = tuple[Int[Tensor, " _"], ...]
"""For each tail of an adaptive softmax, the positions whose target is one of its words."""


class Candidates(NamedTuple):
    """The words of a sum, and what is added to the logits of these words and of the targets."""

    words: Int[Tensor, " n"]
    corrections: Float[Tensor, " n"]
    own_corrections: Float[Tensor, " M"] | None = None


class LogitParts(NamedTuple):
    """The logits of the targets, and what those of n candidates are made of, tile by tile."""

    own: Float[Tensor, " M"]
    states: Float[Tensor, "M D"]
    rows: Float[Tensor, "n D"]
    offsets: Float[Tensor, " n"]
    words: Int[Tensor, " n"]
    targets: Int[Tensor, " M"]

    def log_sum_others(self, chunk: int) -> Float[Tensor, " M"]:
        """Return the log of the sum over the candidates that are not the target."""
        return log_sum_others(*self[1:], chunk=chunk)

    def nll(self, chunk: int) -> Float[Tensor, " M"]:
        """Return the negative log-likelihood of each target."""
        return -functional.logsigmoid(self.own - self.log_sum_others(chunk))


class Softmax(nn.Module):
    """The full softmax, and the sampled one over the same weights.

    Words are sorted by descending count: the negatives are drawn by rank.
    """

    rows_are_lookups = True  # for optimisers: a row is the vector of one word

    def __init__(self, config: SoftmaxConfig, num_words: int, dim: int, bits: int = 8) -> None:
        super().__init__()
        if config.kind != "adaptive":  # `AdaptiveSoftmax` checks its parts as a whole
            check_softmax(config, num_words, dim)
        self.config = config
        self.num_words = num_words
        self.bits = bits
        self.weight = nn.Parameter(torch.empty(num_words, dim))
        self.bias = nn.Parameter(torch.empty(num_words))
        self._packed = PackedWeights()
        self.reset_parameters()

    def rounded_weight(self) -> Float[Tensor, "V D"]:
        """Return the weight as it is stored: with fewer than 8 bits its numbers are rounded."""
        if self.bits == 8:
            return self.weight
        if torch.is_grad_enabled():
            return round_straight_through(self.weight, self.bits)
        round_once = partial(round_straight_through, self.weight, self.bits)
        return self._packed.get("rounded", [self.weight], round_once)

    def reset_parameters(self) -> None:
        """Initialise the weights at the scale of the original."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.bias)

    def rare(self, targets: Int[Tensor, " M"]) -> Rare:
        """Return no positions: this softmax has no tails."""
        del targets
        return ()

    def loss(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"], seed: int, rare: Rare = ()
    ) -> Float[Tensor, " M"]:
        """Return the training loss; the negatives depend on `seed` alone, on every rank alike."""
        del rare
        if self.config.kind != "sampled":
            return self.nll(states, targets)
        return self.loss_against(states, targets, self.candidates(targets, seed))

    def loss_against(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"], candidates: Candidates
    ) -> Float[Tensor, " M"]:
        """Return the loss against these words."""
        return self.logit_parts(states, targets, candidates).nll(self.config.chunk)

    def candidates(self, targets: Int[Tensor, " M"], seed: int) -> Candidates:
        """Return the words that the targets are compared with: those drawn, or all."""
        num_samples, num_words = self.config.num_samples, self.num_words
        if self.config.kind != "sampled":
            words = torch.arange(num_words, device=targets.device)
            return Candidates(words, torch.zeros(num_words, device=targets.device))
        generator = torch.Generator(targets.device).manual_seed(seed)
        if not self.config.unique:
            words, num_draws = sampling.draw(num_samples, num_words, generator)
            counts = sampling.expected_counts(words, num_words, num_draws)
            return Candidates(words, -counts.log())
        words, num_draws = sampling.draw_unique(num_samples, num_words, generator)
        counts = sampling.expected_unique(torch.cat([words, targets]), num_words, num_draws)
        return Candidates(words, *(-counts.log()).split([len(words), len(targets)]))

    def logit_parts(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"], candidates: Candidates
    ) -> LogitParts:
        """Return the logits of the targets, and what those of the candidates are made of."""
        self._packed.clear()  # a fused optimizer may step next, which does not raise `_version`
        # One `index_select`: backward then allocates one dense gradient, and fills it by index_add.
        words, corrections, own_corrections = candidates
        chosen = torch.cat([words, targets])
        sizes = [len(words), len(targets)]
        rows, own_rows = self.rounded_weight().index_select(0, chosen).split(sizes)
        biases, own_biases = self.bias.index_select(0, chosen).split(sizes)
        own = (states * own_rows).sum(dim=1) + own_biases
        if own_corrections is not None:
            own = own + own_corrections.to(own.dtype)
        return LogitParts(own, states, rows, biases + corrections.to(biases.dtype), words, targets)

    def nll(self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"]) -> Float[Tensor, " M"]:
        """Return the exact negative log-likelihood of each target, with gradients."""
        if not torch.is_grad_enabled():
            return self._nll_no_grad(states, targets)
        self._packed.clear()  # a fused optimizer may step next, which does not raise `_version`
        weight = self.rounded_weight()
        own_rows, own_biases = (x.index_select(0, targets) for x in (weight, self.bias))
        own = (states * own_rows).sum(dim=1) + own_biases
        words = torch.arange(self.num_words, device=targets.device)
        parts = LogitParts(own, states, weight, self.bias, words, targets)
        return parts.nll(self.config.chunk)

    def _nll_no_grad(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"]
    ) -> Float[Tensor, " M"]:
        """Return the same without gradients, in fewer passes over the logits."""
        rows = max(1, self.config.chunk // self.num_words)
        weight = self.rounded_weight()
        parts = zip(states.to(weight.dtype).split(rows), targets.split(rows), strict=True)
        return torch.cat(
            [
                functional.cross_entropy(
                    _at_least_float32(functional.linear(some, weight, self.bias)),
                    own,
                    reduction="none",
                )
                for some, own in parts
            ]
        )

    def log_probs(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "M V"]:
        """Return the log-probability of every word."""
        weight = self.rounded_weight()
        logits = functional.linear(states.to(weight.dtype), weight, self.bias)
        return _at_least_float32(logits).log_softmax(dim=1)

    def pack(self, *, dynamic: bool = False) -> NativeSoftmax | None:
        """Pack the weights for the native library; None where torch runs the softmax.

        With `dynamic` weights and activations are int8 (W8A8), as in precision "fast".
        """
        with torch.no_grad():
            if not runs_natively(*self.parameters()):
                return None

        def make() -> NativeSoftmax:
            with torch.no_grad():
                weight = native.pack(as_weight(self.rounded_weight()), dynamic=dynamic)
            return NativeSoftmax(weight, self.bias.detach().clone().numpy())

        return self._packed.get(dynamic, [self.weight, self.bias], make)

    def _apply(self, fn: Callable, recurse: bool = True) -> "Softmax":
        self._packed.clear()
        return super()._apply(fn, recurse)


class AdaptiveSoftmax(nn.Module):
    """The head has the frequent words and one entry per tail; a tail has its own softmax.

    It is exact: training and evaluation use the same loss.
    """

    def __init__(self, config: SoftmaxConfig, num_words: int, dim: int) -> None:
        super().__init__()
        check_softmax(config, num_words, dim)
        self.config = config
        self.num_words = num_words
        self.cutoffs = tail_cutoffs(config, num_words)
        ends = (*self.cutoffs, num_words)
        self.tail_widths = [tail_width(config, dim, n) for n in range(len(self.cutoffs))]
        self.num_frequent = ends[0]
        self.head = Softmax(config, self.num_frequent + len(self.cutoffs), dim)
        self.tails = nn.ModuleList(
            Tail(config, end - begin, dim, width)
            for (begin, end), width in zip(pairwise(ends), self.tail_widths, strict=True)
        )

    def rare(self, targets: Int[Tensor, " M"]) -> Rare:
        """Return the positions whose target is in each tail.

        On a GPU this synchronises, so training calls it on the CPU, where batches are prepared.
        """
        tails = self._tails(targets)
        return tuple(
            (tails == number).nonzero().squeeze(1) for number in range(1, len(self.tails) + 1)
        )

    def _tails(self, targets: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
        """Return the tail of each word, counted from 1; 0 for a frequent word."""
        return torch.stack([targets >= cutoff for cutoff in self.cutoffs]).sum(dim=0)

    def loss(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"], seed: int, rare: Rare = ()
    ) -> Float[Tensor, " M"]:
        """Return the training loss; nothing is drawn, so `seed` is unused."""
        del seed
        return self.nll(states, targets, rare)

    def nll(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"], rare: Rare = ()
    ) -> Float[Tensor, " M"]:
        """Return the exact negative log-likelihood of each target, with gradients.

        `rare` is the result of `rare(targets)`, if that was computed before.
        """
        tails = self._tails(targets)
        entries = torch.where(tails == 0, targets, self.num_frequent - 1 + tails)
        nll = self.head.nll(states, entries)
        parts = zip(self.cutoffs, self.tails, rare or self.rare(targets), strict=True)
        for begin, tail, here in parts:
            # a tail without targets has a zero gradient, not none: all ranks must have one
            nll = nll.index_add(
                0, here, tail(states.index_select(0, here), targets.index_select(0, here) - begin)
            )
        return nll

    def log_probs(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "M V"]:
        """Return the log-probability of every word."""
        frequent, *entries = self.head.log_probs(states).split(
            [self.num_frequent] + [1] * len(self.tails), dim=1
        )
        pairs = zip(entries, self.tails, strict=True)
        return torch.cat([frequent, *(entry + tail(states) for entry, tail in pairs)], dim=1)

    def pack(self, *, dynamic: bool = False) -> NativeAdaptiveSoftmax | None:
        """Pack the weights for the native library, or return None; see `Softmax.pack`."""
        head = self.head.pack(dynamic=dynamic)
        tails = [_pack_tail(tail, dynamic=dynamic) for tail in self.tails]
        packed = [tail for tail in tails if tail is not None]
        if head is None or len(packed) < len(tails):
            return None
        return NativeAdaptiveSoftmax(head, packed, self.cutoffs)


def _pack_tail(tail: nn.Module, *, dynamic: bool) -> NativeTail | None:
    assert isinstance(tail, Tail)
    softmax = tail.softmax.pack(dynamic=dynamic)
    if softmax is None:
        return None
    return NativeTail(native.pack(as_weight(tail.projection.weight), dynamic=dynamic), softmax)


class Tail(nn.Module):
    """A softmax over rare words, in fewer dimensions."""

    def __init__(self, config: SoftmaxConfig, num_words: int, dim: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(dim, width, bias=False)
        nn.init.normal_(self.projection.weight, std=dim**-0.5)
        self.softmax = Softmax(config, num_words, width, config.tail_bits)

    def forward(
        self, states: Float[Tensor, "M D"], targets: Int[Tensor, " M"] | None = None
    ) -> Float[Tensor, " M"] | Float[Tensor, "M V"]:
        """Return the nll of the targets, or without targets the log-probability of every word."""
        states = self.projection(states)
        return (
            self.softmax.log_probs(states) if targets is None else self.softmax.nll(states, targets)
        )


def _at_least_float32(logits: Float[Tensor, "M V"]) -> Float[Tensor, "M V"]:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def build(config: SoftmaxConfig, num_words: int, dim: int) -> Softmax | AdaptiveSoftmax:
    """Return the softmax of a config."""
    return (AdaptiveSoftmax if config.kind == "adaptive" else Softmax)(config, num_words, dim)
