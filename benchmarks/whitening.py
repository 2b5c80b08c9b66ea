"""Learn the whitening of a model, and measure cloze and whitened vectors.

    python benchmarks/whitening.py learn MODEL_FOLDER train-00.txt.xz
    python benchmarks/whitening.py vectors VECTORS --dwug dwug_en --text train-00.txt.xz
    python benchmarks/whitening.py recipes VECTORS RESULTS.json --text train-00.txt.xz
    python benchmarks/whitening.py measure VECTORS RESULTS.json
    python benchmarks/whitening.py speed RESULTS.json --text train-00.txt.xz
    python benchmarks/whitening.py page RESULTS.json

`learn` adds `whitening.npz` to a model folder, from sentences of a text drawn at random, or from
their stored vectors (`--vectors`). `vectors` embeds all annotated instances of SemCor and of the
evaluation sets (ELMORE_DATA/tasks/wsd), the uses of DWUG (Schlechtweg et al., 2021, in its own
layout) and tokens of a training text once, and stores layers and cloze vectors in float16;
everything after it is linear in them. `recipes` scores
ways to whiten on held-out documents of SemCor, and on DWUG; `measure` scores the whitening of the
model on the evaluation sets, on DWUG, and on the maps of five words. RESULTS.json collects all.
"""

import argparse
import csv
import json
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from data_folder import data_path
from jaxtyping import Float

import elmore
from elmore.embed import whitening
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice
from elmore.probe import occurrence_map, sample
from elmore.probe.cosine import normalize
from elmore.probe.estimates import spearman
from elmore.probe.occurrences import Occurrence
from elmore.probe.sense_corpus import Instance, SenseCorpus
from elmore.probe.sense_scores import score_gain, score_senses
from elmore.probe.wordnet import read_wordnet
from elmore.text.files import Lines
from elmore.weights import folder
from elmore.weights.whitening import CLOZE, Whitening

SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
MAPS = ("head", "present", "light", "plant", "line")
LAYERS = ("2", CLOZE)
TOKENS = 150_000
FRACTION = 0.05  # of the lines of a text that are drawn
Item = tuple[list[str], list[tuple[int, int]]]
"""The tokens of a sentence, and the spans in it whose vectors are stored."""


KINDS = {
    "1": lambda rows: rows[:, 1],
    "2": lambda rows: rows[:, 2],
    "cloze": lambda rows: rows[:, -1],
}
"""Vectors from stored layers (N, R, D)."""


