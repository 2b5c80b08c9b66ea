"""The recurrent state of a biLM, in arrays of numpy or tensors of torch.

Shapes: L LSTM layers, B rows, D output width of one direction, H cell width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

FORWARD, BACKWARD = BOTH = 0, 1  # the index of a direction, wherever there are two


class LSTMState(NamedTuple):
    """The recurrent state of one layer of one direction."""

    output: Float[Any, "B D"]
    cell: Float[Any, "B H"]


class BiLMState(NamedTuple):
    """The recurrent state of both stacks: direction (forward, backward), layer, sentence."""

    output: Float[Any, "2 L B D"]
    cell: Float[Any, "2 L B H"]

    def direction(self, direction: int) -> list[LSTMState]:
        """Return the states of the layers of one direction."""
        pairs = zip(self.output[direction], self.cell[direction], strict=True)
        return [LSTMState(output, cell) for output, cell in pairs]


def stack_states(*directions: Sequence[LSTMState]) -> BiLMState:
    """Stack the states of all layers, forward first."""
    if isinstance(directions[0][0].cell, np.ndarray):
        stack: Any = np.stack
    else:
        from torch import stack
    outputs = [stack([state.output for state in states]) for states in directions]
    cells = [stack([state.cell for state in states]) for states in directions]
    return BiLMState(stack(outputs), stack(cells))
