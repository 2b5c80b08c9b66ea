"""Measure the latency of one sentence of 20 words on a CPU, with the bundled model, warm.

    python benchmarks/latency.py [--rounds 10] [--runs 30] [--precision exact]

Compares with simple-elmo-pytorch (AllenNLP's code) at its defaults with the same weights, and with
transformer encoders of the sizes of MiniLM and BERT-base with random weights, which get one piece
per word and need no tokenizer; where the CPU has units for bf16 they run in bf16 too. The models
take turns (`contestants.py`). The text is the first sentence of 20 words in
$ELMORE_DATA/corpus/valid.txt.xz.
"""

import argparse
import json
import tempfile
from pathlib import Path

import contestants
import numpy as np
import torch

import elmore

WORDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    parser.add_argument("--python", type=Path, help="an environment that has the others already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        sentence = next(result for result in contestants.real_sentences() if len(result) == WORDS)
        packages = contestants.SIMPLE_ELMO_PACKAGES + contestants.ENCODER_PACKAGES
        python = args.python or contestants.install(path / "others", packages)
        texts = path / "texts.json"
        texts.write_text(json.dumps([sentence]))
        result = contestants.take_turns(
            {
                "elmore": contestants.ours(precision=args.precision),
                "simple-elmo-pytorch": contestants.simple_elmo(
                    python, elmore.load(device="cpu").bundle, path / "model"
                ),
                **contestants.encoders(python),
            },
            texts,
            rounds=args.rounds,
            runs=args.runs,
        )
    middle, worst = (
        {name: 1000 * np.percentile(each, share) for name, each in result.items()}
        for share in (50, 99)
    )
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {args.precision}\n")
    print("| 20 words | p50, ms | p99, ms | p50 / elmore | p99 / elmore |\n|---|---|---|---|---|")
    for name in result:
        times = f"{middle[name]:.1f} | {worst[name]:.1f}"
        ratios = f"{middle[name] / middle['elmore']:.2f} | {worst[name] / worst['elmore']:.2f}"
        print(f"| {name} | {times} | {ratios} |")


if __name__ == "__main__":
    main()
