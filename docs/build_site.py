"""Build the documentation site: python docs/build_site.py, into build/site.

The pages of docs/ are written to be read in the repository: links lead to its files, and equations
are TeX. The site has only its own pages, and shows equations without network and without scripts.
So this script copies the pages, adds the files outside docs/ that they link to, converts equations
to MathML, runs zensical on the copy, and adds the bundled model as a live page. A warning of
zensical and a broken link within the site make the build fail.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from latex2mathml.converter import convert

from elmore.browser.site import write_site

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CONFIG = ROOT / "zensical.toml"
LIVE = "live"  # the folder of the bundled model in the browser; guides/browser.md leads to it
OUTSIDE = Path("repository")  # where files from outside docs/ are found on the site

_CODE = re.compile(r"^ *```.*?^ *```$|\$`[^`]+`\$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`]+)`\$")


def main() -> None:
    """Copy the pages and make a site of them."""
    config = tomllib.loads(CONFIG.read_text("utf-8"))["project"]
    pages, site = ROOT / config["docs_dir"], ROOT / config["site_dir"]
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    copy_pages(pages)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603
        sys.exit(1)
    write_site(site / LIVE)
    if broken := broken_links(site):
        sys.exit("\n".join(broken))


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
    """Return the path of a repository file on the site; code becomes a page."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    here = OUTSIDE / path.relative_to(ROOT)
    return here.with_name(here.name + ".md") if path.suffix == ".py" else here


def for_site(page: Path) -> tuple[str, set[Path]]:
    """Return a page for the site, and the files that it links to."""
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
        part = _BLOCK.sub(lambda tex: _shown(tex[1]), part)
        part = _INLINE.sub(lambda tex: convert(tex[1]), part)
        return _LINK.sub(moved, part)

    return outside_code(prose, text), targets


def _shown(tex: str) -> str:
    return f'<div class="equation">{convert(tex, display="block")}</div>'


def outside_code(change: Callable[[str], str], text: str) -> str:
    """Change what is neither in a fence nor in backticks."""
    done, parts = 0, []
    for code in _CODE.finditer(text):
        if code[0].startswith("$"):
            continue  # an equation: $`x`$
        parts += [change(text[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*parts, change(text[done:])])


class _Page(HTMLParser):
    """The links of a page, and the names that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and the ids of a tag."""
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            elif name == "id":
                self.names.add(value or "")


def broken_links(site: Path) -> list[str]:
    """Name the links within a site that lead nowhere; 404.html alone is written for a server."""
    files = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    pages = {path: _Page(path.read_text("utf-8")) for path in files}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue  # another site
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            named = not parts.fragment or target not in pages
            if not target.is_file() or not (named or parts.fragment in pages[target].names):
                broken.append(f"{path.relative_to(site)}: {link} leads nowhere")
    return broken


if __name__ == "__main__":
    main()
