"""Print the size of an installation: every package that elmore requires, as installed here.

python benchmarks/install_size.py
"""

import argparse
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    waiting, sizes = ["elmore"], {}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in sizes:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        sizes[name] = size_of(package)
        requirements = map(Requirement, package.requires or [])
        waiting += [one.name for one in requirements if not one.marker or one.marker.evaluate()]
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:8]:
        print(f"{size / 1e6:8.1f} MB  {name} {distribution(name).version}")
    print(f"{sum(sizes.values()) / 1e6:8.1f} MB  in all, {len(sizes)} packages")


def size_of(package: Distribution) -> int:
    """Return the bytes of a package's files."""
    paths = [Path(str(package.locate_file(file))) for file in package.files or []]
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main()
