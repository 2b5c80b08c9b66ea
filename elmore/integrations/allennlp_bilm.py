"""AllenNLP's biLM module: character ids in, layers out, with a state that carries over.

Ids are those of `batch_to_ids`, shifted by one so that 0 is padding. Each distinct word of a batch
runs through the convolutions once.

Shapes: L layers (the token layer is one of them), B sentences, T tokens, C characters, N distinct
words, D width of one direction.
"""

from pathlib import PurePosixPath
from typing import Any, Self

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from elmore.embed.stateful import StatefulRows
from elmore.errors import ConfigError, DataError
from elmore.model.bilm import BiLMState
from elmore.model.lstm.call import GATES
from elmore.model.padding import as_bool
from elmore.model.unique_words import index_unique_words
from elmore.text.characters import ByteAlphabet
from elmore.weights import catalogue, pretrained
from elmore.weights.bundle import Bundle
from elmore.weights.convert import allennlp

_PREFIX = "model."  # of our network in the module below


class Memory(StatefulRows):
    """AllenNLP's `_elmo_lstm._elmo_lstm`: the carried state of each row, and its reset."""

    stateful = True
    """If False, every call starts from a zero state."""

    def reset_states(self, mask: Shaped[Tensor, " B"] | None = None) -> None:
        """Reset all rows, or those where the mask is true."""
        if mask is None or self.rows is None:
            self.rows = None
            return
        num_rows = self.rows.cell.shape[2]
        if len(mask) != num_rows:
            raise DataError(f"the state has {num_rows} rows, the mask to reset has {len(mask)}")
        unchanged = ~as_bool(mask).to(self.rows.cell.device)[:, None]
        self.rows = BiLMState(*(part * unchanged for part in self.rows))

    @property
    def _states(self) -> tuple[Tensor, Tensor] | None:
        """The rows in AllenNLP's layout, output and cell: (L, B, both directions side by side)."""
        if self.rows is None:
            return None
        output, cell = (torch.cat(list(part), dim=-1) for part in self.rows)
        return output, cell

    @_states.setter
    def _states(self, states: tuple[Tensor, Tensor] | None) -> None:
        self.rows = None
        if states is not None:
            self.rows = BiLMState(*(torch.stack(part.chunk(2, dim=-1)) for part in states))


class _ElmoBiLm(nn.Module):
    """Compute the layers of a batch, including `<S>` and `</S>` around each sentence.

    Row b starts from the final state of row b of the previous call, in evaluation too. There is no
    dropout, and the weights are trained only with `requires_grad`. The state_dict has AllenNLP's
    names and layout.
    """

    def __init__(
        self,
        options_file: str | None,
        weight_file: str | None,
        requires_grad: bool = False,
        vocab_to_cache: list[str] | None = None,
    ) -> None:
        super().__init__()
        bundle = _load(options_file, weight_file)
        assert isinstance(bundle.alphabet, ByteAlphabet)
        self.model = bundle.model.requires_grad_(requires_grad)
        self.num_layers = bundle.config.num_layers
        self._alphabet = bundle.alphabet
        self._elmo_lstm = Memory()
        if bundle.config.projection and bundle.config.lstm.projection:  # as in all AllenNLP models
            self.register_state_dict_post_hook(_to_allennlp_names)
            self.register_load_state_dict_pre_hook(_to_our_names)
        self.train(self.training)

    def get_output_dim(self) -> int:
        """Return 2D, the width of a vector."""
        return self.model.config.width

    def forward(
        self, inputs: Int[Tensor, "B T C"], word_inputs: Tensor | None = None
    ) -> dict[str, Any]:
        """Return `activations`, L tensors (B, T+2, 2D), and their `mask` (B, T+2)."""
        index, characters = _index_words(inputs.to(self._device), self._alphabet)
        memory = self._elmo_lstm
        state = self.model.zero_state(len(index), next(self.model.parameters()))
        if memory.stateful:
            state = memory.load(state)
        stack, state = self.model(index, characters, state=state)
        if memory.stateful:
            memory.store(state)
        return {"activations": list(stack.states), "mask": stack.mask}

    def train(self, mode: bool = True) -> Self:
        """Set training mode; the network itself stays without dropout."""
        super().train(mode)
        self.model.eval()
        return self

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _load(options_file: str | None, weight_file: str | None) -> Bundle:
    """Load two files, or the bundled model if both are None."""
    if (options_file is None) != (weight_file is None):
        raise ConfigError("options_file and weight_file belong together; pass both, or neither")
    if options_file is None or weight_file is None:
        return pretrained.load()
    sources = [options_file, weight_file]
    if str(weight_file).startswith(("http://", "https://")):
        sources = [_find_name(str(options_file), str(weight_file))]
    bundle = pretrained.load(*sources)
    if not isinstance(bundle.alphabet, ByteAlphabet):
        raise ConfigError(
            f"{weight_file}: AllenNLP's interface is for byte alphabets only, and this model has "
            "another; use elmore.load"
        )
    return bundle


