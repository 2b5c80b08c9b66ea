"""How much is done at a time: what fits a CPU's own memory leaves a GPU waiting for calls."""

from typing import NamedTuple

import torch


class Sizes(NamedTuple):
    """A matter of the device alone, so that a sentence gets the same bits in any company."""

    tokens: int
    """Held with all their layers, unless another number is asked for."""
    lanes: int
    """At most."""
    steps: int
    """Of all lanes at a time, or more of fewer lanes: they bound the memory of the gates."""
    words: int
    """Encoded from their characters as a block, at least."""
    driven: int
    """Words driven as a block."""
    room: float
    """Bytes for the driven words that are kept."""
    crowd: int
    """Lanes for texts that come and go: more would hardly take less time each."""


CPU = Sizes(tokens=16384, lanes=96, steps=8, words=64, driven=128, room=96e6, crowd=48)
GPU = Sizes(tokens=262144, lanes=1024, steps=8, words=1024, driven=1024, room=500e6, crowd=256)


def of(device: torch.device) -> Sizes:
    """Give what suits a device."""
    return CPU if device.type == "cpu" else GPU
