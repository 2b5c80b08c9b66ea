"""How docs/build_site.py makes pages of the site; `make docs` runs it."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("latex2mathml", reason="`make docs` installs it")
ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("build_site", ROOT / "docs/build_site.py")
assert SPEC is not None
assert SPEC.loader is not None
build_site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_site)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page in a repository of its own, with files around it."""
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (tmp_path / "script.py").write_text("print(1)\n")
    (tmp_path / "notes.md").write_text("# Notes\n")
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    monkeypatch.setattr(build_site, "DOCS", docs)
    return docs / "deep" / "page.md"


def test_links_out_of_the_docs_lead_to_copies(page):
    page.write_text("[a](../../notes.md#x) [b](../../script.py) [c](#here) [d](https://x.org)\n")
    text, targets = build_site.for_site(page)
    assert text == (
        "[a](../repository/notes.md#x) [b](../repository/script.py.md) [c](#here) [d](https://x.org)\n"
    )
    assert {target.name for target in targets} == {"notes.md", "script.py"}


def test_code_becomes_a_page(page):
    text, _ = build_site.for_site(page.parents[2] / "script.py")
    assert text == "# script.py\n\n```py\nprint(1)\n```\n"


def test_equations_become_mathml_and_code_stays(page):
    page.write_text(
        "a $`x_1`$ b `$y` c `[d](gone)`\n\n$$\nz\n$$\n\n```\n$$\nw\n$$\n[e](gone)\n```\n"
    )
    text, _ = build_site.for_site(page)
    assert text.count("<math") == 2
    assert "`$y` c `[d](gone)`" in text
    assert text.endswith("```\n$$\nw\n$$\n[e](gone)\n```\n")
    assert "x_1" not in text


def test_a_link_to_nothing_ends_the_build(page):
    page.write_text("[a](gone.md)\n")
    with pytest.raises(SystemExit, match=r"docs/deep/page.md: gone.md is no file"):
        build_site.for_site(page)


def test_links_of_the_site_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.html").write_text('<h1 id="one">A</h1><a href="../b.html#two">b</a>')
    (tmp_path / "b.html").write_text(
        '<a href="deep/a.html#one">a</a><a href="https://x.org/gone">x</a><a href="#three">c</a>'
        '<img src="gone.svg"><a href="deep/a.html#four">d</a>'
    )
    assert build_site.broken_links(tmp_path) == [
        "b.html: #three leads nowhere",
        "b.html: gone.svg leads nowhere",
        "b.html: deep/a.html#four leads nowhere",
        "deep/a.html: ../b.html#two leads nowhere",
    ]