class Recipe(NamedTuple):
    """How joined layers become one vector as wide as a layer."""

    layers: tuple[str, ...]
    power: float
    around: str
    """Whose mean the variances are measured around: that of "each word", or of "all tokens"."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        return f"{' + '.join(self.layers)}, around the mean of {self.around}, power {self.power:g}"

    def projection(self, statistics: whitening.Statistics) -> Float[np.ndarray, "D W"]:
        """Return the projection: that of the package, or principal components of all tokens."""
        if self.around == "each word":
            return whitening.projection(statistics, len(self.layers), self.power)
        variances, directions = whitening.principal_directions(statistics.total)
        kept = len(variances) // len(self.layers)
        return directions[:kept] * variances[:kept, None] ** -self.power


POWERS = (0, 0.25, 0.375, 0.5)
JOINED = (("2", CLOZE), ("2",), (CLOZE,))
RECIPES = [
    Recipe(layers, power, around)
    for layers in JOINED
    for around in ("each word", "all tokens")
    for power in POWERS
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
    origin = {"learned from": f"{TOKENS:,} tokens of {Path(args.text).name.split('.')[0]}"}
    if args.vectors:
        blocks = read_text(args.vectors, args.text, LAYERS)
        made = whitening.fit(blocks, LAYERS, origin=origin)
    else:
        elmo = elmore.load(str(args.folder), device="cpu")
        made = whitening.learn(elmo, draw_sentences(args.text, TOKENS), origin=origin)
    folder.add_whitening(args.folder, made)
    print(f"{args.folder / folder.WHITENING}: {made}")


def read_text(
    stored: Path, text: str, layers: Sequence[str]
) -> Iterator[tuple[list[str], Float[np.ndarray, "T W"]]]:
    """Yield the tokens of the drawn sentences with their stored layers, joined."""
    rows, begin = np.load(stored / "text.npy", mmap_mode="r"), 0
    for tokens in draw_sentences(text, TOKENS):
        yield tokens, take_layers(rows[begin : begin + len(tokens)], layers)
        begin += len(tokens)


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
    layers: list[LayerChoice] = [*range(elmo.num_layers), "cloze"]
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
    evaluation = senses_folder("Evaluation_Datasets/ALL")
    training = senses_folder("Training_Corpora/SemCor")
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
    store(elmo, sense_items(evaluation), args.folder / "ALL.npy")
    store(elmo, sense_items(training), args.folder / "semcor.npy")


def senses_folder(name: str) -> str:
    """Return a folder of the evaluation framework."""
    return str(data_path(f"tasks/wsd/{name}"))


def take_layers(rows: Float[np.ndarray, "N R D"], names: Iterable[str]) -> Float[np.ndarray, "N W"]:
    """Join stored layers."""
    numbers = [-1 if name == CLOZE else int(name) for name in names]
    return np.concatenate([rows[:, number] for number in numbers], axis=1).astype(np.float32)


class NearestSenses:
    """Nearest averages of senses as in `probe wsd`, for many kinds of stored vectors."""

    def __init__(self, train: Sequence[Instance], test: Sequence[Instance]) -> None:
        wordnet = read_wordnet(Path(senses_folder("wordnet-3.0")))
        self.test = test
        self._first = [wordnet.first_sense(one.lemma, one.pos) for one in test]
        senses: dict[tuple[str, str, str], int] = {}
        pairs = [
            (senses.setdefault((one.lemma, one.pos, key), len(senses)), row)
            for row, one in enumerate(train)
            for key in one.keys
        ]
        number, self._rows = np.array(sorted(pairs)).T
        _, self._starts = np.unique(number, return_index=True)
        self._candidates: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for (lemma, pos, key), sense in senses.items():
            self._candidates.setdefault((lemma, pos), []).append((key, sense))
        for lemma, keys in self._candidates.items():
            rank = {key: rank for rank, key in enumerate(wordnet.senses(*lemma))}
            keys.sort(key=lambda one, rank=rank: rank.get(one[0], len(rank)))

    def average(self, train: Float[np.ndarray, "N R D"]) -> Float[np.ndarray, "S R D"]:
        """Return the average of each sense in each layer."""
        counts = np.diff([*self._starts, len(self._rows)])
        sums = [
            np.add.reduceat(train[self._rows, layer].astype(np.float32), self._starts)
            for layer in range(train.shape[1])
        ]
        return np.stack(sums, axis=1) / counts[:, None, None].astype(np.float32)

    def answer(
        self, averages: Float[np.ndarray, "S K"], test: Float[np.ndarray, "M K"]
    ) -> list[str | None]:
        """Return the sense of each test instance, the first sense for a lemma not seen."""
        averages = normalize(averages)
        answers = list(self._first)
        for row, (one, vector) in enumerate(zip(self.test, normalize(test), strict=True)):
            if candidates := self._candidates.get((one.lemma, one.pos)):
                keys, numbers = zip(*candidates, strict=True)
                cosines = averages[list(numbers)] @ vector
                answers[row] = keys[int((cosines >= cosines.max() - 1e-5).argmax())]
        return answers


def read_instances(corpus: str) -> tuple[list[Instance], list[str]]:
    """Return the instances of a corpus, and the document of each."""
    pairs = [
        (one, sentence.document)
        for sentence in SenseCorpus(senses_folder(corpus))
        for one in sentence.instances
    ]
    return [one for one, _ in pairs], [document for _, document in pairs]


def recipes(args: argparse.Namespace) -> None:
    """Score recipes on held-out documents of SemCor, and on DWUG."""
    uses = np.load(args.folder / "dwug.npy").astype(np.float32)
    semcor = np.load(args.folder / "semcor.npy", mmap_mode="r")
    instances, documents = read_instances("Training_Corpora/SemCor")
    names = list(dict.fromkeys(documents))
    order = np.random.default_rng(0).permutation(len(names))  # as `probe wsd` holds out
    held_out = {names[number] for number in order[: round(0.1 * len(names))]}
    dev = np.array([document in held_out for document in documents])
    split = [
        [one for one, is_dev in zip(instances, dev, strict=True) if is_dev == which]
        for which in (False, True)
    ]
    senses, table = NearestSenses(*split), []
    averages, test = senses.average(semcor[~dev]), semcor[dev].astype(np.float32)
    for layers in JOINED:
        statistics = whitening.measure(read_text(args.folder, args.text, layers))
        for one in (recipe for recipe in RECIPES if recipe.layers == layers):
            projection = one.projection(statistics).astype(np.float32)
            whitened = [
                (take_layers(rows, layers) - statistics.mean.astype(np.float32)) @ projection.T
                for rows in (averages, test, uses)
            ]
            f1 = score_senses(senses.test, senses.answer(*whitened[:2]))["f1"]
            (dwug,) = score_dwug(args.folder, whitened[2:])
            table.append({"recipe": one.name, "held_out": f1, "dwug": dwug})
            print(table[-1], flush=True)
    record(args.results, "recipes", table)


def score_dwug(stored: Path, kinds: Iterable[Float[np.ndarray, "N D"]]) -> Iterator[float]:
    """Yield Spearman's correlation of cosine and median judgement, for each kind of vector."""
    judged = json.loads((stored / "dwug.json").read_text())
    position = {tuple(use): number for number, use in enumerate(judged["uses"])}
    pairs = [(position[lemma, a], position[lemma, b]) for lemma, a, b in judged["pairs"]]
    first, second = np.array(pairs).T
    gold = np.array(judged["medians"])
    for rows in kinds:
        unit = normalize(rows)
        cosines = np.einsum("nd,nd->n", unit[first], unit[second])
        yield spearman(cosines, gold)


