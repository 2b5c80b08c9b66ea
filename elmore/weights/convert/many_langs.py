"""ELMoForManyLangs: a folder of two state_dicts, two lexicons and two configurations.

It encodes words and characters; the LSTMs are AllenNLP's, and the bias includes the forget bias.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from elmore.config import build, read_json
from elmore.errors import ConfigError, DataError
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.numbers import parse_uint
from elmore.text.characters import Lexicon
from elmore.text.vocabulary import MANY_LANGS_MARKS, Vocabulary
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import allennlp, pickles, table
from elmore.weights.convert.table import Rule, Tensors


def rules(config: BiLMConfig) -> list[Rule]:
    """Return the conversion table of a model."""
    rules = []
    if config.words:
        ours = "tokens.words.weight"
        rules.append(Rule("word_emb_layer.embedding.weight", (ours,), table.same))
    if config.characters:
        ours = "tokens.characters.embedding.weight"
        rules.append(Rule("char_emb_layer.embedding.weight", (ours,), table.same))
        for i in range(len(config.characters.filters)):
            for part in ("weight", "bias"):
                ours = f"tokens.characters.convolutions.{i}.{part}"
                rules.append(Rule(f"convolutions.{i}.{part}", (ours,), table.same))
        rules += allennlp.highway_rules("highways._layers", config.characters.num_highways)
    for part in ("weight", "bias"):
        rules.append(Rule(f"projection.{part}", (f"tokens.projection.{part}",), table.same))
    return rules + allennlp.lstm_rules("", config.lstm.num_layers)


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """The section "encoder"."""

    name: str
    dim: int
    projection_dim: int
    n_layers: int
    cell_clip: float
    proj_clip: float


@dataclass(frozen=True, kw_only=True)
class TokenOptions:
    """The section "token_embedder"; a width of 0 means that the model has none."""

    name: str
    word_dim: int
    char_dim: int
    filters: tuple[tuple[int, int], ...]
    activation: Literal["relu", "tanh"]
    n_highway: int
    max_characters_per_token: int = 50


@dataclass(frozen=True, kw_only=True)
class Options:
    """The part of the configuration that defines the network."""

    encoder: EncoderOptions
    token_embedder: TokenOptions
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for found, known in ((self.token_embedder.name, "cnn"), (self.encoder.name, "elmo")):
            if found.lower() != known:
                raise ConfigError(f"only {known!r} is supported, found {found!r}")


def read_many_langs(folder: Path) -> Bundle:
    """Load a model folder of ELMoForManyLangs."""
    path = _settings_path(folder)
    options = build(Options, read_json(path), str(path), unknown="ignore")
    tokens = options.token_embedder
    words = _dictionary(folder / "word.dic") if tokens.word_dim > 0 else None
    characters = _dictionary(folder / "char.dic") if tokens.char_dim > 0 else None
    try:
        config = _config(options, words, characters)
        vocabulary = Vocabulary(words, MANY_LANGS_MARKS) if words else None
        alphabet = Lexicon(characters, vocabulary, tokens.max_characters_per_token)
    except (ConfigError, DataError) as error:
        raise type(error)(f"{folder}: {error}") from error
    tensors = pickles.read_state_dict(folder / "token_embedder.pkl") | pickles.read_state_dict(
        folder / "encoder.pkl"
    )
    model = table.build_model(config, rules(config), Tensors(tensors), str(folder))
    card = Card(source=f"ELMoForManyLangs folder: {folder.name}")
    return Bundle(model, alphabet, vocabulary, card)


def _settings_path(folder: Path) -> Path:
    """Return the path of the configuration; config.json has its path on the authors' machine."""
    named = read_json(folder / "config.json").get("config_path")
    name = PurePosixPath(str(named).replace("\\", "/")).name
    if name in {path.name for path in folder.iterdir() if path.is_file()}:
        return folder / name
    raise ConfigError(
        f"{folder / 'config.json'}: config_path is {named!r}, but there is no such file beside it; "
        "copy the file (it comes with ELMoForManyLangs) into the folder"
    )


def _config(
    options: Options, words: tuple[str, ...] | None, letters: tuple[str, ...] | None
) -> BiLMConfig:
    tokens, encoder = options.token_embedder, options.encoder
    return BiLMConfig(
        characters=_characters(tokens, letters) if letters else None,
        words=WordsConfig(num_words=len(words), dim=tokens.word_dim) if words else None,
        lstm=LSTMConfig(
            num_layers=encoder.n_layers,
            cell_dim=encoder.dim,
            output_dim=encoder.projection_dim,
            cell_clip=encoder.cell_clip or None,
            output_clip=encoder.proj_clip or None,
            forget_bias=0.0,
        ),
        dropout=options.dropout,
    )


def _characters(tokens: TokenOptions, letters: tuple[str, ...]) -> CharCNNConfig:
    return CharCNNConfig(
        num_ids=len(letters),
        padding_id=letters.index("<pad>") if "<pad>" in letters else 0,
        max_characters=tokens.max_characters_per_token,
        embedding_dim=tokens.char_dim,
        filters=tokens.filters,
        activation=tokens.activation,
        num_highways=tokens.n_highway,
    )


_SPACE = "\u3000"


def _dictionary(path: Path) -> tuple[str, ...]:
    """Read `entry <tab> id` lines as ELMoForManyLangs does: a whitespace entry is U+3000."""
    entries: dict[int, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable lexicon ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        *entry, last = line.strip().split("\t")
        id = parse_uint(last)
        if len(entry) > 1 or id is None or id in entries:
            raise DataError(
                f"{path}: line {number} is {line[:80]!r}, expected an entry, a tab and a new id"
            )
        entries[id] = entry[0] if entry else _SPACE
    if sorted(entries) != list(range(len(entries))):
        raise DataError(f"{path}: the ids must run from 0 to {len(entries) - 1} without a gap")
    return _distinct([entries[i] for i in range(len(entries))])


def _distinct(entries: list[str]) -> tuple[str, ...]:
    """Return entries by id; of entries that are equal after stripping, the last one wins."""
    last = {entry: i for i, entry in enumerate(entries)}
    return tuple(
        entry if last[entry] == i else f"<unreadable {i}>" for i, entry in enumerate(entries)
    )
