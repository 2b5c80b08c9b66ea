"""The softmax of a model on arrays of numpy: native code runs it on a CPU, torch on a GPU.

Shapes: M positions, D width of one direction, V words.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from elmore.model import native
from elmore.model.weight_shapes import tail_cutoffs

if TYPE_CHECKING:
    from elmore.model.bilm_arrays import SoftmaxArrays
    from elmore.model.softmax import AdaptiveSoftmax, Softmax


def count_normalized(softmax: "Softmax | AdaptiveSoftmax | SoftmaxArrays", num_words: int) -> int:
    """Return over how many words a softmax always sums: all, or an adaptive one's frequent."""
    if softmax.config.kind != "adaptive":
        return num_words
    return (*tail_cutoffs(softmax.config, num_words), num_words)[0]


class WordSoftmax:
    """Probabilities over all words, whatever the loss of the training was.

    Products are exact; with `fast` native code rounds both factors to int8, where the CPU has dot
    products for them.
    """

    def __init__(
        self, softmax: "Softmax | AdaptiveSoftmax | SoftmaxArrays", *, fast: bool = False
    ) -> None:
        self.softmax: Any = softmax
        self._native = softmax.pack(dynamic=fast and native.has_int8_dot())

    def nll(
        self, states: Float[np.ndarray, "M D"], targets: Int[np.ndarray, " M"]
    ) -> Float[np.ndarray, " M"]:
        """Return the negative log-likelihood of each target."""
        if self._native is not None:
            return self._native.nll(states, targets)
        return self._run_torch("nll", states, targets)

    def log_probs(self, states: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M V"]:
        """Return the log-probability of every word."""
        if self._native is not None:
            return self._native.log_probs(states)
        return self._run_torch("log_probs", states)

    def _run_torch(
        self, name: str, states: Float[np.ndarray, "M D"], *targets: Int[np.ndarray, " M"]
    ) -> Float[np.ndarray, "..."]:
        import torch

        weight = next(self.softmax.parameters())
        words = [torch.from_numpy(each).to(weight.device) for each in targets]
        with torch.no_grad():
            run = getattr(self.softmax, name)
            return run(torch.from_numpy(states).to(weight), *words).float().cpu().numpy()
