"""Reproduce the tables and figures of the paper (Peters et al., 2018) on open data.

    python benchmarks/paper.py table1 RESULTS.json [--tasks snli srl] [--at-once 8] [--small]
    python benchmarks/paper.py page RESULTS.json [--at-once 16] > PAGE.md
    python benchmarks/paper.py figures RESULTS.json FOLDER

    tune       train every setting of paper.toml for both columns; the tables use the best one on
               the dev set, or the first one if the task was not tuned
    table1     every task without vectors, with GloVe, with GloVe and ELMo; also gives Figure 2 and
               the cost
    table2     which layers, and lambda
    table3     where ELMo goes
    table5     word senses per layer
    table6     parts of speech per layer
    figure1    how much data it takes
    longer     GloVe alone, trained three times longer
    finetuned  with a biLM fine-tuned on the text of the task
    page       print all results so far, with missing ones marked
    figures    draw the figures

Every cell is one `elmore` command. Its result is stored in RESULTS.json as soon as it is done and
not computed again. The data are in $ELMORE_DATA. On a GPU everything takes some hours; on two
cores, with --small, it takes days.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from grid import Cell, Job, Results
from grid import read as read_results
from grid import run as run_grid
from paper_figures import draw
from paper_found import FRACTIONS, LONGER_TASKS, SEEDS
from paper_page import page

from elmore.tasks import registry as tasks
from elmore.weights import pretrained

DATA = Path(os.environ["ELMORE_DATA"])
GLOVE = f"glove:{DATA}/vectors/glove.6B.50d.subset.f16.npy"
TASKS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
COLUMNS = ("none", "glove", "glove+elmo")
LOOK = {0.001: 50, 0.01: 50, 0.1: 150}  # updates between two evaluations
LONGER = 3
WSD = [
    f"--train={DATA}/tasks/wsd/Training_Corpora/SemCor",
    f"--test={DATA}/tasks/wsd/Evaluation_Datasets/semeval2007",
    f"--test={DATA}/tasks/wsd/Evaluation_Datasets/senseval2",
    f"--wordnet={DATA}/tasks/wsd/wordnet-3.0",
]


class Asked(NamedTuple):
    """The requested cells, and the results so far."""

    tasks: list[str] | None
    small: bool
    device: str
    place: Path
    """For run folders and text made from the data."""
    found: Results

    def of(self, *names: str) -> list[str]:
        """Return those of the named tasks that were requested."""
        return [name for name in names if self.tasks is None or name in self.tasks]

    def cell(self, task: str, vectors: str, *more: str, **rest: Any) -> Cell:  # noqa: ANN401
        """Return the cell of a task with the settings that suited these vectors best.

        What the recipe says already is left out: a cell of two tables is run once.
        """
        settings = self.tuned(task, "glove" if vectors == "none" else vectors.partition(":")[0])
        kind = tasks.find_task(task)
        for setting in more:
            if tasks.load_recipe(kind, None, [*settings, setting]) != tasks.load_recipe(
                kind, None, settings
            ):
                settings = (*settings, setting)
        return Cell(task, vectors, settings, **rest)

    def epochs(self, task: str, vectors: str, times: float) -> str:
        """Return the setting that multiplies the epochs of a task."""
        recipe = tasks.load_recipe(tasks.find_task(task), None, self.tuned(task, vectors))
        return f"train.epochs={round(times * recipe.train.epochs)}"

    def fraction(self, task: str, vectors: str, fraction: float, seed: int) -> Cell:
        """Return the cell that trains on a fraction of the examples for more epochs."""
        more = ()
        if fraction < 1:
            look = f"train.evaluate_every={LOOK[fraction]}"
            more = self.epochs(task, vectors, fraction**-0.5), look, "train.patience=0"
        return self.cell(task, vectors, *more, seed=seed, fraction=fraction)

    def longer(self, task: str, seed: int) -> Cell:
        """Return the cell without ELMo that trains three times longer."""
        return self.cell(task, "glove", self.epochs(task, "glove", LONGER), seed=seed)

    def trials(self, task: str, vectors: str) -> list[list[Cell]]:
        """Return every trial of a task with every seed; ELMo settings apply only with ELMo."""
        known = TASKS[task]
        small = known["small"] if self.small else []
        trials = [
            tuple(s for s in trial if "elmo" in vectors or not s.startswith("elmo."))
            for trial in known["trials"]
        ]
        return [
            [
                Cell(task, vectors, (*known["settings"], *trial, *small), seed)
                for seed in range(known.get("tuning_seeds", 1))
            ]
            for trial in dict.fromkeys(trials)
        ]

    def tuned(self, task: str, vectors: str) -> tuple[str, ...]:
        """Return the settings of the trial with the best dev score, or of the first trial."""
        trials = self.trials(task, vectors)
        scores = [
            statistics.mean(self.found.get(cell.name, {}).get("dev", -1.0) for cell in cells)
            for cells in trials
        ]
        return trials[scores.index(max(scores))][0].settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=[*TABLES, "page", "figures"])
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", help="for figures")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), help="only these")
    parser.add_argument("--small", action="store_true", help="models for two cores")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--at-once", type=int, default=1, help="trainings beside each other")
    parser.add_argument("--seconds", type=float, help="stop then; the same command goes on")
    parser.add_argument("--place", type=Path, default=Path("build/paper"), help="for run folders")
    args = parser.parse_args()
    result = read_results(args.results)
    asked = Asked(args.tasks, args.small, args.device, args.place, result)
    if args.table == "page":
        cells = {name: [cell.name for cell in cells(asked)] for name, cells in TABLES.items()}
        cells["finetuned"] += _finetunings(asked)
        print(page(asked, TASKS, cells, source=args.results, at_once=args.at_once))
        return
    if args.table == "figures":
        if args.folder is None:
            parser.error("figures: say the folder where they go, behind the results")
        draw(asked, TASKS, args.folder)
        return
    args.place.mkdir(parents=True, exist_ok=True)
    limits = {"at_once": args.at_once, "seconds": args.seconds}
    if args.table == "finetuned":
        first = [name for name in _finetunings(asked) if name not in result]
        jobs = [_finetuning(name.split()[1], asked) for name in first]
        run_grid(jobs, args.results, **limits)
    cells = [cell for cell in TABLES[args.table](asked) if cell.name not in result]
    jobs = [cell if isinstance(cell, Job) else _training(cell, asked) for cell in cells]
    run_grid(jobs, args.results, **limits)


def tune(asked: Asked) -> list[Cell]:
    """Return both columns the same number of trials."""
    return [
        cell
        for task in asked.of(*TASKS)
        for vectors in COLUMNS[1:]
        for trial in asked.trials(task, vectors)
        for cell in trial
    ]


def table1(asked: Asked) -> list[Cell]:
    """With ELMo and without."""
    return [
        asked.cell(task, vectors, seed=seed)
        for task in asked.of(*TASKS)
        for seed in SEEDS
        for vectors in COLUMNS
    ]


def table2(asked: Asked) -> list[Cell]:
    """Compare the last layer alone with all layers, for a large and a small lambda."""
    choices = ("elmo.last_only=true", "elmo.penalty=1.0", "elmo.penalty=0.001")
    return [
        asked.cell(task, "glove+elmo", choice, seed=seed)
        for task in asked.of("snli", "srl")
        for choice in choices
        for seed in SEEDS
    ]


def table3(asked: Asked) -> list[Cell]:
    """Insert ELMo at the input, at the output of the encoder, or at both."""
    return [
        asked.cell(task, "glove+elmo", f"elmo.insert_at={where}", seed=seed)
        for task in asked.of("squad", "snli", "srl")
        for where in ("input", "both", "output")
        for seed in SEEDS
    ]


def longer(asked: Asked) -> list[Cell]:
    """Train longer without ELMo, to see whether those runs were only too short."""
    return [asked.longer(task, seed) for task in asked.of(*LONGER_TASKS) for seed in SEEDS]


def figure1(asked: Asked) -> list[Cell]:
    """Fractions of the training examples; fewer are read more often."""
    return [
        asked.fraction(task, vectors, fraction, seed)
        for task in asked.of("snli", "srl")
        for vectors in COLUMNS[1:]
        for fraction in FRACTIONS
        for seed in SEEDS
    ]


def finetuned(asked: Asked) -> list[Cell]:
    """With a biLM that has read the task's text."""
    return [
        asked.cell(task, f"glove+elmo:{task}", seed=seed)
        for task in asked.of("snli", "ner")
        for seed in SEEDS
    ]


