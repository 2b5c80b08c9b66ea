"""The pages of docs/: what they link to is there, what they quote is the code, all are in the nav.

The site itself is built by `make docs`; here its pages are read as files, without its tools.
"""

import ast
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

import elmore

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
READ = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
WITH_COMMANDS = (DOCS / "serve.md", DOCS / "integrations/index.md")  # which a test of theirs runs
QUOTE = re.compile(r'^```py title="(\S+): (\S+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
QUOTES = QUOTE.findall((DOCS / "how-it-works.md").read_text("utf-8"))


def prose(page: Path) -> str:
    """A page without what stands in fences or backticks."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", "", text)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slug(title) for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


def slug(title: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def broken(page: Path) -> list[str]:
    """The links of a page, pictures too, that lead nowhere in the repository."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue  # another site: there is no network in a test
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert broken(page) == []


def test_a_link_to_nothing_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](#one) [b](#two) [c](gone.md) ![d](gone.svg) `[e](no)`\n")
    assert broken(page) == ["#two", "gone.md", "gone.svg"]


def listed(nav: list) -> list[str]:
    """The pages of a navigation, those of its sections with them."""
    found = []
    for entry in nav:
        for part in entry.values() if isinstance(entry, dict) else [entry]:
            found += listed(part) if isinstance(part, list) else [part]
    return found


def test_every_page_is_in_the_navigation_once():
    site = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    assert sorted(listed(site["nav"])) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def source(file: str, name: str) -> str:
    """The code of a function, or of a method named with its class."""
    text = (ROOT / file).read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        inside = [each for each in ast.walk(node) if getattr(each, "name", "") == part]
        assert inside, f"{file} has no {name}"
        node = inside[0]
    found = ast.get_source_segment(text, node, padded=True)
    assert found is not None
    return found


@pytest.mark.parametrize(("file", "name", "quoted"), QUOTES, ids=[quote[1] for quote in QUOTES])
def test_quoted_code_is_the_code(file, name, quoted):
    block = textwrap.dedent(quoted).strip("\n")
    code = source(file, name)
    depths = {len(line) - len(line.lstrip()) for line in code.splitlines() if line.strip()}
    indented = (textwrap.indent(block, " " * depth) for depth in depths)
    assert any(each in code for each in indented), f"{file}: {name} does not read so"


def test_every_equation_stands_beside_code():
    assert len(QUOTES) > 9


def test_the_reference_has_every_public_name():
    page = (DOCS / "reference.md").read_text("utf-8")
    shown = set(re.findall(r"^::: elmore\.(\w+)$", page, flags=re.MULTILINE))
    assert shown == set(elmore.__all__)


def test_code_stands_in_fences_that_a_test_reads():
    """`python` runs everywhere; `sh` where a test has the files; `py` is quoted, or of the past."""
    for page in PAGES:
        fences = set(re.findall(r"^```(\w+)", page.read_text("utf-8"), flags=re.MULTILINE))
        known = {"python", "ini"}
        if page.parent.name in ("guides", "migrate") or page in WITH_COMMANDS:
            known |= {"sh"}
        if page.parent.name == "migrate" or page.name == "how-it-works.md":
            known |= {"py"}
        assert fences <= known, page
