"""ELMo in Keras 3 models, on any backend: elmore computes the layers, Keras trains their mix.

    layers = embed(elmo, texts)                                  # (texts, tokens, layers, width)
    mixed = ElmoMix()(keras.Input((None, *layers.shape[2:])))    # (texts, tokens, width)

The biLM is frozen and stays outside the Keras model: each text is embedded once and not in every
epoch, and a saved model is small. The layer weights are trained with the task:

    mixed = gamma * sum_l softmax(weights)[l] * layers[l]         (Peters et al., 2018, eq. 1)

Shapes: B texts, T tokens, L layers (the token layer is one of them), D width of one direction.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import DType
from elmore.embed.tokenized import Text
from elmore.errors import ConfigError, DataError, MissingPackageError

try:
    import keras
except ImportError as error:
    raise MissingPackageError(
        f"elmore.integrations.keras needs {error.name}: pip install keras, and set "
        "KERAS_BACKEND=torch"
    ) from error

__all__ = ["ElmoBatches", "ElmoMix", "embed"]


def embed(
    elmo: Embedder, texts: Iterable[Text], *, length: int | None = None, dtype: DType = "float32"
) -> Float[np.ndarray, "B T L 2*D"]:
    """Return every layer of every token, padded with zeros.

    Args:
        elmo: The model.
        texts: Strings or lists of tokens.
        length: Pad and truncate all texts to this length; default: the longest text.
        dtype: Type of the numbers returned.

    Returns:
        An array (texts, tokens, layers, width).

    Raises:
        ConfigError: The length is below 1.
        DataError: Something in `texts` is not a text.
    """
    _check_length(length)
    embedded = elmo.embed(texts, layers="all", dtype=dtype)
    if length is None:
        length = max((len(sentence.tokens) for sentence in embedded), default=0)
    layers = np.zeros((len(embedded), length, elmo.num_layers, elmo.width), dtype)
    for row, sentence in zip(layers, embedded, strict=True):
        vectors = sentence.vectors[:, :length].swapaxes(0, 1)  # (T, L, 2D)
        row[: len(vectors)] = vectors
    return layers


class ElmoBatches(keras.utils.PyDataset):
    """Batches for `fit` that are embedded on demand, when all layers do not fit into memory.

    A text is embedded again in each epoch.

    Args:
        elmo: The model.
        texts: Strings or lists of tokens.
        labels: One per text; a batch is then a pair.
        batch_size: Texts per batch.
        length: Pad and truncate texts to this length; default: the longest of each batch.

    Raises:
        ConfigError: The batch size or the length is below 1.
        DataError: There are more or fewer labels than texts.
    """

    def __init__(
        self,
        elmo: Embedder,
        texts: Sequence[Text],
        labels: Sequence[Any] | np.ndarray | None = None,
        *,
        batch_size: int = 32,
        length: int | None = None,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, found {batch_size}")
        _check_length(length)
        if labels is not None and len(labels) != len(texts):
            raise DataError(f"{len(texts)} texts have {len(labels)} labels")
        self._elmo, self._texts, self._length = elmo, texts, length
        self._labels = None if labels is None else np.asarray(labels)
        self._batch_size = batch_size

    def __len__(self) -> int:
        return math.ceil(len(self._texts) / self._batch_size)

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401 -- an array, or a pair of them
        part = slice(number * self._batch_size, (number + 1) * self._batch_size)
        layers = embed(self._elmo, self._texts[part], length=self._length)
        return layers if self._labels is None else (layers, self._labels[part])


def _check_length(length: int | None) -> None:
    if length is not None and length < 1:
        raise ConfigError(f"length must be at least 1, or None, found {length}")


@keras.saving.register_keras_serializable("elmore")
class ElmoMix(keras.layers.Layer):
    """Scalar mix: one trained weight per layer and one trained scale; padding is masked.

    An untrained mix is the average of the layers. The mask is passed on to later layers.

    Args:
        options: Those of every Keras layer, such as `name`.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 -- those of every Keras layer
        super().__init__(**options)
        self.supports_masking = True

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Create one weight per layer."""
        if len(shape) != 4:
            raise ConfigError(f"expected layers (texts, tokens, layers, width), found {shape}")
        self.layer_weights = self.add_weight((shape[2],), initializer="zeros", name="weights")
        self.gamma = self.add_weight((), initializer="ones", name="gamma")

    def call(self, layers: Any) -> Any:  # noqa: ANN401 -- a tensor of Keras's backend
        """Mix the layers of each token."""
        layer_weights = keras.ops.softmax(self.layer_weights)
        return self.gamma * keras.ops.einsum("l,btld->btd", layer_weights, layers)

    def compute_mask(self, layers: Any, previous: Any = None) -> Any:  # noqa: ANN401
        """Return a mask of the tokens that are not padding."""
        return keras.ops.any(keras.ops.not_equal(layers, 0), axis=(2, 3))

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return (texts, tokens, width)."""
        return (shape[0], shape[1], shape[3])

    def normalized_weights(self) -> list[float]:
        """Return the current layer weights; they sum to one."""
        return keras.ops.convert_to_numpy(keras.ops.softmax(self.layer_weights)).tolist()