def store_judgements(args: argparse.Namespace) -> None:
    """Store the uses of DWUG, and the median judgement of each pair; 0 is no judgement."""
    judgements: dict[tuple[str, str, str], list[float]] = {}
    for path in sorted(args.dwug.glob("data/*/judgments.csv")):
        for row in read_table(path):
            if float(row["judgment"]) > 0:
                first, second = sorted((row["identifier1"], row["identifier2"]))
                of_pair = judgements.setdefault((row["lemma"], first, second), [])
                of_pair.append(float(row["judgment"]))
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
    train, _ = read_instances("Training_Corpora/SemCor")
    test, _ = read_instances("Evaluation_Datasets/ALL")
    rows = np.load(args.folder / "ALL.npy").astype(np.float32)
    senses = NearestSenses(train, test)
    averages = senses.average(np.load(args.folder / "semcor.npy", mmap_mode="r"))
    kinds = KINDS | {"whitened": lambda stored: whiten(stored, how)}
    answers = {
        kind: senses.answer(choose(averages), choose(rows)) for kind, choose in kinds.items()
    }
    table: dict[str, dict] = {}
    for name in ("ALL", *SETS):  # an id of ALL begins with the set that it is from
        chosen = [row for row, one in enumerate(test) if name in ("ALL", one.id.split(".")[0])]
        of_set = {kind: [each[row] for row in chosen] for kind, each in answers.items()}
        gold = [test[row] for row in chosen]
        table[name] = {
            kind: score_senses(gold, each) | score_gain(gold, each, of_set["2"])
            for kind, each in of_set.items()
        }
        f1 = {kind: round(100 * each["f1"], 1) for kind, each in table[name].items()}
        print(name, len(chosen), f1, flush=True)
    record(args.results, "senses", table)
    names = ["1", "2", "average", "cloze", "whitened"]

    rows = np.load(args.folder / "dwug.npy").astype(np.float32)
    kinds = [rows[:, 1], rows[:, 2], rows[:, :-1].mean(axis=1), rows[:, -1], whiten(rows, how)]
    dwug = score_dwug(args.folder, kinds)
    record(args.results, "dwug", dict(zip(names, dwug, strict=True)))
    record(
        args.results,
        "maps",
        list(score_maps(args.folder, senses_folder("Training_Corpora/SemCor"), how)),
    )
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
    choices: list[Literal["all", "top", "cloze", "whitened"]] = ["all", "top", "cloze"]
    if elmo.whitening:
        choices.append("whitened")
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
            (one["recipe"], f"{100 * one['held_out']:.1f}", f"{one['dwug']:.3f}")
            for one in found["recipes"]
        ]
        _print_table(
            "Recipes: F1 on held-out SemCor, rho on DWUG EN", ("recipe", "F1", "rho"), rows
        )
    if "senses" in found:
        tests = found["senses"]
        chosen = ("1", "2", "cloze", "whitened")
        rows = [(row, *(_f1(test[row]) for test in tests.values())) for row in chosen]
        rows += [
            (f"{row}, gain over 2", *(_gain(test[row]) for test in tests.values()))
            for row in ("cloze", "whitened")
        ]
        _print_table("Word senses, F1", ("vectors", *tests), rows)
    if "dwug" in found:
        rows = [(name, f"{one:.3f}") for name, one in found["dwug"].items()]
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
            command.add_argument("--vectors", type=Path)
        if run in (vectors, recipes, speed):
            command.add_argument("--text", required=True)
        if run in (vectors, speed):
            command.add_argument("--precision", choices=("exact", "fast"), default="exact")
        if run is vectors:
            command.add_argument("--dwug", type=Path, required=True)
        if run in (vectors, measure, speed):
            command.add_argument("--model", nargs=1, default=[])
        if run is speed:
            command.add_argument("--tokens", type=int, default=20_000)
            command.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
