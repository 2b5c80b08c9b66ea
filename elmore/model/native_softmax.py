"""The exact softmax in native code and numpy: probabilities of words, without torch.

`softmax.py` defines it, and has the losses of training. A state gets the same bits alone and with
any others.

Shapes: M positions, D width, V words.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from elmore.model import native
from elmore.model.native import PackedMatrix
from elmore.model.native_bilm import Arrays

_CHUNK = 2**21  # logits at a time, which fit into a cache: changes no value


class NativeSoftmax(NamedTuple):
    """The full softmax."""

    weight: PackedMatrix
    bias: Float[np.ndarray, " V"]

    def log_probs(self, states: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M V"]:
        """Return the log-probability of every word."""
        logits = native.multiply(self.weight, states, self.bias)
        return np.subtract(logits, native.log_sum_exp(logits)[:, None], out=logits)

    def nll(
        self, states: Float[np.ndarray, "M D"], targets: Int[np.ndarray, " M"]
    ) -> Float[np.ndarray, " M"]:
        """Return the negative log-likelihood of each target."""
        nll = np.empty(len(states), np.float32)
        size = max(1, _CHUNK // len(self.bias))
        for begin in range(0, len(states), size):
            some = slice(begin, begin + size)
            logits = native.multiply(self.weight, states[some], self.bias)
            own = np.take_along_axis(logits, targets[some, None], axis=1)[:, 0]
            nll[some] = native.log_sum_exp(logits) - own
        return nll


class NativeTail(NamedTuple):
    """A softmax over rare words, in fewer dimensions."""

    projection: PackedMatrix
    softmax: NativeSoftmax

    def project(self, states: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M d"]:
        """Return the states in the dimensions of the tail."""
        return native.multiply(self.projection, states)


class NativeAdaptiveSoftmax(NamedTuple):
    """The head has the frequent words and one entry per tail; a tail has its own softmax."""

    head: NativeSoftmax
    tails: Sequence[NativeTail]
    cutoffs: tuple[int, ...]

    def log_probs(self, states: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M V"]:
        """Return the log-probability of every word."""
        head, num_frequent = self.head.log_probs(states), self.cutoffs[0]
        parts = [head[:, :num_frequent]]
        for number, tail in enumerate(self.tails, start=num_frequent):
            parts.append(head[:, number, None] + tail.softmax.log_probs(tail.project(states)))
        return np.concatenate(parts, axis=1)

    def nll(
        self, states: Float[np.ndarray, "M D"], targets: Int[np.ndarray, " M"]
    ) -> Float[np.ndarray, " M"]:
        """Return the negative log-likelihood of each target."""
        tails = np.searchsorted(self.cutoffs, targets, side="right")
        entries = np.where(tails == 0, targets, self.cutoffs[0] - 1 + tails)
        nll = self.head.nll(states, entries)
        for number, (begin, tail) in enumerate(zip(self.cutoffs, self.tails, strict=True), start=1):
            (here,) = (tails == number).nonzero()
            if len(here):
                nll[here] += tail.softmax.nll(tail.project(states[here]), targets[here] - begin)
        return nll


def pack_softmax(
    arrays: Arrays, cutoffs: tuple[int, ...] = (), *, dynamic: bool
) -> NativeSoftmax | NativeAdaptiveSoftmax:
    """Pack the weights of a softmax; with cutoffs of an adaptive one, with `dynamic` in int8."""

    def pack(prefix: str) -> NativeSoftmax:
        weight = native.pack(arrays[f"{prefix}weight"], dynamic=dynamic)
        return NativeSoftmax(weight, arrays[f"{prefix}bias"])

    def pack_tail(prefix: str) -> NativeTail:
        projection = native.pack(arrays[f"{prefix}projection.weight"], dynamic=dynamic)
        return NativeTail(projection, pack(f"{prefix}softmax."))

    if not cutoffs:
        return pack("")
    tails = [pack_tail(f"tails.{number}.") for number in range(len(cutoffs))]
    return NativeAdaptiveSoftmax(pack("head."), tails, cutoffs)
