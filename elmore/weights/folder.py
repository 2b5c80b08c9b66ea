"""The model folder: a config, the weights, a word list and a model card.

config.json
model.safetensors       the network and its warm state
softmax.safetensors     the softmax; without this file the model still embeds
vocabulary.txt
poolings.npz            learned ways to pool the vectors of a text
whitening.npz           a learned whitening of joined layers
README.md
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elmore import atomic, config, strict_json
from elmore.errors import ConfigError, DataError
from elmore.extras import require_torch
from elmore.model.config import BiLMConfig, CharCNNConfig
from elmore.model.saved_mix import SavedMix
from elmore.text.characters import Alphabet, ByteAlphabet, Lexicon, WordAlphabet
from elmore.text.vocabulary import ELMO_MARKS, MANY_LANGS_MARKS, Vocabulary
from elmore.weights import checksums
from elmore.weights.bundle import Bundle, Card
from elmore.weights.card import render_card
from elmore.weights.folder_config import (
    FORMAT,
    AlphabetConfig,
    FolderConfig,
    MixConfig,
    read_config,
)
from elmore.weights.folder_weights import SOFTMAX_FILE, read_weights, write_weights
from elmore.weights.pooling import RESERVED, TextPooling, read_poolings, write_poolings
from elmore.weights.whitening import CLOZE, Whitening

if TYPE_CHECKING:
    from elmore.weights.storage import Storage

POOLINGS = "poolings.npz"
WHITENING = "whitening.npz"
OPTIONAL_FILES = frozenset({SOFTMAX_FILE, "vocabulary.txt", POOLINGS, WHITENING})
"""Files with weights or words that a model may lack."""
FILES = frozenset({"config.json", "model.safetensors", "README.md"}) | OPTIONAL_FILES

_REPLACED = FILES | {checksums.record_path(Path(name)).name for name in FILES}
_POOLING_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


def looks_like_model(folder: Path) -> bool:
    """Return whether a folder has the files of a model folder."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def save(
    bundle: Bundle, destination: Path, *, overwrite: bool = False, storage: "Storage" = "float32"
) -> None:
    """Write a model folder atomically.

    Args:
        bundle: The model.
        destination: The folder.
        overwrite: Replace an existing model folder.
        storage: Precision of the weights in the file; the training section of the card names the
            two that round most, int8 and int6.

    Raises:
        ElmoreError: The folder exists and may not be replaced, or cannot be written.
    """
    require_torch("writing a model folder")
    bundle = replace(bundle, card=_record_storage(bundle.card, storage), lacks_softmax=False)
    settings = FolderConfig(
        format=FORMAT,
        model=bundle.config,
        alphabet=_alphabet_config(bundle.alphabet),
        card=bundle.card,
        mixes=tuple(MixConfig(**mix._asdict()) for mix in bundle.mixes),
        options=bundle.options,
        softmax=bundle.softmax.config if bundle.softmax else None,
        byte_counts=bundle.byte_counts,
    )
    replaces = _REPLACED if overwrite else frozenset()
    with atomic.folder(destination, replaces=replaces, is_ours=is_model_folder) as folder:
        encoded = strict_json.encode(config.as_dict(settings), indent=2)
        (folder / "config.json").write_bytes(encoded)
        write_weights(folder, bundle, storage, destination)
        if bundle.vocabulary:
            bundle.vocabulary.write(folder / "vocabulary.txt")
        if bundle.poolings:
            write_poolings(folder / POOLINGS, bundle.poolings)
        if bundle.whitening:
            bundle.whitening.save(folder / WHITENING)
        card = render_card(bundle, destination.name)
        (folder / "README.md").write_text(card, encoding="utf-8", errors="replace")


def _record_storage(card: Card, storage: "Storage") -> Card:
    """Name a storage that rounds the weights beside the scores, which may be from before."""
    if card.training is None or storage not in ("int8", "int6"):
        return card
    text = f"{storage}, a scale for each {'row' if storage == 'int8' else 'matrix'}"
    if str(card.training.get("storage", "")).startswith(text):  # it may say more
        return card
    return replace(card, training={**card.training, "storage": text})


def is_model_folder(folder: Path) -> bool:
    """Return whether `save` wrote a folder."""
    return config.has_format(folder / "config.json")


def _alphabet_config(alphabet: Alphabet) -> AlphabetConfig:
    if isinstance(alphabet, Lexicon):
        return AlphabetConfig(kind="lexicon", characters=alphabet.characters)
    return AlphabetConfig(kind="words" if isinstance(alphabet, WordAlphabet) else "bytes")


