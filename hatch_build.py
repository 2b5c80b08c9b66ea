"""Compile the native library into the wheel.

Without a C compiler, or with ELMORE_NATIVE=0, the wheel is pure Python: embedding on a CPU is then
slower and needs torch, unless there is a compiler where it is used first.
"""

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):
    """Runs for wheels alone; an editable install builds the library on first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library, for threads and for one, and the tag of this platform to the wheel."""
        if version == "editable" or os.environ.get("ELMORE_NATIVE") == "0":
            return
        package = Path(self.root) / "elmore"
        build = _load(package / "native_build.py")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        libraries = {folder / build.LIBRARY: True, folder / build.SERIAL: False}
        try:
            for library, threads in libraries.items():
                build.compile_library(package / "model" / "native", library, threads=threads)
        except build.NativeBuildError as error:
            self.app.display_warning(f"no native library in this wheel: {error}; {build.SLOWER}")
            return
        for library in libraries:
            build_data["force_include"][str(library)] = f"elmore/model/native/{library.name}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled libraries."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            folder.cleanup()


def _load(path: Path) -> ModuleType:
    """Import one file of the package; the package itself needs numpy."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
