"""What the layers of a frozen biLM cost, and what having them on the disk saves, in the log."""

import logging
import time
from collections.abc import Iterable, Iterator

from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.train.fit import Report

_log = logging.getLogger(__name__)


def tell_layers(layers: Iterable[CachedLayers | None], seconds: float) -> None:
    """Say what was computed or found, and how much it is."""
    there = [some for some in layers if some is not None]
    if not there:
        return
    computed = [some for some in there if some.seconds is not None]
    how = "found in the cache" if not computed else "computed"
    if 0 < len(computed) < len(there):
        how = "computed in part"
    size = sum(some.num_bytes for some in there) / 1e6
    number = f"{sum(map(len, there)):,}"
    _log.info("layers of %s sentences: %s, %.1f s, %.0f MB", number, how, seconds, size)


def timed(
    reports: Iterable[Report], layers: Iterable[CachedLayers | None], updates_per_epoch: float
) -> Iterator[Report]:
    """Pass reports on, and say in the end what an epoch took, and what the biLM would add to it."""
    marks: list[tuple[int, float]] = []  # of the first report and the last
    for report in reports:
        marks[1:] = [(report.step, time.perf_counter())]
        yield report
    there = [some for some in layers if some is not None]
    if len(marks) < 2 or not there:
        return
    (first, begun), (last, ended) = marks
    epoch = (ended - begun) / (last - first) * updates_per_epoch
    added = sum(some.seconds or 0.0 for some in there)
    if added:
        _log.info("an epoch took %.1f s; the biLM in each would add %.1f s", epoch, added)
    else:
        _log.info("an epoch took %.1f s, without the biLM", epoch)
