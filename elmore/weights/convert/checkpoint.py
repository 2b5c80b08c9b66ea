"""TensorFlow checkpoints of ELMo: training runs of bilm-tf, and Google's TF-Hub modules.

Both have the weights of the HDF5 files under newer names, which are mapped to the names of those
files here. A training run also has a softmax (and the state of its optimizer, which is ignored), a
module also has a layer mix.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from elmore.config import read_json
from elmore.errors import ConfigError, WeightsError
from elmore.model.config import BiLMConfig
from elmore.model.saved_mix import SavedMix
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import bilm_tf, options, table, tensor_bundle
from elmore.weights.convert.tensor_bundle import Checkpoint
from elmore.weights.modules import check_weights, on_meta_device

_log = logging.getLogger(__name__)

_SCOPE = r"(?:.*/)?(?:lm|bilm)/"
_PLAIN = re.compile(_SCOPE + r"(char_embed|embedding|CNN(?:_proj|_high_\d+)?/[Wb]_\w+)")
_CELL = re.compile(
    _SCOPE + r"(RNN_[01])/(?:(?:.*/)?(?:cell_|Cell)(\d+)/)?(?:.*/)?lstm_cell/"
    r"(kernel|bias|projection/kernel)"
)
_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_SOFTMAX = ("lm/softmax/W", "lm/softmax/b")
_MIX = ("aggregation/weights", "aggregation/scaling")


def checkpoint_files(index: Path) -> list[Path]:
    """Return all files of a checkpoint."""
    return tensor_bundle.open_index(index).files


def read_checkpoint(
    index: Path, options_path: Path | None = None, vocabulary_path: Path | None = None
) -> Bundle:
    """Load a checkpoint; without options.json, use the original ELMo's clips and activation.

    The softmax of a training run is loaded if its vocabulary is available.
    """
    checkpoint = tensor_bundle.open_index(index)
    variables = _Variables(checkpoint, _map_names(checkpoint))
    if options_path:
        settings, where = read_json(options_path), str(options_path)
    else:
        settings, where = _options_from_shapes(variables), str(index)
        _log.info(
            "%s: no options.json, so clips and activation are those of the original ELMo", index
        )
    config = options.to_config(settings, where)
    vocabulary_path = vocabulary_path or bilm_tf.find_vocabulary(index)
    vocabulary = Vocabulary.read(vocabulary_path) if vocabulary_path else None
    return Bundle(
        table.build_model(config, bilm_tf.rules(config), variables, str(index)),
        bilm_tf.select_alphabet(config, vocabulary, where),
        vocabulary,
        Card(source=f"TensorFlow checkpoint: {index.parent.name}/{index.stem}"),
        _prediction_options(settings),
        mixes=_read_mixes(checkpoint),
        softmax=_read_softmax(checkpoint, config, vocabulary),
    )


def _map_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Map the names of HDF5 files to the variables of the network."""
    names: dict[str, str] = {}
    for name in checkpoint:
        if plain := _PLAIN.fullmatch(name):
            usual = plain[1]
        elif cell := _CELL.fullmatch(name):
            layer = f"{cell[1]}/RNN/MultiRNNCell/Cell{int(cell[2] or 0)}/LSTMCell"
            usual = f"{layer}/{_PARTS[cell[3]]}"
        else:
            continue
        if usual in names:
            raise WeightsError(f"{checkpoint.path}: has both {names[usual]} and {name}")
        names[usual] = name
    if not names:
        some = ", ".join(sorted(checkpoint)[:3]) or "nothing"
        raise WeightsError(f"{checkpoint.path}: has {some}, but no variables of an ELMo model")
    return names


