"""The weights of a biLM and its softmax as arrays: what reads text without torch."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.errors import ConfigError
from elmore.extras import INSTALL_TORCH
from elmore.model import native
from elmore.model.config import BiLMConfig, Precision, SoftmaxConfig
from elmore.model.native_bilm import Arrays, NativeBiLM
from elmore.model.native_softmax import NativeAdaptiveSoftmax, NativeSoftmax, pack_softmax
from elmore.model.weight_shapes import bilm_shapes, tail_cutoffs

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BiLMArrays:
    """A network that native code runs; `BiLM` is the one that torch runs, and that learns.

    Raises:
        ConfigError: The native library is missing.
    """

    config: BiLMConfig
    arrays: Arrays
    """Weights by their names in `BiLM.state_dict`."""
    precision: Precision = "exact"
    version = None
    """The weights never change."""

    def __post_init__(self) -> None:
        if not native.available():
            raise ConfigError(
                f"a model needs the native library or torch: {native.why_missing()}; install "
                f"torch: {INSTALL_TORCH}"
            )

    @property
    def is_fast(self) -> bool:
        """Whether it runs in less than float32."""
        return self.precision == "fast" and native.has_int8_dot()

    @property
    def num_parameters(self) -> int:
        """The number of weights, those in int8 included."""
        return sum(int(np.prod(array.shape)) for array in self.arrays.values())

    def named_weights(self) -> Iterator[tuple[str, Float[np.ndarray, "..."]]]:
        """Yield the weights as floats, sorted by name."""
        for name, weight in sorted(self.arrays.items()):
            dense = weight.dense() if isinstance(weight, native.Int8Matrix) else weight
            yield name, np.ascontiguousarray(dense)

    def with_precision(self, precision: Precision) -> "BiLMArrays":
        """Return the network in a precision; where "fast" is exact a warning says so."""
        if precision == "fast" and not native.has_int8_dot():
            _log.warning("precision 'fast' is exact here: this CPU has no int8 dot products")
        return self if precision == self.precision else replace(self, precision=precision)

    def truncate(self, num_layers: int) -> "BiLMArrays":
        """Return the network without its upper LSTM layers."""
        lstm = replace(self.config.lstm, num_layers=num_layers)
        config = replace(self.config, lstm=lstm)
        arrays = {name: self.arrays[name] for name in bilm_shapes(config)}
        return replace(self, config=config, arrays=arrays)

    def pack(self) -> NativeBiLM:
        """Return the network for native code."""
        return self._packed

    @cached_property
    def _packed(self) -> NativeBiLM:
        return NativeBiLM.from_arrays(self.config, self.arrays, dynamic=self.is_fast)

    def __getstate__(self) -> Mapping[str, Any]:
        """Leave out the packed weights: another machine may need other ones."""
        return {key: value for key, value in vars(self).items() if key != "_packed"}


@dataclass(frozen=True)
class SoftmaxArrays:
    """A softmax that native code runs."""

    config: SoftmaxConfig
    num_words: int
    arrays: Arrays
    """Weights by their names in `Softmax.state_dict` or `AdaptiveSoftmax.state_dict`."""

    def pack(self, *, dynamic: bool = False) -> NativeSoftmax | NativeAdaptiveSoftmax:
        """Pack the weights for native code; with `dynamic` for W8A8, as in precision "fast"."""
        if dynamic not in self._packed:
            is_adaptive = self.config.kind == "adaptive"
            cutoffs = tail_cutoffs(self.config, self.num_words) if is_adaptive else ()
            self._packed[dynamic] = pack_softmax(self.arrays, cutoffs, dynamic=dynamic)
        return self._packed[dynamic]

    @cached_property
    def _packed(self) -> dict[bool, NativeSoftmax | NativeAdaptiveSoftmax]:
        return {}

    def __getstate__(self) -> Mapping[str, Any]:
        """Leave out the packed weights: another machine may need other ones."""
        return {key: value for key, value in vars(self).items() if key != "_packed"}
