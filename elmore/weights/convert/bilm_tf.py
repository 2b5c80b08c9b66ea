"""The HDF5 weights of bilm-tf, AllenNLP and SeqVec, in both directions.

The datasets have the names of TensorFlow's variables, matrices are (in, out), the gates are in the
order input, candidate, forget, output, and a forget bias of 1 is added at run time.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import torch
from torch import Tensor

from elmore import atomic
from elmore.config import read_json
from elmore.errors import ConfigError, WeightsError
from elmore.model.config import BiLMConfig
from elmore.text.characters import ByteAlphabet, WordAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import options, table
from elmore.weights.convert.table import Rule

FILES = frozenset({"options.json", "weights.hdf5", "vocab.txt"})


def rules(config: BiLMConfig) -> list[Rule]:
    """Return the conversion table of a model."""
    rules = []
    if config.words:
        rules.append(Rule("embedding", ("tokens.words.weight",), table.same))
    if config.characters:
        rules.extend(
            _character_rules(config.characters.num_highways, len(config.characters.filters))
        )
    if config.projection:
        rules.append(Rule("CNN_proj/W_proj", ("tokens.projection.weight",), table.transposed))
        rules.append(Rule("CNN_proj/b_proj", ("tokens.projection.bias",), table.same))
    for number, direction in enumerate(("forward", "backward")):
        for layer in range(config.lstm.num_layers):
            theirs = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            ours = f"{direction}_layers.{layer}"
            both = (f"{ours}.input", f"{ours}.recurrent")
            rules.append(Rule(f"{theirs}/W_0", both, table.stacked_gates))
            rules.append(Rule(f"{theirs}/B", (f"{ours}.bias",), table.gates))
            if config.lstm.projection:
                rules.append(Rule(f"{theirs}/W_P_0", (f"{ours}.projection",), table.transposed))
    return rules


def _character_rules(num_highways: int, num_filters: int) -> Iterator[Rule]:
    yield Rule("char_embed", ("tokens.characters.embedding.weight",), table.same)
    for i in range(num_filters):
        ours = f"tokens.characters.convolutions.{i}"
        yield Rule(f"CNN/W_cnn_{i}", (f"{ours}.weight",), table.kernel)
        yield Rule(f"CNN/b_cnn_{i}", (f"{ours}.bias",), table.same)
    for i in range(num_highways):
        # bilm-tf calls the transform gate "carry".
        for theirs, part in (("transform", "transform"), ("carry", "gate")):
            ours = f"tokens.characters.highways.{i}.{part}"
            yield Rule(f"CNN_high_{i}/W_{theirs}", (f"{ours}.weight",), table.transposed)
            yield Rule(f"CNN_high_{i}/b_{theirs}", (f"{ours}.bias",), table.same)


@dataclass(frozen=True)
class _Datasets:
    """The datasets of an open HDF5 file as a `table.Source`."""

    path: Path
    tensors: dict[str, h5py.Dataset]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __getitem__(self, name: str) -> Tensor:
        dataset = self.tensors[name]
        if dataset.dtype.kind != "f":
            raise WeightsError(
                f"{self.path}: {name} has {dataset.dtype}, expected floating-point numbers"
            )
        with _explain_errors(self.path):
            return torch.from_numpy(dataset.astype("float32")[()])

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.tensors[name].shape
        if shape is None:  # a dataset without a dataspace
            raise WeightsError(f"{self.path}: {name} is empty, expected floating-point numbers")
        return tuple(shape)


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Convert the errors of h5py, which have no common class."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise WeightsError(
            f"{path}: not a readable HDF5 file ({error}); is the download complete?"
        ) from error


def _open(path: Path) -> tuple[h5py.File, _Datasets]:
    datasets: dict[str, h5py.Dataset] = {}

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            datasets[name] = item

    with _explain_errors(path):
        file = h5py.File(path, "r")
        try:
            file.visititems(keep)
        except BaseException:
            file.close()
            raise
        return file, _Datasets(path, datasets)


def read_bilm_tf(
    options_path: Path, weights_path: Path, vocabulary_path: Path | None = None
) -> Bundle:
    """Load published weights with their options; word-based models also need a vocabulary."""
    settings = read_json(options_path)
    config = options.to_config(settings, str(options_path))
    if vocabulary_path is None and config.words:
        vocabulary_path = find_vocabulary(weights_path)
    vocabulary = Vocabulary.read(vocabulary_path) if vocabulary_path else None
    alphabet = select_alphabet(config, vocabulary, str(options_path))
    file, datasets = _open(weights_path)
    with file:
        source = _with_standard_names(datasets)
        model = table.build_model(config, rules(config), source, str(weights_path))
    card = Card(source=f"bilm-tf HDF5: {options_path.name}, {weights_path.name}")
    return Bundle(model, alphabet, vocabulary, card, settings)


def find_vocabulary(weights: Path) -> Path | None:
    """Return the vocabulary file beside weights; None if there is none."""
    names = ("vocab.txt", "vocab.txt.gz", "vocabulary.txt")
    paths = [weights.with_name(name) for name in names]
    return next((path for path in paths if path.is_file()), None)


def select_alphabet(
    config: BiLMConfig, vocabulary: Vocabulary | None, where: str
) -> ByteAlphabet | WordAlphabet:
    """Return the alphabet of a model: bytes, or the words of its vocabulary."""
    if config.characters:
        return ByteAlphabet(config.characters.max_characters)
    assert config.words
    if vocabulary is None:
        raise ConfigError(
            f"{where}: this model has word embeddings; pass its vocabulary file, or "
            "save it beside the weights as vocab.txt"
        )
    if len(vocabulary) != config.words.num_words:
        raise ConfigError(
            f"{where}: the vocabulary has {len(vocabulary)} words, the options say "
            f"n_tokens_vocab {config.words.num_words}; is it the vocabulary of this model?"
        )
    return WordAlphabet(vocabulary)


def _with_standard_names(datasets: _Datasets) -> _Datasets:
    """Add the level that dumps of one-layer models omit."""
    renamed = {
        name.replace("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/"): dataset
        for name, dataset in datasets.tensors.items()
        if "softmax" not in name
    }
    return _Datasets(datasets.path, renamed)


def write_bilm_tf(bundle: Bundle, destination: Path, *, overwrite: bool = False) -> None:
    """Write options.json and weights.hdf5 (and vocab.txt).

    Raises:
        WeightsError: The format cannot express the model.
    """
    _check_expressible(bundle)
    settings = bundle.options
    if settings is None or options.to_config(settings, "options") != bundle.config:
        settings = options.from_config(bundle.config)
    replaces = FILES if overwrite else frozenset()
    with atomic.folder(destination, replaces=replaces, is_ours=_is_bilm_folder) as folder:
        (folder / "options.json").write_text(json.dumps(settings, indent=2) + "\n")
        (folder / "weights.hdf5").write_bytes(_write_hdf5(bundle).getbuffer())
        if bundle.vocabulary:
            bundle.vocabulary.write(folder / "vocab.txt")


def _is_bilm_folder(folder: Path) -> bool:
    """Return whether a folder may have been written by `write_bilm_tf`."""
    try:
        return "lstm" in read_json(folder / "options.json")
    except ConfigError:
        return False


def _write_hdf5(bundle: Bundle) -> io.BytesIO:
    """Write the file in memory, since on a full disk HDF5 cannot even close a file."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, tensor in table.foreign_tensors(bundle.model, rules(bundle.config)):
            file.create_dataset(name, data=tensor.float().numpy())
    return buffer


def _check_expressible(bundle: Bundle) -> None:
    config = bundle.config
    lstm, characters = config.lstm, config.characters
    filters = characters.num_filters if characters else lstm.output_dim
    problems = {
        "words and characters side by side": bool(config.words and characters),
        "an alphabet of its own": not isinstance(bundle.alphabet, ByteAlphabet | WordAlphabet),
        f"a forget bias of {lstm.forget_bias} (it is always 1 there)": lstm.forget_bias != 1,
        "a token projection between equal widths": config.projection and filters == lstm.output_dim,
        "an LSTM projection between equal widths": lstm.projection
        and lstm.cell_dim == lstm.output_dim,
    }
    for problem, present in problems.items():
        if present:
            raise WeightsError(
                f"the options.json + weights.hdf5 format cannot express {problem}; keep this model "
                "as an elmore folder"
            )
