"""Measure how vectors change when code moves to elmore from another package.

    python benchmarks/migration.py

Uses the tiny models in $ELMORE_FIXTURES, with vectors computed by AllenNLP, bilm-tf and
ELMoForManyLangs: 30 sentences in 10 batches of 3. Every line is the largest absolute difference of
any vector element; lines without a model name use AllenNLP's model. `docs/migrate` explains the
lines. The published models have the same differences, but of another size.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

import elmore
from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice
from elmore.weights import folder, pretrained

FIXTURES = Path(os.environ.get("ELMORE_FIXTURES", "fixtures"))


def fixture(
    name: str, *, stateful: bool = False, initial_state: Literal["zero", "warm"] = "zero"
) -> Embedder:
    path = FIXTURES / name
    files = path / "options.json", path / "lm_weights.hdf5"
    return elmore.load(*files, stateful=stateful, initial_state=initial_state)


def batches(name: str = "allennlp", sentences: str = "sentences.json") -> list[list[list[str]]]:
    rows = json.loads((FIXTURES / name / sentences).read_text(encoding="utf-8"))
    return [[row[number].split() for row in rows] for number in range(10)]


def apart(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())


def vectors(
    elmo: Embedder, batch: list[list[str]], layers: LayerChoice = "all"
) -> list[np.ndarray]:
    return [sentence.vectors for sentence in elmo.embed(batch, layers=layers)]


def stored(name: str) -> list[list[np.ndarray]]:
    """Return the top layer that TensorFlow computed, batch by batch."""
    files = [h5py.File(FIXTURES / name / f"lm_embeddings_{row}.hdf5") for row in range(3)]
    return [
        [np.concatenate(list(file[str(number)][()]), axis=-1) for file in files]
        for number in range(10)
    ]


def against_stored() -> Iterator[tuple[str, float]]:
    for name, sentences in (
        ("allennlp", "sentences.json"),
        ("bilm-tf/model", "lm_embeddings_sentences.json"),
    ):
        for stateful in (True, False):
            elmo = fixture(name, stateful=stateful)
            result = [vectors(elmo, batch, "top") for batch in batches(name, sentences)]
            far = [max(map(apart, *pair)) for pair in zip(result, stored(name), strict=True)]
            state = "stateful=True" if stateful else "no state"
            yield f"{name.split('/')[0]}: its own vectors, {state}, first batch", far[0]
            yield f"{name.split('/')[0]}: its own vectors, {state}, nine more", max(far[1:])
    path = FIXTURES / "many-langs"
    expected = np.load(path / "expected.npz")
    texts = json.loads((path / "sentences.json").read_text(encoding="utf-8"))
    result = vectors(elmore.load(path), texts)
    yield (
        "many-langs: its own vectors, all layers",
        max(apart(x, expected[str(i)]) for i, x in enumerate(result)),
    )


def of_state() -> Iterator[tuple[str, float]]:
    (text, *_), *_ = batches()
    carried = fixture("allennlp", stateful=True)
    calls = [vectors(carried, [text], "top")[0] for _ in range(5)]
    for number in (1, 2):
        far = apart(calls[number], calls[number - 1])
        yield f"one sentence, carried state: call {number + 1} from call {number}", far
    fixed = fixture("allennlp", initial_state="warm")
    yield "one sentence: warm start from call 5", apart(vectors(fixed, [text], "top")[0], calls[4])
    yield "one sentence: zero start from call 5", apart(calls[0], calls[4])


def of_input() -> Iterator[tuple[str, float]]:
    elmo = fixture("allennlp")
    batch = batches()[0]
    plain = vectors(elmo, batch)
    marked = vectors(elmo, [["<S>", *text, "</S>"] for text in batch])
    yield (
        "boundaries added by hand",
        max(apart(a, b[:, 1:-1]) for a, b in zip(plain, marked, strict=True)),
    )
    lower = vectors(elmo, [[word.lower() for word in text] for text in batch])
    yield "lower-cased", max(map(apart, plain, lower))
    alone = [vectors(elmo, [text])[0] for text in batch]
    yield "alone or beside longer sentences", max(map(apart, plain, alone))


def of_mixes() -> Iterator[tuple[str, float]]:
    elmo = fixture("allennlp")
    batch = batches()[0]
    average = vectors(elmo, batch, "average")
    sizes = np.abs(np.concatenate(vectors(elmo, batch), axis=1)).max(axis=(1, 2))
    for layer, size in enumerate(sizes):
        yield f"for comparison: the largest number of layer {layer}", size
    even = elmore.SavedMix((0.0, 0.0, 0.0), 1.0)
    yield "untrained mix from the average", max(map(apart, average, vectors(elmo, batch, even)))
    norms = {}
    for kind in ("allennlp", "bilm-tf", "token"):
        mixer = elmore.Elmo(elmo, layer_norm=kind).eval()
        norms[kind] = mixer(batch).mixes[0].detach().numpy()
    yield "layer norm: bilm-tf's from AllenNLP's", apart(norms["bilm-tf"], norms["allennlp"])
    yield "layer norm: of each token from AllenNLP's", apart(norms["token"], norms["allennlp"])
    alone = elmore.Elmo(elmo, layer_norm="allennlp").eval()(batch[:1]).mixes[0].detach().numpy()
    far = apart(alone[0], norms["allennlp"][0][: len(batch[0])])
    yield "layer norm of AllenNLP: a sentence alone from the same in its batch", far


def of_storage() -> Iterator[tuple[str, float]]:
    path = FIXTURES / "allennlp"
    bundle = pretrained.load(path / "options.json", path / "lm_weights.hdf5")
    batch = batches()[0]
    exact = vectors(Embedder(bundle), batch)
    for storage in ("float32", "float16"):
        with tempfile.TemporaryDirectory() as name:
            folder.save(bundle, Path(name) / "model", storage=storage)
            result = vectors(elmore.load(Path(name) / "model"), batch)
        yield f"converted with --storage {storage}", max(map(apart, exact, result))
    half = [x.astype("float16").astype("float32") for x in exact]
    yield "vectors written as float16", max(map(apart, exact, half))


def lines() -> Iterator[tuple[str, str]]:
    for measure in (against_stored, of_state, of_input, of_mixes, of_storage):
        for what, far in measure():
            yield what, "0" if far == 0 else f"{far:.2g}" if far >= 1e-5 else "below 1e-5"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| what | largest difference |\n|---|---|")
    for what, far in lines():
        print(f"| {what} | {far} |")


if __name__ == "__main__":
    main()
