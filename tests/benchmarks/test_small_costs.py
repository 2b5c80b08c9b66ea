"""benchmarks/small_costs.py with a tiny model, on a tiny text."""

import lzma

from elmore.weights import folder
from tests.support import toy_corpus
from tests.support.scripts import run_script


def test_every_cost_is_printed_with_its_size(corpus, monkeypatch, tmp_path):
    folder.save(toy_corpus.training(corpus).bundle({}), tmp_path / "model")
    (tmp_path / "corpus").mkdir()
    with lzma.open(tmp_path / "corpus/valid.txt.xz", "wt") as file:
        file.write("A storm came .\n" * 400)
    monkeypatch.setenv("ELMORE_DATA", str(tmp_path))
    options = ["--model", str(tmp_path / "model"), "--tokens", "11", "--rows", "20"]
    printed = run_script("benchmarks/small_costs.py", *options, "--rounds", "1")
    assert "| softmax, 16 states," in printed  # two whole sentences of 4 tokens, two directions
    assert "| a text of 400 tokens |" in printed
    assert "| text and three columns | 20 |" in printed
    assert "| lists of tokens and an id | 4 |" in printed
