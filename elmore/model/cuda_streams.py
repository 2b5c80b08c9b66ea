"""Run independent work on a GPU at the same time, in several CUDA streams.

A step of an LSTM alternates between matrix products and element-wise kernels, and neither fills a
GPU. The two directions of a biLM do not depend on each other: in two streams, the kernels of one
run while those of the other wait.
"""

from collections.abc import Callable, Sequence

import torch

from elmore.model.native_threads import Result


def run_in_streams(
    functions: Sequence[Callable[[], Result]], side_streams: Sequence[torch.cuda.Stream]
) -> list[Result]:
    """Launch the first function in the current stream, and each other one in a side stream.

    They are launched in this order, after the work of the current stream, which then waits for all
    of them. What a function reads must live until this returns: memory of the current stream that
    is freed before may be overwritten while a side stream still reads it.
    """
    if len(functions) < 2:
        return [function() for function in functions]
    first, *others = functions
    used = list(side_streams[: len(others)])
    current = torch.cuda.current_stream(used[0].device)
    for stream in used:
        stream.wait_stream(current)
    try:
        results = [first()]
        for function, stream in zip(others, used, strict=True):
            with torch.cuda.stream(stream):
                results.append(function())
    finally:
        for stream in used:
            current.wait_stream(stream)
    return results
