"""How much one request, one connection, and all together may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes, and seconds of patience."""

    body_bytes: int = 1 << 20
    body_seconds: float = 20
    """To send a body in."""
    header_seconds: float = 10
    """To send the headers in."""
    answer_seconds: float = 120
    """From the end of the body to the answer."""
    send_seconds: float = 30
    """In which a client takes a next part of its answer."""
    idle_seconds: float = 30
    """That a connection without a request is kept."""
    end_seconds: float = 150
    """In which the server ends: time for an answer, and for it to be taken."""
    tokens: int = 8192
    """In all texts of a request."""
    queue_tokens: int = 32768
    batch_tokens: int = 4096
    connections: int = 900
    """Fewer than the 1,024 files that a process may commonly have open."""
