"""Limits of one request, of one connection, and of all of them together."""

import math
from dataclasses import asdict, dataclass

from elmore.errors import ConfigError

MIN_UNSENT_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes and timeouts; `elmore serve` has an option for most of them."""

    body_bytes: int = 1 << 20
    body_seconds: float = 20
    """Time for a client to send a body."""
    header_seconds: float = 10
    """Time for a client to send the headers."""
    response_seconds: float = 120
    """Time from the end of the request body to the response."""
    send_seconds: float = 30
    """Time for a client to receive a next part of its response."""
    delivery_seconds: float = 300
    """Time for a client to receive all of its response."""
    idle_seconds: float = 30
    """Time after which a connection without a request is closed."""
    shutdown_seconds: float = 150
    """Time for the server to shut down: to respond, and for clients to receive it."""
    hang_seconds: float = 120
    """Time in one call after which the worker counts as hung; requests time out earlier."""
    texts: int = 256
    """Texts of a request."""
    tokens: int = 8192
    """Tokens of all texts of a request."""
    queue_tokens: int = 32768
    batch_tokens: int = 4096
    unsent_bytes: int = 256 << 20
    """Bytes of all responses that are being computed or sent, 4 for each number."""
    connections: int = 900
    """Less than 1,024, the usual limit of open files of a process."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"limits.{name}: found {value!r}, expected a finite number above 0"
                )
        if self.unsent_bytes < MIN_UNSENT_BYTES:
            raise ConfigError(
                f"limits.unsent_bytes: found {self.unsent_bytes}, expected {MIN_UNSENT_BYTES} or "
                "more: the response to one sentence would not fit"
            )
