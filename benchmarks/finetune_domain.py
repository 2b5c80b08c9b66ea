"""Measure what fine-tuning a model on a small text of a domain does to its perplexity.

    python benchmarks/finetune_domain.py FOLDER [--model english] [--law CLONE] [--words 20000]
                                                [--held-out 5000] [--set KEY=VALUE]

The text is the beginning of each life-science article in $ELMORE_DATA/corpus/biomed-train, as many
articles as give WORDS words; a tenth of them selects the best epoch. The perplexity is measured on
the beginnings of articles of corpus/biomed-valid, which training never sees. With --law, a clone of
DCCouncil/law-xml, the text is sections of the Code of the District of Columbia in a random order:
those of even titles for training, those of odd titles for measuring. All settings are the defaults
of `elmore finetune`. FOLDER keeps texts and runs, so a stopped run continues.
"""

import argparse
import json
import lzma
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from data_folder import data_path

LAW_COMMIT = "9123af018003a6666851734d92eb3a81862a0f33"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="english", help="a name or a model folder")
    parser.add_argument("--law", type=Path, help="clone of DCCouncil/law-xml")
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--held-out", type=int, default=5_000)
    parser.add_argument("--set", action="append", default=[], help="as for elmore finetune")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.law:
        documents, others = law_sections(args.law, odd=False), law_sections(args.law, odd=True)
    else:
        documents, others = articles("biomed-train", 150), articles("biomed-valid", 300)
    text = write_text(args.folder / "text.txt", documents, args.words)
    held_out = write_text(args.folder / "held-out.txt", others, args.held_out)
    shards, other, run = (args.folder / name for name in ("shards", "held-out", "run"))
    elmore("prepare", text, "-o", shards, "--valid-fraction", "0.1", "--overwrite")
    elmore("prepare", held_out, "-o", other, "--overwrite")
    settings = [word for value in args.set for word in ("--set", value)]
    started = sum(os.times()[2:4])
    resume = ["--resume"] if (run / "recipe.json").exists() else []
    elmore("finetune", args.model, shards, "-o", run, *settings, *resume)
    seconds = sum(os.times()[2:4]) - started
    before, after = (
        json.loads(elmore("evaluate", model, other, "--json"))["perplexity"]
        for model in (args.model, run)
    )
    print(
        f"held-out perplexity {before:.1f} before, {after:.1f} after: {after / before - 1:+.1%}; "
        f"{len(text.read_text(encoding='utf-8').split()):,} words, {seconds:.0f} s of CPU time "
        "(of this call)"
    )


def articles(corpus: str, num_words: int) -> Iterator[str]:
    """Yield the first paragraphs of each article, at least this many words."""
    with lzma.open(data_path(f"corpus/{corpus}.txt.xz"), "rt", encoding="utf-8") as file:
        for article in file.read().split("\n\n"):
            paragraphs, words = [], 0
            for paragraph in article.strip().split("\n"):
                if words >= num_words:
                    break
                paragraphs.append(paragraph)
                words += len(paragraph.split())
            yield "\n".join(paragraphs)


def law_sections(clone: Path, *, odd: bool) -> Iterator[str]:
    """Yield sections of the titles with odd or even numbers, without notes on their history."""
    git = ["git", "-C", str(clone)]
    listing = [*git, "ls-tree", "-r", "--name-only", LAW_COMMIT, "us/dc/council/code/titles"]
    names = subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    sections = [
        name
        for name in names
        if "/sections/" in name and name.endswith(".xml") and name.split("/")[5].isdecimal()
        if int(name.split("/")[5]) % 2 == odd
    ]
    random.Random(1).shuffle(sections)
    for name in sections:
        show = [*git, "show", f"{LAW_COMMIT}:{name}"]
        root = ElementTree.fromstring(subprocess.run(show, check=True, capture_output=True).stdout)
        for notes in root.findall("{*}annotations"):
            root.remove(notes)
        texts = (" ".join("".join(each.itertext()).split()) for each in root.findall(".//{*}text"))
        section = "\n".join(text for text in texts if text)
        if len(section.split()) >= 20:  # not "Repealed."
            yield section


def write_text(path: Path, documents: Iterable[str], num_words: int) -> Path:
    """Write documents, as many as have this many words."""
    taken: list[str] = []
    total = 0
    for document in documents:
        taken.append(document)
        total += len(document.split())
        if total >= num_words:
            break
    path.write_text("\n\n".join(taken) + "\n", encoding="utf-8")
    return path


def elmore(*arguments: object) -> str:
    """Run a command of elmore, and return what it prints."""
    command = [sys.executable, "-m", "elmore", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
