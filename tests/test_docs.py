"""The pages of docs/: what they link to is there, what they quote is the code, all are in the nav.

The site itself is built by `make docs`; here its pages are read as files, without its tools.
"""

import ast
import io
import json
import re
import runpy
import sys
import textwrap
import tomllib
from pathlib import Path
from unittest import mock

import pytest

import elmore
from tests.support import doc_blocks, shell_commands
from tests.support.cli_runner import run_elmore

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
READ = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FENCED = [*READ, ROOT / "SECURITY.md", ROOT / "elmore/weights/bundled/README.md"]
RESULTS = ROOT / "benchmarks/results"
WITH_COMMANDS = [
    DOCS / name for name in ("serve.md", "integrations/index.md", "integrations/onnx.md")
]
SPARK = 'py title="on Spark, which no test here starts"'
OF_COMMIT = re.compile(r"^Printed by the scripts of commit [0-9a-f]{7}", re.MULTILINE)
QUOTE = re.compile(r'^```py title="(\S+): (\S+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
QUOTES = QUOTE.findall((DOCS / "how-it-works.md").read_text("utf-8"))


def without_fences(page: Path) -> str:
    text = page.read_text("utf-8")
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without what stands in fences or backticks."""
    return re.sub(r"`[^`\n]+`", "", without_fences(page))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as the site makes them."""
    titles = re.findall(r"^#+ (.+)$", without_fences(page), flags=re.MULTILINE)
    return {slug(title) for title in titles}


def slug(title: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def broken(page: Path) -> list[str]:
    """The links of a page, pictures too, that lead nowhere in the repository."""
    result = []
    for link in re.findall(r"\]\(([^)\s]+)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue  # another site: there is no network in a test
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            result.append(link)
    return result


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert broken(page) == []


def test_a_link_to_nothing_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](#one) [b](#two) [c](gone.md) ![d](gone.svg) `[e](no)`\n")
    assert broken(page) == ["#two", "gone.md", "gone.svg"]


def listed(nav: list) -> list[str]:
    """The pages of a navigation, those of its sections with them."""
    result = []
    for entry in nav:
        for part in entry.values() if isinstance(entry, dict) else [entry]:
            result += listed(part) if isinstance(part, list) else [part]
    return result


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
    result = ast.get_source_segment(text, node, padded=True)
    assert result is not None
    return result


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
    """`python` runs everywhere; `sh` where a test has the files; `py` is quoted, or of the past.

    `console` is only read, below; `js` runs in tests/browser; `text` is what is printed, and trees.
    """
    for page in FENCED:
        known = {"python", "ini", "console", "text"}
        if page.parent.name == "migrate" or page in (*doc_blocks.GUIDES, *WITH_COMMANDS):
            known |= {"sh"}
        if page.parent.name == "migrate" or page.name == "how-it-works.md":
            known |= {"py"}
        if page.name == "browser.md":
            known |= {"js"}
        assert {label for label, _ in fences(page) if label != SPARK} <= known, page


def fences(page: Path) -> list[tuple[str, str]]:
    """The label and the lines of each fence of a page."""
    text = page.read_text("utf-8")
    result = re.findall(r"^ *```([^`\n]*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    assert 2 * len(result) == len(re.findall(r"^ *```", text, re.MULTILINE)), page
    return [
        (label if label == SPARK else label.partition(" ")[0], block) for label, block in result
    ]


def test_code_that_is_for_spark_alone_is_python():
    (block,) = [block for page in PAGES for label, block in fences(page) if label == SPARK]
    compile(block, "a block of the docs", "exec")


@pytest.mark.parametrize(
    "page", [*FENCED, *sorted(RESULTS.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_command_that_is_not_run_could_be(page):
    for line in [*doc_blocks.commands(page, "console"), *script_commands(page)]:
        assert shell_commands.find_refusals(line) == [], line


def script_commands(page: Path) -> list[str]:
    """The commands of scripts that stand in the sentences of a page, on one line each."""
    text = without_fences(page)
    if page.name == "log.md" or OF_COMMIT.search(text):
        return []  # they are of their day
    spans = re.findall(r"`([^`]*\bpython\s(?:benchmarks|examples|docs)/[^`]+)`", text)
    return [shell_commands.from_usage(" ".join(span.split())) for span in spans]


def test_a_command_in_a_sentence_is_read(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Run `OMP_NUM_THREADS=2 taskset -c 0,1 python\nbenchmarks/train_tokens.py SHARDS "
        "--rows ROWS [--set A=1 ...]`, or `benchmarks/paper.py`.\n"
        "```console\npython benchmarks/`gone.py`\n```\n"
    )
    (line,) = script_commands(page)
    assert line.strip().endswith("python benchmarks/train_tokens.py SHARDS --rows 1 --set A=1")
    assert shell_commands.find_refusals(line) == []
    assert shell_commands.find_refusals(line.replace("--set", "--sat")) != []


def test_commands_of_an_earlier_commit_say_so():
    """They are not read; everything else in a fence with a title would not be either."""
    titles = [
        label
        for page in FENCED
        for label in re.findall(r"^ *```console (.+)$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert titles
    for title in titles:
        assert re.fullmatch(r'title="at commit [0-9a-f]{7}"', title), title


@pytest.mark.parametrize("page", FENCED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_script_that_a_page_names_is_there(page):
    paths = re.findall(r"(?<![\w./-])(?:benchmarks|examples)/[\w/-]+\.\w+", page.read_text("utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_command_that_is_stored_with_a_result_could_be_run():
    """One of each combination of options; the others differ in their values alone."""
    results = json.loads((RESULTS / "paper_h200_2026-11-16.json").read_text("utf-8"))
    lines = [result["command"] for result in results.values()]
    different = {frozenset(re.findall(r" --[a-z-]+", line)): line for line in lines}
    assert len(different) > 4
    for line in different.values():
        assert shell_commands.find_refusals(line) == [], line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("elmore sing", "No such command"),
        ("elmore embed text.txt --loudly", "No such option"),
        ("elmore embed text.txt --dtype float8", "Invalid value"),
        ("cat text.txt | elmore convert > out.txt", "Missing argument"),
        ("torchrun --nproc-per-node 2 -m elmore pretrain tiny", "Missing argument"),
        ("python benchmarks/gone.py", "there is no benchmarks/gone.py"),
        ("python benchmarks/paper.py table1 R.json --fast", "unrecognized arguments: --fast"),
        ("python benchmarks/paper.py table1 R.json --at-once", "expected one argument"),
        ("python benchmarks/paper.py tune R.json", "invalid choice: 'tune'"),
        ("python benchmarks/paper.py table1", "the following arguments are required: results"),
        ("python examples/two_senses.py --fast", "has no ['--fast']"),
        ("make a-wish", "make has no"),
        ("emacs", "what is emacs?"),
    ],
)
def test_a_command_that_could_not_be_run_is_found(line, why):
    (result,) = shell_commands.find_refusals(f"ELMORE_DATA=x elmore models && {line}  # a note")
    assert why in result


def test_a_test_that_a_page_names_is_there():
    named = []
    for page in READ:
        named += re.findall(r"pytest (tests/\S+\.py) -k (\w+)", page.read_text("utf-8"))
    assert len(named) > 2
    for file, word in named:
        tests = re.findall(r"^def (test_\w+)", (ROOT / file).read_text("utf-8"), re.MULTILINE)
        assert any(word in test for test in tests), f"{file} has no test with {word} in its name"


def test_scores_and_substitutes_on_a_page_are_what_the_command_prints():
    page = DOCS / "seeing.md"
    (line,) = [line for line in doc_blocks.commands(page) if "--substitutes" in line]
    echo, score = shell_commands.commands(line)
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(echo.arguments[0].encode()))):
        printed = run_elmore(*score.arguments).out.split()
    (shown,) = [block.split() for _, block in fences(page) if "backward\t" in block]
    assert len(printed) == len(shown) > 60
    for there, here in zip(printed, shown, strict=True):
        number = re.fullmatch(r"-\d+\.\d+", here)
        assert (float(there) == pytest.approx(float(here), abs=0.02)) if number else there == here


def test_every_picture_is_made_by_a_script():
    """Each is named in a script, or made by one that names the rest of it."""
    scripts = [*(DOCS / "figures").glob("*.py"), ROOT / "benchmarks/paper_figures.py"]
    source = "".join(script.read_text("utf-8") for script in scripts)
    pictures = [path for path in (DOCS / "figures").iterdir() if path.suffix in (".svg", ".png")]
    assert len(pictures) > 9
    for picture in pictures:
        word = picture.stem.removeprefix("uses_")
        assert picture.name in source or f'"{word}"' in source, picture.name


@pytest.mark.parametrize("name", ["head", "context"])
def test_the_script_of_the_results_has_commands_that_are_there(name):
    script = runpy.run_path(str(DOCS / "figures/uses.py"))
    result = script["commands"](name, Path("data"), Path("out"))
    assert result
    for command in result:
        assert shell_commands.parse_only(*command).code == 0, command


def test_commands_stand_in_fences():
    for page in FENCED:
        assert not re.findall(r"^ +(?:elmore|python|pip|make) .*", prose(page), re.MULTILINE), page
