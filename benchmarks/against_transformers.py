"""Measure words per second on a CPU, for elmore and for transformer encoders.

    python benchmarks/against_transformers.py [--sentences 256] [--rounds 3] [--precision exact]

elmore runs the bundled model and random weights of the original size. The transformers have the
sizes of MiniLM and BERT-base and random weights; they get one piece per word, so they need no
tokenizer, in batches of 32 sorted by length. Where the CPU has units for bf16 they run in bf16 too,
and elmore is compared with the faster of the two. The models take turns (`contestants.py`), and the
result is the median over the rounds. The text is the beginning of
$ELMORE_DATA/corpus/valid.txt.xz.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

import contestants
import torch

from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder
from elmore.weights.bundle import Bundle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    parser.add_argument("--python", type=Path, help="an environment that has the others already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        read = list(itertools.islice(contestants.real_sentences(), args.sentences))
        python = args.python or contestants.install(path / "others", contestants.ENCODER_PACKAGES)
        texts = path / "texts.json"
        texts.write_text(json.dumps(read))
        torch.manual_seed(0)
        original = Bundle(BiLM(config.read_pretrain_recipe("original").model), ByteAlphabet())
        folder.save(original, path / "original")
        result = contestants.take_turns(
            {
                "elmore, bundled": contestants.ours(precision=args.precision),
                "elmore, original": contestants.ours(path / "original", precision=args.precision),
                **contestants.encoders(python),
            },
            texts,
            rounds=args.rounds,
            runs=1,
        )
    speeds = {
        name: sum(map(len, read)) / statistics.median(seconds) for name, seconds in result.items()
    }
    types = " and ".join(contestants.encoder_types())
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {args.precision}")
    print(f"encoders in {types}, whichever is faster\n")
    peers = list(contestants.ENCODERS)
    print(f"| | words a second | / {peers[0]} | / {peers[1]} |\n|---|---|---|---|")
    for name, speed in speeds.items():
        fastest = (contestants.fastest(peer, speeds, max) for peer in peers)
        ratios = " | ".join(f"{speed / each:.2f}" for each in fastest)
        print(f"| {name} | {speed:.0f} | {ratios} |")


if __name__ == "__main__":
    main()
