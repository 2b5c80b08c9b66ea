"""Learn the whitening of a model, and measure cloze and whitened vectors.

    python benchmarks/whitening.py learn MODEL_FOLDER train-00.txt.xz
    python benchmarks/whitening.py vectors VECTORS --dwug dwug_en --text train-00.txt.xz
    python benchmarks/whitening.py recipes VECTORS RESULTS.json
    python benchmarks/whitening.py measure VECTORS RESULTS.json
    python benchmarks/whitening.py speed RESULTS.json --text train-00.txt.xz
    python benchmarks/whitening.py page RESULTS.json

`learn` adds `whitening.npz` to a model folder, from sentences of a text drawn at random. `vectors`
embeds all annotated instances of SemCor and of the evaluation sets (ELMORE_DATA/tasks/wsd), the
uses of DWUG (Schlechtweg et al., 2021, in its own layout) and tokens of a training text once, and
stores layers and cloze vectors in float16; everything after it is linear in them. `recipes` scores
ways to whiten on held-out documents of SemCor, and on DWUG; `measure` scores the whitening of the
model on the evaluation sets, on DWUG, and on the maps of five words. RESULTS.json collects all.
"""

import argparse
import csv
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import tee
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import elmore
from elmore.embed import whitening
from elmore.embed.embedder import Embedder
from elmore.probe import occurrence_map, sample
from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_spearman
from elmore.probe.occurrences import Occurrence
from elmore.probe.sense_corpus import SenseCorpus
from elmore.probe.senses import probe_senses
from elmore.probe.wordnet import read_wordnet
from elmore.text.files import Lines
from elmore.weights import folder
from elmore.weights.whitening import CLOZE, Whitening

SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
MAPS = ("head", "present", "light", "plant", "line")
TOKENS = 150_000
FRACTION = 0.05  # of the lines of a text that are drawn
Item = tuple[list[str], list[tuple[int, int]]]
"""The tokens of a sentence, and the spans in it whose vectors are stored."""


class Recipe(NamedTuple):
    """How joined layers become one vector."""

    layers: tuple[str, ...]
    power: float
    width: int = 1
    """Width of the result, in widths of a layer."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        return f"{' + '.join(self.layers)}, power {self.power:g}, width {self.width} x"


RECIPES = [
    *(Recipe(("2",), power) for power in (0, 0.125, 0.25, 0.5)),
    *(Recipe((CLOZE,), power) for power in (0, 0.25, 0.5)),
    *(Recipe(("2", CLOZE), power) for power in (0, 0.125, 0.25, 0.375, 0.5)),
    *(Recipe(("2", CLOZE), power, 2) for power in (0.25, 0.375, 0.5)),
    *(Recipe(("1", "2", CLOZE), power) for power in (0.25, 0.375, 0.5)),
]


def draw_sentences(text: str, num_tokens: int) -> Iterator[list[str]]:
    """Yield tokenized sentences of lines drawn at random, until there are enough tokens."""
    generator = np.random.default_rng(0)
    lines = (line for line in Lines([text]) if generator.random() < FRACTION)
    for tokens in sample.tokenize_lines(lines, split=True):
        yield tokens
        num_tokens -= len(tokens)
        if num_tokens <= 0:
            return


def learn(args: argparse.Namespace) -> None:
    """Add a whitening to a model folder."""
    elmo = elmore.load(str(args.folder), device="cpu")
    origin = {"learned from": f"{args.tokens:,} tokens of {Path(args.text).name.split('.')[0]}"}
    made = whitening.learn(elmo, draw_sentences(args.text, args.tokens), origin=origin)
    folder.add_whitening(args.folder, made)
    print(f"{args.folder / folder.WHITENING}: {made}")


def sense_items(path: str) -> Iterator[Item]:
    """Yield the annotated sentences of a corpus."""
    for sentence in SenseCorpus(path):
        yield sentence.words, [(one.start, one.end) for one in sentence.instances]


def dwug_uses(directory: Path) -> Iterator[tuple[str, str, list[str], int]]:
    """Yield lemma, identifier, tokens of the sentence and position of each use."""
    for path in sorted(directory.glob("data/*/uses.csv")):
        for row in read_table(path):
            tokens = row["context_tokenized"].split(" ")
            position = int(row["indexes_target_token_tokenized"])
            begin, end = map(int, row["indexes_target_sentence_tokenized"].split(":"))
            if not begin <= position < end:
                begin, end = 0, len(tokens)
            words = [word or "_" for word in tokens[begin:end]]
            yield row["lemma"], row["identifier"], words, position - begin


def read_table(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table of DWUG."""
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def store(elmo: Embedder, items: Iterable[Item], path: Path) -> None:
    """Store the layers and the cloze vector of each span, averaged over its words."""
    here, there = tee(items)
    layers = [*range(elmo.num_layers), "cloze"]
    embedded = elmo.stream((tokens for tokens, _ in there), layers=layers)
    rows = [
        text.vectors[:, begin:end].mean(axis=1).astype(np.float16)
        for (_, spans), text in zip(here, embedded, strict=True)
        for begin, end in spans
    ]
    np.save(path, np.stack(rows))  # (N, layers + 1, width)
    print(f"{path}: {len(rows)} vectors", flush=True)


