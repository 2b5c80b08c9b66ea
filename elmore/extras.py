"""What needs torch, which is optional: reading text on a CPU does not."""

import importlib.util

from elmore.errors import MissingPackageError

INSTALL_TORCH = "pip install 'elmore[torch]'"
TORCH_PACKAGES = ("torch", "h5py")
"""What it installs; h5py reads published weights."""


def has_torch() -> bool:
    """Return whether torch is installed; it is not imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):  # something hides it
        return False


def require_torch(what: str) -> None:
    """Refuse what needs torch where it is not installed.

    Args:
        what: The subject of the sentence, such as "training".

    Raises:
        MissingPackageError: torch is not installed.
    """
    if not has_torch():
        raise MissingPackageError(f"{what} needs torch, which is not installed: {INSTALL_TORCH}")
