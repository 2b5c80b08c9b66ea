"""Measure words per second on a CPU, and compare with simple-elmo-pytorch.

    python benchmarks/embed_words.py [--sentences 192] [--peer-sentences 192] [--rounds 3]

The peer is simple-elmo-pytorch (AllenNLP's code) at its defaults. This script installs it into its
own environment with the same torch, and gives it the same random weights (original and small size)
and the same real sentences. Each measurement is a process of its own: elmore in both precisions and
the peer take turns, and the result is the median over the rounds. "Bulk" embeds all sentences in
one call; "single" makes one call per sentence, for a tenth of them. The text is the beginning of
$ELMORE_DATA/corpus/valid.txt.xz. `--peer-sentences` gives the peer fewer of them, which does not
change its speed because it caches no words.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import contestants
import torch

from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.text.characters import ByteAlphabet
from elmore.weights.bundle import Bundle
from elmore.weights.convert import bilm_tf

OURS = """
import json, sys, time, elmore
options, weights, texts, bulk = *sys.argv[1:4], sys.argv[4] == "bulk"
texts = json.load(open(texts))
elmo = elmore.load(options, weights, device="cpu", precision=sys.argv[5])
elmo.embed(texts[:2])
start = time.perf_counter()
if bulk:
    count = sum(len(found.tokens) for found in elmo.stream(texts))
else:
    count = sum(len(elmo.embed([text])[0].tokens) for text in texts)
print(count / (time.perf_counter() - start))
"""

PEER = """
import json, sys, time
from simple_elmo_pytorch import Elmo, ElmoVectorizer
options, weights, texts, bulk = *sys.argv[1:4], sys.argv[4] == "bulk"
texts = json.load(open(texts))
peer = ElmoVectorizer(Elmo(options, weights, 1))
peer.get_elmo_vectors(texts[:2])
start = time.perf_counter()
if bulk:
    peer.get_elmo_vectors(texts)
else:
    for text in texts:
        peer.get_elmo_vectors([text], warmup=False)
print(sum(map(len, texts)) / (time.perf_counter() - start))
"""


def write_model(recipe: str, folder: Path) -> None:
    torch.manual_seed(0)
    shape = config.read_pretrain_recipe(recipe).model
    bilm_tf.write_bilm_tf(Bundle(BiLM(shape), ByteAlphabet()), folder)


def measure(python: Path, code: str, folder: Path, texts: Path, *how: str) -> float:
    command = [
        python,
        "-c",
        code,
        folder / "options.json",
        folder / "weights.hdf5",
        texts,
        *how,
    ]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=192)
    parser.add_argument("--peer-sentences", type=int, help="as many where nothing is said")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=["original", "small"])
    parser.add_argument("--how", nargs="+", default=["bulk", "single"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        everything = list(itertools.islice(contestants.real_sentences(), args.sentences))
        peer = contestants.install(place / "peer", contestants.SIMPLE_ELMO_PACKAGES)
        print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, words per second\n")
        print("| size | how | peer | exact | ratio | fast | ratio |\n|---|---|---|---|---|---|---|")
        for recipe in args.sizes:
            write_model(recipe, place / recipe)
            for mode in args.how:
                share = 1.0 if mode == "bulk" else 0.1
                texts, fewer = place / "texts.json", place / "fewer.json"
                for path, count in ((texts, args.sentences), (fewer, args.peer_sentences)):
                    path.write_text(
                        json.dumps(everything[: int(share * (count or len(everything)))])
                    )
                rounds = [
                    (
                        measure(peer, PEER, place / recipe, fewer, mode),
                        *(
                            measure(Path(sys.executable), OURS, place / recipe, texts, mode, how)
                            for how in ("exact", "fast")
                        ),
                    )
                    for _ in range(args.rounds)
                ]
                theirs, *ours = (statistics.median(side) for side in zip(*rounds, strict=True))
                both = " | ".join(f"{speed:.0f} | {speed / theirs:.1f}" for speed in ours)
                print(f"| {recipe} | {mode} | {theirs:.0f} | {both} |")


if __name__ == "__main__":
    main()
