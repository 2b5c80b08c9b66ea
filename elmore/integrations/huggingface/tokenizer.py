"""ElmoTokenizer: convert strings or words to character ids, with the interface of transformers.

A word is a row of ids (see `char_ids`). All rows have the same width, so words, sentences and
batches can be stacked. There are no special tokens: position t is word t.

Shapes: B texts, T words, C ids per word.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from elmore.embed.tokenized import Text, tokenize_text
from elmore.errors import ConfigError, DataError
from elmore.integrations.huggingface import char_ids
from elmore.integrations.huggingface.encoding import WordEncoding
from elmore.integrations.huggingface.source import Source, resolve_source
from elmore.text.characters import ByteAlphabet, Lexicon, WordAlphabet, number_words
from elmore.text.tokenizers import penn, whitespace
from elmore.text.vocabulary import ELMO_MARKS, MANY_LANGS_MARKS, Vocabulary

_SPLITTERS = {"penn": penn, "whitespace": whitespace}


class ElmoTokenizer(PreTrainedTokenizerBase):
    """Split strings as `elmore.load` does, take words as they are, and encode their characters.

    Args:
        vocabulary_file: Word list, for kinds "words" and "lexicon".
        kind: "bytes" for ELMo's own alphabet, "words" for a model with a vocabulary only, "lexicon"
            for ELMoForManyLangs.
        characters: The characters of a lexicon.
        max_characters: Ids per word.
        splitter: How strings are split into words, "penn" or "whitespace".
        vocabulary: The words, instead of a file.
        kwargs: Settings of transformers.

    Raises:
        ConfigError: The settings contradict each other.
    """

    vocab_files_names = {"vocabulary_file": "vocabulary.txt"}  # noqa: RUF012 -- as in transformers
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 -- as in transformers
    is_fast = True
    """As transformers means it: offsets and word ids are available."""

    def __init__(
        self,
        vocabulary_file: str | None = None,
        *,
        kind: Literal["bytes", "words", "lexicon"] = "bytes",
        characters: Sequence[str] | None = None,
        max_characters: int = 50,
        splitter: Literal["penn", "whitespace"] = "penn",
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,  # settings of transformers
    ) -> None:
        if splitter not in _SPLITTERS:
            raise ConfigError(f"splitter must be 'penn' or 'whitespace', found {splitter!r}")
        _check_padding_side(kwargs.get("padding_side"))
        if vocabulary_file is not None and vocabulary is None and kind != "bytes":
            marks = MANY_LANGS_MARKS if kind == "lexicon" else ELMO_MARKS
            vocabulary = Vocabulary.read(Path(vocabulary_file), marks)
        letters = list(characters) if characters else None
        self.vocabulary = vocabulary
        self.alphabet = char_ids.build_alphabet(kind, letters, max_characters, vocabulary)
        self.splitter = splitter
        saved = {"kind": kind, "max_characters": max_characters, "splitter": splitter}
        super().__init__(**saved, characters=letters, **({"pad_token": "<pad>"} | kwargs))

    @classmethod
    def from_elmore(cls, *sources: Source, **settings: Any) -> Self:
        """Build the tokenizer of an elmore model.

        Args:
            sources: What `elmore.load` takes, or an `Embedder`; default: the bundled model.
            settings: Keyword arguments of the tokenizer, such as `splitter`.

        Returns:
            The tokenizer.

        Raises:
            ConfigError: There is no such model, or a setting is invalid.
            WeightsError: The files are damaged, or not of a known format.
        """
        alphabet = resolve_source(*sources).alphabet
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
        padding_strategy: Any,  # an enumeration of transformers
        truncation_strategy: Any,  # likewise
        max_length: int | None = None,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        return_overflowing_tokens: bool = False,
        **returned: Any,  # return_offsets_mapping and the like
    ) -> BatchEncoding:
        _check_padding_side(returned.get("padding_side"))
        if text_pair is not None:
            raise DataError("ELMo does not encode text pairs; encode each text separately")
        if return_overflowing_tokens:
            raise DataError(
                "return_overflowing_tokens is not supported: ELMo takes texts of any length"
            )
        is_one = _is_one(text, is_split_into_words)
        cut = None if truncation_strategy.value == "do_not_truncate" else max_length
        texts = [cast("Text", text)] if is_one else text
        encodings = [self._split(each, cut) for each in texts]
        data = self._columns(encodings, returned)
        if padding_strategy.value != "do_not_pad":
            longest = padding_strategy.value == "longest"
            data = self._pad(data, None if longest else max_length, pad_to_multiple_of)
            encodings = [
                one.pad(len(rows), str(self.pad_token))
                for one, rows in zip(encodings, data["input_ids"], strict=True)
            ]
        unbatched = is_one and return_tensors is None
        return self._batch_encoding(data, return_tensors, encodings, unbatched=unbatched)

    def pad(
        self,
        encoded_inputs: Any,  # one text, or a batch as a list of texts or a dict of columns
        padding: Any = True,  # as in transformers
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Pad a batch so that it can be stacked, or one text; data collators call this."""
        _check_padding_side(padding_side)
        if not isinstance(encoded_inputs, Mapping):
            keys = encoded_inputs[0] if encoded_inputs else ("input_ids",)
            encoded_inputs = {key: [each[key] for each in encoded_inputs] for key in keys}
        unbatched = _is_unbatched(encoded_inputs["input_ids"])
        if unbatched:
            encoded_inputs = {key: [column] for key, column in encoded_inputs.items()}
        data = {key: [_to_list(each) for each in column] for key, column in encoded_inputs.items()}
        strategy, _, max_length, _ = self._get_padding_truncation_strategies(
            padding, max_length=max_length, verbose=False
        )
        if return_attention_mask is not False:
            data.setdefault("attention_mask", [[1] * len(rows) for rows in data["input_ids"]])
        if strategy.value != "do_not_pad":
            longest = strategy.value == "longest"
            data = self._pad(data, None if longest else max_length, pad_to_multiple_of)
        return self._batch_encoding(data, return_tensors, unbatched=unbatched)

    def _split(self, text: Text, cut: int | None) -> WordEncoding:
        tokenized = tokenize_text(text, _SPLITTERS[self.splitter])
        tokens = tokenized.words
        offsets = tokenized.offsets or [(0, len(word)) for word in tokens]
        span = slice(-cut, None) if cut and self.truncation_side == "left" else slice(cut)
        numbers: list[int | None] = list(range(len(tokens)))
        return WordEncoding(tokens[span], offsets[span], numbers[span])

    def _columns(self, encodings: list[WordEncoding], returned: dict[str, Any]) -> dict[str, list]:
        sizes = [len(one.tokens) for one in encodings]
        data: dict[str, list] = {"input_ids": self._encode([one.tokens for one in encodings])}
        if returned.get("return_attention_mask") is not False:
            data["attention_mask"] = [[1] * size for size in sizes]
        if returned.get("return_special_tokens_mask"):
            data["special_tokens_mask"] = [[0] * size for size in sizes]
        if returned.get("return_offsets_mapping"):
            data["offset_mapping"] = [one.offsets for one in encodings]
        if returned.get("return_length"):
            data["length"] = sizes
        return data

    def _encode(self, sentences: list[list[str]]) -> list[list[list[int]]]:
        words, numbers = number_words(list(chain.from_iterable(sentences)))
        rows = char_ids.encode_words(self.alphabet, words)
        ends = np.cumsum([len(sentence) for sentence in sentences]).tolist()
        return [rows[numbers[begin:end]].tolist() for begin, end in pairwise([0, *ends])]

    def _pad(
        self, data: dict[str, list], length: int | None, multiple: int | None
    ) -> dict[str, list]:
        if length is None:
            length = max(map(len, data["input_ids"]), default=0)
        length = -(-length // multiple) * multiple if multiple else length
        fill = {
            "input_ids": [0] * char_ids.num_columns(self.alphabet),
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

    def _batch_encoding(
        self,
        data: dict[str, Any],
        tensors: str | None,
        encodings: list[WordEncoding] | None = None,
        *,
        unbatched: bool = False,
    ) -> BatchEncoding:
        if tensors is not None:
            data = {key: self._stack(key, column) for key, column in data.items()}
        if unbatched:
            data = {key: column[0] for key, column in data.items()}
        return BatchEncoding(data, encoding=encodings, tensor_type=tensors, n_sequences=1)

    def _stack(self, key: str, column: list) -> Any:  # as it came, where it cannot
        """Stack sentences of equal length; empty ones too, which have no shape of their own.

        Unequal ones are returned as they are; transformers then asks for padding.
        """
        if key not in ("input_ids", "attention_mask", "special_tokens_mask", "offset_mapping"):
            return column
        if len(set(map(len, column))) > 1:
            return column
        inner = {"input_ids": [char_ids.num_columns(self.alphabet)], "offset_mapping": [2]}
        shape = [len(column), len(column[0]) if column else 0, *inner.get(key, [])]
        return np.array(column, dtype=np.int64).reshape(shape)

    def tokenize(self, text: str, pair: str | None = None, **ignored: Any) -> list[str]:
        """Split a string into words."""
        return self._split(text, None).tokens

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:  # 0, a row, or rows
        """Return the row of a word, or the rows of several; padding has the id 0."""
        if isinstance(tokens, str):
            padding = tokens == self.pad_token
            return 0 if padding else char_ids.encode_words(self.alphabet, [tokens])[0].tolist()
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the word of a row, or the words of several; 0 is padding."""
        ids = _to_list(ids)
        if isinstance(ids, int):
            return self.pad_token
        if ids and isinstance(ids[0], int):
            return char_ids.decode_word(self.alphabet, ids) if any(ids) else self.pad_token
        words = [self.convert_ids_to_tokens(row) for row in ids]
        return [word for word in words if not skip_special_tokens or word != self.pad_token]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **ignored: Any) -> Any:
        """Return the text of `input_ids`, or the texts of a batch, with spaces between words."""
        ids = _to_list(token_ids)
        if ids and (not ids[0] or isinstance(ids[0][0], list)):  # a text may have no words
            return [self.decode(text, skip_special_tokens) for text in ids]
        return " ".join(self.convert_ids_to_tokens(ids, skip_special_tokens))

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Join words with spaces."""
        return " ".join(tokens)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple:
        """Write the vocabulary, if there is one."""
        if self.vocabulary is None:
            return ()
        before = f"{filename_prefix}-" if filename_prefix else ""
        path = Path(save_directory) / f"{before}{self.vocab_files_names['vocabulary_file']}"
        self.vocabulary.write(path)
        return (str(path),)

    def _upload_modified_files(self, working_dir: str, *args: Any, **kwargs: Any) -> Any:
        """Upload no card: transformers would upload an empty one over that of the model."""
        (Path(working_dir) / "README.md").unlink(missing_ok=True)
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    @property
    def vocab_size(self) -> int:
        """Size of the word vocabulary; 0 for a model with characters only."""
        return len(self.vocabulary) if self.vocabulary else 0

    def __len__(self) -> int:
        return self.vocab_size

    def __bool__(self) -> bool:
        return True

    def get_vocab(self) -> dict[str, int]:
        """Return the word vocabulary; empty for a model with characters only."""
        words = self.vocabulary.words if self.vocabulary else ()
        return {word: number for number, word in enumerate(words)}

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Always empty: tokens cannot be added."""
        return {}

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        """Always empty: tokens cannot be added."""
        return {}


def _is_one(text: Text | Sequence[Text], is_split: bool) -> bool:
    """Return whether `text` is a single text."""
    if is_split and isinstance(text, str):
        raise DataError(f"is_split_into_words=True expects lists of words, found {text[:40]!r}")
    if isinstance(text, str):
        return True
    return is_split and not (len(text) and not isinstance(text[0], str))


def _is_unbatched(input_ids: Any) -> bool:  # a tensor, an array, or a list, perhaps of these
    """Return whether these are the rows of one text; an empty list is a batch of no texts."""
    first = next((each for each in input_ids if len(each)), ())
    return any(np.ndim(number) == 0 for number in first)


def _to_list(values: Any) -> Any:  # a tensor, an array, or a list already
    return values.tolist() if hasattr(values, "tolist") else values


def _check_padding_side(side: str | None) -> None:
    if side not in (None, "right"):
        raise ConfigError("padding_side must be 'right': a biLM needs the words first")
