"""Compare the precisions `fast` and `exact`: error, speed and task scores, on this device.

    python benchmarks/precision.py [--sentences 256] [--probes] [--names RUN] [--bf16]

Prints the cosine between the two vectors of every token in each layer, and the bulk speed of both,
with the bundled model. On request it also prints the scores, in percent, of the probes for parts of
speech and senses (--probes) and of a run of `elmore task train ner` (--names). If the device has no
units for bf16 or int8, or with --emulate, the rounding of bf16 is emulated; speed then means
nothing. With --bf16 a CPU with bf16 units uses them. The data are in $ELMORE_DATA.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import contestants
import numpy as np
import torch
from data_folder import data_path

import elmore
from elmore.embed.embedder import Embedder
from elmore.model import native
from elmore.model.lstm import eager
from elmore.probe import linear_probe, senses, wordnet
from elmore.probe.sense_corpus import SenseCorpus
from elmore.tasks.checkpoint import load_task
from elmore.tasks.embedding import spec


def emulate() -> None:
    """Round as oneDNN does on a CPU that has the units."""

    def multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (rows.float() @ weight.float().T).to(torch.bfloat16)

    mock.patch.object(eager, "has_native_bf16", return_value=True).start()
    mock.patch.object(native, "has_int8_dot", return_value=False).start()
    mock.patch.object(eager, "pack_bf16", return_value=None).start()
    mock.patch.object(eager, "multiply_bf16", multiply).start()


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def bulk(elmo: Embedder, texts: list[list[str]]) -> tuple[np.ndarray, float]:
    """Return the layers of all tokens, and words a second once warm."""
    list(elmo.stream(texts[:64]))
    start = time.perf_counter()
    result = [sentence.vectors for sentence in elmo.stream(texts, layers="all")]
    return np.concatenate(result, axis=1), sum(map(len, texts)) / (time.perf_counter() - start)


def parts_of_speech(elmo: Embedder) -> Iterator[tuple[str, float]]:
    names = [f"tasks/pos/en_ewt-ud-{split}.conllu.xz" for split in ("train", "dev", "test")]
    data = linear_probe.read_splits(*map(data_path, names))
    vectors = linear_probe.layer_features(data, elmo)
    for row in linear_probe.probe_layers(data, vectors, control=False, device=elmo.device):
        yield f"POS, layer {row.layer}", 100 * row.test


def word_senses(elmo: Embedder) -> Iterator[tuple[str, float]]:
    path = data_path("tasks/wsd")
    result = senses.probe_senses(
        elmo,
        SenseCorpus(path / "Training_Corpora" / "SemCor"),
        [SenseCorpus(path / "Evaluation_Datasets" / "senseval2")],
        wordnet.read_wordnet(path / "wordnet-3.0"),
    )
    for layer, scores in result.tests["senseval2"].items():
        yield f"WSD, {layer}", 100 * scores["f1"]


def names(place: Path, elmo: Embedder) -> Iterator[tuple[str, float]]:
    opened = partial(elmore.load, precision=elmo.precision)
    with mock.patch.object(spec, "load_embedder", opened):
        scores = load_task(place).evaluate(data_path("tasks/ner/emerging.test.annotated"))
    yield "NER, f1", scores["f1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--probes", action="store_true", help="parts of speech and senses too")
    parser.add_argument("--emulate", action="store_true", help="bf16 on a CPU without it")
    parser.add_argument("--bf16", action="store_true", help="also where int8 is quicker")
    parser.add_argument("--names", type=Path, help="a run of `elmore task train ner` on elmo:")
    args = parser.parse_args()
    texts = list(itertools.islice(contestants.real_sentences(), args.sentences))
    exact = elmore.load()
    has_units = eager.has_native_bf16(exact.device) or native.has_int8_dot()
    emulated = args.emulate or not has_units
    if emulated:
        emulate()
    elif args.bf16:
        mock.patch.object(native, "has_int8_dot", return_value=False).start()
    quick = elmore.load(precision="fast")
    where = torch.cuda.get_device_name() if exact.device.type == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, {sum(map(len, texts))} tokens\n")
    (a, before), (b, after) = bulk(exact, texts), bulk(quick, texts)
    print("| layer | mean cosine | 1st percentile | least |\n|---|---|---|---|")
    for layer, result in enumerate(cosines(a, b)):
        low = np.percentile(result, 1)
        print(f"| {layer} | {result.mean():.6f} | {low:.6f} | {result.min():.6f} |")
    speed = "emulated" if emulated else f"{after / before:.2f} times as fast"
    print(f"\nexact {before:.0f} words/s, fast {after:.0f} words/s: {speed}\n")
    pairs = []
    for of in (parts_of_speech, word_senses) if args.probes else ():
        pairs += zip(of(exact), of(quick), strict=True)
    if args.names:
        pairs += zip(names(args.names, exact), names(args.names, quick), strict=True)
    if pairs:
        print("| score | exact | fast | difference |\n|---|---|---|---|")
    for (what, one), (_, other) in pairs:
        print(f"| {what} | {one:.2f} | {other:.2f} | {other - one:+.2f} |")


if __name__ == "__main__":
    main()
