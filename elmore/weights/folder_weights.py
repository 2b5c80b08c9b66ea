"""The weights of a model folder: the network, its warm state and its softmax, in two files.

`storage.py` writes a file and `tensor_file.py` reads it; here is which tensors it has. Formats 1 to
3 have the softmax in model.safetensors.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from elmore.errors import DataError, WeightsError
from elmore.extras import has_torch
from elmore.model import weight_shapes
from elmore.model.bilm_arrays import BiLMArrays, SoftmaxArrays
from elmore.model.config import SoftmaxConfig
from elmore.model.native_bilm import Arrays
from elmore.model.state import BiLMState
from elmore.text.vocabulary import Vocabulary
from elmore.weights import tensor_file
from elmore.weights.bundle import Bundle
from elmore.weights.folder_config import FolderConfig

if TYPE_CHECKING:
    from elmore.weights.storage import Storage

SOFTMAX_FILE = "softmax.safetensors"

_WARM = "warm_state."  # prefix of the tensors of the warm state
_SOFTMAX = "softmax."  # prefix of the tensors of the softmax
_FIRST_WITH_SOFTMAX_FILE = 4  # earlier formats have the softmax in model.safetensors


def write_weights(folder: Path, bundle: Bundle, storage: "Storage", destination: Path) -> None:
    """Write the weights of a model; `destination` is the path that an error names."""
    from elmore.weights import storage as stored

    tensors = bundle.model.state_dict()
    if bundle.warm_state is not None:
        for name, tensor in bundle.warm_state._asdict().items():
            tensors[_WARM + name] = tensor
    stored.write(folder / "model.safetensors", tensors, storage, destination)
    if bundle.softmax:
        softmax = bundle.softmax.state_dict()
        softmax = {_SOFTMAX + name: tensor for name, tensor in softmax.items()}
        bits = _packed_bits(bundle.softmax.config, bundle.softmax.num_words)
        stored.write(folder / SOFTMAX_FILE, softmax, storage, destination, bits)


def read_weights(
    folder: Path, settings: FolderConfig, vocabulary: Vocabulary | None
) -> tuple[Any, Any, BiLMState | None]:
    """Return network, softmax and warm state: of torch where it is installed, else arrays.

    The softmax and the warm state are None if the folder has none.

    Raises:
        ElmoreError: A file is missing, damaged or of another model.
    """
    shapes = _softmax_shapes(settings, vocabulary, folder)
    num_words = len(vocabulary or ())
    bits = _packed_bits(settings.softmax, num_words) if settings.softmax and shapes else {}
    weights = _read_arrays(settings, shapes, bits, folder)
    return _build_modules(settings, weights, num_words)


def _packed_bits(softmax: SoftmaxConfig, num_words: int) -> dict[str, int]:
    """Return the tensors of the file of a softmax that are packed, with the bits of a number."""
    matrices = weight_shapes.packed_matrices(softmax, num_words)
    return {_SOFTMAX + name: bits for name, bits in matrices.items()}


def _softmax_shapes(
    settings: FolderConfig, vocabulary: Vocabulary | None, folder: Path
) -> weight_shapes.Shapes | None:
    """Return the shapes of the softmax; None if the model or the folder has none."""
    has_file = os.path.lexists(folder / SOFTMAX_FILE)  # a broken link is refused
    expects_file = settings.softmax is not None and settings.format >= _FIRST_WITH_SOFTMAX_FILE
    if has_file and not expects_file:
        raise WeightsError(
            f"{folder / SOFTMAX_FILE}: config.json describes no such file; are they of the same "
            "model?"
        )
    if settings.softmax is None or has_file != expects_file:
        return None
    if vocabulary is None:
        raise DataError(f"{folder}: config.json has a softmax, but vocabulary.txt is missing")
    dim = settings.model.lstm.output_dim
    weight_shapes.check_softmax(settings.softmax, len(vocabulary), dim)
    return weight_shapes.softmax_shapes(settings.softmax, len(vocabulary), dim)


class _Weights(NamedTuple):
    """Arrays by name; a softmax or a warm state that the folder lacks is empty."""

    network: Arrays
    softmax: Arrays
    warm_state: Arrays


def _read_arrays(
    settings: FolderConfig,
    softmax: weight_shapes.Shapes | None,
    bits: Mapping[str, int],
    folder: Path,
) -> _Weights:
    network = weight_shapes.bilm_shapes(settings.model)
    softmax = {_SOFTMAX + name: shape for name, shape in (softmax or {}).items()}
    warm = weight_shapes.state_shapes(settings.model.lstm)
    may_be_int8 = weight_shapes.lstm_matrices(settings.model)
    if not has_torch():  # the softmax of torch has no int8 weights
        may_be_int8 |= softmax.keys()
    one_file = settings.format < _FIRST_WITH_SOFTMAX_FILE
    arrays = tensor_file.read(
        folder / "model.safetensors",
        network | softmax if one_file else network,
        {_WARM + name: shape for name, shape in warm.items()},
        may_be_int8,
    )
    if softmax and not one_file:
        arrays |= tensor_file.read(folder / SOFTMAX_FILE, softmax, matrices=may_be_int8, bits=bits)
    of_network = {name: arrays[name] for name in network}
    return _Weights(of_network, _with_prefix(arrays, _SOFTMAX), _with_prefix(arrays, _WARM))


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _build_modules(
    settings: FolderConfig, weights: _Weights, num_words: int
) -> tuple[Any, Any, BiLMState | None]:
    model, spec = settings.model, settings.softmax if weights.softmax else None
    state = BiLMState(**weights.warm_state) if weights.warm_state else None
    if not has_torch():
        softmax = spec and SoftmaxArrays(spec, num_words, weights.softmax)
        return BiLMArrays(model, weights.network), softmax, state
    from elmore.weights import modules

    dim, network = model.lstm.output_dim, modules.bilm_from_arrays(model, weights.network)
    softmax = spec and modules.softmax_from_arrays(spec, num_words, dim, weights.softmax)
    return network, softmax, modules.state_from_arrays(state)
