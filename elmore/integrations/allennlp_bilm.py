"""The biLM as AllenNLP has it: tensors of character ids in, layers out, state kept between calls.

Ids are those of `batch_to_ids`: one above those of training, so that 0 can fill absent tokens.
Equal words are found in the tensor, and run through the convolutions once.

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

_NAME = "model."  # where our network hangs in the module below


class Memory(StatefulRows):
    """What AllenNLP's users know as `_elmo_lstm._elmo_lstm`: the rows, and ways to forget them."""

    stateful = True
    """Set it to False, and every call starts from nothing."""

    def reset_states(self, mask: Shaped[Tensor, " B"] | None = None) -> None:
        """Forget everything, or the rows where the mask is true."""
        if mask is None or self.rows is None:
            self.rows = None
            return
        num_rows = self.rows.cell.shape[2]
        if len(mask) != num_rows:
            raise DataError(f"{num_rows} rows are remembered, the mask to reset has {len(mask)}")
        kept = ~as_bool(mask).to(self.rows.cell.device)[:, None]
        self.rows = BiLMState(*(part * kept for part in self.rows))

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
    """The layers of a batch, `<S>` and `</S>` around each sentence included.

    Row b starts where row b of the call before stopped, in evaluation too. There is no dropout
    inside, and the weights learn only with `requires_grad`. Its state_dict has AllenNLP's names and
    layout, and takes theirs.
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
        if bundle.config.projection and bundle.config.lstm.projection:  # as in all models of theirs
            self.register_state_dict_post_hook(_to_their_names)
            self.register_load_state_dict_pre_hook(_to_our_names)
        self.train(self.training)

    def get_output_dim(self) -> int:
        """Say how wide a vector is: 2D."""
        return self.model.config.width

    def forward(
        self, inputs: Int[Tensor, "B T C"], word_inputs: Tensor | None = None
    ) -> dict[str, Any]:
        """Give `activations`, L tensors (B, T+2, 2D), and their `mask` (B, T+2)."""
        index, characters = _distinct(inputs.to(self._device), self._alphabet)
        memory = self._elmo_lstm
        state = self.model.zero_state(len(index), next(self.model.parameters()))
        if memory.stateful:
            state = memory.load(state)
        stack, state = self.model(index, characters, state=state)
        if memory.stateful:
            memory.store(state)
        return {"activations": list(stack.states), "mask": stack.mask}

    def train(self, mode: bool = True) -> Self:
        """Switch to training; the network itself keeps its dropout off."""
        super().train(mode)
        self.model.eval()
        return self

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _load(options_file: str | None, weight_file: str | None) -> Bundle:
    """Load two files, or the bundled model where neither is named."""
    if (options_file is None) != (weight_file is None):
        raise ConfigError("options_file and weight_file belong together; pass both, or neither")
    if options_file is None or weight_file is None:
        return pretrained.load()
    sources = [options_file, weight_file]
    if str(weight_file).startswith(("http://", "https://")):
        sources = [_name_of(str(options_file), str(weight_file))]
    bundle = pretrained.load(*sources)
    if not isinstance(bundle.alphabet, ByteAlphabet):
        raise ConfigError(
            f"{weight_file}: this model does not read bytes, and AllenNLP's tensors hold nothing "
            "else; use elmore.load"
        )
    return bundle


def _name_of(*addresses: str) -> str:
    """Find the model whose files these were, on whichever of AllenNLP's hosts."""
    wanted = [PurePosixPath(address).parts[-2:] for address in addresses]  # folder and file
    for name, entry in catalogue.known_models().items():
        if [PurePosixPath(address).parts[-2:] for address in entry.files] == wanted:
            return name
    raise ConfigError(
        f"{addresses[-1]}: no model known by name has these files; download them, and pass paths"
    )


def _distinct(
    ids: Int[Tensor, "B T C"], alphabet: ByteAlphabet
) -> tuple[Int[Tensor, "B T+2"], Int[Tensor, "N C"]]:
    """Number the distinct words of a tensor of ids, and put boundaries around its sentences."""
    mask = _checked_mask(ids, alphabet)
    marks, _ = alphabet.encode([alphabet.begin, alphabet.end])
    marks = torch.from_numpy(marks).to(ids.device)
    marks = nn.functional.pad(marks, (0, ids.shape[2] - marks.shape[1]), value=alphabet.padding)
    index, words = index_unique_words(ids - 1, mask, marks)
    longest = int((words != alphabet.padding).any(dim=0).nonzero().max()) + 1
    return index, words[:, :longest]


def _checked_mask(ids: Int[Tensor, "B T C"], alphabet: ByteAlphabet) -> Bool[Tensor, "B T"]:
    width = alphabet.max_characters
    if ids.dim() != 3 or ids.shape[2] != width or ids.is_floating_point():
        raise DataError(
            f"expected ids from batch_to_ids, whole numbers of shape (sentences, tokens, {width}); "
            f"found {ids.dtype} of shape {tuple(ids.shape)}"
        )
    mask = (ids > 0).any(dim=2)
    inside = ids[mask]
    if inside.numel() and not 1 <= inside.min() <= inside.max() <= alphabet.num_ids:
        raise DataError(
            f"the ids of a token must be between 1 and {alphabet.num_ids}, found "
            f"{int(inside.min())} to {int(inside.max())}; zeros fill whole tokens alone"
        )
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise DataError("a token stands after padding; pad sentences on the right")
    return mask


def _to_their_names(
    module: _ElmoBiLm, state: dict[str, Tensor], prefix: str, metadata: object
) -> None:
    """Write the weights of a state_dict as AllenNLP does."""
    config = module.model.config
    for rule in allennlp.rules(config):
        ours = [state.pop(f"{prefix}{_NAME}{name}") for name in rule.ours]
        tensor = rule.transform.write(*ours)
        state[prefix + _inside(rule.theirs)] = _biased(rule.theirs, tensor, config.lstm.forget_bias)


def _to_our_names(module: _ElmoBiLm, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
    """Read the weights of a state_dict that AllenNLP wrote, or we did."""
    config = module.model.config
    for rule in allennlp.rules(config):
        tensor = state.pop(prefix + _inside(rule.theirs), None)
        if tensor is not None:
            tensor = _biased(rule.theirs, tensor, -config.lstm.forget_bias)
            for name, part in zip(rule.ours, rule.transform.read(tensor), strict=True):
                state[f"{prefix}{_NAME}{name}"] = part
    for name in [name for name in state if name.startswith(f"{prefix}_word_embedding.")]:
        del state[name]  # what vocab_to_cache had computed


def _inside(name: str) -> str:
    """Give a name as seen from the biLM; the table sees it from `Elmo`."""
    return name.removeprefix("_elmo_lstm.")


def _biased(name: str, tensor: Tensor, forget_bias: float) -> Tensor:
    """Move the forget bias into the stored bias, as they have it, or out of it."""
    if not name.endswith("state_linearity.bias"):
        return tensor
    gates = tensor.clone().unflatten(0, (len(GATES), -1))
    gates[GATES.index("forget")] += forget_bias
    return gates.flatten()
