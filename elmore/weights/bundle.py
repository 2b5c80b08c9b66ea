"""A model with all it needs to read text: network, alphabet, vocabulary, and what it is."""

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.errors import ConfigError, WeightsError
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.mix import SavedMix
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.text.characters import Alphabet, encode_batch
from elmore.text.vocabulary import Vocabulary

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # of weights in files


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a person wants to know of a model before using it; empty where nobody said."""

    name: str = ""
    language: str = ""
    licence: str = ""
    data: str = ""
    source: str = ""
    """The format and the files it came from."""
    training: dict | None = None
    """How it was trained: recipe, text, scores, cost."""

    def __post_init__(self) -> None:
        scores = (self.training or {}).get("scores", {})
        values = scores.values() if isinstance(scores, dict) else [None]
        if not all(_is_score(value) for value in values):
            raise ConfigError("training.scores must be numbers by their names")


def _is_score(value: object) -> bool:
    is_whole = type(value) is int and abs(value) <= sys.float_info.max
    return is_whole or type(value) is float


@dataclass(frozen=True)
class Bundle:
    """One loaded model."""

    model: BiLM
    alphabet: Alphabet
    vocabulary: Vocabulary | None = None
    card: Card = field(default_factory=Card)
    options: dict[str, Any] | None = None
    """The options.json it came with, so that it can go back unchanged."""
    warm_state: BiLMState | None = None
    mixes: tuple[SavedMix, ...] = ()
    """Mixes of its layers that were trained for some task."""
    softmax: Softmax | AdaptiveSoftmax | None = None
    """Over the words of the vocabulary; published weights come without."""
    byte_counts: tuple[int, ...] | None = None
    """How often each byte, and the end of a word, was seen in training."""

    @property
    def config(self) -> BiLMConfig:
        """The shape of the network."""
        return self.model.config

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        state: BiLMState | None = None,
        *,
        training: bool = False,
    ) -> tuple[LayerStack, BiLMState]:
        """Run one batch of tokenised sentences; boundaries are in what comes back.

        Without `training` there is no dropout, whatever mode the network is in.
        """
        device = next(self.model.parameters()).device
        ids = encode_batch(self.alphabet, sentences)
        tensors = [None if part is None else torch.from_numpy(part).to(device) for part in ids]
        return self.model(*tensors, state=state, training=training)

    def sharing_weights(self) -> "Bundle":
        """Return a bundle with a frozen network of its own that shares memory with these weights.

        In-place writes to these weights, such as an optimizer step, reach the copy too. Moving,
        converting, deep-copying or loading a state dict gives the copy memory of its own first.
        Every other in-place write to the copy's weights writes into these.
        """
        weights = {
            id(weight): nn.Parameter(weight.detach(), requires_grad=False)
            for weight in self.model.parameters()
        } | {id(buffer): buffer for buffer in self.model.buffers()}
        model = copy.deepcopy(self.model, weights).eval()
        model.register_load_state_dict_pre_hook(_unshare_memory)
        return replace(self, model=model)

    def up_to_layer(self, max_layer: int) -> "Bundle":
        """Drop the LSTM layers above `max_layer`: less work where the top is not wanted."""
        most = self.config.lstm.num_layers
        if not isinstance(max_layer, int) or not 1 <= max_layer <= most:
            raise ConfigError(f"max_layer must be between 1 and {most}, found {max_layer!r}")
        model = self.sharing_weights().model
        model.truncate(max_layer)
        state = self.warm_state
        if state is not None:
            state = BiLMState(state.output[:, :max_layer], state.cell[:, :max_layer])
        softmax = self.softmax if max_layer == most else None  # it reads the top
        return replace(
            self, model=model.eval(), options=None, warm_state=state, mixes=(), softmax=softmax
        )


def _unshare_memory(model: nn.Module, *_: object) -> None:
    """Move the weights of a network to new memory, so that a load does not write into others."""
    for weight in model.parameters():
        weight.data = weight.data.clone()


def empty_model(config: BiLMConfig) -> BiLM:
    """Build the network without memory for its weights: they are put in afterwards."""
    with without_memory():
        return BiLM(config)


@contextmanager
def without_memory() -> Iterator[None]:
    """Build modules without memory for their weights."""
    with torch.device("meta"), _NoDraws():
        yield


def check_weights(tensor: Tensor, where: str) -> None:
    """Refuse weights that are not plain numbers."""
    if tensor.layout != torch.strided or tensor.dtype not in _DTYPES or tensor.is_meta:
        raise WeightsError(
            f"{where} holds {tensor.dtype}, expected plain float16, bfloat16, float32 or float64"
        )
    if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        count = int((~torch.isfinite(tensor)).sum())
        raise WeightsError(
            f"{where} holds {count} values that are not finite; the file is damaged or its "
            "training diverged, so get another copy"
        )


class _NoDraws(TorchFunctionMode):
    """Skip normal draws: into no memory they only make torch load its compiler (1.5 s)."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 -- as torch has it
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)