def load(folder: Path) -> Bundle:
    """Load a model folder; the weights are memory-mapped.

    A folder without softmax.safetensors gives a model without a softmax, which can embed.

    Raises:
        ElmoreError: A file is missing, damaged or of another model.
    """
    settings = read_config(folder / "config.json")
    # The vocabulary of a lexicon has its own marks; that of a softmax trained later has ELMo's.
    of_lexicon = settings.alphabet.kind == "lexicon" and settings.model.words is not None
    marks = MANY_LANGS_MARKS if of_lexicon else ELMO_MARKS
    path = folder / "vocabulary.txt"
    vocabulary = Vocabulary.read(path, marks) if path.is_file() else None
    alphabet = _build_alphabet(settings, vocabulary, folder)
    model, softmax, warm_state = read_weights(folder, settings, vocabulary)
    path = folder / POOLINGS
    poolings = read_poolings(path) if os.path.lexists(path) else {}  # a broken link is refused
    for name, pooling in poolings.items():
        _check_pooling(name, pooling, settings.model, path)
    path = folder / WHITENING
    whitening = Whitening.load(path) if os.path.lexists(path) else None
    if whitening is not None:
        _check_whitening(whitening, settings.model, path)
    return Bundle(
        model,
        alphabet,
        vocabulary,
        settings.card,
        settings.options,
        warm_state,
        tuple(SavedMix(mix.weights, mix.gamma, mix.layer_norm) for mix in settings.mixes),
        softmax,
        settings.byte_counts,
        lacks_softmax=settings.softmax is not None and softmax is None,
        poolings=poolings,
        whitening=whitening,
    )


def add_pooling(folder: Path, name: str, pooling: TextPooling) -> None:
    """Add a named pooling to a model folder, or replace it; no other file of the model changes.

    Args:
        folder: A model folder.
        name: Its name in `Embedder.encode(pool=...)`. The first name of a folder is the default.
        pooling: The pooling.

    Raises:
        ConfigError: The name has another meaning, or is not a plain word.
        DataError: The pooling does not fit the model, or the file cannot be written.
    """
    _check_pooling(name, pooling, read_config(folder / "config.json").model, folder)
    path = folder / POOLINGS
    present = read_poolings(path) if path.exists() else {}
    write_poolings(path, present | {name: pooling})
    _record_checksum(folder, path)


def add_whitening(folder: Path, whitening: Whitening) -> None:
    """Add a whitening to a model folder, or replace it; no other file of the model changes.

    Args:
        folder: A model folder.
        whitening: The whitening.

    Raises:
        DataError: The whitening does not fit the model, or the file cannot be written.
    """
    path = folder / WHITENING
    _check_whitening(whitening, read_config(folder / "config.json").model, path)
    whitening.save(path)
    _record_checksum(folder, path)


def _record_checksum(folder: Path, path: Path) -> None:
    """Record the checksum of a new file if those of the model are recorded."""
    if checksums.read_record(folder / "model.safetensors"):
        checksums.write_record(path, checksums.file_sha256(path))


def _check_whitening(whitening: Whitening, model: BiLMConfig, where: Path) -> None:
    numbers = [int(name) for name in whitening.layers if name != CLOZE]
    expected = (model.width, model.width * len(whitening.layers))
    if max(numbers, default=0) >= model.num_layers or whitening.projection.shape != expected:
        raise DataError(
            f"{where}: a whitening of layers {', '.join(whitening.layers)} with a projection of "
            f"{whitening.projection.shape}, the model has layers 0 to {model.num_layers - 1} of "
            f"width {model.width}; learn one with this model"
        )


def _check_pooling(name: str, pooling: TextPooling, model: BiLMConfig, where: Path) -> None:
    if name in RESERVED or not _POOLING_NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: pooling name {name[:50]!r}: expected letters, digits, '-' and '_', and none "
            f"of {', '.join(RESERVED)}"
        )
    width = model.width * (model.num_layers if pooling.all_layers else 1)
    if len(pooling.mean) != width:
        raise DataError(
            f"{where}: this pooling takes vectors of width {len(pooling.mean)}, those of the "
            f"model have {width}; learn one with this model"
        )


def _build_alphabet(
    settings: FolderConfig, vocabulary: Vocabulary | None, folder: Path
) -> Alphabet:
    kind, lexicon = settings.alphabet.kind, settings.alphabet.characters
    characters, words = settings.model.characters, settings.model.words
    fits = {
        "bytes": words is None
        and _character_ids(characters) == (ByteAlphabet.num_ids, ByteAlphabet.padding),
        "words": words is not None and characters is None,
        "lexicon": _character_ids(characters) == _lexicon_ids(lexicon),
    }
    if not fits[kind]:
        raise ConfigError(
            f"{folder / 'config.json'}: alphabet {kind!r} does not fit model.characters and "
            "model.words; is one of them of another model?"
        )
    if words and len(vocabulary or ()) != words.num_words:
        raise DataError(
            f"{folder / 'vocabulary.txt'}: has {len(vocabulary or ())} words, config.json says "
            f"{words.num_words}"
        )
    if kind == "words" and vocabulary:
        return WordAlphabet(vocabulary)
    width = characters.max_characters if characters else ByteAlphabet().max_characters
    if kind == "bytes":
        return ByteAlphabet(width)
    try:
        return Lexicon(lexicon, vocabulary if words else None, width)
    except DataError as error:
        raise DataError(f"{folder / 'config.json'}: {error}") from error


def _character_ids(characters: CharCNNConfig | None) -> tuple[int, int] | None:
    return (characters.num_ids, characters.padding_id) if characters else None


def _lexicon_ids(lexicon: tuple[str, ...] | None) -> tuple[int, int] | None:
    pad = "<pad>"
    return (len(lexicon), lexicon.index(pad) if pad in lexicon else -1) if lexicon else None
