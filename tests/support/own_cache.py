"""Make a cache for tests that start processes, in which the native library is already built.

Used by tests/test_guides and contracts/test_task_resume.
"""

from pathlib import Path

from elmore import cache


def make_cache(folder: Path) -> Path:
    """Make a cache that is empty but for the user's native library: each would build its own."""
    folder.mkdir()
    (folder / "native").symlink_to(cache.cache_dir() / "native")
    return folder
