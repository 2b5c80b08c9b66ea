"""ELMoForManyLangs: a folder of two state_dicts, two lexicons and two configurations.

Words and characters side by side; the recurrent half is AllenNLP's, its forget bias in the bias.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from elmore.errors import ConfigError, DataError
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.text.characters import Lexicon
from elmore.text.vocabulary import MANY_LANGS_MARKS, Vocabulary
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import allennlp, options, pickles, table
from elmore.weights.convert.table import Rule, Tensors


def is_one(folder: Path) -> bool:
    """Tell whether a folder looks like one of theirs."""
    return all((folder / name).is_file() for name in ("token_embedder.pkl", "encoder.pkl"))


def rules(config: BiLMConfig) -> list[Rule]:
    """Give the table of one model."""
    found = []
    if config.words:
        ours = "tokens.words.weight"
        found.append(Rule("word_emb_layer.embedding.weight", (ours,), table.same))
    if config.characters:
        ours = "tokens.characters.embedding.weight"
        found.append(Rule("char_emb_layer.embedding.weight", (ours,), table.same))
        for i in range(len(config.characters.filters)):
            for part in ("weight", "bias"):
                ours = f"tokens.characters.convolutions.{i}.{part}"
                found.append(Rule(f"convolutions.{i}.{part}", (ours,), table.same))
        found += allennlp.highway_rules("highways._layers", config.characters.num_highways)
    for part in ("weight", "bias"):
        found.append(Rule(f"projection.{part}", (f"tokens.projection.{part}",), table.same))
    return found + allennlp.lstm_rules("", config.lstm.num_layers)


def read(folder: Path) -> Bundle:
    """Load one of their folders."""
    settings_path = _settings_path(folder)
    settings = options.read_json(settings_path)
    try:
        sizes = settings["token_embedder"]
        words = _dictionary(folder / "word.dic") if sizes["word_dim"] > 0 else None
        characters = _dictionary(folder / "char.dic") if sizes["char_dim"] > 0 else None
        config = _config(settings, words, characters)
        width = sizes["max_characters_per_token"]
    except KeyError as error:
        raise ConfigError(
            f"{settings_path}: key {error} is missing; expected a configuration of ELMoForManyLangs"
        ) from error
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"{settings_path}: {error}") from error
    try:
        vocabulary = Vocabulary(words, MANY_LANGS_MARKS) if words else None
        alphabet = Lexicon(characters, vocabulary, width)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from error
    tensors = pickles.read(folder / "token_embedder.pkl") | pickles.read(folder / "encoder.pkl")
    model = table.read(config, rules(config), Tensors(tensors), str(folder))
    card = Card(source=f"ELMoForManyLangs folder: {folder.name}", licence="MIT")
    return Bundle(model, alphabet, vocabulary, card)


def _settings_path(folder: Path) -> Path:
    """Find the configuration: it is named by a path on its authors' machine."""
    named = options.read_json(folder / "config.json").get("config_path", "")
    path = folder / PurePosixPath(str(named).replace("\\", "/")).name
    if path.is_file():
        return path
    raise ConfigError(
        f"{folder / 'config.json'}: config_path is {named!r}, and {path.name!r} is not beside it; "
        "copy that file (it comes with ELMoForManyLangs) into the folder"
    )


def _config(
    settings: Mapping[str, Any], words: tuple[str, ...] | None, letters: tuple[str, ...] | None
) -> BiLMConfig:
    tokens, encoder = settings["token_embedder"], settings["encoder"]
    for section, name in ((tokens, "cnn"), (encoder, "elmo")):
        if section["name"].lower() != name:
            raise ConfigError(f"only {name!r} is known here, found {section['name']!r}")
    return BiLMConfig(
        characters=_characters(tokens, letters) if letters else None,
        words=WordsConfig(num_words=len(words), dim=tokens["word_dim"]) if words else None,
        lstm=LSTMConfig(
            num_layers=encoder["n_layers"],
            cell_dim=encoder["dim"],
            output_dim=encoder["projection_dim"],
            cell_clip=float(encoder["cell_clip"]) or None,
            output_clip=float(encoder["proj_clip"]) or None,
            forget_bias=0.0,
        ),
        dropout=float(settings.get("dropout", 0.0)),
    )


def _characters(tokens: Mapping[str, Any], letters: tuple[str, ...]) -> CharCNNConfig:
    return CharCNNConfig(
        num_ids=len(letters),
        padding_id=letters.index("<pad>") if "<pad>" in letters else 0,
        max_characters=tokens["max_characters_per_token"],
        embedding_dim=tokens["char_dim"],
        filters=tuple((int(width), int(count)) for width, count in tokens["filters"]),
        activation=tokens["activation"],
        num_highways=tokens["n_highway"],
    )


_SPACE = "\u3000"


def _dictionary(path: Path) -> tuple[str, ...]:
    """Read `entry <tab> id` lines as their package does: an entry of white space is U+3000."""
    entries: dict[int, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable lexicon ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        *entry, place = line.strip().split("\t")
        if len(entry) > 1 or not place.isdecimal() or int(place) in entries:
            raise DataError(
                f"{path}: line {number} is {line!r}, expected an entry, a tab and a new id"
            )
        entries[int(place)] = entry[0] if entry else _SPACE
    if sorted(entries) != list(range(len(entries))):
        raise DataError(f"{path}: the ids must run from 0 to {len(entries) - 1} without a gap")
    return _distinct([entries[i] for i in range(len(entries))])


def _distinct(entries: list[str]) -> tuple[str, ...]:
    """Where several entries were read as one white space, the last holds it, as in their dict."""
    last = {entry: i for i, entry in enumerate(entries)}
    return tuple(
        f"<unreadable {i}>" if entry == _SPACE and last[entry] != i else entry
        for i, entry in enumerate(entries)
    )
