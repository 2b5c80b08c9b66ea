"""What is released, as it is: built, installed elsewhere, used without the source folder."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore import native_build
from tests.support.sweeps import pick

pytest.importorskip("hatchling", reason="`make test-integrations` installs hatchling")

ROOT = Path(__file__).parent.parent.parent
HERE = Path(np.__file__).parents[1]
PYENV = Path.home() / ".pyenv" / "versions"
OTHERS = pick([13], [12, 13, 14])
VERSION = elmore.__version__
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
WHEEL = f"elmore-{VERSION}-py3-none-{PLATFORM}.whl"
LIBRARIES = {f"elmore/model/native/{name}" for name in (native_build.LIBRARY, native_build.SERIAL)}
FILES = (
    "model.safetensors",
    "vocabulary.txt",
    "poolings.npz",
    "whitening.npz",
    "config.json",
    "README.md",
    "LICENSE.txt",
)
ENDINGS = re.compile(r".*\.(py|typed|c|h|css|html|js|toml|md|txt|json|sha256|safetensors|npz|wasm)")


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


def build(out: Path, *targets: str, source: Path = ROOT) -> Path:
    chosen = [part for target in targets for part in ("-t", target)]
    command = (sys.executable, "-m", "hatchling", "build", *chosen, "-d", out)
    fixed = {"SOURCE_DATE_EPOCH": "1700000000", "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(*command, cwd=source, **fixed)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("dist"), "wheel", "sdist")


@pytest.fixture(scope="module")
def source(dist, tmp_path_factory) -> Path:
    """The sdist, unpacked."""
    path = tmp_path_factory.mktemp("source")
    with tarfile.open(dist / f"elmore-{VERSION}.tar.gz") as archive:
        archive.extractall(path, filter="data")
    return path / f"elmore-{VERSION}"


def over(python: str | Path, directory: Path, wheel: Path, packages: Path = HERE) -> Path:
    """Install the wheel alone for a Python; what it depends on is found among other packages."""
    made = run(python, "-m", "venv", "--without-pip", directory, cwd=ROOT)
    assert made.returncode == 0, made.stderr
    interpreter = directory / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(run(interpreter, "-c", asked, cwd=directory).stdout.strip())
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet")
    done = run(*pip, "--no-deps", "--no-index", "--no-compile", wheel, cwd=directory)
    assert done.returncode == 0, done.stderr
    # As a plain line: the .pth files over there, one to this source folder among them, stay unread.
    (own / "over_here.pth").write_text(f"{packages}\n")
    return directory / "bin"


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory) -> Path:
    return over(sys.executable, tmp_path_factory.mktemp("installed") / "venv", dist / WHEEL)


def test_two_builds_give_the_same_bytes(dist, source, tmp_path):
    """The wheel also from the unpacked sdist, in another folder, where files have other dates."""
    now = time.time()
    for path in source.rglob("*"):
        os.utime(path, (now, now))
    build(tmp_path, "sdist")
    build(tmp_path, "wheel", source=source)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in dist.iterdir()}
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (dist / path.name).read_bytes(), path.name


def test_the_wheel_holds_the_package_and_nothing_else(dist):
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        names = set(wheel.namelist())
    assert names >= LIBRARIES
    names -= LIBRARIES  # compiled by hatch_build.py
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "elmore").rglob("*")}
    for name in names:
        folder = name.split("/")[0]
        assert folder in ("elmore", f"elmore-{VERSION}.dist-info")
        if folder == "elmore":
            assert name in ours
            assert ENDINGS.fullmatch(name), name
    sources = {name for name in ours if name.endswith((".py", ".toml", ".c"))}
    assert sources <= names
    for name in FILES:
        assert f"elmore/weights/bundled/{name}" in names


def test_the_docs_say_how_large_both_are(dist):
    said = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    sizes = re.findall(r"`(\.whl|\.tar\.gz)`, (\d+) MB", said)
    for path in dist.iterdir():
        (size,) = (int(size) for ending, size in sizes if path.name.endswith(ending))
        assert abs(path.stat().st_size / 1e6 - size) < 1, path.name


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
    names = ("Wikipedia", "Gutenberg", "thechangelog/transcripts", "government", "CC BY-SA 4.0")
    for name in names:
        assert name in card, name
        assert name in licence, name
    assert "Attribution-ShareAlike 4.0" in licence
    licences = ("creativecommons.org/licenses/by-sa/4.0/legalcode",)
    sources = ("en.wikipedia.org", "www.gutenberg.org", "github.com/GSA/digitalgov.gov")
    for address in (*licences, *sources, "github.com/18F/18f.gsa.gov"):
        assert f"https://{address}" in licence, address


def test_the_version_stands_in_one_place():
    text = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    files = [*ROOT.glob("*.*"), *(ROOT / "elmore").rglob("*.py")]
    result = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in (".py", ".toml", ".cff", ".md")
        if text.search(path.read_text(encoding="utf-8"))
    }
    assert result - {"CHANGELOG.md"} == {"elmore/__init__.py"}


def assert_embeds_alike(programs: Path, directory: Path) -> None:
    """Not this source folder but the wheel is at work, and its vectors are those of here."""
    asked = "import elmore; print(elmore.__file__)"
    where = run(programs / "python", "-c", asked, cwd=directory).stdout.strip()
    assert Path(where).is_relative_to(programs.parent)
    (directory / "text.txt").write_text("I left it at the bank .\n")
    done = run(programs / "elmore", "embed", "text.txt", "-o", "vectors.npz", cwd=directory)
    assert done.returncode == 0, done.stderr
    with np.load(directory / "vectors.npz") as vectors:
        assert vectors["0"].shape == (7, 512)
        expected = elmore.load().embed(["I left it at the bank ."])[0].vectors
        np.testing.assert_allclose(vectors["0"], expected, atol=1e-5)


def test_installed_it_embeds_without_the_source_folder(installed, tmp_path):
    version = run(installed / "elmore", "--version", cwd=tmp_path)
    assert version.stdout.split()[-1] == VERSION, version.stderr
    assert_embeds_alike(installed, tmp_path)


def test_installed_it_builds_nothing(installed, tmp_path):
    code = (
        "import elmore.model.native as native; print(native.available()); "
        "import elmore; elmore.load().embed(['a b'])"
    )
    cache = {"ELMORE_CACHE": str(tmp_path / "cache"), "CC": "no-such-compiler"}
    done = run(installed / "python", "-c", code, cwd=tmp_path, **cache)
    assert done.stdout.strip() == "True", done.stderr
    assert not done.stderr
    assert not (tmp_path / "cache").exists()


def test_without_a_compiler_the_wheel_is_pure_python_and_says_what_is_slower(tmp_path):
    chosen = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    done = run(*chosen, cwd=ROOT, CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert "no native library in this wheel: there is no C compiler" in done.stdout + done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"elmore-{VERSION}-py3-none-any.whl"
    programs = over(sys.executable, tmp_path / "venv", wheel)
    code = "import elmore; print(elmore.load().embed(['a b'])[0].vectors.shape)"
    environment = {"ELMORE_CACHE": str(tmp_path / "cache"), "CC": "no-such-compiler"}
    done = run(programs / "python", "-c", code, cwd=tmp_path, **environment)
    assert done.stdout.strip() == "(2, 512)", done.stderr
    assert "the native library is not used: there is no C compiler" in done.stderr
    assert "embedding on a CPU is slower" in done.stderr


@pytest.mark.parametrize("minor", OTHERS)
def test_on_other_pythons_it_embeds_alike(dist, tmp_path, minor):
    made = ROOT / ".venv" / f"python3.{minor}"
    numpy = next(made.glob("lib/python*/site-packages/numpy"), None)
    if numpy is None:
        pytest.skip(
            f"`make test-pythons` gives Python 3.{minor}, where there is one, its own numpy"
        )
    programs = over(made / "bin" / "python", tmp_path / "venv", dist / WHEEL, numpy.parent)
    assert_embeds_alike(programs, tmp_path)


@pytest.mark.parametrize("minor", OTHERS)
def test_on_other_pythons_it_compiles_and_answers(dist, tmp_path, minor):
    """Without a torch of theirs: what the command needs to answer is in the packages of here."""
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


def test_the_sdist_is_what_git_holds(source):
    tracked = run("git", "ls-files", "-z", cwd=ROOT)
    if tracked.returncode:
        pytest.skip("this is no clone: what git holds is not known")
    ours = {name for name in tracked.stdout.split("\0") if name and (ROOT / name).exists()}
    packed = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    ours = {name for name in ours if not name.startswith("models/")}  # packages of their own
    assert ours - packed == set(), "add it to tool.hatch.build.targets.sdist"
    assert packed - ours == {"PKG-INFO"}


def test_the_tests_in_the_sdist_run_there(source, tmp_path):
    shutil.copytree(source, tmp_path / "copy")
    done = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("tests/test_config.py", "tests/test_architecture.py"),
        cwd=tmp_path / "copy",
        PYTHONPATH=str(tmp_path / "copy"),
    )
    assert done.returncode == 0, done.stdout[-2000:]
