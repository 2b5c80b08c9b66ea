"""Count what the server does, in the text format of Prometheus."""

import bisect
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from elmore.serve.batcher import Batch

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192)
_STATM = Path("/proc/self/statm")


class Histogram:
    """A histogram with fixed buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """Yield its lines; buckets are cumulative."""
        total = 0
        comma = "," if labels else ""
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.sum:.6f}"
        yield f"{name}_count{braces} {total}"


class Metrics:
    """Counters of one server; only its event loop uses them."""

    def __init__(self, waiting: Callable[[], int], unsent: Callable[[], int]) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.batch_tokens = Histogram(TOKENS)
        self.batch_seconds = Histogram(SECONDS)
        self.tokens = 0
        self.in_flight = 0
        self._waiting, self._unsent = waiting, unsent

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request; status 499 means that the client disconnected."""
        self.requests[route, status] += 1
        self.seconds.setdefault(route, Histogram(SECONDS)).add(seconds)

    def batch(self, batch: Batch) -> None:
        """Count a batch of the model."""
        self.tokens += batch.done
        self.batch_tokens.add(batch.tokens)
        self.batch_seconds.add(batch.seconds)

    def text(self) -> str:
        """Return all metrics."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _about("elmore_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.requests.items()):
            yield f'elmore_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _about("elmore_request_seconds", "histogram", "Until the response is sent.")
        for route, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("elmore_request_seconds", f'route="{route}"')
        yield from _about(
            "elmore_batch_tokens",
            "histogram",
            "Tokens of requests that ran together, as the queue counts them.",
        )
        yield from self.batch_tokens.lines("elmore_batch_tokens")
        yield from _about(
            "elmore_batch_seconds", "histogram", "Time of the model for a batch or a step."
        )
        yield from self.batch_seconds.lines("elmore_batch_seconds")
        for name, kind, about, value in (
            (
                "elmore_tokens_total",
                "counter",
                "Tokens of finished work, as the queue counts them.",
                self.tokens,
            ),
            ("elmore_requests_in_flight", "gauge", "Requests not answered yet.", self.in_flight),
            (
                "elmore_queue_tokens",
                "gauge",
                "Tokens in the queue, as it counts them.",
                self._waiting(),
            ),
            ("elmore_unsent_bytes", "gauge", "Reserved for unsent responses.", self._unsent()),
            ("process_cpu_seconds_total", "counter", "User and system.", time.process_time()),
            ("process_resident_memory_bytes", "gauge", "Memory.", _resident()),
        ):
            yield from _about(name, kind, about)
            yield f"{name} {value}"


def _about(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _resident() -> int:
    """Return the resident memory in bytes; 0 where the system does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
