"""What reads files from outside: how its files are made, read and used, by which modules."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FORMATS = Path(__file__).parents[1] / "formats"


def _leave(folder: Path) -> None:
    """Repair nothing."""


@dataclass(frozen=True)
class Reader:
    """One way into the package."""

    name: str
    modules: tuple[str, ...]
    """Those of the package that read a file on the way."""
    make: Callable[[Path], object]
    """Write valid files into an empty folder."""
    read: Callable[[Path], object]
    """Read them, and use what was read."""
    repair: Callable[[Path], None] = _leave
    """Write the checksums anew, so that damage comes through to what is behind them."""
    share: float = 1.0
    """How many of the seeds it gets: what is slow gets fewer."""
