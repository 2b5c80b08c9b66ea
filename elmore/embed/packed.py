"""Embed texts in packed batches: a bounded number of tokens at a time, results in input order.

A window of texts is packed into rows (`packing.py`), which run through the LSTMs in chunks of time
steps. Rows contain words only: each sentence starts from the state after its boundary token.

Shapes: n sentences, T words in all, D width of one direction, L LSTM layers.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.device import Array, DeviceLimits, PackedInputs
from elmore.embed.packing import pack_sequences
from elmore.embed.projection_table import DistinctWords, ProjectionTable
from elmore.embed.runtime import Runtime
from elmore.embed.sentence_layers import SentenceLayers
from elmore.embed.tokenized import TokenizedText
from elmore.embed.windows import Window, split_windows
from elmore.errors import DataError
from elmore.model.state import BOTH
from elmore.text.characters import number_words

_log = logging.getLogger(__name__)

MIN_ROWS = 4
SHORT = 256  # words: up to this length a sentence gets all rows, above it see `num_rows`

Select = Callable[[SentenceLayers], Array]
"""Selects from all layers of sentences what is to leave the device."""


def embed_texts(
    runtime: Runtime,
    texts: Iterable[TokenizedText],
    select: Select,
    directions: Sequence[int] = BOTH,
) -> Iterator[tuple[TokenizedText, list[Float[np.ndarray, "*L T 2*D"]]]]:
    """Yield each text with what is selected of the layers of its segments.

    The layers have the directions that are asked for, side by side; the others are not computed.
    The arrays are views of a window, to be copied by the caller. A GPU runs one window ahead, so an
    error in the texts may be raised before vectors that are already computed are yielded.
    """
    max_in_flight = 1 if runtime.device.type == "cuda" else 0
    in_flight: deque[tuple[Window, list[Batch]]] = deque()
    for window in split_windows(texts, runtime.token_budget):
        lengths = np.array(window.lengths, np.int64)
        batches = list(_launch(runtime, window.words, lengths, select, directions))
        in_flight.append((window, batches))
        if len(in_flight) > max_in_flight:
            yield from _collect(*in_flight.popleft())
    for launched in in_flight:
        yield from _collect(*launched)


def _collect(
    window: Window, batches: list["Batch"]
) -> Iterator[tuple[TokenizedText, list[np.ndarray]]]:
    arrays = chain.from_iterable(batch.arrays() for batch in batches)
    for text in window.texts():
        yield text, [next(arrays) for _ in text.lengths]


def _launch(
    runtime: Runtime,
    words: list[str],
    lengths: Int[np.ndarray, " n"],
    select: Select,
    directions: Sequence[int],
) -> Iterator["Batch"]:
    """Run segments, as many at a time as the token budget allows.

    If memory runs out, halve the budget and the chunks: a chunk has the same buffers for one
    sentence as for many.
    """
    ends = np.concatenate([[0], np.cumsum(lengths)])
    num_tokens = ends + 2 * np.arange(len(ends))  # before each segment, boundary tokens included
    begin = 0
    while begin < len(lengths):
        most = num_tokens[begin] + runtime.token_budget
        end = max(begin + 1, int(np.searchsorted(num_tokens, most, side="right")) - 1)
        tokens = int(num_tokens[end] - num_tokens[begin])
        of_batch = words[ends[begin] : ends[end]]
        is_one, batch = end - begin == 1, None
        can_reduce = not is_one or runtime.can_shorten_chunks
        try:
            with runtime.exclusive(), runtime.device.inference():
                batch = Batch(runtime, of_batch, lengths[begin:end], select, directions)
        except runtime.device.out_of_memory as error:
            if not can_reduce:
                raise DataError(
                    f"a sentence of {tokens} tokens does not fit into the memory of the GPU; split "
                    "it, or use device='cpu'"
                ) from error
        if batch is None:  # not above: the error keeps the tensors of the batch alive
            runtime.reduce_memory(runtime.token_budget if is_one else tokens // 2)
            _log.warning(
                "out of memory in a batch of %d tokens; continuing with %d at most, in chunks of "
                "%d steps",
                tokens,
                runtime.token_budget,
                runtime.limits.max_chunk_steps,
            )
            continue
        begin = end
        yield batch


class Batch:
    """Segments whose computation has been launched; only `arrays` waits for the device.

    Segments of similar length are packed together: one packed run for each number of rows. They
    follow each other in `words`.
    """

    def __init__(
        self,
        runtime: Runtime,
        words: list[str],
        lengths: Int[np.ndarray, " n"],
        select: Select,
        directions: Sequence[int] = BOTH,
    ) -> None:
        distinct_words, text = number_words(words)
        distinct = DistinctWords(distinct_words, runtime.token_vectors(distinct_words))
        self._lengths, self._num_rows = lengths, _num_rows_by_length(lengths, runtime)
        self._fetches = {}
        for rows in np.unique(self._num_rows).tolist():
            in_group = self._num_rows == rows
            group_lengths = lengths[in_group]
            group_text = text[np.repeat(in_group, lengths)]
            if rows:
                group = distinct.used_in(group_text, runtime.device)
                layers = _run_packed(runtime, *group, group_lengths, rows, directions)
            else:
                width = len(directions) * distinct.vectors.shape[1]
                layers = runtime.device.empty(runtime.num_layers, 0, width)
            selected = select(runtime.sentence_layers(layers, group_lengths))
            self._fetches[rows] = runtime.device.fetch(selected)

    def arrays(self) -> Iterator[Float[np.ndarray, "*L T 2*D"]]:
        """Yield the array of each segment, once the device is done."""
        fetched = {rows: fetch() for rows, fetch in self._fetches.items()}
        begins = dict.fromkeys(fetched, 0)  # of the next segment of each group
        for rows, length in zip(self._num_rows.tolist(), self._lengths.tolist(), strict=True):
            begin, begins[rows] = begins[rows], begins[rows] + length
            yield fetched[rows][..., begin : begin + length, :]


def _num_rows_by_length(lengths: Int[np.ndarray, " n"], runtime: Runtime) -> Int[np.ndarray, " n"]:
    """Return the number of rows in which to pack each sentence, 0 for an empty one.

    It depends on the sentence's own length alone. Long ones get fewer rows, or most rows would wait
    for the longest: each doubling of the length halves them.
    """
    distinct, inverse = np.unique(lengths, return_inverse=True)
    rows = [num_rows(length, runtime) if length else 0 for length in distinct.tolist()]
    return np.array(rows, dtype=np.int64)[inverse]


def num_rows(length: int, runtime: Runtime) -> int:
    """Return the number of rows for sentences of this length.

    Where shapes are fixed, it is one for which every element is computed in the same way.
    """
    doublings = max(0, math.ceil(math.log2(length / SHORT)))
    rows = max(MIN_ROWS, runtime.limits.max_rows >> doublings)
    if not runtime.fixed_shapes:
        return rows
    return runtime.device.stable_rows(rows, runtime.config.lstm.cell_dim)


def chunk_lengths(num_rows: int, limits: DeviceLimits) -> tuple[int, int]:
    """Return the fewest and the most steps of a chunk; where shapes are fixed, multiples between.

    Fewer rows take more steps.
    """
    per_step = max(1, limits.max_rows // num_rows)
    return limits.chunk_steps * per_step, limits.max_chunk_steps * per_step


def _read_vectors(
    vectors: Float[Array, "N D"], words: Int[np.ndarray, "S B"], size: int, chunk: int
) -> PackedInputs:
    """Return what a chunk of some steps reads, where each step projects its words."""
    return PackedInputs(vectors, words[chunk * size : (chunk + 1) * size], projected=False)


def _run_packed(
    runtime: Runtime,
    distinct: DistinctWords,
    text: Int[np.ndarray, " T"],
    lengths: Int[np.ndarray, " n"],
    num_rows: int,
    directions: Sequence[int],
) -> Float[Array, "L+1 T 2*D"]:
    """Return all layers of sentences that follow each other in `text`, given as word ids.

    On a GPU everything is launched asynchronously.
    """
    vectors = distinct.vectors
    # More rows than this would save no steps: there are at least those of the longest sentence.
    if not runtime.fixed_shapes:
        num_rows = min(num_rows, -(-len(text) // int(lengths.max())))
    shortest, longest = chunk_lengths(num_rows, runtime.limits)
    multiple = shortest if runtime.fixed_shapes else 1
    plan = runtime.device.place(pack_sequences(lengths, num_rows, multiple), longest)
    width = vectors.shape[1]
    layers = runtime.device.empty(runtime.num_layers, len(text), len(directions) * width)
    tokens = vectors[runtime.put(text)]
    initial = runtime.reset_rows(num_rows)
    # Not in `run`: a GPU runs the directions in two streams, and caches are used in one.
    # An idle row reads any word; its outputs are not used.
    projects = runtime.device.projects_in_steps(num_rows, width)
    tables = [
        partial(_read_vectors, vectors, text[plan.positions[direction]], longest)
        if projects
        else ProjectionTable(runtime, distinct, direction, text[plan.positions[direction]], longest)
        for direction in directions
    ]

    def run(column: int, direction: int) -> None:
        half = slice(column * width, (column + 1) * width)
        layers[0, :, half] = tokens
        states = reset_states = initial.direction(direction)
        for number in range(-(-len(plan.positions[direction]) // longest)):
            states = plan.run(
                runtime.runners[direction],
                direction,
                number,
                tables[column](number),
                states,
                reset_states,
                out=layers[1:, :, half],
            )

    runtime.device.run_together(
        [partial(run, column, direction) for column, direction in enumerate(directions)]
    )
    return layers
