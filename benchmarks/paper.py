"""Reproduce the tables and figures of the paper (Peters et al., 2018) on open data.

    python benchmarks/paper.py table1 RESULTS [--tasks snli srl] [--at-once 16] [--seconds 560]
    python benchmarks/paper.py page RESULTS > PAGE.md
    python benchmarks/paper.py figures RESULTS FOLDER

    table1     every task with static vectors, ELMo and an untrained biLM; also gives Figure 2
    table2     which layers, and lambda
    table3     where ELMo goes
    ablations  gamma, layer norm and dropout of the mix
    figure1    how much data it takes
    finetuned  with a biLM fine-tuned on the text of the task
    table5     word senses per layer
    table6     parts of speech per layer
    cost       GPU minutes so far, and an estimate of what is left
    page       print all results so far, with missing ones marked
    figures    draw the figures

docs/protocol.md says what is run and how it is tested; paper.toml has the numbers. Every cell is
one `elmore` command, whose result is one file in the folder RESULTS. A stopped command goes on
where it was: finished cells are not run again, and a training that was stopped resumes from its
checkpoint in --place, if that is there. The data are in $ELMORE_DATA, the fastText vectors of
benchmarks/fasttext_vectors.py in --vectors.
"""

import argparse
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grid
import paper_cost
import torch
from data_folder import data_path
from elmore_command import elmore_command
from grid import Job, Results
from model_quality import GLOVE, save_untrained
from paper_cells import COLUMNS, FINETUNED_TASKS, TABLES, TASKS, Cell, Plan, recipe_name, task_class
from paper_checks import check_cells, check_finetuned, check_results, describe
from paper_figures import draw
from paper_page import page

from elmore.tasks import registry
from elmore.tasks.trained_task import TEST_COUNTS
from elmore.train.distributed import select_device
from elmore.weights import pretrained

WSD_SETS = ("semeval2007", "senseval2", "senseval3", "semeval2013", "semeval2015")
PROBES = ("table5", "table6")


