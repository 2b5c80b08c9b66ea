"""Write the fastText vectors of the words of the tasks, stored ones or newly trained ones.

    python benchmarks/fasttext_vectors.py FOLDER
    python benchmarks/fasttext_vectors.py FOLDER "$ELMORE_DATA/corpus/train-*.txt.xz" --threads 16

The static baseline of docs/protocol.md: the same text and the same tokens as the biLM has read, so
that what remains between the two is context. The corpus is split into sentences and tokens as
`elmore prepare` does it, and fastText (Bojanowski et al., 2017) learns skip-grams with character
n-grams. Every word of a task's files gets a vector, also one that the corpus lacks: it is the mean
of the vectors of its n-grams. A constant is subtracted and a factor applied, so that over the
tokens of the corpus the mean is 0 and an element varies about as much as GloVe's and ELMo's: an
input that hardly varies makes a task start late. FOLDER then holds

    corpus.txt                          one sentence per line; it is not written again
    vectors.npz                         all words, quantized to int8 with a scale per word
    facts.json                          the settings, the counts, the seconds
    TASK.f16.npy, TASK.words.txt        (V, 300) in float16, and its words, as the tasks read them

Without a corpus only the last are written, from benchmarks/fasttext/vectors.npz, which a training
made: so every machine has the same vectors.

Training needs fastText from PyPI (`pip install fasttext-wheel`, also into a folder of its own that
PYTHONPATH names). It cannot resume; the vectors appear only at the end.
"""

import argparse
import glob
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from paper import data_files
from paper_cells import TASKS, Plan, recipe_name, task_class

from elmore import atomic
from elmore.corpus.blocks import LineRun
from elmore.corpus.counting import tokenize_sentences
from elmore.corpus.options import PrepareOptions
from elmore.tasks import registry
from elmore.tasks.embedding.word_vectors import WordVectors
from elmore.text.files import Lines

SETTINGS = {
    "model": "skipgram", "dim": 300, "ws": 5, "neg": 5, "minCount": 5, "minn": 3, "maxn": 6,
    "bucket": 2_000_000, "lr": 0.05,
}  # fmt: skip
STD = 0.4  # of an element over the tokens of the corpus; GloVe 50d has 0.5, the bundled model 0.4
STORED = Path(__file__).parent / "fasttext" / "vectors.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", nargs="*", help="text files, one paragraph per line")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), help="only these")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lines", type=int, help="paragraphs of each file to read, for a trial")
    parser.add_argument("--place", type=Path, default=Path("build/paper"), help="as in paper.py")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    words = {task: read_words(task, args.place) for task in Plan({}, args.tasks).of(TASKS)}
    if args.corpus:
        train(args, sorted(set().union(*words.values())))
    packed = load_packed(args.folder / STORED.name if args.corpus else STORED)
    for task in words:
        write_task(packed, args.folder / task, words[task])


def train(args: argparse.Namespace, words: list[str]) -> None:
    """Train fastText on the corpus, and write the vectors of words and the facts."""
    try:
        import fasttext
    except ImportError as error:
        raise SystemExit("this needs fastText: pip install fasttext-wheel") from error
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
    known = dict(zip(*model.get_words(include_freq=True), strict=True))
    save_packed(args.folder / STORED.name, words, model.get_word_vector, known)
    facts: dict[str, Any] = {
        "settings": {**SETTINGS, "epoch": args.epochs, "thread": args.threads},
        "corpus": [Path(name).name for name in files],
        "words": len(known),
        "words of the tasks": len(words),
        "of these in the corpus": sum(word in known for word in words),
        "seconds": seconds,
    }
    atomic.write(args.folder / "facts.json", (json.dumps(facts, indent=1) + "\n").encode())
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


def save_packed(
    path: Path,
    words: Iterable[str],
    vector_of: Callable[[str], Float[np.ndarray, " D"]],
    counts: Mapping[str, int],
) -> None:
    """Standardize and quantize the vectors of words, and write them to a file.

    Args:
        path: The file.
        words: The words that get a vector.
        vector_of: The vector of a word.
        counts: How often words occur in the corpus.
    """
    kept = [word for word in words if _is_one_word(word)]
    matrix = np.stack([vector_of(word) for word in kept]).astype(np.float32)
    is_known = matrix.any(axis=1, keepdims=True)  # fastText has no n-gram of a few, such as "^^"
    matrix = standardize(matrix, np.array([counts.get(word, 0) for word in kept], np.float64))
    matrix *= is_known
    largest = np.abs(matrix).max(axis=1)
    scales = np.where(largest > 0, largest, 1) / 127
    with atomic.file(path) as file:
        np.savez(
            file,
            vectors=np.round(matrix / scales[:, None]).astype(np.int8),
            scales=scales.astype(np.float32),
            words=np.frombuffer("\n".join(kept).encode(), np.uint8),
        )


def standardize(
    matrix: Float[np.ndarray, "V D"], counts: Float[np.ndarray, " V"]
) -> Float[np.ndarray, "V D"]:
    """Return vectors whose elements have mean 0 and deviation `STD` where words count so often."""
    centred = matrix - np.average(matrix, axis=0, weights=counts)
    deviation = np.sqrt(np.average(centred**2, axis=0, weights=counts).mean())
    return (centred * (STD / deviation)).astype(np.float32)


def load_packed(path: Path) -> WordVectors:
    """Read a file that `save_packed` wrote."""
    if not path.exists():
        raise SystemExit(f"{path} is not there; name the files of the corpus to train the vectors")
    with np.load(path) as arrays:
        words = arrays["words"].tobytes().decode().split("\n")
        matrix = arrays["vectors"] * arrays["scales"][:, None]
    return WordVectors({word: row for row, word in enumerate(words)}, matrix)


def write_task(packed: WordVectors, path: Path, words: Iterable[str]) -> None:
    """Write `path.f16.npy` and `path.words.txt`, the vectors of a task's words."""
    kept = [word for word in words if _is_one_word(word)]
    missing = [word for word in kept if word not in packed.words]
    if missing:
        raise SystemExit(
            f"{path.name}: {len(missing)} of its {len(kept)} words have no stored vector "
            f"({missing[0]!r} is the first); name the files of the corpus to train the vectors"
        )
    with atomic.file(path.with_name(f"{path.name}.f16.npy")) as file:
        np.save(file, packed.lookup(kept).astype(np.float16))
    text = "".join(f"{word}\n" for word in kept)
    atomic.write(path.with_name(f"{path.name}.words.txt"), text.encode())


def _is_one_word(word: str) -> bool:
    """Return whether a line of a file can hold the word: one with a blank inside stays unknown."""
    return word.split() == [word]


if __name__ == "__main__":
    main()
