"""Checkpoints of TensorFlow with an ELMo in them: bilm-tf's training, and Google's TF-Hub modules.

Both hold what the HDF5 files hold, under TensorFlow's newer names: read here, those become the
names of the HDF5 files. Beside it, a training run holds its softmax (and what its optimiser knew,
which is left alone), a module the mix of its layers.
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
from elmore.model.mix import SavedMix
from elmore.model.softmax import Softmax, SoftmaxConfig
from elmore.text.characters import ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle, Card, check_weights, without_memory
from elmore.weights.convert import bilm_tf, options, table, tensor_bundle
from elmore.weights.convert.tensor_bundle import Checkpoint

_log = logging.getLogger(__name__)

INDEX = ".index"
_MODULE = "variables/variables.index"

_SCOPE = r"(?:.*/)?(?:lm|bilm)/"
_PLAIN = re.compile(_SCOPE + r"(char_embed|embedding|CNN(?:_proj|_high_\d+)?/[Wb]_\w+)")
_CELL = re.compile(
    _SCOPE + r"(RNN_[01])/(?:(?:.*/)?(?:cell_|Cell)(\d+)/)?(?:.*/)?lstm_cell/"
    r"(kernel|bias|projection/kernel)"
)
_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
_SOFTMAX = ("lm/softmax/W", "lm/softmax/b")
_MIX = ("aggregation/weights", "aggregation/scaling")


def is_module(folder: Path) -> bool:
    """Tell whether a folder looks like a module of TF-Hub."""
    return (folder / _MODULE).is_file()


def in_folder(folder: Path) -> Path | None:
    """Find the index of a module, or of a training run's last checkpoint."""
    if is_module(folder):
        return folder / _MODULE
    found = sorted(folder.glob(f"*{INDEX}"))
    listing = folder / "checkpoint"
    if len(found) > 1 and listing.is_file():  # their list of checkpoints, the last one first
        text = listing.read_text(encoding="utf-8", errors="replace")
        last = re.match(r'model_checkpoint_path: "(?:.*/)?([^/"]+)"', text)
        found = [path for path in found if last and path.stem == last[1]] or found
    if len(found) > 1:
        raise WeightsError(
            f"{folder}: found {len(found)} checkpoints, {found[0].name} among them; pass the one "
            "you want"
        )
    return found[0] if found else None


def files(index: Path) -> list[Path]:
    """Give all files of a checkpoint."""
    return tensor_bundle.open_index(index).files


def read(
    index: Path, options_path: Path | None = None, vocabulary_path: Path | None = None
) -> Bundle:
    """Load a checkpoint; without options.json, what shapes cannot tell is the original's.

    The softmax of a training run comes along where its vocabulary is here.
    """
    checkpoint = tensor_bundle.open_index(index)
    variables = _Variables(checkpoint, _names(checkpoint))
    if options_path:
        settings, where = read_json(options_path), str(options_path)
    else:
        settings, where = _from_shapes(variables), str(index)
        _log.info("%s: no options.json given, so clips and activation are the original's", index)
    config = options.to_config(settings, where)
    vocabulary_path = vocabulary_path or bilm_tf.vocabulary_beside(index)
    vocabulary = Vocabulary.read(vocabulary_path) if vocabulary_path else None
    return Bundle(
        table.read(config, bilm_tf.rules(config), variables, str(index)),
        bilm_tf.alphabet_of(config, vocabulary, where),
        vocabulary,
        Card(source=f"TensorFlow checkpoint: {index.parent.name}/{index.stem}"),
        _for_prediction(settings),
        mixes=_mixes(checkpoint),
        softmax=_softmax(checkpoint, config, vocabulary),
    )


def _names(checkpoint: Checkpoint) -> dict[str, str]:
    """Give the variables of the network by the names they have in HDF5 files."""
    found: dict[str, str] = {}
    for name in checkpoint:
        if plain := _PLAIN.fullmatch(name):
            usual = plain[1]
        elif cell := _CELL.fullmatch(name):
            layer = f"{cell[1]}/RNN/MultiRNNCell/Cell{int(cell[2] or 0)}/LSTMCell"
            usual = f"{layer}/{_PARTS[cell[3]]}"
        else:
            continue
        if usual in found:
            raise WeightsError(f"{checkpoint.path}: holds both {found[usual]} and {name}")
        found[usual] = name
    if not found:
        some = ", ".join(sorted(checkpoint)[:3]) or "nothing"
        raise WeightsError(f"{checkpoint.path}: holds {some}, no variables of an ELMo model")
    return found


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
        """Give a shape without reading the tensor."""
        shape = self.checkpoint.shape(self.names[name])
        return (shape[0] - 1, *shape[1:]) if self._has_mask_row(name) else shape

    def _has_mask_row(self, name: str) -> bool:
        """For prediction bilm-tf puts a row of zeros before the characters: 262 instead of 261."""
        shape = self.checkpoint.shape(self.names[name])
        return name == "char_embed" and shape[:1] == (ByteAlphabet.num_ids + 1,)


def _from_shapes(variables: _Variables) -> dict[str, Any]:
    """Write the options.json of a model that comes without."""
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
        return settings | {"char_cnn": _characters(variables)}
    except (KeyError, ValueError, IndexError) as error:
        raise WeightsError(f"{where}: not all variables of an ELMo model ({error})") from error


def _characters(variables: _Variables) -> dict[str, Any]:
    count = sum(name.startswith("CNN/W_cnn_") for name in variables)
    kernels = [variables.shape(f"CNN/W_cnn_{i}") for i in range(count)]  # (1, width, in, out)
    return {
        "activation": "relu",
        "embedding": {"dim": variables.shape("char_embed")[1]},
        "filters": [[kernel[1], kernel[3]] for kernel in kernels],
        "n_highway": sum(name.endswith("/W_carry") for name in variables),
        "max_characters_per_token": 50,
    }


def _for_prediction(settings: dict[str, Any]) -> dict[str, Any]:
    """Say what bilm-tf's own readers want to hear of dumped weights: 262, not the 261 it trains."""
    if not settings.get("char_cnn"):
        return settings
    characters = settings["char_cnn"] | {"n_characters": ByteAlphabet.num_ids + 1}
    return settings | {"char_cnn": characters}


def _mixes(checkpoint: Checkpoint) -> tuple[SavedMix, ...]:
    """Give the mix of a module, trained or as it came: the plain average."""
    found = [name for name in checkpoint if name.endswith(_MIX)]
    if len(found) != len(_MIX):
        return ()
    scaling, weights = (checkpoint[name].flatten().tolist() for name in sorted(found))
    return (SavedMix(tuple(weights), scaling[0]),) if len(scaling) == 1 else ()


def _softmax(
    checkpoint: Checkpoint, config: BiLMConfig, vocabulary: Vocabulary | None
) -> Softmax | None:
    if not all(name in checkpoint for name in _SOFTMAX):
        return None
    if vocabulary is None:
        _log.warning(
            "%s: its softmax is left out, because its words are not known; pass the vocabulary",
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
    with without_memory():
        softmax = Softmax(SoftmaxConfig(), *expected)
    softmax.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return softmax
