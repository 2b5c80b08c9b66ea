"""ELMo in Keras 3 models, on any of its backends: the biLM reads, Keras learns the mix.

    layers = embed(elmo, texts)                                  # (texts, tokens, layers, width)
    mixed = ElmoMix()(keras.Input((None, *layers.shape[2:])))    # (texts, tokens, width)

The biLM is frozen and stays outside the Keras model, so that it reads each text once and not in
every epoch, and a saved model is small. What the layers weigh is learned with the task:

    mixed = gamma * sum_l softmax(weights)[l] * layers[l]         (Peters et al., 2018, eq. 1)

Shapes: B texts, T tokens, L layers (the token layer is one of them), D width of one direction.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import DType, Embedder
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
    """Give every layer of every token, zeros where a text is over.

    All texts are as long as the longest, or cut and filled to `length`.
    """
    found = elmo.embed(texts, layers="all", dtype=dtype)
    if length is None:
        length = max((len(sentence.tokens) for sentence in found), default=0)
    layers = np.zeros((len(found), length, elmo.num_layers, elmo.width), dtype)
    for row, sentence in zip(layers, found, strict=True):
        vectors = sentence.vectors[:, :length].swapaxes(0, 1)  # (T, L, 2D)
        row[: len(vectors)] = vectors
    return layers


class ElmoBatches(keras.utils.PyDataset):
    """Texts that are read when their batch is due, for `fit`, where all layers are too many.

    With labels a batch is a pair. A text is read again in each epoch.
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


@keras.saving.register_keras_serializable("elmore")
class ElmoMix(keras.layers.Layer):
    """One learned weight per layer and one learned scale; tokens that are all zero are masked.

    It starts as the plain average of the layers. The mask goes on to recurrent and pooling layers.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 -- those of every Keras layer
        super().__init__(**options)
        self.supports_masking = True

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make a weight for each layer."""
        if len(shape) != 4:
            raise ConfigError(f"expected layers (texts, tokens, layers, width), found {shape}")
        self.layer_weights = self.add_weight((shape[2],), initializer="zeros", name="weights")
        self.gamma = self.add_weight((), initializer="ones", name="gamma")

    def call(self, layers: Any) -> Any:  # noqa: ANN401 -- a tensor of Keras's backend
        """Mix the layers of each token."""
        shares = keras.ops.softmax(self.layer_weights)
        return self.gamma * keras.ops.einsum("l,btld->btd", shares, layers)

    def compute_mask(self, layers: Any, previous: Any = None) -> Any:  # noqa: ANN401
        """Say which tokens there are."""
        return keras.ops.any(keras.ops.not_equal(layers, 0), axis=(2, 3))

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Say what comes out."""
        return (shape[0], shape[1], shape[3])

    def shares(self) -> list[float]:
        """Say what the layers weigh now: numbers that sum to one."""
        return keras.ops.convert_to_numpy(keras.ops.softmax(self.layer_weights)).tolist()
