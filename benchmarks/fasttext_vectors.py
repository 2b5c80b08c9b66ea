"""Train fastText on the biLM's own corpus, and write the vectors of the words of the tasks.

    python benchmarks/fasttext_vectors.py FOLDER "$ELMORE_DATA/corpus/train-*.txt.xz" --threads 16

The static baseline of docs/protocol.md: the same text and the same tokens as the biLM has read, so
that what remains between the two is context. The corpus is split into sentences and tokens as
`elmore prepare` does it, and fastText (Bojanowski et al., 2017) learns skip-grams with character
n-grams. Every word of a task's files gets a vector, also one that the corpus lacks: it is the sum
of the vectors of its n-grams. FOLDER then holds

    corpus.txt                          one sentence per line; it is not written again
    TASK.f16.npy, TASK.words.txt        (V, 300) in float16, and its words, as the tasks read them
    fasttext.json                       the settings, the counts, the seconds

fastText comes from PyPI (`pip install fasttext-wheel`, also into a folder of its own that
PYTHONPATH names). It cannot resume; the vectors appear only at the end.
"""

import argparse
import glob
import json
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from paper import data_files
from paper_cells import TASKS, Plan, recipe_name, task_class

from elmore import atomic
from elmore.corpus.blocks import LineRun
from elmore.corpus.counting import tokenize_sentences
from elmore.corpus.options import PrepareOptions
from elmore.tasks import registry
from elmore.text.files import Lines

SETTINGS = {
    "model": "skipgram", "dim": 300, "ws": 5, "neg": 5, "minCount": 5, "minn": 3, "maxn": 6,
    "bucket": 2_000_000, "lr": 0.05,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", nargs="+", help="text files, one paragraph per line")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), help="only these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lines", type=int, help="paragraphs of each file to read, for a trial")
    parser.add_argument("--place", type=Path, default=Path("build/paper"), help="as in paper.py")
    args = parser.parse_args()
    try:
        import fasttext
    except ImportError as error:
        raise SystemExit("this needs fastText: pip install fasttext-wheel") from error
    args.folder.mkdir(parents=True, exist_ok=True)
    words = {task: read_words(task, args.place) for task in Plan({}, args.tasks).of(TASKS)}
    files = sorted(name for pattern in args.corpus for name in glob.glob(pattern))  # noqa: PTH207
    corpus, seconds = args.folder / "corpus.txt", {}
    if not corpus.exists():
        start_time = time.perf_counter()
        write_corpus(files, args.lines, corpus, args.threads)
        seconds["tokenize"] = round(time.perf_counter() - start_time, 1)
    start_time = time.perf_counter()
    model = fasttext.train_unsupervised(
        str(corpus), epoch=args.epochs, thread=args.threads, verbose=2, **SETTINGS
    )
    seconds["train"] = round(time.perf_counter() - start_time, 1)
    facts: dict[str, Any] = {
        "settings": {**SETTINGS, "epoch": args.epochs, "thread": args.threads},
        "corpus": [Path(name).name for name in files],
        "words": len(model.words),
        "seconds": seconds,
        "tasks": {task: write_vectors(model, args.folder / task, words[task]) for task in words},
    }
    atomic.write(args.folder / "fasttext.json", (json.dumps(facts, indent=1) + "\n").encode())
    print(json.dumps(facts, indent=1))


def write_corpus(files: list[str], num_lines: int | None, out: Path, num_processes: int) -> None:
    """Write the sentences of text files, their tokens separated by spaces."""
    parts = [out.with_name(f"{out.name}.{number}") for number in range(len(files))]
    jobs = [(name, num_lines, part) for name, part in zip(files, parts, strict=True)]
    with multiprocessing.Pool(min(num_processes, len(files))) as pool:
        pool.starmap(write_sentences, jobs)
    with atomic.file(out) as file:
        for part in parts:
            file.write(part.read_bytes())
            part.unlink()


def write_sentences(name: str, num_lines: int | None, out: Path) -> None:
    """Write the sentences of one file."""
    with out.open("w", encoding="utf-8") as file:
        for number, paragraph in enumerate(Lines([name], column=None)):
            if num_lines is not None and number >= num_lines:
                break
            file.writelines(f"{sentence}\n" for sentence in split(str(paragraph)))


def split(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph as the biLM's training text has them."""
    run = LineRun("train", tokenized=False, text=paragraph.encode("utf-8", "replace"))
    return map(" ".join, tokenize_sentences(run, PrepareOptions()))


def read_words(task: str, place: Path) -> list[str]:
    """Return the words of the training, dev and test files of a task, sorted."""
    kind = task_class(task)
    reader = kind(registry.load_recipe(kind, recipe_name(task), TASKS[task]["settings"]))
    files = map(Path, data_files(task, place))
    return sorted(
        {
            word
            for path in files
            for example in reader.read_examples(path)
            for sentence in reader.sentences(example)
            for word in sentence
        }
    )


def write_vectors(model: Any, path: Path, words: Iterable[str]) -> dict[str, int]:  # noqa: ANN401
    """Write `path.f16.npy` and `path.words.txt`; return how many words there are, and how known."""
    # One word per line: a word with a blank inside stays unknown.
    kept = [word for word in words if len(word.split()) == 1 and word.split()[0] == word]
    known = set(model.words)
    matrix = np.stack([model.get_word_vector(word) for word in kept]).astype(np.float16)
    with atomic.file(path.with_name(f"{path.name}.f16.npy")) as file:
        np.save(file, matrix)
    text = "".join(f"{word}\n" for word in kept)
    atomic.write(path.with_name(f"{path.name}.words.txt"), text.encode())
    return {"words": len(kept), "in the corpus": sum(word in known for word in kept)}


if __name__ == "__main__":
    main()
