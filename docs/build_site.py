"""Build the documentation site: python docs/build_site.py, into build/site.

The pages of docs/ read well where they are, so they are written for that: links lead to files of
the repository, and equations are TeX. A site has only its own pages and should need neither a
network nor a script to show an equation. So the pages are copied first: what they link to outside
docs/ comes along, equations become MathML, and zensical makes the site of the copy. A warning of
zensical's fails the build.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
OUTSIDE = Path("repository")  # where files from outside docs/ are found on the site

_CODE = re.compile(r"^ *```.*?^ *```$|\$`[^`]+`\$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`]+)`\$")


def main() -> None:
    """Copy the pages and make a site of them."""
    pages = ROOT / tomllib.loads(CONFIG.read_text("utf-8"))["project"]["docs_dir"]
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    copy_pages(pages)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)  # noqa: S603


def copy_pages(pages: Path) -> None:
    """Write every page of docs/, and every file that one of them leads to, for the site."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        text, targets = for_site(page)
        (pages / place(page)).parent.mkdir(parents=True, exist_ok=True)
        (pages / place(page)).write_text(text, "utf-8")
        for target in targets - seen:
            seen.add(target)
            if target.suffix in (".md", ".py"):
                waiting.append(target)
            elif not target.is_relative_to(DOCS):
                (pages / place(target)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(target, pages / place(target))


def place(path: Path) -> Path:
    """Say where a file of the repository stands on the site; code becomes a page to read."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    here = OUTSIDE / path.relative_to(ROOT)
    return here.with_name(here.name + ".md") if path.suffix == ".py" else here


def for_site(page: Path) -> tuple[str, set[Path]]:
    """Give a page as the site wants it, and the files that it links to."""
    text = page.read_text("utf-8")
    if page.suffix == ".py":
        return f"# {page.relative_to(ROOT)}\n\n```py\n{text}```\n", set()
    targets: set[Path] = set()

    def moved(link: re.Match[str]) -> str:
        target = (page.parent / link[1]).resolve()
        if not target.is_file():
            sys.exit(f"{page.relative_to(ROOT)}: {link[1]} is no file; link to one")
        targets.add(target)
        return os.path.relpath(place(target), place(page).parent)

    def prose(part: str) -> str:
        part = _BLOCK.sub(lambda tex: f"<div>{convert(tex[1], display='block')}</div>", part)
        part = _INLINE.sub(lambda tex: convert(tex[1]), part)
        return _LINK.sub(moved, part)

    return outside_code(prose, text), targets


def outside_code(change: Callable[[str], str], text: str) -> str:
    """Change what is neither in a fence nor in backticks."""
    done, parts = 0, []
    for code in _CODE.finditer(text):
        if code[0].startswith("$"):
            continue  # an equation: $`x`$
        parts += [change(text[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*parts, change(text[done:])])


if __name__ == "__main__":
    main()
