"""ElmoTokenizer: strings or words to the ids of their letters, with the manners of transformers.

A word is a row of ids (see `spelling`), of the same width everywhere, so that words, sentences and
batches stack as they are. There are no special tokens: position t is word t.

Shapes: B texts, T words, C ids per word.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from elmore.embed.tokenized import Text, tokenize_text
from elmore.errors import ConfigError, DataError
from elmore.integrations.huggingface import spelling
from elmore.integrations.huggingface.conversion import Source, opened
from elmore.integrations.huggingface.words import Words
from elmore.text.characters import ByteAlphabet, Lexicon, WordAlphabet
from elmore.text.tokenizers import penn, whitespace
from elmore.text.vocabulary import ELMO_MARKS, MANY_LANGS_MARKS, Vocabulary

_SPLITTERS = {"penn": penn, "whitespace": whitespace}


class ElmoTokenizer(PreTrainedTokenizerBase):
    """Splits strings as `elmore.load` does, takes words as they are, and spells both.

    `kind` is "bytes" for ELMo's own alphabet, "words" for a model with a vocabulary alone,
    "lexicon" for ELMoForManyLangs, with its `characters`; `splitter` is "penn" or "whitespace".
    """

    vocab_files_names = {"vocabulary_file": "vocabulary.txt"}  # noqa: RUF012 -- theirs
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 -- theirs
    is_fast = True
    """In their sense: offsets and word ids are to be had."""

    def __init__(
        self,
        vocabulary_file: str | None = None,
        *,
        kind: Literal["bytes", "words", "lexicon"] = "bytes",
        characters: Sequence[str] | None = None,
        max_characters: int = 50,
        splitter: Literal["penn", "whitespace"] = "penn",
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,  # whatever transformers knows
    ) -> None:
        if splitter not in _SPLITTERS:
            raise ConfigError(f"splitter must be 'penn' or 'whitespace', found {splitter!r}")
        if kwargs.get("padding_side", "right") != "right":
            raise ConfigError("padding_side must be 'right': a biLM reads words from the first on")
        if vocabulary_file is not None and vocabulary is None and kind != "bytes":
            marks = MANY_LANGS_MARKS if kind == "lexicon" else ELMO_MARKS
            vocabulary = Vocabulary.read(Path(vocabulary_file), marks)
        letters = list(characters) if characters else None
        self.vocabulary = vocabulary
        self.alphabet = spelling.build(kind, letters, max_characters, vocabulary)
        self.splitter = splitter
        saved = {"kind": kind, "max_characters": max_characters, "splitter": splitter}
        super().__init__(**saved, characters=letters, **({"pad_token": "<pad>"} | kwargs))

    @classmethod
    def from_elmore(cls, *sources: Source, **settings: Any) -> Self:
        """Take the alphabet of a model of elmore's; without a name, of the bundled one."""
        alphabet = opened(*sources).alphabet
        if isinstance(alphabet, ByteAlphabet):
            return cls(max_characters=alphabet.max_characters, **settings)
        if isinstance(alphabet, WordAlphabet):
            return cls(kind="words", vocabulary=alphabet.vocabulary, **settings)
        assert isinstance(alphabet, Lexicon)
        return cls(
            kind="lexicon",
            characters=alphabet.characters,
            max_characters=alphabet.max_characters,
            vocabulary=alphabet.vocabulary,
            **settings,
        )

    def _encode_plus(
        self,
        text: Text | Sequence[Text],
        text_pair: object = None,
        *,
        padding_strategy: Any,  # an enumeration of theirs
        truncation_strategy: Any,  # likewise
        max_length: int | None = None,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        return_overflowing_tokens: bool = False,
        **returned: Any,  # return_offsets_mapping and the like
    ) -> BatchEncoding:
        if text_pair is not None:
            raise DataError("ELMo knows no pairs of texts; encode each on its own")
        if return_overflowing_tokens:
            raise DataError("no words overflow: ELMo reads texts of any length")
        is_one = _is_one(text, is_split_into_words)
        cut = None if truncation_strategy.value == "do_not_truncate" else max_length
        texts = [cast("Text", text)] if is_one else text
        found = [self._words(each, cut) for each in texts]
        data = self._columns(found, returned)
        if padding_strategy.value != "do_not_pad":
            longest = padding_strategy.value == "longest"
            data = self._padded(data, None if longest else max_length, pad_to_multiple_of)
            found = [
                words.padded(len(rows), str(self.pad_token))
                for words, rows in zip(found, data["input_ids"], strict=True)
            ]
        if is_one and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return self._encoding(data, return_tensors, found)

    def pad(
        self,
        encoded_inputs: Any,  # a batch, as a list of texts or a dict of columns
        padding: Any = True,  # as theirs
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Add words that are not there, so that a batch can be stacked: what collators call."""
        if not isinstance(encoded_inputs, Mapping):
            keys = encoded_inputs[0] if encoded_inputs else ("input_ids",)
            encoded_inputs = {key: [each[key] for each in encoded_inputs] for key in keys}
        data = {key: [_listed(each) for each in column] for key, column in encoded_inputs.items()}
        strategy, _, max_length, _ = self._get_padding_truncation_strategies(
            padding, max_length=max_length, verbose=False
        )
        if return_attention_mask is not False:
            data.setdefault("attention_mask", [[1] * len(rows) for rows in data["input_ids"]])
        if strategy.value != "do_not_pad":
            longest = strategy.value == "longest"
            data = self._padded(data, None if longest else max_length, pad_to_multiple_of)
        return self._encoding(data, return_tensors)

    def _words(self, text: Text, cut: int | None) -> Words:
        tokenized = tokenize_text(text, _SPLITTERS[self.splitter])
        tokens = [word for segment in tokenized.segments for word in segment]
        offsets = tokenized.offsets or [(0, len(word)) for word in tokens]
        kept = slice(-cut, None) if cut and self.truncation_side == "left" else slice(cut)
        numbers: list[int | None] = list(range(len(tokens)))
        return Words(tokens[kept], offsets[kept], numbers[kept])

    def _columns(self, found: list[Words], returned: dict[str, Any]) -> dict[str, list]:
        sizes = [len(words.tokens) for words in found]
        data: dict[str, list] = {"input_ids": self._spelled([words.tokens for words in found])}
        if returned.get("return_attention_mask") is not False:
            data["attention_mask"] = [[1] * size for size in sizes]
        if returned.get("return_special_tokens_mask"):
            data["special_tokens_mask"] = [[0] * size for size in sizes]
        if returned.get("return_offsets_mapping"):
            data["offset_mapping"] = [words.offsets for words in found]
        if returned.get("return_length"):
            data["length"] = sizes
        return data

    def _spelled(self, sentences: list[list[str]]) -> list[list[list[int]]]:
        number: dict[str, int] = {}
        index = [[number.setdefault(word, len(number)) for word in words] for words in sentences]
        rows = spelling.rows(self.alphabet, list(number))
        return [rows[words].tolist() if words else [] for words in index]

    def _padded(
        self, data: dict[str, list], length: int | None, multiple: int | None
    ) -> dict[str, list]:
        if length is None:
            length = max(map(len, data["input_ids"]), default=0)
        length = -(-length // multiple) * multiple if multiple else length
        fill = {
            "input_ids": [0] * spelling.num_columns(self.alphabet),
            "attention_mask": 0,
            "special_tokens_mask": 1,
            "offset_mapping": (0, 0),
        }
        return {
            key: [[*each, *[fill[key]] * (length - len(each))] for each in column]
            if key in fill
            else column
            for key, column in data.items()
        }

    def _encoding(
        self, data: dict[str, Any], tensors: str | None, found: list[Words] | None = None
    ) -> BatchEncoding:
        if tensors is not None:
            data = {key: self._stacked(key, column) for key, column in data.items()}
        return BatchEncoding(data, encoding=found, tensor_type=tensors, n_sequences=1)

    def _stacked(self, key: str, column: list) -> Any:  # as it came, where it cannot
        """Make one array of equal sentences; also of empty ones, which have no shape of their own.

        Unequal ones are left for transformers, which says that padding is wanted.
        """
        if key not in ("input_ids", "attention_mask", "special_tokens_mask", "offset_mapping"):
            return column
        if len(set(map(len, column))) > 1:
            return column
        inner = {"input_ids": [spelling.num_columns(self.alphabet)], "offset_mapping": [2]}
        shape = [len(column), len(column[0]) if column else 0, *inner.get(key, [])]
        return np.array(column, dtype=np.int64).reshape(shape)

    def tokenize(self, text: str, pair: str | None = None, **ignored: Any) -> list[str]:
        """Split a string into words."""
        return self._words(text, None).tokens

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:  # 0, a row, or rows
        """Spell a word, or several; what pads has the id 0."""
        if isinstance(tokens, str):
            padding = tokens == self.pad_token
            return 0 if padding else spelling.rows(self.alphabet, [tokens])[0].tolist()
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Read a row, or rows; 0 is what pads."""
        ids = _listed(ids)
        if isinstance(ids, int):
            return self.pad_token
        if ids and isinstance(ids[0], int):
            return spelling.word(self.alphabet, ids) if any(ids) else self.pad_token
        words = [self.convert_ids_to_tokens(row) for row in ids]
        return [word for word in words if not skip_special_tokens or word != self.pad_token]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **ignored: Any) -> Any:
        """Read a text, or the texts of a batch, with blanks between words."""
        ids = _listed(token_ids)
        if ids and ids[0] and isinstance(ids[0][0], list):
            return [self.decode(text, skip_special_tokens) for text in ids]
        return " ".join(self.convert_ids_to_tokens(ids, skip_special_tokens))

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Put blanks between words."""
        return " ".join(tokens)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple:
        """Write the words of a word table, if there is one."""
        if self.vocabulary is None:
            return ()
        before = f"{filename_prefix}-" if filename_prefix else ""
        path = Path(save_directory) / f"{before}{self.vocab_files_names['vocabulary_file']}"
        self.vocabulary.write(path)
        return (str(path),)

    def _upload_modified_files(self, working_dir: str, *args: Any, **kwargs: Any) -> Any:
        """Leave the card to the model: transformers would put an empty one in its place."""
        (Path(working_dir) / "README.md").unlink(missing_ok=True)
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    @property
    def vocab_size(self) -> int:
        """How many words are known by themselves; the others are known by their letters."""
        return len(self.vocabulary) if self.vocabulary else 0

    def __len__(self) -> int:
        return self.vocab_size

    def __bool__(self) -> bool:
        return True

    def get_vocab(self) -> dict[str, int]:
        """Give the words of the word table; none for a model that reads letters alone."""
        words = self.vocabulary.words if self.vocabulary else ()
        return {word: number for number, word in enumerate(words)}

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Nothing can be added: there is no table that could grow."""
        return {}

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        """Nothing, likewise."""
        return {}


def _is_one(text: Text | Sequence[Text], is_split: bool) -> bool:
    """Tell one text from several."""
    if is_split and isinstance(text, str):
        raise DataError(f"is_split_into_words=True expects lists of words, found {text[:40]!r}")
    if isinstance(text, str):
        return True
    return is_split and not (len(text) and not isinstance(text[0], str))


def _listed(values: Any) -> Any:  # a tensor, an array, or a list already
    return values.tolist() if hasattr(values, "tolist") else values
