"""Measure what fine-tuning the bundled model on a small text of a domain does to its perplexity.

    python benchmarks/finetune_domain.py FOLDER [--words 20000] [--held-out 5000] [--set KEY=VALUE]

The text is the beginning of each life-science article in $ELMORE_DATA/corpus/biomed-train, as many
articles as give WORDS words; a tenth of them selects the best epoch. The perplexity is measured on
the beginnings of articles of corpus/biomed-valid, which training never sees. All settings are the
defaults of `elmore finetune`. FOLDER keeps texts and runs, so a stopped run continues.
"""

import argparse
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

MODEL = "english"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--held-out", type=int, default=5_000)
    parser.add_argument("--set", action="append", default=[], help="as for elmore finetune")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    text = write_text(args.folder / "text.txt", "biomed-train", args.words, 150)
    held_out = write_text(args.folder / "held-out.txt", "biomed-valid", args.held_out, 300)
    shards, other, run = (args.folder / name for name in ("shards", "held-out", "run"))
    elmore("prepare", text, "-o", shards, "--valid-fraction", "0.1", "--overwrite")
    elmore("prepare", held_out, "-o", other, "--overwrite")
    settings = [word for value in args.set for word in ("--set", value)]
    started = sum(os.times()[2:4])
    resume = ["--resume"] if (run / "recipe.json").exists() else []
    elmore("finetune", MODEL, shards, "-o", run, *settings, *resume)
    seconds = sum(os.times()[2:4]) - started
    before, after = (
        json.loads(elmore("evaluate", model, other, "--json"))["perplexity"]
        for model in (MODEL, run)
    )
    print(
        f"held-out perplexity {before:.1f} before, {after:.1f} after: {after / before - 1:+.1%}; "
        f"{len(text.read_text(encoding='utf-8').split()):,} words, {seconds:.0f} s of CPU time "
        "(of this call)"
    )


def write_text(path: Path, corpus: str, num_words: int, per_article: int) -> Path:
    """Write the first paragraphs of each article, at least `per_article` words, as documents."""
    source = Path(os.environ["ELMORE_DATA"]) / "corpus" / f"{corpus}.txt.xz"
    documents: list[str] = []
    total = 0
    with lzma.open(source, "rt", encoding="utf-8") as file:
        for article in file.read().split("\n\n"):
            paragraphs, words = [], 0
            for paragraph in article.strip().split("\n"):
                if words >= per_article:
                    break
                paragraphs.append(paragraph)
                words += len(paragraph.split())
            documents.append("\n".join(paragraphs))
            total += words
            if total >= num_words:
                break
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def elmore(*arguments: object) -> str:
    """Run a command of elmore, and return what it prints."""
    command = [sys.executable, "-m", "elmore", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
