"""Which of the layers: all of them, one, their average, or a trained mix.

Shapes: L layers (the token layer is one of them), T tokens, D width.
"""

from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed.transfer import sent
from elmore.errors import ConfigError
from elmore.model.mix import SavedMix, token_norm

LayerChoice = Literal["average", "all", "top"] | int | SavedMix


def parse_layers(name: str) -> LayerChoice:
    """Read a choice as it is written on a command line."""
    if name in ("average", "all", "top"):
        return cast("LayerChoice", name)
    if name.isdecimal():
        return int(name)
    raise ConfigError(f"layers {name!r}: expected average, all, top or a number")


def check_layers(layers: LayerChoice, num_layers: int) -> None:
    """Refuse what a model of that many layers cannot give."""
    if isinstance(layers, SavedMix):
        if len(layers.weights) != num_layers:
            raise ConfigError(
                f"this mix has {len(layers.weights)} weights, the model {num_layers} layers"
            )
    elif isinstance(layers, int | np.integer) and not isinstance(layers, bool):
        if not 0 <= layers < num_layers:
            raise ConfigError(f"layers={layers}: this model has layers 0 to {num_layers - 1}")
    elif layers not in ("average", "all", "top"):
        raise ConfigError(
            f"layers={layers!r}: expected 'average', 'all', 'top', a number or a saved mix"
        )


def select_layers(
    states: Float[Tensor, "L *rest D"], layers: LayerChoice
) -> Float[Tensor, "*rest D"] | Float[Tensor, "L *rest D"]:
    """Give one vector per token, or the whole stack with "all"."""
    if isinstance(layers, SavedMix):
        (weights,) = sent([np.array(layers.weights, dtype=np.float32)], states.device)
        shares = weights.softmax(dim=0)
        evened = token_norm(states) if layers.layer_norm else states
        return layers.gamma * torch.tensordot(shares, evened, dims=1)
    if layers == "all":
        return states
    if layers == "average":
        return states.mean(dim=0)
    return states[-1 if layers == "top" else layers]