def vectors(args: argparse.Namespace) -> None:
    """Embed everything once."""
    args.folder.mkdir(parents=True, exist_ok=True)
    elmo = elmore.load(*args.model, device="cpu", precision=args.precision)
    text = (
        (tokens, [(at, at + 1) for at in range(len(tokens))])
        for tokens in draw_sentences(args.text, TOKENS)
    )
    uses = ((tokens, [(at, at + 1)]) for _, _, tokens, at in dwug_uses(args.dwug))
    store(elmo, text, args.folder / "text.npy")
    store_judgements(args)
    store(elmo, uses, args.folder / "dwug.npy")
    for name in ("ALL", *SETS):
        corpus = senses_folder(f"Evaluation_Datasets/{name}")
        store(elmo, sense_items(corpus), args.folder / f"{name}.npy")
    store(elmo, sense_items(senses_folder("Training_Corpora/SemCor")), args.folder / "semcor.npy")


def senses_folder(name: str) -> str:
    """Return a folder of the evaluation framework."""
    return f"{os.environ['ELMORE_DATA']}/tasks/wsd/{name}"


def take_layers(rows: Float[np.ndarray, "N R D"], names: Iterable[str]) -> Float[np.ndarray, "N W"]:
    """Join stored layers."""
    numbers = [-1 if name == CLOZE else int(name) for name in names]
    return np.concatenate([rows[:, number] for number in numbers], axis=1).astype(np.float32)


class Replay:
    """Stored vectors in place of a model: `transform` makes the layers that a probe asks for.

    Every word of an instance gets the mean of its words, whose mean is that again.
    """

    def __init__(
        self,
        vectors: Path,
        corpora: dict[str, str],
        transform: Callable[[np.ndarray], np.ndarray],
        num_layers: int,
        width: int,
    ) -> None:
        self._folder, self._corpora, self._transform = vectors, iter(corpora.items()), transform
        self.num_layers, self.width, self.whitening = num_layers, width, None

    def stream(self, texts: Iterable[list[str]], *, layers: list) -> Iterator[SimpleNamespace]:
        """Yield the vectors of the next corpus, sentence by sentence."""
        name, path = next(self._corpora)
        stored = iter(_blocks(self._folder / f"{name}.npy", self._transform))
        for words, sentence in zip(texts, SenseCorpus(path), strict=True):
            placed = np.zeros((len(layers), len(words), self.width), np.float32)
            for one, rows in zip(sentence.instances, stored, strict=False):
                placed[: len(rows), one.start : one.end] = rows[:, None]
            yield SimpleNamespace(vectors=placed)


