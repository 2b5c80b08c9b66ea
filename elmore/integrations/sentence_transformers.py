"""elmore in sentence-transformers: the modules that compute token and sentence embeddings.

    from sentence_transformers import SentenceTransformer

    elmo = ElmoModule()
    model = SentenceTransformer(modules=[elmo, elmo.pooling()])
    model.encode(["A text .", "Another ."])

`elmo.pooling()` pools as `Embedder.encode` does; `Pooling` of sentence-transformers works too.
The model is saved in the format of `elmore.integrations.huggingface`, and its poolings beside it.
sentence-transformers loads third-party modules only with
`SentenceTransformer(path, trust_remote_code=True)`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from elmore.errors import ConfigError, MissingPackageError, WeightsError

try:
    from sentence_transformers.base.modules import InputModule, Module
    from sentence_transformers.sentence_transformer.modules import Pooling
except ImportError as error:
    raise MissingPackageError(
        "elmore.integrations.sentence_transformers needs sentence-transformers: "
        "pip install 'elmore[hf]'"
    ) from error

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from elmore.embed.pooling import find_pooling
from elmore.embed.tokenized import Text
from elmore.integrations.huggingface import ElmoModel, ElmoTokenizer
from elmore.integrations.huggingface.source import Source, resolve_source
from elmore.weights.folder import POOLINGS
from elmore.weights.pooling import TextPooling, read_poolings, write_poolings

_POOLING_FILE = "pooling.npz"
_UNLIMITED = 10**9  # longer than any text; the "no limit" of transformers is larger


class ElmoModule(InputModule):
    """Compute `token_embeddings`, the scalar mix of the layers, for `Pooling` and later modules.

    `all_layer_embeddings` are the layers, for the poolings of the model. A text without words has
    one vector of zeros, so that any pooling has something to pool, and False in `has_words`.

    Args:
        sources: What `elmore.load` takes; default: the bundled model.
        max_seq_length: Truncate texts to this many words; default: no limit.
        model: A model to use instead of `sources`.
        tokenizer: Its tokenizer; default: that of `sources`.
        settings: Keyword arguments of `ElmoModel.from_elmore`; `freeze=False` trains the biLM too,
            otherwise only the mix is trained.

    Raises:
        ConfigError: A setting is invalid, or the tokenizer does not fit the model.
        WeightsError: The model cannot be loaded.
    """

    def __init__(
        self,
        *sources: Source,
        max_seq_length: int | None = None,
        model: ElmoModel | None = None,
        tokenizer: ElmoTokenizer | None = None,
        **settings: Any,  # those of ElmoConfig
    ) -> None:
        super().__init__()
        self._poolings: Mapping[str, TextPooling] | None = None  # not known
        if model is None or tokenizer is None:
            bundle = resolve_source(*sources)
            if model is None:
                model = ElmoModel.from_elmore(bundle, **settings)
                self._poolings = bundle.poolings
            tokenizer = tokenizer or ElmoTokenizer.from_elmore(bundle)
        model.check_alphabet(tokenizer.alphabet)
        self.model = model
        self.tokenizer = tokenizer
        if max_seq_length is not None:
            self.max_seq_length = max_seq_length

    @property
    def max_seq_length(self) -> int | None:
        """Number of words after which texts are truncated; None for no limit."""
        length = self.tokenizer.model_max_length
        return length if length < _UNLIMITED else None

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        if length is not None and length < 1:
            raise ConfigError(f"max_seq_length must be at least 1, or None, found {length}")
        self.tokenizer.model_max_length = _UNLIMITED if length is None else length

    def get_embedding_dimension(self) -> int:
        """Return the width of a vector."""
        return self.model.config.hidden_size

    def pooling(self, name: str | None = None) -> "Pooling | ElmoPooling":
        """Return the module that pools as `Embedder.encode(pool=name)` does.

        Args:
            name: "mean", "max" or a pooling of the model; default: its first one, else the mean.

        Raises:
            ConfigError: The model has no such pooling, or its poolings are not known.
        """
        if self._poolings is None and name not in ("mean", "max"):
            raise ConfigError(
                "the poolings of this model are not known: it was given as a network, or saved "
                f"without {POOLINGS}; name 'mean' or 'max', or make the module from the model again"
            )
        how, _ = find_pooling(self._poolings or {}, name, None)
        if isinstance(how, TextPooling):
            return ElmoPooling(how)
        return Pooling(self.get_embedding_dimension(), how)

    def preprocess(
        self,
        inputs: Sequence[Text],
        prompt: str | None = None,
        **kwargs: Any,  # of sentence-transformers
    ) -> dict[str, Any]:
        """Tokenize texts, each after the prompt; lists of words are taken as they are."""
        prompt_words = self.tokenizer.tokenize(prompt) if prompt else []
        texts = [_prepend(prompt or "", prompt_words, text) for text in inputs]
        features = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        if prompt:
            features["prompt_length"] = len(prompt_words)
        return dict(features)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Add `token_embeddings` to the features of a batch."""
        out = self.model(
            features["input_ids"],
            features["attention_mask"],
            output_hidden_states=True,
            return_dict=True,
        )
        has_words = out.mask.any(dim=1)
        vectors, mask = [out.mixed, *out.hidden_states], out.mask
        if not has_words.all():
            # `Pooling` takes the maximum of no word for -inf: give such a text one vector of zeros.
            room = max(0, 1 - mask.shape[1])
            vectors = [
                functional.pad(each * has_words[:, None, None], (0, 0, 0, room)) for each in vectors
            ]
            mask = functional.pad(mask, (0, room))
            mask[:, 0] |= ~has_words
        return {
            **features,
            "token_embeddings": vectors[0],
            "all_layer_embeddings": tuple(vectors[1:]),
            "attention_mask": mask.long(),
            "has_words": has_words,
        }

    def get_config_dict(self) -> dict[str, Any]:
        """Return a short description for `repr`."""
        return {"max_seq_length": self.max_seq_length, "width": self.get_embedding_dimension()}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Save model and tokenizer in the format of transformers, and the poolings."""
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)
        if self._poolings is None:
            (Path(output_path) / POOLINGS).unlink(missing_ok=True)  # of another model
        else:
            write_poolings(Path(output_path) / POOLINGS, self._poolings)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,  # of sentence-transformers
    ) -> Self:
        """Load from a folder or the hub; `model_kwargs` are passed to `from_pretrained`."""
        location: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_dir": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        module = cls(
            model=ElmoModel.from_pretrained(model_name_or_path, **location, **(model_kwargs or {})),
            tokenizer=ElmoTokenizer.from_pretrained(model_name_or_path, **location),
        )
        path = cls.load_file_path(
            model_name_or_path,
            filename=POOLINGS,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        module._poolings = None if path is None else read_poolings(Path(path))
        return module


def _prepend(prompt: str, prompt_words: list[str], text: Text) -> Text:
    if isinstance(text, list | tuple):
        return [*prompt_words, *text]
    return prompt + text if isinstance(text, str) else text  # which the tokenizer refuses


class ElmoPooling(Module):
    """Compute `sentence_embedding` with a pooling of a model, as `Embedder.encode` does.

    Its numbers are fixed; a model trained on top of it trains the biLM or later modules.

    Args:
        pooling: The pooling; it may not weigh words by frequency, since no words arrive here.

    Raises:
        ConfigError: The pooling weighs words by frequency.
    """

    attention: Tensor
    mean: Tensor
    components: Tensor
    projection: Tensor

    def __init__(self, pooling: TextPooling) -> None:
        super().__init__()
        if pooling.frequencies:
            raise ConfigError(
                "this pooling weighs words by frequency, and sentence-transformers passes on no "
                "words; learn it with weighted=False"
            )
        self.text_pooling = pooling
        width = len(pooling.mean)
        attention = np.zeros(width) if pooling.attention is None else pooling.attention
        projection = np.eye(width) if pooling.dense is None else pooling.dense
        arrays = {"mean": pooling.mean, "components": pooling.components}
        arrays |= {"attention": attention, "projection": projection}
        for name, array in arrays.items():
            tensor = torch.from_numpy(array.astype(np.float32))
            self.register_buffer(name, tensor, persistent=False)

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence embedding."""
        return self.text_pooling.width

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Add `sentence_embedding` to the features of a batch."""
        vectors = features["token_embeddings"]
        if self.text_pooling.all_layers:
            vectors = torch.cat(features["all_layer_embeddings"], dim=-1)
        mask = features["attention_mask"].bool() & features["has_words"][:, None]
        pooled = self._pool(vectors, mask)
        return {**features, "sentence_embedding": pooled}

    def _pool(
        self, vectors: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B K"]:
        scores = (vectors @ self.attention).masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=1).nan_to_num()  # a text without words has no weights
        average = torch.einsum("bt,btd->bd", weights, vectors)
        centred = average - self.mean
        cleaned = centred - centred @ self.components.T @ self.components
        return (cleaned @ self.projection.T) * mask.any(dim=1, keepdim=True)

    def get_config_dict(self) -> dict[str, Any]:
        """Return a short description for `repr`."""
        return {"width": self.text_pooling.width, **self.text_pooling.origin}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Save the pooling as `pooling.npz`."""
        self.text_pooling.save(Path(output_path) / _POOLING_FILE)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        """Load from a folder or the hub."""
        keys = ("token", "cache_folder", "revision", "local_files_only")
        location = {key: kwargs[key] for key in keys if key in kwargs}
        path = cls.load_file_path(
            model_name_or_path, filename=_POOLING_FILE, subfolder=subfolder, **location
        )
        if path is None:
            raise WeightsError(f"{model_name_or_path}: {subfolder}/{_POOLING_FILE} is missing")
        return cls(TextPooling.load(path))