def table5(asked: Asked) -> list[Job]:
    """Word senses."""
    words = ["probe", "wsd", *WSD, "--json", f"--device={asked.device}"]
    return [Job("senses", words, lambda found: found)]


def table6(asked: Asked) -> list[Job]:
    """Parts of speech, by a linear probe."""
    splits = zip(("train", "dev", "test"), TASKS["pos"]["files"], strict=True)
    files = [f"--{split}={DATA}/tasks/{name}" for split, name in splits]
    words = ["probe", "pos", *files, "--json", f"--device={asked.device}"]
    return [Job("parts of speech", words, lambda found: {"layers": found})]


TABLES: dict[str, Callable[[Asked], list[Cell] | list[Job]]] = {
    "tune": tune,
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table5": table5,
    "table6": table6,
    "figure1": figure1,
    "longer": longer,
    "finetuned": finetuned,
}


def _training(cell: Cell, asked: Asked) -> Job:
    """Return the command of a cell and the function that reads its result."""
    kind = tasks.find_task(cell.task)
    out = asked.place / "runs" / cell.name.replace(" ", "-").replace(",", "").replace("/", "-")
    shutil.rmtree(out, ignore_errors=True)  # of one that was stopped
    splits = zip(("train", "dev", "test"), _files(cell.task, asked), strict=True)
    part = [] if cell.fraction == 1 else [f"--train-fractions={cell.fraction:g}"]
    words = [
        "task", "train", cell.task, *(f"--{split}={path}" for split, path in splits),
        f"--embedder={_embedder(cell.vectors, asked)}", *(f"--set={s}" for s in cell.settings),
        f"--set=train.seed={cell.seed}", *part, f"--out={out}", f"--device={asked.device}",
        "--json",
    ]  # fmt: skip

    def read(printed: dict[str, Any]) -> dict[str, Any]:
        scores = printed["runs"][0]["scores"] if part else printed
        run = out / f"fraction-{cell.fraction:g}" if part else out
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        name = f"valid_{kind.metric}"
        return {
            "dev": scores["dev"][kind.metric],
            "test": scores["test"][kind.metric],
            "scores": scores["test"],
            "layers": printed.get("layer_weights", {}),
            "curve": [[line["step"], line[name]] for line in lines if name in line],
        }

    return Job(cell.name, words, read)


