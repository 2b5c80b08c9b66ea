"""elmore in sentence-transformers: the module that computes token embeddings.

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    elmo = ElmoModule()
    model = SentenceTransformer(modules=[elmo, Pooling(elmo.get_embedding_dimension())])
    model.encode(["A text .", "Another ."])

It saves the files of `elmore.integrations.huggingface`. sentence-transformers loads third-party
modules only with `SentenceTransformer(path, trust_remote_code=True)`.
"""

from collections.abc import Sequence
from typing import Any, Self

from elmore.errors import MissingPackageError

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise MissingPackageError(
        "elmore.integrations.sentence_transformers needs sentence-transformers: "
        "pip install 'elmore[hf]'"
    ) from error

from torch import Tensor

from elmore.integrations.huggingface import ElmoModel, ElmoTokenizer
from elmore.integrations.huggingface.source import Source, resolve_source

_UNLIMITED = 10**9  # as transformers encodes "no limit"


class ElmoModule(InputModule):
    """Compute `token_embeddings`, the scalar mix of the layers, for `Pooling` and later modules.

    Args:
        sources: What `elmore.load` takes; default: the bundled model.
        max_seq_length: Truncate texts to this many words; default: no limit.
        model: A model to use instead of `sources`.
        tokenizer: Its tokenizer.
        settings: Keyword arguments of `ElmoModel.from_elmore`; `freeze=False` trains the biLM too,
            otherwise only the mix is trained.

    Raises:
        ConfigError: A setting is invalid.
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
        if model is None or tokenizer is None:
            bundle = resolve_source(*sources)
            model = model or ElmoModel.from_elmore(bundle, **settings)
            tokenizer = tokenizer or ElmoTokenizer.from_elmore(bundle)
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
        self.tokenizer.model_max_length = _UNLIMITED if length is None else length

    def get_embedding_dimension(self) -> int:
        """Return the width of a vector."""
        return self.model.config.hidden_size

    def preprocess(
        self,
        inputs: Sequence[str | Sequence[str]],
        prompt: str | None = None,
        **kwargs: Any,  # of sentence-transformers
    ) -> dict[str, Any]:
        """Tokenize texts; lists of words are taken as they are."""
        texts = [(prompt or "") + text if isinstance(text, str) else text for text in inputs]
        features = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        if prompt:
            features["prompt_length"] = len(self.tokenizer.tokenize(prompt))
        return dict(features)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Add `token_embeddings` to the features of a batch."""
        out = self.model(features["input_ids"], features["attention_mask"], return_dict=True)
        return {**features, "token_embeddings": out.mixed, "attention_mask": out.mask.long()}

    def get_config_dict(self) -> dict[str, Any]:
        """Return a short description for `repr`."""
        return {"max_seq_length": self.max_seq_length, "width": self.get_embedding_dimension()}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Save model and tokenizer in the format of transformers."""
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)

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
        return cls(
            model=ElmoModel.from_pretrained(model_name_or_path, **location, **(model_kwargs or {})),
            tokenizer=ElmoTokenizer.from_pretrained(model_name_or_path, **location),
        )
