"""Write tiny sets in the published formats of the suite: BLiMP, WiC, Swords, LexSub and so on.

Used by tests/probe/suite and fuzz/probes.
"""

import json
from pathlib import Path

from tests.support.sense_corpus import write_corpus, write_wordnet

SENTENCES = (
    "the river lies near the lake .",
    "the old bridge sleeps .",
    "a sailor waits at noon .",
    "two ships come .",
)
NAMES = "Ann B-PER\nLee I-PER\nwaits O\n\nBo B-PER\nsaw O\nRome B-LOC\n\n"
CONLLU = (
    "1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_\n2\triver\triver\tNOUN\tNN\t_\t3\tnsubj\t_\t_\n"
    "3\tlies\tlie\tVERB\tVBZ\t_\t0\troot\t_\t_\n\n"
)


def write_all(folder: Path) -> Path:
    """Write every set into its subfolder."""
    write_blimp(folder / "blimp")
    write_wic(folder / "wic")
    write_swords(folder / "swords")
    write_lexsub(folder / "lexsub")
    write_sts(folder / "sts")
    write_sick(folder / "sick")
    write_taggings(folder)
    write_senses(folder / "wsd")
    return folder


def write_blimp(folder: Path) -> None:
    folder.mkdir(parents=True)
    common = {"field": "syntax", "linguistics_term": "agreement", "UID": "a1", "pairID": "0"}
    pairs = [
        {"sentence_good": "Two ships wait.", "sentence_bad": "Two ships waits.", **common},
        {"sentence_good": "A ship isn't here.", "sentence_bad": "A ship aren't here.", **common},
    ]
    other = {**pairs[0], "field": "semantics", "linguistics_term": "quantifiers"}
    (folder / "a1.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (folder / "b1.jsonl").write_text(json.dumps(other) + "\n")


def write_wic(folder: Path, splits: tuple[str, ...] = ("train", "dev")) -> None:
    lines = [
        ("bank\tN\t1-1\tThe bank lies near the lake .\tthe bank opens", "F"),
        ("wait\tV\t1-2\tSailors wait .\tTwo sailors waited .", "T"),
        ("ship\tN\t0-1\tShips come\tTwo ships come", "T"),
    ]
    for name in splits:
        (folder / name).mkdir(parents=True)
        for kind, column in (("data", 0), ("gold", 1)):
            text = "".join(f"{line[column]}\n" for line in lines)
            (folder / name / f"{name}.{kind}.txt").write_text(text)


def write_swords(folder: Path) -> None:
    folder.mkdir(parents=True)
    context = "Nobody came. The old bridge lies near\n\t\tthe lake, quietly."
    votes = {
        "ancient": ["TRUE", "TRUE", "FALSE"],
        "former": ["TRUE", "UNSURE", "FALSE"],
        "quixotic": ["FALSE", "FALSE"],
        "very young": ["FALSE"],
        "unsure": ["UNSURE"],
        "Old": ["TRUE"],
    }
    data = {
        "contexts": {"c:1": {"context": context, "extra": None}},
        "targets": {
            "t:1": {"context_id": "c:1", "target": "old", "offset": 17, "pos": "ADJ"},
        },
        "substitutes": {f"s:{text}": {"target_id": "t:1", "substitute": text} for text in votes},
        "substitute_labels": {f"s:{text}": labels for text, labels in votes.items()},
    }
    for name in ("dev", "test"):
        (folder / f"swords-v1.1_{name}.json").write_text(json.dumps(data))


def write_lexsub(folder: Path) -> None:
    folder.mkdir(parents=True)
    context = "<context>The <head>old</head> bridge sleeps &quot; .</context>"
    (folder / "lst_all.xml").write_text(
        "".join(f'<instance id="{i}">\n\t{context}\n</instance>\n' for i in (1, 301))
    )
    (folder / "lst_trial.gold").write_text("old.a 1 :: ancient 3;very old 1;\n")
    (folder / "lst_test.gold").write_text("old.a.n 301 :: former 2;\n")
    (folder / "lst.gold.candidates").write_text("old.a::former;ancient;very old;Quiet\n")


def write_sts(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = [
        ("main-news", "MSRpar", "2012test", "0001", f"{score}", first, second)
        for score, first, second in _pairs()
    ]
    text = "".join("\t".join(row) + "\n" for row in rows)
    for name in ("train", "dev", "test"):
        (folder / f"sts-{name}.csv").write_text(text)


def write_sick(folder: Path) -> None:
    folder.mkdir(parents=True)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    rows = [f"1\t{first}\t{second}\t{score}\tNEUTRAL\r\n" for score, first, second in _pairs()]
    for name in ("train", "trial", "test_annotated"):
        (folder / f"SICK_{name}.txt").write_bytes("".join([header, *rows]).encode())


def _pairs() -> list[tuple[float, str, str]]:
    first, *others = SENTENCES
    return [(5.0, first, first), *((4.5 - n, first, other) for n, other in enumerate(others))]


def write_taggings(folder: Path) -> None:
    for name in ("pos", "chunk", "ner"):
        (folder / name).mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (folder / "pos" / f"xx-ud-{split}.conllu").write_text(CONLLU * 2)
        (folder / "ner" / f"{split}.conll").write_text(NAMES * 2)
    for split in ("train", "test"):
        chunks = "the DT B-NP\nriver NN I-NP\nlies VBZ B-VP\n. . O\n\n"
        (folder / "chunk" / f"{split}.txt").write_text(chunks * 12)


def write_senses(folder: Path) -> None:
    keys = ("bank%1:17:01::", "bank%1:14:00::")
    uses = [[["a", ("bank", "bank", "NOUN", keys[n % 2]), "."]] for n in range(10)]
    for place, name in (
        ("Training_Corpora/SemCor", "semcor"),
        ("Evaluation_Datasets/ALL", "ALL"),
        ("Evaluation_Datasets/senseval2", "senseval2"),
    ):
        (folder / place).mkdir(parents=True)
        write_corpus(folder / place, name, uses)
    write_wordnet(folder / "wordnet-3.0", (keys[0], 1), (keys[1], 2))
