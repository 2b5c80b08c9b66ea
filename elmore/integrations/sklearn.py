"""ElmoVectorizer: a scikit-learn transformer from texts to features.

    make_pipeline(ElmoVectorizer(), StandardScaler(), LogisticRegression()).fit(texts, labels)

Shapes: N texts, T tokens of a text, F features.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast

from elmore.errors import DataError, MissingPackageError, WeightsError

try:
    from sklearn.base import (
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError(
        "elmore.integrations.sklearn needs scikit-learn: pip install 'elmore[sklearn]'"
    ) from error

import numpy as np
from jaxtyping import Float

from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.embed.loading import load
from elmore.embed.outputs import LayerChoice, check_layers, resolve_layers
from elmore.embed.pooling import Pool
from elmore.embed.tokenized import Text
from elmore.model.config import Precision
from elmore.weights import catalogue
from elmore.weights.digest import model_digest

Embedded = tuple[list[str], Float[np.ndarray, "T F"]]


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embed each text as one vector, independently of the other texts.

    Texts are strings or lists of tokens. For a table of strings (a DataFrame or an array of shape
    (N, columns)), the features of the columns are concatenated.

    Args:
        model: What `elmore.load` takes: a name, a path, or a pair of options and weights. Only this
            is pickled and cloned; the weights are loaded when needed. An `Embedder` is accepted
            too: clones share it, pickles contain it, and the options below `remove` are its own.
        layers: As in `Embedder.embed`, but for lists; "all" concatenates the layers.
        pool: "mean", "max", a `TextPooling`, or "learned": `fit` learns word weights by frequency
            and the common directions to remove.
        remove: Number of directions that "learned" removes, besides the mean.
        split_sentences: Embed the sentences of a string separately.
        precision: As in `elmore.load`.
        device: As in `elmore.load`.
        token_budget: As in `elmore.load`.
    """

    def __init__(
        self,
        model: str | Path | Sequence[str | Path] | Embedder = catalogue.BUNDLED,
        *,
        layers: LayerChoice = "average",
        pool: Pool | Literal["learned"] = "mean",
        remove: int = 3,
        split_sentences: bool = False,
        precision: Precision = "exact",
        device: str = "auto",
        token_budget: int = 16384,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pool = pool
        self.remove = remove
        self.split_sentences = split_sentences
        self.precision = precision
        self.device = device
        self.token_budget = token_budget

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401, N803 -- scikit-learn's names
        """Load the model, and learn a pooling if `pool` is "learned"."""
        self._fit(self._columns(X, reset=True), transform=False)
        return self

    def fit_transform(self, X: Any, y: object = None) -> Float[np.ndarray, "N F"]:  # noqa: ANN401, N803
        """Fit and transform, embedding the texts only once."""
        return self._fit(self._columns(X, reset=True), transform=True)

    def transform(self, X: Any) -> Float[np.ndarray, "N F"]:  # noqa: ANN401, N803
        """Return the features of each text."""
        check_is_fitted(self)
        columns = self._columns(X, reset=False)
        if len(columns) != len(self.poolings_):
            raise DataError(
                f"this vectorizer was fitted on {len(self.poolings_)} columns of texts, found "
                f"{len(columns)}"
            )
        pairs = zip(columns, self.poolings_, strict=True)
        return self._concatenate([_pool(self._embed(texts), how) for texts, how in pairs])

    def _fit(self, columns: list[list[Text]], *, transform: bool) -> Float[np.ndarray, "N F"]:
        """Fit each column, and with `transform` return its features too."""
        self._loaded = self._load()
        self._check_settings(self._loaded)
        self.digest_ = model_digest(self._loaded.bundle)
        self.poolings_, blocks = [], []
        for texts in columns:
            embedded = self._embed(texts)
            how = self.pool
            if how == "learned":
                embedded = list(embedded)
                how = pooling.learn(embedded, remove=self.remove)
            self.poolings_.append(how)
            blocks.append(_pool(embedded if transform else (), how))
        return self._concatenate(blocks)

    def _check_settings(self, embedder: Embedder) -> None:
        """Raise an error in `fit`, which embeds nothing unless a pooling is learned."""
        check_layers(self.layers, embedder.num_layers)
        resolve_layers(self.layers, embedder.num_layers, embedder.whitening)
        if self.pool != "learned":
            pooling.pool([], np.zeros((0, self._token_width(embedder)), np.float32), self.pool)

    def _token_width(self, embedder: Embedder) -> int:
        return embedder.width * (embedder.num_layers if self.layers == "all" else 1)

    @property
    def _width(self) -> int:
        """Number of features of a text."""
        width = self._token_width(self.embedder_)
        return width if self.pool == "learned" else pooling.pooled_width(self.pool, width)

    @property
    def _n_features_out(self) -> int:
        return self._width * len(self.poolings_)

    def _concatenate(self, blocks: list[list[np.ndarray]]) -> Float[np.ndarray, "N F"]:
        empty = np.zeros((0, self._width), np.float32)
        return np.hstack([np.stack(block) if block else empty for block in blocks])

    @property
    def embedder_(self) -> Embedder:
        """The model; after unpickling it is loaded at first access and must be the same."""
        check_is_fitted(self, "poolings_")
        if "_loaded" not in self.__dict__:
            loaded = self._load()
            if model_digest(loaded.bundle) != self.digest_:
                raise WeightsError(
                    f"{self.model}: this vectorizer was fitted with other weights; "
                    "fit it again, or restore the old weights"
                )
            self._loaded = loaded
        return self._loaded

    def _load(self) -> Embedder:
        if isinstance(self.model, Embedder):
            return self.model
        sources = [self.model] if isinstance(self.model, str | Path) else self.model
        if self.model == catalogue.BUNDLED:  # and not a folder that happens to have this name
            sources = []
        return load(
            *sources,
            precision=self.precision,
            device=self.device,
            token_budget=self.token_budget,
        )

    def _embed(self, texts: list[Text]) -> Iterator[Embedded]:
        # `stream`, so that not all vectors are in memory at once.
        stream = self.embedder_.stream
        for sentence in stream(texts, layers=self.layers, split_sentences=self.split_sentences):
            vectors = sentence.vectors
            if self.layers == "all":
                vectors = np.concatenate(list(vectors), axis=1)
            yield sentence.tokens, vectors

    def _columns(self, X: Any, *, reset: bool) -> list[list[Text]]:  # noqa: ANN401, N803
        """Return the texts of each column; anything but a table has one column."""
        if isinstance(X, str):
            raise DataError(f"expected a list of texts, found a string; pass [{X[:30]!r}] for one")
        if hasattr(X, "__array__") or hasattr(X, "toarray"):
            table = validate_data(
                self, X, reset=reset, dtype=None, ensure_2d=False, ensure_all_finite=False
            )
            columns = [table] if table.ndim == 1 else list(table.T)
        else:
            columns = [np.fromiter(X, dtype=object)]
        return [[_check_text(text, row) for row, text in enumerate(texts)] for texts in columns]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the weights out; they are loaded again by the model name."""
        state = cast("dict[str, Any]", super().__getstate__())
        return {name: part for name, part in state.items() if name != "_loaded"}

    def __sklearn_clone__(self) -> Self:
        """Return a clone that shares an Embedder instead of copying its weights."""
        settings = self.get_params(deep=False)
        shared = {"model": settings.pop("model")}
        copy = type(self)(**shared, **{key: clone(settings[key], safe=False) for key in settings})
        for name in ("_sklearn_output_config", "_metadata_request"):  # as scikit-learn's clone does
            if name in self.__dict__:
                setattr(copy, name, clone(self.__dict__[name], safe=False))
        return copy

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 -- scikit-learn's type
        """Describe the accepted input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _pool(embedded: Iterable[Embedded], how: Pool) -> list[Float[np.ndarray, " F"]]:
    return [pooling.pool(tokens, vectors, how) for tokens, vectors in embedded]


def _check_text(text: Any, row: int) -> Text:  # noqa: ANN401 -- anything a user may pass
    if isinstance(text, str):
        return str(text)  # numpy's strings too
    if isinstance(text, list | tuple):
        return text
    raise DataError(
        f"text {row} is {text!r:.40}; expected a string or a list of tokens, and '' where one is "
        "missing"
    )
