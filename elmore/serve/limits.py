"""How much one request, one connection, and all together may ask for."""

import math
from dataclasses import asdict, dataclass

from elmore.errors import ConfigError

MIN_UNSENT_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes, and seconds of patience; `elmore serve` has an option for most of them."""

    body_bytes: int = 1 << 20
    body_seconds: float = 20
    """To send a body in."""
    header_seconds: float = 10
    """To send the headers in."""
    answer_seconds: float = 120
    """From the end of the body to the answer."""
    send_seconds: float = 30
    """In which a client takes a next part of its answer."""
    delivery_seconds: float = 300
    """In which a client takes all of its answer."""
    idle_seconds: float = 30
    """That a connection without a request is kept."""
    end_seconds: float = 150
    """In which the server ends: time for an answer, and for it to be taken."""
    hang_seconds: float = 120
    """Of one piece of work after which the worker counts as hung: nobody waits for its answer."""
    texts: int = 256
    """In a request."""
    tokens: int = 8192
    """In all texts of a request."""
    queue_tokens: int = 32768
    batch_tokens: int = 4096
    unsent_bytes: int = 256 << 20
    """Of all answers that are being computed or sent, as numbers: 4 bytes each."""
    connections: int = 900
    """Fewer than the 1,024 files that a process may commonly have open."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"limits.{name}: found {value!r}, expected a finite number above 0"
                )
        if self.unsent_bytes < MIN_UNSENT_BYTES:
            raise ConfigError(
                f"limits.unsent_bytes: found {self.unsent_bytes}, expected {MIN_UNSENT_BYTES} or "
                "more: the answer to one sentence would not fit"
            )
