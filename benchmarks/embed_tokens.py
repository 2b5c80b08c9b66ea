"""Measure tokens per second from a text to pooled vectors in memory, for short and long texts.

    python benchmarks/embed_tokens.py [--recipe original] [--device cuda] [--precision fast]
                                      [--tokens 10000 100000 1000000] [--rounds 3]
                                      [--token-budget 16384]

The weights are random with the size of a recipe, or those of the bundled model
(`--recipe bundled`). The text is $ELMORE_DATA/corpus/valid.txt.xz, tokenized beforehand and
repeated if it is too short. The vectors are float16 averages of the layers; nothing is written.
The lengths take turns, and the result is the median over the rounds.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator

import contestants
import torch

import elmore
from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.text.characters import ByteAlphabet
from elmore.weights.bundle import Bundle


def sentences(num_tokens: int, text: list[list[str]]) -> Iterator[list[str]]:
    """Return about this many tokens."""
    for sentence in itertools.cycle(text):
        yield sentence
        num_tokens -= len(sentence)
        if num_tokens <= 0:
            return


def load(args: argparse.Namespace) -> elmore.Embedder:
    how = {"device": args.device, "token_budget": args.token_budget, "precision": args.precision}
    if args.recipe == "bundled":
        return elmore.load(**how)
    torch.manual_seed(0)
    model = BiLM(config.read_pretrain_recipe(args.recipe).model).eval()
    return elmore.Embedder(Bundle(model, ByteAlphabet()), **how)


def seconds(elmo: elmore.Embedder, text: Iterator[list[str]]) -> tuple[int, float]:
    """Embed a text; give the tokens and the seconds."""
    begun, count = time.perf_counter(), 0
    for sentence in elmo.stream(text, dtype="float16"):
        count += len(sentence.vectors)
    return count, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="original")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--token-budget", type=int, help="as the device likes it")
    args = parser.parse_args()
    text = list(contestants.real_sentences())
    elmo = load(args)
    seconds(elmo, sentences(min(args.tokens), text))
    rounds = [
        [seconds(elmo, sentences(length, text)) for length in args.tokens]
        for _ in range(args.rounds)
    ]
    print(f"{args.recipe}, {elmo.device}, {args.precision}, torch {torch.__version__}\n")
    print("| tokens | tokens a second | cost of a token, against the shortest |\n|---|---|---|")
    costs = [
        statistics.median(taken / count for count, taken in column)
        for column in zip(*rounds, strict=True)
    ]
    for length, cost in zip(args.tokens, costs, strict=True):
        print(f"| {length:,} | {1 / cost:,.0f} | {cost / costs[0]:.3f} |")


if __name__ == "__main__":
    main()
