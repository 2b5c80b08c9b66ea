"""ElmoVectorizer: texts to features, by the conventions of scikit-learn.

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
from elmore.embed.jobs.job import model_digest
from elmore.embed.loading import load
from elmore.embed.outputs import LayerChoice, check_layers
from elmore.embed.pooling import Pool
from elmore.embed.tokenized import Text
from elmore.model.precision import Precision
from elmore.weights import catalogue

Embedded = tuple[list[str], Float[np.ndarray, "T F"]]


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """One vector per text, the same whatever other texts there are.

    Texts are strings, or lists of tokens. A table of strings, a DataFrame or an array (N, columns),
    gives the features of each column side by side.

    Parameters
    ----------
    model : what `elmore.load` takes: a name, a path, or a pair of options and weights. It alone is
        pickled and cloned, and the weights are loaded where they are needed. An Embedder may be
        given too: it is shared by clones, pickled whole, and brings what is set below `remove`.
    layers : "average", "top", a number, a saved mix, or "all": every layer, side by side
    pool : "mean", "max", a TextPooling, or "learned": `fit` learns from its texts how to weigh
        words by how rare they are, and which common directions to take away
    remove : how many directions "learned" takes away, besides the mean
    split_sentences : let the sentences of a string run each on their own
    precision, device, token_budget : as in `elmore.load`

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

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401, N803 -- their names
        """Load the model, and learn a pooling where that is asked for."""
        self._fit(self._columns(X, reset=True), wanted=False)
        return self

    def fit_transform(self, X: Any, y: object = None) -> Float[np.ndarray, "N F"]:  # noqa: ANN401, N803
        """Do both, and embed only once."""
        return self._fit(self._columns(X, reset=True), wanted=True)

    def transform(self, X: Any) -> Float[np.ndarray, "N F"]:  # noqa: ANN401, N803
        """Give the features of each text."""
        check_is_fitted(self)
        columns = self._columns(X, reset=False)
        if len(columns) != len(self.poolings_):
            raise DataError(
                f"this was fitted on {len(self.poolings_)} columns of texts, and is given "
                f"{len(columns)}"
            )
        pairs = zip(columns, self.poolings_, strict=True)
        return self._side_by_side([_pooled(self._embedded(texts), how) for texts, how in pairs])

    def _fit(self, columns: list[list[Text]], *, wanted: bool) -> Float[np.ndarray, "N F"]:
        """Learn from each column; give its features too, where they are wanted."""
        self._loaded = self._load()
        check_layers(self.layers, self._loaded.num_layers)
        self.digest_ = model_digest(self._loaded.bundle)
        self.poolings_, blocks = [], []
        for texts in columns:
            embedded = self._embedded(texts)
            how = self.pool
            if how == "learned":
                embedded = list(embedded)
                how = pooling.learn(embedded, remove=self.remove)
            self.poolings_.append(how)
            blocks.append(_pooled(embedded if wanted else (), how))
        return self._side_by_side(blocks)

    @property
    def _width(self) -> int:
        """How many features a text has."""
        embedder = self.embedder_
        return embedder.width * (embedder.num_layers if self.layers == "all" else 1)

    @property
    def _n_features_out(self) -> int:
        return self._width * len(self.poolings_)

    def _side_by_side(self, blocks: list[list[np.ndarray]]) -> Float[np.ndarray, "N F"]:
        nothing = np.zeros((0, self._width), np.float32)
        return np.hstack([np.stack(block) if block else nothing for block in blocks])

    @property
    def embedder_(self) -> Embedder:
        """The model; after unpickling it is loaded when first needed, and has to be the same."""
        check_is_fitted(self, "poolings_")
        if "_loaded" not in self.__dict__:
            loaded = self._load()
            if model_digest(loaded.bundle) != self.digest_:
                raise WeightsError(
                    f"{self.model}: the weights are not those this vectorizer was fitted with; "
                    "fit it again, or put the old ones back"
                )
            self._loaded = loaded
        return self._loaded

    def _load(self) -> Embedder:
        if isinstance(self.model, Embedder):
            return self.model
        sources = [self.model] if isinstance(self.model, str | Path) else self.model
        return load(
            *sources,
            precision=self.precision,
            device=self.device,
            token_budget=self.token_budget,
        )

    def _embedded(self, texts: list[Text]) -> Iterator[Embedded]:
        # Not `embed`, of which a text may get other last bits beside others.
        stream = self.embedder_.stream
        for found in stream(texts, layers=self.layers, split_sentences=self.split_sentences):
            vectors = found.vectors
            if self.layers == "all":
                vectors = vectors.transpose(1, 0, 2).reshape(len(found.tokens), self._width)
            yield found.tokens, vectors

    def _columns(self, X: Any, *, reset: bool) -> list[list[Text]]:  # noqa: ANN401, N803
        """Give the texts of each column; what is no table has one."""
        if isinstance(X, str):
            raise DataError(f"a list of texts is expected; pass [{X[:30]!r}] for one")
        if hasattr(X, "__array__") or hasattr(X, "toarray"):
            table = validate_data(
                self, X, reset=reset, dtype=None, ensure_2d=False, ensure_all_finite=False
            )
            columns = [table] if table.ndim == 1 else list(table.T)
        else:
            columns = [np.fromiter(X, dtype=object)]
        return [[_checked(text, row) for row, text in enumerate(texts)] for texts in columns]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the weights out: they come with the model again."""
        state = cast("dict[str, Any]", super().__getstate__())
        return {name: part for name, part in state.items() if name != "_loaded"}

    def __sklearn_clone__(self) -> Self:
        """Share an Embedder instead of copying its weights."""
        settings = self.get_params(deep=False)
        shared = {"model": settings.pop("model")}
        copy = type(self)(**shared, **{key: clone(settings[key], safe=False) for key in settings})
        for name in ("_sklearn_output_config", "_metadata_request"):  # as their own clone does
            if name in self.__dict__:
                setattr(copy, name, clone(self.__dict__[name], safe=False))
        return copy

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 -- theirs
        """Say what it takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _pooled(embedded: Iterable[Embedded], how: Pool) -> list[Float[np.ndarray, " F"]]:
    return [pooling.pool(tokens, vectors, how) for tokens, vectors in embedded]


def _checked(text: Any, row: int) -> Text:  # noqa: ANN401 -- that is the question
    if isinstance(text, str):
        return str(text)  # numpy's strings too
    if isinstance(text, list | tuple):
        return text
    raise DataError(
        f"text {row} is {text!r:.40}; expected a string or a list of tokens, and '' where one is "
        "missing"
    )
