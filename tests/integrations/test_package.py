"""What is released, as it is: built, installed elsewhere, used without the source folder."""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import elmore

pytest.importorskip("hatchling", reason="`make test-integrations` installs hatchling")

ROOT = Path(__file__).parent.parent.parent
PYENV = Path.home() / ".pyenv" / "versions"
VERSION = elmore.__version__
WHEEL = f"elmore-{VERSION}-py3-none-any.whl"
ENDINGS = re.compile(r".*\.(py|typed|c|h|css|html|js|toml|md|txt|json|sha256|safetensors)")


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def build(out: Path, *targets: str) -> Path:
    chosen = [part for target in targets for part in ("-t", target)]
    command = (sys.executable, "-m", "hatchling", "build", *chosen, "-d", out)
    done = run(*command, cwd=ROOT, SOURCE_DATE_EPOCH="1700000000")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("dist"), "wheel", "sdist")


@pytest.fixture(scope="module")
def source(dist, tmp_path_factory) -> Path:
    """The sdist, unpacked."""
    place = tmp_path_factory.mktemp("source")
    with tarfile.open(dist / f"elmore-{VERSION}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / f"elmore-{VERSION}"


def over(python: str | Path, place: Path, wheel: Path) -> Path:
    """Install the wheel alone for a Python; what it depends on is found where it is here."""
    made = run(python, "-m", "venv", place, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    interpreter = place / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(interpreter, "-c", asked, cwd=place).stdout.strip())
    done = run(
        *(interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel),
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    # As a plain line: the .pth files over there, one to this source folder among them, stay unread.
    (packages / "over_here.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    return place / "bin"


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory) -> Path:
    return over(sys.executable, tmp_path_factory.mktemp("installed") / "venv", dist / WHEEL)


def test_two_builds_give_the_same_bytes(dist, tmp_path):
    again = build(tmp_path, "wheel", "sdist")
    for path in again.iterdir():
        assert path.read_bytes() == (dist / path.name).read_bytes(), path.name


def test_the_wheel_holds_the_package_and_nothing_else(dist):
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = wheel.namelist()
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "elmore").rglob("*")}
    for name in names:
        folder = name.split("/")[0]
        assert folder in ("elmore", f"elmore-{VERSION}.dist-info")
        if folder == "elmore":
            assert name in ours
            assert ENDINGS.fullmatch(name), name
    sources = {name for name in ours if name.endswith((".py", ".toml", ".c"))}
    assert sources <= set(names)
    for name in ("model.safetensors", "vocabulary.txt", "config.json", "README.md", "LICENSE.txt"):
        assert f"elmore/weights/bundled/{name}" in names


def test_the_readme_says_how_large_the_wheel_is(dist):
    (said,) = re.findall(r"wheel of (\d+) MB", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert round((dist / WHEEL).stat().st_size / 1e6) == int(said)


def test_the_metadata_is_whole(dist):
    from trove_classifiers import classifiers

    with zipfile.ZipFile(dist / WHEEL) as wheel:
        inside = f"elmore-{VERSION}.dist-info"
        told = email.message_from_bytes(wheel.read(f"{inside}/METADATA"))
        files = told.get_all("License-File")
        licences = {name: wheel.read(f"{inside}/licenses/{name}") for name in files}
    assert told["Version"] == VERSION
    assert told["License-Expression"] == "Apache-2.0 AND CC-BY-SA-4.0"
    assert set(licences) == {"LICENSE", "elmore/weights/bundled/LICENSE.txt"}
    assert b"Apache License" in licences["LICENSE"]
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload().startswith("# elmore")
    assert set(told.get_all("Classifier")) <= classifiers
    for name in ("Summary", "Author", "Keywords", "Requires-Python"):
        assert told[name], name


def test_every_source_of_the_bundled_model_is_attributed_where_it_is_licensed():
    bundled = ROOT / "elmore" / "weights" / "bundled"
    card, licence = ((bundled / name).read_text() for name in ("README.md", "LICENSE.txt"))
    for source in ("Wikipedia", "Gutenberg", "thechangelog/transcripts", "CC BY-SA 4.0"):
        assert source in card
        assert source in licence or source == "CC BY-SA 4.0"
    assert "Attribution-ShareAlike 4.0" in licence
    for address in ("creativecommons.org/licenses/by-sa/4.0", "en.wikipedia.org", "gutenberg.org"):
        assert address in licence


def test_the_version_stands_in_one_place():
    text = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    files = [*ROOT.glob("*.*"), *(ROOT / "elmore").rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in (".py", ".toml", ".cff", ".md")
        if text.search(path.read_text(encoding="utf-8"))
    }
    assert found - {"CHANGELOG.md"} == {"elmore/__init__.py"}


def test_installed_it_embeds_without_the_source_folder(installed, tmp_path):
    asked = "import elmore; print(elmore.__file__)"
    where = run(installed / "python", "-c", asked, cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(installed.parent)
    version = run(installed / "elmore", "--version", cwd=tmp_path)
    assert version.stdout.split()[-1] == VERSION, version.stderr
    (tmp_path / "text.txt").write_text("I left it at the bank .\n")
    done = run(installed / "elmore", "embed", "text.txt", "-o", "vectors.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "vectors.npz") as vectors:
        assert vectors["0"].shape == (7, 512)
        expected = elmore.load().embed(["I left it at the bank ."])[0].vectors
        np.testing.assert_allclose(vectors["0"], expected, atol=1e-5)


@pytest.mark.parametrize("minor", [12, 13, 14])
def test_on_other_pythons_it_compiles_and_answers(dist, tmp_path, minor):
    """Packages with C of their own are not here for them; what the command needs to answer is."""
    named = [shutil.which(f"python3.{minor}"), *PYENV.glob(f"3.{minor}.*/bin/python")]
    python = next((one for one in named if one and not run(one, "-V", cwd=ROOT).returncode), None)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    programs = over(python, tmp_path / "venv", dist / WHEEL)
    version = run(programs / "elmore", "--version", cwd=tmp_path)
    assert version.stdout.split()[-1] == VERSION, version.stderr
    assert "embed" in run(programs / "elmore", "--help", cwd=tmp_path).stdout
    (package,) = (tmp_path / "venv" / "lib").glob("python*/site-packages/elmore")
    compiled = run(programs / "python", "-W", "error", "-m", "compileall", "-qf", package, cwd=ROOT)
    assert compiled.returncode == 0, compiled.stdout


@pytest.mark.timeout(600)
def test_the_sdist_holds_what_its_tests_need(source):
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    for chosen in (["--collect-only"], ["tests/test_architecture.py", "tests/test_config.py"]):
        done = run(*pytest_, *chosen, cwd=source, PYTHONPATH=str(source))
        assert done.returncode == 0, done.stdout[-2000:]
    for name in ("CONTRIBUTING.md", "CITATION.cff", "SECURITY.md", "Makefile", ".ci/run"):
        assert (source / name).is_file(), name
    strays = [path for path in source.rglob("*") if path.suffix in (".pyc", ".orig", ".so")]
    assert not [path for path in strays if "__pycache__" not in path.parts]
