"""The guides of docs/migrate are run as they stand, in a folder with files as they name them."""

import ast
import json
import re
import runpy
import shlex
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import (
    allennlp_state_dict,
    bilm_options,
    bilm_weights,
    many_langs,
    write_bilm,
)
from tests.support.tensorflow_checkpoints import (
    module_variables,
    training_variables,
    write_checkpoint,
    write_module,
)

ROOT = Path(__file__).parent.parent
PAGES = {page.stem: page for page in (ROOT / "docs" / "migrate").glob("*.md")}
WORDS = ("</S>", "<S>", "<UNK>", "the", "bank", ".")
LINES = "The bank closed .\nFine .\n"


def files(directory: Path, rng: np.random.Generator, **changes) -> tuple[dict, dict]:
    """options.json and weights.hdf5 of a tiny model, and what is in them."""
    settings = bilm_options(**changes)
    weights = bilm_weights(settings, rng)
    write_bilm(directory, settings, weights)
    (directory / "in.txt").write_text(LINES)
    return settings, weights


def zipped(archive: Path, folder: Path, inside: str = "") -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, f"{inside}{path.name}")


def allennlp(directory: Path, rng: np.random.Generator) -> None:
    settings, weights = files(directory, rng)
    trained = directory / "trained"
    trained.mkdir()
    state = allennlp_state_dict(settings, weights, prefix="text_field_embedder.elmo._elmo.")
    torch.save(state | {"tagger.weight": torch.zeros(3)}, trained / "weights.th")
    with tarfile.open(directory / "model.tar.gz", "w:gz") as archive:
        archive.add(trained / "weights.th", "weights.th")


def training(directory: Path, settings: dict, weights: dict, rng: np.random.Generator) -> None:
    width = settings["lstm"]["projection_dim"]
    softmax = rng.normal(size=(len(WORDS), width)).astype(np.float32)
    bias = rng.normal(size=len(WORDS)).astype(np.float32)
    write_checkpoint(directory / "model.ckpt-10", training_variables(weights, (softmax, bias)))
    (directory / "options.json").write_text(json.dumps(settings))
    (directory.parent / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (directory.parent / "heldout.txt").write_text(LINES)


def bilm_tf(directory: Path, rng: np.random.Generator) -> None:
    training(directory / "run", *files(directory, rng, n_characters=261), rng)


def tf_hub(directory: Path, rng: np.random.Generator) -> None:
    module = write_module(directory / "module", module_variables(bilm_weights(bilm_options(), rng)))
    with tarfile.open(directory / "elmo_3.tar.gz", "w:gz") as archive:
        for path in module.iterdir():
            archive.add(path, path.name)


def elmo_for_many_langs(directory: Path, rng: np.random.Generator) -> None:
    many_langs(directory / "144", rng)
    zipped(directory / "144.zip", directory / "144")
    (directory / "in.txt").write_text(LINES)


def simple_elmo(directory: Path, rng: np.random.Generator) -> None:
    settings, weights = files(directory / "nlpl", rng, n_characters=261)
    (directory / "nlpl" / "weights.hdf5").rename(directory / "nlpl" / "model.hdf5")
    (directory / "nlpl" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (directory / "nlpl" / "meta.json").write_text("{}")
    zipped(directory / "193.zip", directory / "nlpl")
    training(directory / "checkpoint-folder", settings, weights, rng)
    (directory / "in.txt").write_text(LINES)


def flair(directory: Path, rng: np.random.Generator) -> None:
    files(directory, rng)


def seqvec(directory: Path, rng: np.random.Generator) -> None:
    files(directory / "seqvec", rng)
    zipped(directory / "seqvec.zip", directory / "seqvec", inside="uniref50_v2/")
    (directory / "proteins.txt").write_text("S E Q W E N C E\nM K T A Y\n")


SETUPS = {
    "allennlp": allennlp,
    "bilm-tf": bilm_tf,
    "tf-hub": tf_hub,
    "elmo-for-many-langs": elmo_for_many_langs,
    "simple-elmo": simple_elmo,
    "flair": flair,
    "seqvec": seqvec,
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of everything between fences."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def run_commands(text: str) -> None:
    for line in text.splitlines():
        program, *arguments = shlex.split(line)
        if program == "elmore":
            result = run_elmore(*arguments)
            assert result.code == 0, (line, result.err)
        else:
            assert program in ("tar", "mkdir"), line
            subprocess.run([program, *arguments], check=True)


@pytest.mark.parametrize("name", SETUPS)
def test_every_snippet_and_command_of_a_guide_runs(name, tmp_path, rng, monkeypatch):
    SETUPS[name](tmp_path, rng)
    monkeypatch.chdir(tmp_path)
    result = blocks(PAGES[name])
    assert {language for language, _ in result} == {"py", "python", "sh"}
    # Commands first: a page may show the code before the conversion it needs.
    for language, text in sorted(result, key=lambda block: block[0] != "sh"):
        if language == "sh":
            run_commands(text)
        elif language == "python":
            exec(compile(text, f"a block of {name}.md", "exec"), {})
        else:
            ast.parse(text)  # the old package is not here; its code is at least Python
            assert "elmore" not in text


def test_each_guide_is_run_and_listed():
    assert set(PAGES) == {"index", *SETUPS}
    index = PAGES["index"].read_text("utf-8")
    for name in SETUPS:
        assert f"]({name}.md)" in index


def test_the_table_of_differences_is_what_the_benchmark_prints(fixtures, capsys):
    runpy.run_path(str(ROOT / "benchmarks" / "migration.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("\n") > 20
    assert printed in PAGES["index"].read_text("utf-8")


def test_the_guides_quote_the_table():
    table = dict(re.findall(r"^\| (.*) \| (.*) \|$", PAGES["index"].read_text(), re.MULTILINE))
    quoted = {
        "allennlp": ["allennlp: its own vectors, no state, nine more", "boundaries added by hand"],
        "bilm-tf": ["bilm-tf: its own vectors, no state, nine more"],
        "simple-elmo": ["one sentence: warm start from call 5"],
        "seqvec": ["converted with --storage float16", "vectors written as float16"],
    }
    for name, rows in quoted.items():
        for row in rows:
            assert table[row] in PAGES[name].read_text("utf-8"), (name, row)
