"""A bit of everything that a report shows, made once for all tests of reports."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from elmore.lm.pretrain import pretrain
from elmore.probe import linear_probe, report, senses
from elmore.tasks import registry, sweep
from tests.support import toy_corpus, toy_tasks
from tests.support.cli_runner import run_elmore
from tests.support.real_browser import browser  # noqa: F401 -- a fixture
from tests.support.sense_corpus import write_corpus

RIVER, MONEY = "bank%1:17:01::", "bank%1:14:00::"


@pytest.fixture(scope="session")
def reported(corpus, tmp_path_factory) -> SimpleNamespace:
    """Run folders and printed results, each by its name, and the report on all of them."""
    path = tmp_path_factory.mktemp("reported")
    result = SimpleNamespace(
        folder=path,
        language=path / "language",
        ner=path / "ner",
        files={},
    )
    list(pretrain(toy_corpus.recipe(), corpus.path, result.language, device="cpu"))
    with mock.patch.dict(os.environ, {"ELMORE_CACHE": str(path / "cache")}):
        _train(path, result.ner)
    for name, text in _printed(path, result.language).items():
        result.files[name] = path / f"{name}.json"
        result.files[name].write_text(text, encoding="utf-8")
    result.sources = [result.language, result.ner, *result.files.values()]
    result.report = report.build(result.sources)
    result.page = path / "report.html"
    report.write(result.report, result.page)
    return result


def _train(folder: Path, out: Path) -> None:
    ner = registry.find_task("ner")
    data = toy_tasks.write("ner", folder / "ner.txt")
    recipe = registry.load_recipe(
        ner, None, [*toy_tasks.small("ner"), "train.epochs=2", "elmo.insert_at=both"]
    )
    trials = sweep.list_trials(recipe, num_seeds=2, fractions=[0.5, 1.0])
    bilm = f"elmo:{toy_tasks.bilm(folder / 'bilm')}"
    options = {"test": data, "embedder": bilm, "device": "cpu"}
    sweep.train_sweep(ner, recipe, data, data, out, trials, **options)


def _printed(folder: Path, model: Path) -> dict[str, str]:
    """Give what commands print: themselves where they are quick, their own types where not."""
    text = folder / "text.txt"
    lines = [
        f"{line} <b>&amp;" if n == 0 else line for n, line in enumerate(toy_corpus.sentences(30))
    ]
    text.write_text("\n".join(lines), encoding="utf-8")
    uses = [["a", ("bank", "bank", "NOUN", RIVER if n % 3 else MONEY), "."] for n in range(6)]
    senses_file = write_corpus(
        folder, "senses", [[[*words, "x" * n] for n, words in enumerate(uses)]]
    )

    def printed(*command: str) -> str:
        done = run_elmore(*command, "--device", "cpu", "--json")
        assert done.code == 0, done.err
        return done.out

    layers = [linear_probe.LayerScores(str(n), 0.8 + n / 100, 0.79, 0.5) for n in range(3)]
    scores = {"f1": 0.7, "f1_low": 0.65, "f1_high": 0.75}
    table = {"first sense": scores, "2": scores | {"f1": 0.72}}
    known = senses.SenseResults("2", table, {"senseval2": table}, 120, 34)
    near = {"word": "play", "tokens": ["the", "<play>", "ended"], "position": 1, "line": 7}
    queries = [{"query": "the [play] was sold out", "neighbors": [near | {"similarity": 0.875}]}]
    few = folder / "few.txt"
    few.write_text("\n".join(lines[:6]), encoding="utf-8")
    return {
        "context": printed("probe", "context", str(text), "--model", str(model)),
        "uses": printed("probe", "uses", "bank", str(senses_file), "--model", str(model)),
        "score": printed("score", str(model), str(few), "--substitutes", "3", "--tokenized"),
        "pos": json.dumps([layer.row() for layer in layers]),
        "wsd": json.dumps(asdict(known)),
        "neighbors": json.dumps(queries),
    }
