"""Measure the quality of a model: perplexity, parts of speech, senses, names, uses of a word.

    python benchmarks/model_quality.py RESULTS.json [--model english] [--cells pos wsd ...] [--page]

Every number is one `elmore` command (printed next to it), or comes from `uses` below. The same
probes run on GloVe 50d and on an untrained model of the same shape. Cells that RESULTS.json already
holds are not computed again; `--page` prints the page from it. The data are in $ELMORE_DATA. All
cells take an hour and a half on two slow cores; perplexity, probes and names of the model alone
take half of that.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from data_folder import data_path

import elmore
from elmore import atomic
from elmore.model.bilm import BiLM
from elmore.probe.sense_corpus import SenseCorpus
from elmore.tasks.embedding import word_vectors
from elmore.weights import folder, pretrained
from elmore.weights.digest import model_digest

GLOVE = "vectors/glove.6B.50d.subset.f16.npy"
POS = [(split, f"pos/en_ewt-ud-{split}.conllu.xz") for split in ("train", "dev", "test")]
WSD = [
    ("train", "wsd/Training_Corpora/SemCor"),
    ("test", "wsd/Evaluation_Datasets/semeval2007"),
    ("test", "wsd/Evaluation_Datasets/senseval2"),
    ("wordnet", "wsd/wordnet-3.0"),
]
NER = [
    ("train", "ner/wnut17train.conll"),
    ("dev", "ner/emerging.dev.conll"),
    ("test", "ner/emerging.test.annotated"),
]
SEEDS = (0, 1, 2)
_DOCUMENTS = 60  # of SemCor, for the uses of words
_PAIRS = 100  # of uses of one lemma at most, so that no lemma decides alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--cells", nargs="*", help="only those whose names begin so")
    parser.add_argument("--page", action="store_true", help="only print the page")
    args = parser.parse_args()
    result = json.loads(args.results.read_text()) if args.results.exists() else {}
    digest = model_digest(pretrained.load(args.model))
    if result.setdefault("model", digest) != digest:
        sys.exit(f"{args.results} is of another model; name another file")
    with tempfile.TemporaryDirectory() as place:
        for name, compute in cells(args.model, Path(place)).items():
            chosen = not args.cells or any(name.startswith(start) for start in args.cells)
            if args.page or name in result or not chosen:
                continue
            begun = time.perf_counter()
            result[name] = compute()
            result[name]["seconds"] = round(time.perf_counter() - begun, 1)
            atomic.write(args.results, json.dumps(result, indent=1).encode())
            print(f"{name}: {result[name]['seconds']} s", file=sys.stderr)
    print(page(result))


def cells(model: str, place: Path) -> dict[str, Callable[[], dict]]:
    """Name every number and how it is come by."""
    untrained = place / "untrained"

    def of(which: str) -> list[str]:
        if which == "glove":
            return [f"--vectors=glove:{data_path(GLOVE)}"]
        if which == "untrained" and not untrained.exists():
            save_untrained(model, untrained)
        return [f"--model={untrained if which == 'untrained' else model}"]

    def names(more: str, seed: int) -> Callable[[], dict]:
        out = place / f"{more.count('elmo')}-{seed}"
        return lambda: command(
            *("task", "train", "ner", *options(NER), f"--embedder=glove:{data_path(GLOVE)}{more}"),
            *(f"--set=train.seed={seed}", f"--out={out}", "--json"),
        )

    result: dict[str, Callable[[], dict]] = {
        f"perplexity {text}": lambda text=text: perplexity(model, text, place)
        for text in ("valid", "biomed-valid")
    }
    for which in ("model", "glove", "untrained"):
        result[f"pos {which}"] = lambda which=which: {
            "rows": command("probe", "pos", *options(POS), *of(which), "--json")
        }
        result[f"wsd {which}"] = lambda which=which: command(
            "probe", "wsd", *options(WSD), *of(which), "--json"
        )
        result[f"uses {which}"] = lambda which=which: uses(
            *(each.split("=")[1] for each in of(which))
        )
    for seed in SEEDS:
        result[f"ner glove {seed}"] = names("", seed)
        result[f"ner glove+elmo {seed}"] = names(f"+elmo:{model}", seed)
    return result


def options(files: list[tuple[str, str]]) -> list[str]:
    """Return the options that name the files of a task."""
    return [f"--{option}={data_path(f'tasks/{name}')}" for option, name in files]


def command(*words: str) -> dict:
    """Run `elmore` and give the JSON it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "elmore", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def perplexity(model: str, text: str, place: Path) -> dict:
    """Prepare a text with the model's own words, and evaluate."""
    words = place / "vocabulary.txt"
    vocabulary = pretrained.load(model).vocabulary
    assert vocabulary is not None, f"{model} has no softmax"
    vocabulary.write(words)
    shards = place / f"shards-{text}"
    source = data_path(f"corpus/{text}.txt.xz")
    subprocess.run(
        [sys.executable, "-m", "elmore", "prepare", source, f"--vocabulary={words}", "-o", shards],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return command("evaluate", model, str(shards), "--json")


def save_untrained(model: str, place: Path) -> None:
    """Write a model of the same shape that has learned nothing."""
    bundle = pretrained.load(model)
    torch.manual_seed(0)
    folder.save(
        replace(bundle, model=BiLM(bundle.config).eval(), softmax=None, warm_state=None), place
    )


def uses(source: str) -> dict:
    """Return the area under the curve of the cosine for occurrences of one sense and of two.

    Over pairs of uses in the first documents of SemCor, drawn once; one half is a coin.
    """
    words = (
        word_vectors.read_word_vectors(source.removeprefix("glove:"))
        if source.startswith("glove:")
        else None
    )
    sentences, seen = [], set()
    for sentence in SenseCorpus(data_path("tasks/wsd/Training_Corpora/SemCor")):
        seen.add(sentence.document)
        if len(seen) <= _DOCUMENTS:
            sentences.append(sentence)
    tokens = [sentence.words for sentence in sentences]
    if words is None:
        layers = [each.vectors for each in elmore.load(source).stream(tokens, layers="all")]
    else:
        layers = [words.lookup(each)[None] for each in tokens]
    of_lemma: dict[tuple[str, str], list[tuple[set[str], np.ndarray]]] = {}
    for sentence, stack in zip(sentences, layers, strict=True):
        for use in sentence.instances:
            vector = stack[:, use.start : use.end].mean(axis=1)
            unit = vector / np.maximum(np.linalg.norm(vector, axis=1, keepdims=True), 1e-12)
            of_lemma.setdefault((use.lemma, use.pos), []).append((set(use.keys), unit))
    rng = np.random.default_rng(0)
    same, other = [], []
    for result in of_lemma.values():
        pairs = list(combinations(range(len(result)), 2))
        for number in rng.permutation(len(pairs))[:_PAIRS]:
            (left, one), (right, two) = (result[at] for at in pairs[number])
            (same if left & right else other).append((one * two).sum(axis=1))
    auc = [
        area(np.array(same)[:, layer], np.array(other)[:, layer]) for layer in range(len(layers[0]))
    ]
    return {"auc": auc, "same": len(same), "other": len(other)}


def area(higher: np.ndarray, lower: np.ndarray) -> float:
    """Return the probability that a first value exceeds a second one; ties count half."""
    ordered = np.sort(lower)
    below = np.searchsorted(ordered, higher, "left") + np.searchsorted(ordered, higher, "right")
    return float(below.mean() / 2 / len(lower))


def page(found: dict) -> str:
    """Write the page, the missing cells as such."""
    lines = [
        "## Perplexity\n",
        "| text | perplexity | forward | backward | bits per character | unknown |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for text in ("valid", "biomed-valid"):
        row = found.get(f"perplexity {text}")
        keys = ("perplexity", "forward", "backward", "bits_per_character")
        shown = " | ".join(f"{row[key]:.3g}" for key in keys) if row else "missing | | |"
        unknown = f"{100 * row['oov']:.2f} %" if row else ""
        lines.append(f"| {text} | {shown} | {unknown} |")
    lines += ["", "## Parts of speech: linear probe, UD EWT test, PTB tags, %\n"]
    lines += [
        "| vectors | layer | accuracy | dev | control | selectivity |",
        "|---|---|---|---|---|---|",
    ]
    for which in ("model", "glove", "untrained"):
        for row in found.get(f"pos {which}", {"rows": []})["rows"] or [None]:
            lines.append(
                f"| {which} | {' | '.join(map(share, row.values())) if row else 'missing'} |"
            )
    lines += ["", "## Senses: F1, % (95 % interval); * chosen on held-out documents of SemCor\n"]
    lines += [
        "| vectors | layer | semeval2007 | senseval2 | senseval2, no fallback |",
        "|---|---|---|---|---|",
    ]
    for which in ("model", "glove", "untrained"):
        lines += sense_rows(which, found.get(f"wsd {which}"))
    lines += [
        "",
        "## Names: WNUT-17 test F1, three seeds\n",
        "| vectors | seeds | mean | deviation |",
    ]
    lines.append("|---|---|---|---|")
    for vectors in ("glove", "glove+elmo"):
        scores = [found.get(f"ner {vectors} {seed}") for seed in SEEDS]
        values = [row["test"]["f1"] for row in scores if row]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        shown = " ".join(f"{value:.1f}" for value in values) or "missing"
        mean = f"{statistics.mean(values):.2f}" if values else ""
        lines.append(f"| {vectors} | {shown} | {mean} | {spread:.2f} |")
    lines += ["", "## Uses: one sense or two? Area under the curve of the cosine\n"]
    lines += ["| vectors | by layer | pairs |", "|---|---|---|"]
    for which in ("model", "glove", "untrained"):
        row = found.get(f"uses {which}")
        shown = " ".join(f"{value:.3f}" for value in row["auc"]) if row else "missing"
        lines.append(f"| {which} | {shown} | {row['same'] + row['other'] if row else ''} |")
    return "\n".join(lines)


def share(value: str | float | None) -> str:
    return f"{100 * value:.2f}" if isinstance(value, float) else str(value)


def sense_rows(which: str, found: dict | None) -> list[str]:
    if found is None:
        return [f"| {which} | missing | | | |"]
    rows = []
    for layer, second in found["tests"]["senseval2"].items():
        first = found["tests"]["semeval2007"][layer]
        shown = [
            f"{100 * s['f1']:.1f} ({100 * s['f1_low']:.1f}-{100 * s['f1_high']:.1f})"
            for s in (first, second)
        ]
        alone = f"{100 * second['alone_f1']:.1f}" if "alone_f1" in second else ""
        mark = " *" if layer == found["chosen"] else ""
        rows.append(f"| {which} | {layer}{mark} | {' | '.join(shown)} | {alone} |")
    return rows


if __name__ == "__main__":
    main()
