"""Print the results of peers.py as tables."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

NAMES = {
    "elmore-fast": "elmore, `fast`",
    "elmore-exact": "elmore, `exact`",
    "minilm": "all-MiniLM-L6-v2",
    "wordllama": "WordLlama",
    "model2vec": "model2vec of that MiniLM",
    "fasttext": "fastText 300d",
    "glove": "GloVe 6B 50d",
}
METHODS = {
    "pooling": "`encode`",
    "mean": "mean of the words",
    "mean of layer 0": "mean of layer 0",
    "own": "",
}
"""The ways to pool a text that are shown."""
STATIC = ("wordllama", "model2vec", "fasttext", "glove")
"""Models with one layer."""
SETS = [
    ("WiC", "quality", "wic", "all", "accuracy"),
    ("Swords", "quality", "swords", "all", "gap"),
    ("POS, `xpos`", "tags", "pos", "xpos", "accuracy"),
    ("POS, `upos`", "tags", "pos", "upos", "accuracy"),
    ("NER", "tags", "ner", "all", "f1"),
]
LAYERS = {"minilm": {"0": "2", "1": "4", "2": "6"}}
"""The layers that a model gives for words, by their numbers in the results."""
HEAD_LINES = 2  # of a table without results
RATES = ["none", "every tenth", "every third", "every"]
Row = dict
Results = dict[str, dict[str, list[Row]]]


def render(place: Path) -> str:
    """Return all tables for which there are results."""
    quality, noise, tags = (read(place, step) for step in ("quality", "noise", "tags"))
    cost = place / "cost.json"
    parts = [
        ("Sentences: Spearman x 100", sentence_table(quality)),
        ("Words: score x 100", word_table({"quality": quality, "tags": tags})),
        ("Cost", cost_table(json.loads(cost.read_text("utf-8"))) if cost.exists() else ()),
        ("Sentences found again, %", noise_table(noise, "sentences", text_methods)),
        ("Words found again, %", noise_table(noise, "words", all_methods)),
        ("XPOS accuracy, %", noise_table(tags, "pos", chosen("xpos"))),
        ("UPOS accuracy, %", noise_table(tags, "pos", chosen("upos"))),
        ("NER, F1 x 100", noise_table(tags, "ner", chosen("all"))),
        ("Layers for tags: accuracy on dev, score on test", dev_table(tags)),
    ]
    tables = [(title, list(lines)) for title, lines in parts]
    return "\n".join(
        f"## {title}\n\n" + "\n".join(lines) + "\n"
        for title, lines in tables
        if len(lines) > HEAD_LINES
    )


def read(place: Path, step: str) -> Results:
    """Return the results of a step by model."""
    paths = {name: place / f"{step}-{name}.json" for name in NAMES}
    return {
        name: json.loads(path.read_text("utf-8")) for name, path in paths.items() if path.exists()
    }


def cell(row: Row) -> str:
    return f"{100 * row['score']:.1f} ({100 * row['low']:.1f}-{100 * row['high']:.1f})"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def named_layer(name: str, method: str) -> str:
    """Return the name of a layer as the tables show it; a static model has only one."""
    if name in STATIC:
        return NAMES[name]
    shown = layer(name, method)
    return label(name, f"layer {shown}" if shown[0].isdigit() else shown)


def head(*cells: str) -> Iterator[str]:
    yield line(*cells)
    yield f"|{'---|' * len(cells)}"


def label(name: str, method: str) -> str:
    shown = METHODS.get(method, method)
    return f"{NAMES[name]}, {shown}" if shown else NAMES[name]


def sentence_table(quality: Results) -> Iterator[str]:
    yield from head("", "STS-B test", "SICK-R test")
    for name, sets in quality.items():
        for sts, sick in zip(sets["sts"], sets["sick"], strict=True):
            if sts["method"] in METHODS:
                yield line(label(name, sts["method"]), cell(sts), cell(sick))


def word_table(results: dict[str, Results]) -> Iterator[str]:
    yield from head("", *(title for title, *_ in SETS))
    for name in NAMES:
        cells = [pick_chosen(results[step], name, *key) for _, step, *key in SETS]
        if any(cells):
            yield line(NAMES[name], *cells)


def pick_chosen(results: Results, name: str, key: str, part: str, metric: str) -> str:
    """Return the score of the chosen layer on text without errors."""
    for row in results.get(name, {}).get(key, []):
        wanted = row["part"] == part and row["metric"] == metric and row["chosen"]
        if wanted and row.get("rate", "none") == "none":
            shown = "" if name in STATIC else f", `{layer(name, row['method'])}`"
            return cell(row) + shown
    return ""


def layer(name: str, method: str) -> str:
    return LAYERS.get(name, {}).get(method, method)


def cost_table(cost: dict) -> Iterator[str]:
    yield from head(
        "", "words a second", "slowest to fastest part", "CPU seconds to the first vector",
        "model, MB", "packages, MB",
    )  # fmt: skip
    for name, speed in cost["speed"].items():
        size = cost["megabytes"][name.partition("-")[0]]
        yield line(
            NAMES[name],
            f"{speed['median']:,.0f}",
            f"{speed['low']:,.0f}-{speed['high']:,.0f}",
            f"{cost['start'][name]['cpu']:.2f}",
            f"{size['model']:,.1f}",
            f"{size['packages']:,.0f}",
        )


def text_methods(row: Row) -> bool:
    return row["method"] in METHODS


def all_methods(_row: Row) -> bool:
    return True


def chosen(part: str) -> Callable[[Row], bool]:
    return lambda row: row["chosen"] and row["part"] == part


def noise_table(noise: Results, key: str, wanted: Callable[[Row], bool]) -> Iterator[str]:
    """Yield a line for each method of each model, with a column for each rate."""
    rates = [rate for rate in RATES if key != "words" or rate != "none"]
    yield from head("misspelt longer words", *rates)
    for name, sets in noise.items():
        rows = [row for row in sets.get(key, []) if wanted(row)]
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = {row["rate"]: cell(row) for row in rows if row["method"] == method}
            yield line(named_layer(name, method), *(cells[rate] for rate in rates))


def dev_table(tags: Results) -> Iterator[str]:
    """Yield the scores of each layer on text without errors; those of the chosen one are bold."""
    sets = [(title, *key) for title, step, *key in SETS if step == "tags"]
    yield from head("", *(f"{title}, {split}" for title, *_ in sets for split in ("dev", "test")))
    for name, results in tags.items():
        clean = [
            {row["method"]: row for row in results.get(key, []) if is_clean(row, part)}
            for _, key, part, _ in sets
        ]
        for method in dict.fromkeys(method for rows in clean for method in rows):
            pairs = [score_pair(rows[method]) if method in rows else ("", "") for rows in clean]
            yield line(named_layer(name, method), *(each for pair in pairs for each in pair))


def is_clean(row: Row, part: str) -> bool:
    return row["part"] == part and row["rate"] == "none"


def score_pair(row: Row) -> tuple[str, str]:
    """Return the accuracy on dev and the score on test."""
    dev, test = f"{100 * row['dev']:.2f}", f"{100 * row['score']:.1f}"
    return (f"**{dev}**", f"**{test}**") if row["chosen"] else (dev, test)