class Machine(NamedTuple):
    """Where and how the commands run."""

    device: str
    place: Path
    """For run folders, models and text made from the data."""
    vectors: Path
    """The folder of fastText vectors."""
    at_once: int
    model: str = "english"
    """The biLM: a name of `elmore models`, or a folder."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=[*TABLES, *PROBES, "cost", "page", "figures"])
    parser.add_argument("results", type=Path, help="folder with one file per result")
    parser.add_argument("folder", type=Path, nargs="?", help="for figures")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), help="only these")
    parser.add_argument("--columns", nargs="*", choices=list(COLUMNS), help="only these")
    parser.add_argument("--set", nargs="*", default=[], help="settings for trying things out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--at-once", type=int, default=1, help="trainings at the same time")
    parser.add_argument("--seconds", type=float, help="stop then; the same command goes on")
    parser.add_argument("--place", type=Path, default=Path("build/paper"), help="for run folders")
    parser.add_argument("--vectors", type=Path, default=Path("build/vectors"), help="fastText")
    parser.add_argument("--model", default="english", help="the biLM, by name or folder")
    args = parser.parse_args()
    columns = tuple(COLUMNS if args.columns is None else args.columns)
    plan = Plan(grid.read(args.results), args.tasks, columns, tuple(args.set))
    check_results(plan, args.model)
    if args.table == "page":
        print(page(plan, args.results))
    elif args.table == "cost":
        print(paper_cost.format_estimate(plan, at_once=args.at_once))
    elif args.table == "figures":
        if args.folder is None:
            parser.error("figures: name the folder where they go after that of the results")
        draw(plan, args.folder)
    else:
        machine = Machine(args.device, args.place, args.vectors, args.at_once, args.model)
        run_table(args.table, args.results, plan, machine, seconds=args.seconds)


def run_table(
    table: str, results: Path, plan: Plan, machine: Machine, *, seconds: float | None
) -> None:
    """Run the missing cells of a table."""
    machine.place.mkdir(parents=True, exist_ok=True)
    check_model(plan.found, machine)

    def ready(found: Results) -> list[Job]:
        now = plan._replace(found=found)
        if table in PROBES:
            return [probe(table, machine)]
        cells = TABLES[table](now)
        check_cells(cells, found, machine.model)
        left = [cell for cell in cells if cell.name not in found]
        if table == "finetuned" and left:
            absent = [t for t in plan.of(FINETUNED_TASKS) if not finetuned_model(t, machine)]
            check_finetuned(absent, found)
            for task in absent:  # perhaps it was made on another machine
                found.pop(f"fine-tuning, {task}", None)
            if absent:
                return [finetuning(task, machine) for task in absent]
        return [training(cell, machine) for cell in left]

    grid.run(ready, results, at_once=machine.at_once, seconds=seconds)


def check_model(found: Results, machine: Machine) -> None:
    """Refuse results, and models in --place, of another biLM: they are found by name."""
    path = machine.place / "model.txt"
    in_results = {result["model"] for result in found.values() if result.get("model")}
    in_place = {path.read_text("utf-8")} if path.exists() else set()
    for option, models in (("folder for results", in_results), ("--place", in_place)):
        for model in models - {machine.model}:
            raise SystemExit(
                f"this {option} holds what was made with the model {model}, not "
                f"{machine.model}; use another {option}"
            )
    path.write_text(machine.model, encoding="utf-8")


def training(cell: Cell, machine: Machine) -> Job:
    """Return the command of a cell and the function that reads its result."""
    kind, recipe = task_class(cell.task), recipe_name(cell.task)
    out = machine.place / "runs" / grid.file_stem(cell.name)
    splits = zip(("train", "dev", "test"), data_files(cell.task, machine.place), strict=True)
    part = [] if cell.fraction == 1 else [f"--train-fractions={cell.fraction:g}"]
    run = out / f"fraction-{cell.fraction:g}" if part else out
    words = [
        *("task", "train", kind.name, *(f"--{split}={path}" for split, path in splits)),
        *([] if recipe is None else [f"--recipe={recipe}"]),
        f"--embedder={embedder(cell, machine)}",
        *(f"--set={setting}" for setting in cell.all_settings()),
        *(*part, f"--out={out}", f"--device={machine.device}", "--json"),
        *(["--resume"] if (run / "recipe.json").is_file() else []),
    ]
    seconds_path = out.with_name(f"{out.name}.seconds")

    def done() -> None:
        shutil.rmtree(out, ignore_errors=True)
        seconds_path.unlink(missing_ok=True)

    facts = {
        **cell._asdict(),
        **describe(cell, machine.model),
        "device": device_name(machine.device),
        "at_once": machine.at_once,
        "torch": torch.__version__,
        **({"cluster_sizes": article_sizes(machine.place)} if cell.task == "squad" else {}),
    }
    read = lambda printed: read_result(printed, run, kind.metric)  # noqa: E731
    return Job(cell.name, words, read, facts, seconds_path, done)


def read_result(printed: dict[str, Any], run: Path, metric: str) -> dict[str, Any]:
    """Return what is kept of a finished training."""
    scores = printed["runs"][0]["scores"] if "runs" in printed else printed
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve = [[line["step"], line[f"valid_{metric}"]] for line in lines if f"valid_{metric}" in line]
    best = max(range(len(curve)), key=lambda i: curve[i][1])
    recipe = json.loads((run / "recipe.json").read_text())
    counts = json.loads((run / TEST_COUNTS).read_text())["counts"]
    return {
        "dev": scores["dev"][metric],
        "test": scores["test"][metric],
        "scores": scores["test"],
        "layers": printed.get("layer_weights", {}),
        "curve": curve,
        "converged": len(curve) - 1 - best >= recipe["train"]["patience"] > 0 < curve[best][1],
        "sources": read_sources(recipe),
        "counts": [[_short(x) for x in column] for column in zip(*counts, strict=True)],
    }


def read_sources(recipe: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the data, the word vectors and the biLM of a run."""
    networks = {k: v for k, v in recipe["embedder"].items() if k != "specification"}
    data = {f"{split} data": digest for split, digest in recipe["data"]["sha256"].items()}
    return networks | data


def article_sizes(place: Path) -> list[int]:
    """Return how many questions each article of SQuAD's test set has, in its order."""
    articles = json.loads((place / "squad/test.json").read_text("utf-8"))["data"]
    return [sum(len(paragraph["qas"]) for paragraph in a["paragraphs"]) for a in articles]


def _short(number: float) -> float | int:
    return int(number) if number == int(number) else round(number, 6)


@cache
def device_name(device: str) -> str:
    """Return the name of the GPU, or cpu."""
    chosen = select_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else "cpu"


