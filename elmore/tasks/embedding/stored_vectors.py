"""Word vectors as one file of a trained task: `vectors.safetensors`.

It holds the matrix (V, D) and, as the bytes of a JSON list, the word of each row: null where a file
had a word a second time, for such a row is never looked up. So it is the same vectors, to the bit.
"""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmore import strict_json
from elmore.errors import WeightsError
from elmore.tasks.embedding.word_vectors import WordVectors

NAME = "vectors.safetensors"


def save(vectors: WordVectors, path: Path) -> None:
    """Write word vectors."""
    words: list[str | None] = [None] * len(vectors.matrix)
    for word, row in vectors.words.items():
        words[row] = word
    written = np.frombuffer(json.dumps(words, ensure_ascii=False).encode(), dtype=np.uint8)
    matrix = np.ascontiguousarray(vectors.matrix, dtype=np.float32)
    save_file({"matrix": matrix, "words": written}, path)


def load(path: Path) -> WordVectors:
    """Read word vectors again."""
    try:
        tensors = load_file(path)
        matrix = tensors["matrix"]
        words = strict_json.loads(tensors["words"].tobytes().decode())
        whole = matrix.ndim == 2 and matrix.dtype == np.float32 and len(words) == len(matrix)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path}: not readable word vectors ({error})") from error
    if not whole or not isinstance(words, list):
        raise WeightsError(f"{path}: expected a matrix of float32 and a word for each of its rows")
    rows = {word: row for row, word in enumerate(words) if isinstance(word, str)}
    return WordVectors(rows, matrix)