def _blocks(path: Path, transform: Callable[[np.ndarray], np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the transformed layers (R, D) of each stored row."""
    stored = np.load(path, mmap_mode="r")
    for begin in range(0, len(stored), 1024):
        yield from transform(stored[begin : begin + 1024].astype(np.float32))


def learn_recipe(text: Float[np.ndarray, "N R D"], recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and projection of a recipe, in floats."""
    joined = take_layers(text, recipe.layers).astype(np.float64)
    width = min(joined.shape[1], recipe.width * text.shape[2])
    return joined.mean(axis=0), whitening.projection(np.cov(joined.T), width, recipe.power)


def recipes(args: argparse.Namespace) -> None:
    """Score recipes on held-out documents of SemCor, and on DWUG."""
    text = np.load(args.folder / "text.npy")
    learned = [(one, *learn_recipe(text, one)) for one in RECIPES]
    width = 2 * text.shape[2]

    def apply(rows: np.ndarray) -> np.ndarray:
        out = np.zeros((len(rows), len(learned), width), np.float32)
        for number, (one, mean, projection) in enumerate(learned):
            out[:, number, : len(projection)] = (
                take_layers(rows, one.layers) - mean
            ) @ projection.T
        return out

    corpus = senses_folder("Training_Corpora/SemCor")
    source: Any = Replay(args.folder, {"semcor": corpus}, apply, len(learned), width)
    wordnet = read_wordnet(Path(senses_folder("wordnet-3.0")))
    found = probe_senses(source, SenseCorpus(corpus), [], wordnet)
    dwug = dict(
        zip(RECIPES, score_dwug(args, lambda rows: apply(rows).swapaxes(0, 1)), strict=True)
    )
    table = [
        {
            "recipe": one.name,
            "held_out": found.held_out[str(number)],
            "dwug": dwug[one],
        }
        for number, one in enumerate(RECIPES)
    ]
    record(args.results, "recipes", table)


def score_dwug(
    args: argparse.Namespace, layers: Callable[[np.ndarray], Iterable[np.ndarray]]
) -> Iterator[dict]:
    """Yield Spearman's correlation of cosine and median judgement, for each kind of vector."""
    judged = json.loads((args.folder / "dwug.json").read_text())
    position = {tuple(use): number for number, use in enumerate(judged["uses"])}
    pairs = [(position[lemma, a], position[lemma, b]) for lemma, a, b in judged["pairs"]]
    first, second = np.array(pairs).T
    gold = np.array(judged["medians"])
    stored = np.load(args.folder / "dwug.npy").astype(np.float32)
    for rows in layers(stored):
        unit = normalize(rows)
        found = estimate_spearman(np.einsum("nd,nd->n", unit[first], unit[second]), gold)
        yield {"rho": found.score, "low": found.low, "high": found.high, "pairs": found.n}


def store_judgements(args: argparse.Namespace) -> None:
    """Store the uses of DWUG, and the median judgement of each pair; 0 is no judgement."""
    judgements: dict[tuple[str, str, str], list[float]] = {}
    for path in sorted(args.dwug.glob("data/*/judgments.csv")):
        for row in read_table(path):
            if float(row["judgment"]) > 0:
                pair = sorted((row["identifier1"], row["identifier2"]))
                judgements.setdefault((row["lemma"], *pair), []).append(float(row["judgment"]))
    uses = [(lemma, identifier) for lemma, identifier, _, _ in dwug_uses(args.dwug)]
    known = set(uses)
    pairs = [pair for pair in judgements if {(pair[0], pair[1]), (pair[0], pair[2])} <= known]
    medians = [float(np.median(judgements[pair])) for pair in pairs]
    table = {"uses": uses, "pairs": pairs, "medians": medians}
    (args.folder / "dwug.json").write_text(json.dumps(table))


def whiten(rows: Float[np.ndarray, "N R D"], how: Whitening) -> Float[np.ndarray, "N D"]:
    """Return the whitened vectors of stored layers."""
    return take_layers(rows, how.layers) @ how.projection.dense().T + how.bias


def measure(args: argparse.Namespace) -> None:
    """Score the whitening of the model."""
    elmo = elmore.load(*args.model, device="cpu")
    how = elmo.whitening
    assert how is not None, "this model has no whitening; run learn first"
    corpora = {"semcor": senses_folder("Training_Corpora/SemCor")}
    corpora |= {name: senses_folder(f"Evaluation_Datasets/{name}") for name in ("ALL", *SETS)}

    def apply(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, whiten(rows, how)[:, None]], axis=1)

    source: Any = Replay(args.folder, corpora, apply, elmo.num_layers, elmo.width)
    source.whitening = how
    train, *tests = map(SenseCorpus, corpora.values())
    wordnet = read_wordnet(Path(senses_folder("wordnet-3.0")))
    found = probe_senses(source, train, tests, wordnet)
    record(args.results, "senses", {"held_out": found.held_out, "tests": found.tests})
    names = ["1", "2", "average", "cloze", "whitened"]

    def kinds(rows: np.ndarray) -> Iterator[np.ndarray]:
        yield from (rows[:, 1], rows[:, 2], rows[:, :-1].mean(axis=1), rows[:, -1])
        yield whiten(rows, how)

    record(args.results, "dwug", dict(zip(names, score_dwug(args, kinds), strict=True)))
    record(args.results, "maps", list(score_maps(args.folder, corpora["semcor"], how)))
    record(args.results, "model", {"name": elmo.bundle.card.name, "origin": how.origin})


def score_maps(vectors: Path, corpus: str, how: Whitening) -> Iterator[dict]:
    """Yield how well clusters of a word's uses agree with senses, for three kinds of vectors."""
    stored, row = np.load(vectors / "semcor.npy", mmap_mode="r"), 0
    uses: dict[str, list[tuple[int, Occurrence]]] = {word: [] for word in MAPS}
    for sentence in SenseCorpus(corpus):
        for one in sentence.instances:
            if one.lemma in uses:
                use = Occurrence(sentence.words, one.start, one.end, one.keys[0])
                uses[one.lemma].append((row, use))
            row += 1
    for word, found in uses.items():
        rows = stored[[number for number, _ in found]].astype(np.float32)
        kinds = {"2": rows[:, 2], "cloze": rows[:, -1], "whitened": whiten(rows, how)}
        for name, each in kinds.items():
            drawn = occurrence_map.map_occurrences(
                word, [use for _, use in found], each, layers=name
            )
            yield {
                "word": word,
                "vectors": name,
                "clusters": drawn.num_clusters,
                "purity": drawn.purity,
                "adjusted_rand": drawn.adjusted_rand,
            }


def speed(args: argparse.Namespace) -> None:
    """Compare the CPU time of layers="all" with that of cloze and whitened vectors."""
    elmo = elmore.load(*args.model, device="cpu", precision=args.precision)
    texts = list(draw_sentences(args.text, args.tokens))
    num_words = sum(map(len, texts))
    choices = ["all", "top", "cloze", *(["whitened"] if elmo.whitening else [])]
    seconds: dict[str, list[float]] = {choice: [] for choice in choices}
    for _ in elmo.stream(texts):
        pass  # fills the caches
    for _ in range(args.repeats):
        for choice in choices:
            start = time.process_time()
            for _ in elmo.stream(texts, layers=choice):
                pass
            seconds[choice].append(time.process_time() - start)
    fastest = {choice: num_words / min(times) for choice, times in seconds.items()}
    facts = {"words": num_words, "precision": args.precision, "threads": "1"}
    record(args.results, "speed", {"words_per_cpu_second": fastest, **facts})


def record(path: Path, key: str, value: object) -> None:
    """Set a key of the results."""
    table = json.loads(path.read_text()) if path.exists() else {"machine": platform.machine()}
    path.write_text(json.dumps(table | {key: value}, indent=1) + "\n")


def page(args: argparse.Namespace) -> None:
    """Print the results as markdown."""
    found = json.loads(args.results.read_text())
    if "recipes" in found:
        rows = [
            (one["recipe"], _f1(one["held_out"]), f"{one['dwug']['rho']:.3f}")
            for one in found["recipes"]
        ]
        _print_table(
            "Recipes: F1 on held-out SemCor, rho on DWUG EN", ("recipe", "F1", "rho"), rows
        )
    if "senses" in found:
        tests = found["senses"]["tests"]
        chosen = ("first sense", "1", "2", "cloze", "whitened")
        rows = [(row, *(_f1(test[row]) for test in tests.values())) for row in chosen]
        rows += [
            (f"{row}, gain over 2", *(_gain(test[row]) for test in tests.values()))
            for row in ("cloze", "whitened")
        ]
        _print_table("Word senses, F1", ("vectors", *tests), rows)
    if "dwug" in found:
        rows = [
            (name, f"{one['rho']:.3f} ({one['low']:.3f} to {one['high']:.3f})")
            for name, one in found["dwug"].items()
        ]
        _print_table("DWUG EN: rho of cosine and median judgement", ("vectors", "rho"), rows)
    if "maps" in found:
        rows = [
            (
                *(one["word"], one["vectors"], str(one["clusters"])),
                *(f"{one[key]:.2f}" for key in ("purity", "adjusted_rand")),
            )
            for one in found["maps"]
        ]
        head = ("word", "vectors", "clusters", "purity", "adjusted Rand index")
        _print_table("Sense maps", head, rows)
    if "speed" in found:
        rows = [
            (name, f"{value:,.0f}")
            for name, value in found["speed"]["words_per_cpu_second"].items()
        ]
        _print_table("Words per CPU second", ("layers", "words"), rows)


def _f1(scores: dict[str, float]) -> str:
    return f"{100 * scores['f1']:.1f}"


def _gain(scores: dict[str, float]) -> str:
    gain, low, high = (100 * scores[key] for key in ("gain", "gain_low", "gain_high"))
    return f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"


def _print_table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    head = list(head)
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    """Run a subcommand."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for run in (learn, vectors, recipes, measure, speed, page):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.set_defaults(run=run)
        if run not in (speed, page):
            command.add_argument("folder", type=Path)
        if run in (recipes, measure, speed, page):
            command.add_argument("results", type=Path)
        if run is learn:
            command.add_argument("text")
        if run in (vectors, speed):
            command.add_argument("--text", required=True)
            command.add_argument("--precision", choices=("exact", "fast"), default="exact")
        if run is vectors:
            command.add_argument("--dwug", type=Path, required=True)
        if run in (vectors, measure, speed):
            command.add_argument("--model", nargs=1, default=[])
        if run in (learn, speed):
            command.add_argument("--tokens", type=int, default=TOKENS if run is learn else 20_000)
        if run is speed:
            command.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
