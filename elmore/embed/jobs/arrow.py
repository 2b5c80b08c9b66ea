"""Rows of vectors as Arrow record batches, for parquet files and Arrow streams.

The columns are `line`, `tokens`, other columns of the input, and `vectors` or one per layer.
pyarrow is imported when needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elmore.embed.jobs.columns import Kind, convert
from elmore.embed.jobs.journal import Row


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a table."""

    width: int
    num_layers: int | None = None
    """Number of columns `layer_0`, …; None for one column `vectors`."""
    pooled: bool = False
    """One vector per row instead of one per token."""
    dtype: str = "float32"
    others: dict[str, Kind] = field(default_factory=dict)
    """The other columns of the input, and their types."""

    @property
    def names(self) -> list[str]:
        """Names of the columns of vectors."""
        if self.num_layers is None:
            return ["vectors"]
        return [f"layer_{number}" for number in range(self.num_layers)]


def schema(layout: Layout) -> Any:  # noqa: ANN401 -- Arrow's own
    """Return the names and types of the columns."""
    import pyarrow

    number = pyarrow.float16() if layout.dtype == "float16" else pyarrow.float32()
    vector = pyarrow.list_(number, layout.width)
    kind = vector if layout.pooled else pyarrow.list_(vector)
    fields = [("line", pyarrow.int64()), ("tokens", pyarrow.list_(pyarrow.string()))]
    fields += [(name, pyarrow.type_for_alias(kind)) for name, kind in layout.others.items()]
    return pyarrow.schema(fields + [(name, kind) for name in layout.names])


def batch(rows: Sequence[Row], layout: Layout) -> Any:  # noqa: ANN401 -- Arrow's own
    """Return rows as one record batch."""
    import pyarrow

    kinds = schema(layout)
    columns = [
        pyarrow.array([row.line for row in rows], pyarrow.int64()),
        pyarrow.array([_printable(row.tokens) for row in rows], kinds.field("tokens").type),
    ]
    for name, kind in layout.others.items():
        values = (convert(row.others.get(name), kind) for row in rows)
        columns.append(
            pyarrow.array(
                [_encodable(value) if isinstance(value, str) else value for value in values],
                kinds.field(name).type,
            )
        )
    for number, name in enumerate(layout.names):
        every = layout.num_layers is not None
        parts = [row.vectors[number] if every else row.vectors for row in rows]
        columns.append(_vectors(parts, layout, kinds.field(name).type))
    return pyarrow.record_batch(columns, schema=kinds)


def _vectors(parts: list[np.ndarray], layout: Layout, kind: Any) -> Any:  # noqa: ANN401
    import pyarrow

    if len(parts) == 1:  # no copy: a long text may be many megabytes
        flat = parts[0]
    else:
        nothing = np.zeros((0, layout.width), layout.dtype)
        flat = np.concatenate([nothing, *(part.reshape(-1, layout.width) for part in parts)])
    vector = kind if layout.pooled else kind.value_type
    values = pyarrow.array(flat.reshape(-1), vector.value_type)
    vectors = pyarrow.FixedSizeListArray.from_arrays(values, layout.width)
    if layout.pooled:
        return vectors
    ends = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int32)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), vectors)


def _printable(tokens: list[str]) -> list[str]:
    return [_encodable(token) for token in tokens]


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
