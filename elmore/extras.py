"""What needs torch, which is optional: reading text on a CPU does not."""

import importlib.util

from elmore.errors import MissingPackageError

INSTALL_TORCH = "pip install 'elmore[torch]'"
TORCH_PACKAGES = ("torch", "h5py")
"""What it installs; h5py reads published weights."""


def has_torch() -> bool:
    """Return whether torch is installed; it is not imported."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # something hides it
        return False
    return spec is not None and spec.has_location  # a mere folder of that name has none


def require_torch(what: str) -> None:
    """Refuse what needs torch where it is not installed.

    Args:
        what: The subject of the sentence, such as "training".

    Raises:
        MissingPackageError: torch is not installed.
    """
    if not has_torch():
        raise MissingPackageError(say_missing(what, "torch"))


def say_missing(what: str, package: str | None) -> str:
    """Return the sentence for something that needs one of `TORCH_PACKAGES`."""
    return f"{what} needs {package}, which is not installed: {INSTALL_TORCH}"
