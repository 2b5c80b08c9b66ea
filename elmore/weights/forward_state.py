"""The forward state of a model after some words of a text, as a value that can be saved.

Shapes: L LSTM layers, D output width of one direction, H cell width.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from elmore import config, npy
from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.model.config import LSTMConfig
from elmore.weights.npz_facts import read_facts, write_with_facts

FORMAT = 1


@dataclass(frozen=True, eq=False)
class ForwardState:
    """What the forward direction remembers of the words that it has read.

    `Embedder.step` takes and returns it. It is never changed, so a text may be continued from it
    more than once.
    """

    output: Float[np.ndarray, "L D"]
    """Output of each LSTM layer at the last word, without skip connections."""
    cell: Float[np.ndarray, "L H"]
    """Memory cells of each LSTM layer."""
    model: str
    """Hash of the model."""
    precision: str
    """ "exact" or "fast"."""

    def __repr__(self) -> str:
        layers, width = self.output.shape
        return f"<ForwardState {layers} layers of {width}, {self.precision}, {self.model[:12]}>"

    def check(self, lstm: LSTMConfig, model: str, precision: str | None = None) -> None:
        """Refuse a state that another model, or another precision, has made.

        Args:
            lstm: Shape of the LSTMs.
            model: Hash of the model.
            precision: Precision of the model; None if it does not matter.

        Raises:
            DataError: The state is none of this model.
        """
        start = "pass a state of this model, or None to start a text"
        if self.model != model:
            raise DataError(
                f"the state is of the model {self.model[:12]}, this is {model[:12]}; {start}"
            )
        if precision is not None and self.precision != precision:
            raise DataError(
                f"the state was computed in {self.precision} precision, this model runs in "
                f"{precision}; load it with precision={self.precision!r}, or pass None to start a "
                "text"
            )
        _check_array("output", self.output, (lstm.num_layers, lstm.output_dim), start)
        _check_array("cell", self.cell, (lstm.num_layers, lstm.cell_dim), start)

    def save(self, path: str | Path) -> None:
        """Write one .npz file; it is complete or absent, and contains no pickle.

        Args:
            path: The file to write; missing folders are made.

        Raises:
            DataError: The file cannot be written.
        """
        facts = _Facts(format=FORMAT, model=self.model, precision=self.precision)
        write_with_facts(Path(path), facts, {"output": self.output, "cell": self.cell})

    @staticmethod
    def load(path: str | Path) -> "ForwardState":
        """Load a state that `save` wrote; `Embedder.step` checks that it fits the model.

        Args:
            path: The file.

        Returns:
            The state.

        Raises:
            DataError: The file is missing or damaged, or something else wrote it.
        """
        try:
            known = config.build(_Facts, read_facts(Path(path), FORMAT), "facts")
            arrays = npy.read_npz(Path(path), ("output", "cell"))
            for name, array in arrays.items():
                if array.ndim != 2 or array.dtype != np.float32:
                    found = f"{array.dtype} of shape {array.shape}"
                    raise DataError(f"{name} is {found}, expected float32 of 2 axes")
        except ElmoreError as error:
            raise DataError(f"{path}: not a readable state ({error})") from error
        return ForwardState(arrays["output"], arrays["cell"], known.model, known.precision)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The metadata of a file."""

    format: int
    model: str
    precision: str

    def __post_init__(self) -> None:
        if self.precision not in ("exact", "fast"):
            raise ConfigError(f"precision must be 'exact' or 'fast', found {self.precision!r}")


def _check_array(
    name: str, array: Shaped[np.ndarray, "..."], shape: tuple[int, int], advice: str
) -> None:
    if array.shape != shape:
        raise DataError(
            f"the state's {name} has the shape {array.shape}, expected {shape}; {advice}"
        )
    if array.dtype != np.float32 or not np.isfinite(array).all():
        found = array.dtype if array.dtype != np.float32 else "NaN or infinity"
        raise DataError(f"the state's {name} must be finite float32, found {found}; {advice}")