def _files(task: str, asked: Asked) -> list[str]:
    files = TASKS[task]["files"]
    if task != "squad":
        return [f"{DATA}/tasks/{name}" for name in files]
    source, made = DATA / "tasks/squad", asked.place / "squad"
    if not (made / "train-zre.jsonl.xz").exists():  # the last that is put there
        script = Path(__file__).parent.parent / "examples/split_squad.py"
        parts = [source / "dev-v1.1.reconstructed.json.xz", source / "dev_article_split.json", made]
        subprocess.run([sys.executable, script, *parts], check=True, stdout=subprocess.DEVNULL)
        shutil.copyfile(source / "squad_train_subset_4000q.json.xz", made / "train-4000.json.xz")
        shutil.copyfile(source / "qa_zre_subset.jsonl.xz", made / "train-zre.jsonl.xz")
    return [f"{asked.place}/{name}" for name in files]


def _embedder(vectors: str, asked: Asked) -> str:
    kinds, _, tuned = vectors.partition(":")
    model = str(asked.place / "finetuned" / tuned) if tuned else ""
    known = {"none": "none", "glove": GLOVE, "elmo": f"elmo:{model}"}
    return "+".join(known[kind] for kind in kinds.split("+"))


def _finetunings(asked: Asked) -> list[str]:
    return [f"fine-tuning, {task}" for task in asked.of("snli", "ner")]


def _finetuning(task: str, asked: Asked) -> Job:
    """One pass over the sentences of a task's training examples, labels ignored."""
    shards = asked.place / "text" / task
    if not shards.exists():
        kind = tasks.find_task(task)
        reader = kind(tasks.load_recipe(kind))
        for split, path in zip(("train", "dev"), _files(task, asked), strict=False):
            lines = (
                " ".join(s) for e in reader.read_examples(Path(path)) for s in reader.sentences(e)
            )
            text = asked.place / f"{task}-{split}.txt"
            text.write_text("".join(f"{line}\n" for line in lines if line), encoding="utf-8")
        words = asked.place / "vocabulary.txt"
        vocabulary = pretrained.load("english").vocabulary
        assert vocabulary is not None
        vocabulary.write(words)
        files = [asked.place / f"{task}-train.txt", "--valid", asked.place / f"{task}-dev.txt"]
        prepare = ["prepare", *files, "--tokenized", "--vocabulary", words, "-o", shards]
        subprocess.run([sys.executable, "-m", "elmore", *map(str, prepare)], check=True)
    out = asked.place / "finetuned" / task
    shutil.rmtree(out, ignore_errors=True)
    words = ["finetune", "english", str(shards), f"--out={out}", f"--device={asked.device}"]
    return Job(
        f"fine-tuning, {task}", [*words, "--set=train.epochs=1", "--json"], lambda found: found[0]
    )


if __name__ == "__main__":
    main()