def data_files(task: str, place: Path) -> list[str]:
    """Return the training, dev and test files of a task."""
    files = TASKS[task]["files"]
    if task != "squad":
        return [str(data_path(f"tasks/{name}")) for name in files]
    source, made = data_path("tasks/squad"), place / "squad"
    if not (made / "train-zre.jsonl.xz").exists():  # the last that is put there
        script = Path(__file__).parent.parent / "examples/split_squad.py"
        parts = [source / "dev-v1.1.reconstructed.json.xz", source / "dev_article_split.json", made]
        subprocess.run([sys.executable, script, *parts], check=True, stdout=subprocess.DEVNULL)
        shutil.copyfile(source / "squad_train_subset_4000q.json.xz", made / "train-4000.json.xz")
        shutil.copyfile(source / "qa_zre_subset.jsonl.xz", made / "train-zre.jsonl.xz")
    return [f"{place}/{name}" for name in files]


def embedder(cell: Cell, machine: Machine) -> str:
    """Return the `--embedder` of a cell."""
    if cell.column == "glove":
        return f"glove:{data_path(GLOVE)}"
    vectors = machine.vectors / f"{cell.task}.f16.npy"
    if not vectors.exists():
        raise SystemExit(
            f"{vectors}: there are no vectors for {cell.task}; make them with "
            "benchmarks/fasttext_vectors.py, or name their folder with --vectors"
        )
    models = {
        "static": None,
        "elmo": machine.model,
        "untrained": machine.place / "untrained",
        "finetuned": machine.place / "finetuned" / cell.task,
    }
    if cell.column == "untrained":
        make_untrained(machine.model, machine.place / "untrained")
    model = models[cell.column]
    return f"fasttext:{vectors}" + ("" if model is None else f"+elmo:{model}")


def make_untrained(model: str, path: Path) -> None:
    """Write a biLM of the same shape with new weights, as pretraining starts, if it is not there.

    The seed is fixed, so that every machine makes the same one.
    """
    if not path.exists():
        save_untrained(model, path)


def probe(table: str, machine: Machine) -> Job:
    """Return the command of Table 5 or 6."""
    facts = {"device": device_name(machine.device), "at_once": machine.at_once}
    facts["model"] = machine.model
    where = [f"--model={machine.model}", f"--device={machine.device}"]
    if table == "table5":
        wsd = data_path("tasks/wsd")
        tests = [f"--test={wsd}/Evaluation_Datasets/{name}" for name in WSD_SETS]
        places = [f"--train={wsd}/Training_Corpora/SemCor", f"--wordnet={wsd}/wordnet-3.0"]
        words = ["probe", "wsd", *places, *tests, "--json", *where]
        return Job("senses", words, lambda found: found, facts)
    splits = zip(("train", "dev", "test"), data_files("pos", machine.place), strict=True)
    files = [f"--{split}={path}" for split, path in splits]
    words = ["probe", "pos", *files, "--json", *where]
    return Job("parts of speech", words, lambda found: {"layers": found}, facts)


def finetuned_model(task: str, machine: Machine) -> Path | None:
    """Return the folder of a fine-tuned biLM, if it is there."""
    out = machine.place / "finetuned" / task
    return out if (out / "done").exists() else None


def finetuning(task: str, machine: Machine) -> Job:
    """One pass over the sentences of a task's training examples, labels ignored."""
    place = machine.place
    shards = place / "text" / task
    if not shards.exists():
        kind = task_class(task)
        reader = kind(registry.load_recipe(kind))
        for split, path in zip(("train", "dev"), data_files(task, place), strict=False):
            lines = (
                " ".join(s) for e in reader.read_examples(Path(path)) for s in reader.sentences(e)
            )
            text = place / f"{task}-{split}.txt"
            text.write_text("".join(f"{line}\n" for line in lines if line), encoding="utf-8")
        words = place / "vocabulary.txt"
        vocabulary = pretrained.load(machine.model).vocabulary
        assert vocabulary is not None
        vocabulary.write(words)
        files = [place / f"{task}-train.txt", "--valid", place / f"{task}-dev.txt"]
        prepare = ["prepare", *files, "--tokenized", "--vocabulary", words, "-o", shards]
        subprocess.run(elmore_command([*map(str, prepare)]), check=True)
    out = place / "finetuned" / task
    resume = ["--resume"] if (out / "recipe.json").is_file() else []
    words = ["finetune", machine.model, str(shards), f"--out={out}", f"--device={machine.device}"]
    facts = {"device": device_name(machine.device), "at_once": machine.at_once}
    command = [*words, "--set=train.epochs=1", "--json", *resume]
    name, done = f"fine-tuning, {task}", (out / "done").touch
    return Job(name, command, lambda found: found[0], facts, done=done)


if __name__ == "__main__":
    main()
