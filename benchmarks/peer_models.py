"""The models of peers.py behind two methods. Runs in the environment of one of them.

    python benchmarks/peer_models.py vectors KIND MODEL JOB OUT.npy
    python benchmarks/peer_models.py train_fasttext CORPUS MODEL SETTINGS
    python benchmarks/peer_models.py distill TEACHER MODEL

JOB is a JSON file: {"texts": [...]} asks for one vector per text (N, K), {"sentences": [[...]]} for
those of the words in every layer (L, words of all sentences, D); MiniLM also takes "layers" and
"pieces" with it. The other two commands make the models that nobody publishes.

Only what the environment of a peer has is imported: numpy everywhere, the rest in its class.

Shapes: N texts, K width of a text, L layers, P pieces of a sentence, T words, D width of a word.
"""

import argparse
import inspect
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from elmore.model.config import Precision

BATCH = 32  # sentences that a transformer reads at a time
LAYERS = (2, 4, 6)  # of its six, for words: as many as the bundled model of elmore has


class Words:
    """Vectors of words that do not depend on the sentence: one layer, and their mean for a text.

    Words are separated by blanks.
    """

    def look_up(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words (T, D)."""
        raise NotImplementedError

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return np.stack([self.look_up(text.split()).mean(axis=0) for text in texts])

    def embed(self, sentences: list[list[str]]) -> np.ndarray:
        """Return the vectors of the words of all sentences (L, T, D)."""
        words = list(itertools.chain.from_iterable(sentences))
        types = {word: row for row, word in enumerate(dict.fromkeys(words))}
        return self.look_up(list(types))[[types[word] for word in words]][None]


class FastText(Words):
    """A word that was not in the training text is the mean of its character n-grams."""

    def __init__(self, model: str) -> None:
        import fasttext

        self.model = fasttext.load_model(model)

    def look_up(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words (T, D)."""
        return np.stack([self.model.get_word_vector(word) for word in words])


class GloVe(Words):
    """Words in lower case; an unknown one is zero."""

    def __init__(self, folder: str) -> None:
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(f"{folder}/glove_6B_index.parquet")
        words = table["index"].to_pylist()
        self.rows = dict(zip(words, range(len(words)), strict=True))
        vectors = np.load(f"{folder}/glove_6B_50d_emb.npy", mmap_mode="r")
        self.vectors = np.concatenate([vectors, np.zeros_like(vectors[:1])])

    def look_up(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words (T, D)."""
        return self.vectors[[self.rows.get(word.lower(), -1) for word in words]]


class Pieces(Words):
    """A static model of word pieces: a word is encoded like a text of its own."""

    def look_up(self, words: list[str]) -> np.ndarray:
        """Return the vectors of words (T, D)."""
        return self.encode(words)


class WordLlama(Pieces):
    """The model in the package; `cache_dir` is where the package keeps its tokenizer.

    Vectors of length one: those of function words are otherwise ten times shorter than others, and
    linear classifiers of words score lower (UPOS 74.0 instead of 79.4).
    """

    def __init__(self, folder: str) -> None:
        from wordllama import WordLlama

        self.model = WordLlama.load(cache_dir=Path(folder), disable_download=True)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return self.model.embed(texts, norm=True)


class Model2Vec(Pieces):
    """A distilled model."""

    def __init__(self, folder: str) -> None:
        from model2vec import StaticModel

        self.model = StaticModel.from_pretrained(folder)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return self.model.encode(texts)


class MiniLM:
    """all-MiniLM-L6-v2; the vector of a word is the mean of its pieces, or that of the first."""

    def __init__(self, folder: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(folder, device="cpu")

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return self.model.encode(texts, batch_size=BATCH, show_progress_bar=False)

    def embed(
        self, sentences: list[list[str]], layers: Sequence[int] = LAYERS, pieces: str = "mean"
    ) -> np.ndarray:
        """Return the vectors of the words of all sentences (L, T, D); layer 0 has no context."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        folder = self.model[0].auto_model.name_or_path
        tokenizer = AutoTokenizer.from_pretrained(folder)
        encoder = AutoModel.from_pretrained(folder)
        starts = np.cumsum([0, *map(len, sentences)])
        vectors = np.zeros((len(layers), starts[-1], 384), np.float16)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            batch = tokenizer(
                [sentences[row] for row in rows],
                is_split_into_words=True, padding=True, truncation=True, max_length=512,
                return_tensors="pt",
            )  # fmt: skip
            with torch.inference_mode():
                hidden = encoder(**batch, output_hidden_states=True).hidden_states
            states = torch.stack([hidden[layer] for layer in layers]).numpy()  # (L, B, P, D)
            for number, row in enumerate(rows):
                vectors[:, starts[row] : starts[row + 1]] = pool_pieces(
                    states[:, number], batch.word_ids(number), len(sentences[row]), pieces
                )
        return vectors


def pool_pieces(
    states: np.ndarray, words: Sequence[int | None], num_words: int, pieces: str
) -> np.ndarray:
    """Return the vectors of words (L, T, D) from those of their pieces (L, P, D).

    Args:
        states: The vectors of the pieces.
        words: The number of the word of each piece, None for `[CLS]` and such.
        num_words: A word without pieces, such as a control character, gets zeros.
        pieces: `mean` of the pieces of a word, or the `first`.
    """
    weights = np.zeros((num_words, len(words)), np.float32)
    for place, word in enumerate(words):
        if word is not None and (pieces == "mean" or not weights[word].any()):
            weights[word, place] = 1
    return weights / weights.sum(axis=1, keepdims=True).clip(min=1) @ states


class Elmore:
    """elmore itself, for the measures of cost: `MODEL` is the precision and the pooling."""

    def __init__(self, model: str) -> None:
        import elmore

        precision, self.pool = model.split()
        self.model = elmore.load(precision=cast("Precision", precision), device="cpu")

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return one vector per text (N, K)."""
        return self.model.encode(texts, pool=self.pool)


KINDS = {
    "elmore": Elmore,
    "minilm": MiniLM,
    "model2vec": Model2Vec,
    "wordllama": WordLlama,
    "fasttext": FastText,
    "glove": GloVe,
}


def vectors(kind: str, model: str, job: str, out: str) -> None:
    """Write the vectors that a job asks for."""
    wanted = json.loads(Path(job).read_text("utf-8"))
    peer = KINDS[kind](model)
    if "texts" in wanted:
        np.save(out, peer.encode(**wanted).astype(np.float32))
    else:
        assert not isinstance(peer, Elmore), "the vectors of its words are read without a peer"
        np.save(out, peer.embed(**wanted).astype(np.float16))


def train_fasttext(corpus: str, model: str, settings: str) -> None:
    """Train skip-grams on a file of tokenized sentences, with one thread."""
    import fasttext

    fasttext.train_unsupervised(corpus, thread=1, **json.loads(settings)).save_model(model)


def distill(teacher: str, model: str) -> None:
    """Distil the static model of model2vec, with the settings of the package."""
    from model2vec.distill import distill

    distill(teacher, device="cpu").save_pretrained(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(required=True)
    for run in (vectors, train_fasttext, distill):
        step = steps.add_parser(run.__name__, help=run.__doc__)
        step.set_defaults(run=run)
        for name in inspect.signature(run).parameters:
            step.add_argument(name)
    args = vars(parser.parse_args())
    args.pop("run")(**args)


if __name__ == "__main__":
    main()
