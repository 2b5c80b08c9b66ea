"""Word senses, as `elmore probe wsd` scores them (Raganato et al., 2017)."""

from pathlib import Path
from typing import NamedTuple

from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.probe.estimates import Estimate
from elmore.probe.sense_corpus import SenseCorpus
from elmore.probe.senses import probe_senses
from elmore.probe.suite.scores import Progress, Score
from elmore.probe.wordnet import WordNet, read_wordnet


class SenseSets(NamedTuple):
    """The corpus to learn from, the test sets with their numbers of instances, and WordNet."""

    train: SenseCorpus
    tests: list[SenseCorpus]
    sizes: dict[str, int]
    wordnet: WordNet


def read_sense_sets(folder: Path) -> SenseSets:
    """Read the folders of the framework: `Training_Corpora/SemCor` and `Evaluation_Datasets`.

    The folder of WordNet 3.0, or its `dict`, is anywhere beside them.
    """
    evaluation = folder / "Evaluation_Datasets"
    paths = sorted(path for path in evaluation.glob("*") if path.is_dir())
    if not paths:
        raise DataError(f"{evaluation}: expected a folder for each test set in it")
    indexes = sorted(folder.rglob("index.sense*"))
    if not indexes:
        raise DataError(f"{folder}: expected WordNet's index.sense in it or in a folder of it")
    tests = [SenseCorpus(path) for path in paths]
    sizes = {test.name: sum(len(sentence.instances) for sentence in test) for test in tests}
    train = SenseCorpus(folder / "Training_Corpora" / "SemCor")
    return SenseSets(train, tests, sizes, read_wordnet(indexes[0].parent))


def score_senses(elmo: Embedder, data: SenseSets, seed: int, progress: Progress) -> list[Score]:
    """Score each row of the probe on each test set; `ALL` is the part `all`."""
    results = probe_senses(elmo, data.train, data.tests, data.wordnet, seed=seed, progress=progress)
    scores = [
        Score.from_estimate(
            Estimate(row["f1"], row["f1_low"], row["f1_high"], data.sizes[name]),
            part="all" if name == "ALL" else name,
            metric="f1",
            method=method,
            chosen=method == results.chosen,
        )
        for name, table in results.tests.items()
        for method, row in table.items()
    ]
    return sorted(scores, key=lambda score: score.part != "all")
