"""elmore inside sentence-transformers: the module that makes vectors of words.

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    elmo = ElmoModule()
    model = SentenceTransformer(modules=[elmo, Pooling(elmo.get_embedding_dimension())])
    model.encode(["A text .", "Another ."])

What it saves is what `elmore.integrations.huggingface` saves. sentence-transformers loads modules
that are not its own only when told to: `SentenceTransformer(path, trust_remote_code=True)`.
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
from elmore.integrations.huggingface.conversion import Source, opened

_ENDLESS = 10**9  # more words than that is no limit


class ElmoModule(InputModule):
    """Texts to `token_embeddings`, the mix of the layers, for `Pooling` and what comes after.

    `sources` is what `elmore.load` takes; nothing is the bundled model. The settings are those of
    `ElmoModel.from_elmore`: with `freeze=False` the biLM is trained too, else the mix alone.
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
            bundle = opened(*sources)
            model = model or ElmoModel.from_elmore(bundle, **settings)
            tokenizer = tokenizer or ElmoTokenizer.from_elmore(bundle)
        self.model = model
        self.tokenizer = tokenizer
        if max_seq_length is not None:
            self.max_seq_length = max_seq_length

    @property
    def max_seq_length(self) -> int | None:
        """How many words of a text are read; None for all of them."""
        length = self.tokenizer.model_max_length
        return length if length < _ENDLESS else None

    @max_seq_length.setter
    def max_seq_length(self, length: int | None) -> None:
        self.tokenizer.model_max_length = _ENDLESS if length is None else length

    def get_embedding_dimension(self) -> int:
        """Say how wide a vector is."""
        return self.model.config.hidden_size

    def preprocess(
        self,
        inputs: Sequence[str | Sequence[str]],
        prompt: str | None = None,
        **kwargs: Any,  # theirs
    ) -> dict[str, Any]:
        """Spell the words of texts; lists of words are taken as they are."""
        texts = [(prompt or "") + text if isinstance(text, str) else text for text in inputs]
        found = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        if prompt:
            found["prompt_length"] = len(self.tokenizer.tokenize(prompt))
        return dict(found)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Add `token_embeddings` to the features of a batch."""
        out = self.model(features["input_ids"], features["attention_mask"], return_dict=True)
        return {**features, "token_embeddings": out.mixed, "attention_mask": out.mask.long()}

    def get_config_dict(self) -> dict[str, Any]:
        """Say in short what this is."""
        return {"max_seq_length": self.max_seq_length, "width": self.get_embedding_dimension()}

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Save model and tokenizer as transformers has them."""
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
        **kwargs: Any,  # theirs
    ) -> Self:
        """Load from a folder or the hub; `model_kwargs` are those of `from_pretrained`."""
        place: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_dir": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        return cls(
            model=ElmoModel.from_pretrained(model_name_or_path, **place, **(model_kwargs or {})),
            tokenizer=ElmoTokenizer.from_pretrained(model_name_or_path, **place),
        )