@dataclass(frozen=True)
class _Variables:
    """The network's part of a checkpoint as a `table.Source`."""

    checkpoint: Checkpoint
    names: dict[str, str]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.checkpoint[self.names[name]]
        return tensor[1:] if self._has_mask_row(name) else tensor

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a shape without reading the tensor."""
        shape = self.checkpoint.shape(self.names[name])
        return (shape[0] - 1, *shape[1:]) if self._has_mask_row(name) else shape

    def _has_mask_row(self, name: str) -> bool:
        """Return whether bilm-tf has prepended a zero row to the 261 characters, for prediction."""
        shape = self.checkpoint.shape(self.names[name])
        return name == "char_embed" and shape[:1] == (ByteAlphabet.num_ids + 1,)


def _options_from_shapes(variables: _Variables) -> dict[str, Any]:
    """Return the options.json of a model without one."""
    cells = [f"RNN_0/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_0" for layer in range(100)]
    where = variables.checkpoint.path
    try:
        inputs, gates = variables.shape(cells[0])
        settings: dict[str, Any] = {
            "lstm": {
                "dim": gates // 4,
                "projection_dim": inputs // 2,
                "n_layers": sum(name in variables for name in cells),
                "cell_clip": 3,
                "proj_clip": 3,
                "use_skip_connections": True,
            }
        }
        if "embedding" in variables:
            return settings | {"n_tokens_vocab": variables.shape("embedding")[0]}
        return settings | {"char_cnn": _character_options(variables)}
    except (KeyError, ValueError, IndexError) as error:
        raise WeightsError(f"{where}: not all variables of an ELMo model ({error})") from error


def _character_options(variables: _Variables) -> dict[str, Any]:
    count = sum(name.startswith("CNN/W_cnn_") for name in variables)
    kernels = [variables.shape(f"CNN/W_cnn_{i}") for i in range(count)]  # (1, width, in, out)
    return {
        "activation": "relu",
        "embedding": {"dim": variables.shape("char_embed")[1]},
        "filters": [[kernel[1], kernel[3]] for kernel in kernels],
        "n_highway": sum(name.endswith("/W_carry") for name in variables),
        "max_characters_per_token": 50,
    }


def _prediction_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return options with 262 characters, which bilm-tf expects for prediction."""
    if not settings.get("char_cnn"):
        return settings
    characters = settings["char_cnn"] | {"n_characters": ByteAlphabet.num_ids + 1}
    return settings | {"char_cnn": characters}


def _read_mixes(checkpoint: Checkpoint) -> tuple[SavedMix, ...]:
    """Return the layer mix of a module; the average if it was not trained."""
    mix_names = [name for name in checkpoint if name.endswith(_MIX)]
    if len(mix_names) != len(_MIX):
        return ()
    tensors = {name: checkpoint[name] for name in sorted(mix_names)}
    for name, tensor in tensors.items():
        check_weights(tensor, f"{checkpoint.path}: {name}")
    scaling, weights = (tensor.flatten().tolist() for tensor in tensors.values())
    return (SavedMix(tuple(weights), scaling[0]),) if len(scaling) == 1 else ()


def _read_softmax(
    checkpoint: Checkpoint, config: BiLMConfig, vocabulary: Vocabulary | None
) -> Softmax | None:
    if not all(name in checkpoint for name in _SOFTMAX):
        return None
    if vocabulary is None:
        _log.warning(
            "%s: the softmax is ignored, because its vocabulary is unknown; pass the vocabulary",
            checkpoint.path,
        )
        return None
    weight, bias = (checkpoint[name] for name in _SOFTMAX)
    expected = (len(vocabulary), config.lstm.output_dim)
    if weight.shape != expected or bias.shape != expected[:1]:
        raise ConfigError(
            f"{checkpoint.path}: the softmax has shape {tuple(weight.shape)}, the vocabulary and "
            f"the network ask for {expected}; are they of the same model?"
        )
    for name, tensor in zip(_SOFTMAX, (weight, bias), strict=True):
        check_weights(tensor, f"{checkpoint.path}: {name}")
    with on_meta_device():
        softmax = Softmax(SoftmaxConfig(), *expected)
    softmax.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return softmax
