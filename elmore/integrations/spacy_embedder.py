"""DocEmbedder: embed spaCy Docs with a model that is loaded lazily and saved with the pipeline.

spaCy first builds a pipeline from its config and then passes it the saved data, possibly on a
machine where the path in the config does not exist. Nothing is therefore loaded before it is
needed, and weights are saved with the pipeline. For the bundled model a digest is enough.

Shapes: L layers (the token layer is one of them), T tokens of a Doc, D width.
"""

import itertools
import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import srsly
import torch
from jaxtyping import Float
from spacy.tokens import Doc, Token

from elmore import atomic, config, strict_json
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice
from elmore.errors import ConfigError, DataError, WeightsError
from elmore.model.config import Precision
from elmore.weights import catalogue, folder, pretrained
from elmore.weights.bundle import Bundle
from elmore.weights.digest import model_digest

FORMAT = 1
_SETTINGS = "elmore.json"
_MODEL = "model"


class DocEmbedder:
    """A model that embeds Docs by spaCy's tokens, and by its sentences where they are set.

    Args:
        model: What `elmore.load` takes: a name, a path, or a list of options and weights.
        device: "auto", "cpu" or "cuda".
        precision: "exact" or "fast".
        batch_tokens: Tokens per batch.

    Raises:
        ConfigError: `batch_tokens` is not positive.
    """

    def __init__(
        self,
        model: str | Sequence[str] = catalogue.BUNDLED,
        *,
        device: str = "auto",
        precision: Precision = "exact",
        batch_tokens: int = 16384,
    ) -> None:
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1, found {batch_tokens}")
        self._sources = [model] if isinstance(model, str) else list(model)
        self._options: dict[str, Any] = {
            "device": device,
            "precision": precision,
            "token_budget": batch_tokens,
        }
        self._is_bundled = self._sources == [catalogue.BUNDLED]
        self._process = os.getpid()
        self._embedder: Embedder | None = None

    @property
    def embedder(self) -> Embedder:
        """The model, loaded at the first access."""
        if self._embedder is None:
            # Without the name: a folder that happens to be called "english" is not the model.
            self._set_bundle(pretrained.load(*([] if self._is_bundled else self._sources)))
        assert self._embedder is not None
        return self._embedder

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle; of other processes, only workers of `n_process` get one thread."""
        self.__dict__.update(state)
        if multiprocessing.parent_process() is None:
            self._process = os.getpid()

    def _set_bundle(self, bundle: Bundle) -> None:
        self._embedder = Embedder(replace(bundle, softmax=None), **self._options)

    def embed(self, docs: Iterable[Doc], layers: LayerChoice) -> list[Float[np.ndarray, "*L T D"]]:
        """Return a vector for each token of each Doc; whitespace tokens get zeros.

        Args:
            docs: The Docs.
            layers: As in `Embedder.embed`.
        """
        if os.getpid() != self._process:  # `n_process=2` forks, and threads do not survive a fork
            torch.set_num_threads(1)
            self._process = os.getpid()
        docs = list(docs)
        texts = [_split_sentences(doc) for doc in docs]
        embedder = self.embedder
        embedded = iter(embedder.embed(itertools.chain.from_iterable(texts), layers=layers))
        leading = (embedder.num_layers,) if layers == "all" else ()
        rows = []
        for doc, text in zip(docs, texts, strict=True):
            vectors = np.zeros((*leading, len(doc), embedder.width), np.float32)
            parts = [sentence.vectors for sentence in itertools.islice(embedded, len(text))]
            if parts:
                words = [not token.is_space for token in doc]
                vectors[..., words, :] = np.concatenate(parts, axis=-2)
            rows.append(vectors)
        return rows

    def to_disk(self, path: Path) -> None:
        """Write the weights, or the digest of the bundled model, into a folder.

        Args:
            path: The folder; it is made if missing.
        """
        path.mkdir(parents=True, exist_ok=True)
        bundle = self.embedder.bundle
        digest = model_digest(bundle) if self._is_bundled else None
        if not self._is_bundled:
            folder.save(bundle, path / _MODEL, overwrite=True)
        atomic.write(path / _SETTINGS, json.dumps({"format": FORMAT, "bundled": digest}).encode())

    def from_disk(self, path: Path) -> None:
        """Load the model that `to_disk` wrote, whatever the config says.

        Args:
            path: The folder.

        Raises:
            DataError: The folder is not one that `to_disk` wrote.
            WeightsError: It needs the bundled model of another version.
        """
        try:
            settings = strict_json.loads((path / _SETTINGS).read_bytes())
            digest = settings["bundled"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path / _SETTINGS}: not written by elmore ({error}); save the pipeline again"
            ) from error
        config.check_format(settings, FORMAT, str(path / _SETTINGS), default=1)
        self._is_bundled = digest is not None
        bundle = pretrained.load(*([] if self._is_bundled else [path / _MODEL]))
        if self._is_bundled and model_digest(bundle) != digest:
            raise WeightsError(
                f"{path}: this pipeline was made with the bundled model of another elmore version; "
                "install that version"
            )
        self._set_bundle(bundle)

    def to_bytes(self) -> bytes:
        """Return the files of `to_disk` as bytes."""
        with tempfile.TemporaryDirectory(prefix="elmore-") as temporary:
            self.to_disk(Path(temporary))
            paths = {name: Path(temporary) / name for name in _file_names()}
            files = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
        return srsly.msgpack_dumps(files)

    def from_bytes(self, data: bytes) -> None:
        """Load the model that `to_bytes` returned.

        Args:
            data: The bytes.

        Raises:
            DataError: These are not bytes that `to_bytes` returned.
            WeightsError: They need the bundled model of another version.
        """
        files = _unpack(data)
        with tempfile.TemporaryDirectory(prefix="elmore-") as temporary:
            (Path(temporary) / _MODEL).mkdir()
            for name in _file_names() & set(files):
                (Path(temporary) / name).write_bytes(files[name])
            self.from_disk(Path(temporary))


def _unpack(data: bytes) -> dict[str, bytes]:
    try:
        files = srsly.msgpack_loads(data)
    except ValueError as error:
        raise DataError(
            f"these bytes were not written by elmore ({error}); save the pipeline again"
        ) from error
    if not isinstance(files, dict) or not all(isinstance(each, bytes) for each in files.values()):
        raise DataError("these bytes hold no files of elmore; save the pipeline again")
    return files


def _file_names() -> set[str]:
    """Return the file names that are accepted; untrusted data must not name others."""
    return {_SETTINGS, *(f"{_MODEL}/{name}" for name in folder.FILES)}


def _split_sentences(doc: Doc) -> list[list[str]]:
    """Return the words of each sentence, or of the whole Doc if sentences are not set."""
    parts: Iterable[Iterable[Token]] = doc.sents if doc.has_annotation("SENT_START") else [doc]
    words = ([token.text for token in part if not token.is_space] for part in parts)
    return [sentence for sentence in words if sentence]