def _find_name(*addresses: str) -> str:
    """Return the model with these files, on any of AllenNLP's hosts."""
    suffixes = [PurePosixPath(address).parts[-2:] for address in addresses]  # folder and file
    for name, entry in catalogue.known_models().items():
        if [PurePosixPath(address).parts[-2:] for address in entry.files] == suffixes:
            return name
    raise ConfigError(
        f"{addresses[-1]}: no named model has these files; download them and pass paths"
    )


def _index_words(
    ids: Int[Tensor, "B T C"], alphabet: ByteAlphabet
) -> tuple[Int[Tensor, "B T+2"], Int[Tensor, "N C"]]:
    """Index the distinct words of a batch, and add sentence boundaries."""
    mask = _check_ids(ids, alphabet)
    marks, _ = alphabet.encode([alphabet.begin, alphabet.end])
    marks = torch.from_numpy(marks).to(ids.device)
    marks = nn.functional.pad(marks, (0, ids.shape[2] - marks.shape[1]), value=alphabet.padding)
    index, words = index_unique_words(ids - 1, mask, marks)
    longest = int((words != alphabet.padding).any(dim=0).nonzero().max()) + 1
    return index, words[:, :longest]


def _check_ids(ids: Int[Tensor, "B T C"], alphabet: ByteAlphabet) -> Bool[Tensor, "B T"]:
    width = alphabet.max_characters
    if ids.dim() != 3 or ids.shape[2] != width or ids.is_floating_point():
        raise DataError(
            f"expected ids from batch_to_ids, integers of shape (sentences, tokens, {width}); "
            f"found {ids.dtype} of shape {tuple(ids.shape)}"
        )
    mask = (ids > 0).any(dim=2)
    inside = ids[mask]
    if inside.numel() and not 1 <= inside.min() <= inside.max() <= alphabet.num_ids:
        raise DataError(
            f"the ids of a token must be between 1 and {alphabet.num_ids}, found "
            f"{int(inside.min())} to {int(inside.max())}; 0 is for padding tokens only"
        )
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise DataError("a token follows padding; pad sentences on the right")
    return mask


def _to_allennlp_names(
    module: _ElmoBiLm, state: dict[str, Tensor], prefix: str, metadata: object
) -> None:
    """Convert a state_dict to AllenNLP's names and layout."""
    config = module.model.config
    for rule in allennlp.rules(config):
        ours = [state.pop(f"{prefix}{_PREFIX}{name}") for name in rule.ours]
        tensor = rule.transform.write(*ours)
        state[prefix + _without_prefix(rule.theirs)] = _add_forget_bias(
            rule.theirs, tensor, config.lstm.forget_bias
        )


def _to_our_names(module: _ElmoBiLm, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
    """Convert a state_dict from AllenNLP's names; our own are left as they are."""
    config = module.model.config
    for rule in allennlp.rules(config):
        tensor = state.pop(prefix + _without_prefix(rule.theirs), None)
        if tensor is not None:
            tensor = _add_forget_bias(rule.theirs, tensor, -config.lstm.forget_bias)
            for name, part in zip(rule.ours, rule.transform.read(tensor), strict=True):
                state[f"{prefix}{_PREFIX}{name}"] = part
    for name in [name for name in state if name.startswith(f"{prefix}_word_embedding.")]:
        del state[name]  # what vocab_to_cache had computed


def _without_prefix(name: str) -> str:
    """Return a name relative to the biLM; the conversion table is relative to `Elmo`."""
    return name.removeprefix("_elmo_lstm.")


def _add_forget_bias(name: str, tensor: Tensor, forget_bias: float) -> Tensor:
    """Add the forget bias to a stored bias, as AllenNLP stores it; negative removes it."""
    if not name.endswith("state_linearity.bias"):
        return tensor
    gates = tensor.clone().unflatten(0, (len(GATES), -1))
    gates[GATES.index("forget")] += forget_bias
    return gates.flatten()
