"""Measure tokens per second from a text to pooled vectors in memory, for short and long texts.

    python benchmarks/embed_tokens.py [--recipe original] [--device cuda] [--precision fast]
                                      [--tokens 10000 100000 1000000] [--rounds 3]
                                      [--token-budget 16384] [--kernels 10] [--functions 20]

The weights are random with the size of a recipe, or those of the bundled model
(`--recipe bundled`). The text is $ELMORE_DATA/corpus/valid.txt.xz, tokenized beforehand and
repeated if it is too short. The vectors are float16 averages of the layers; nothing is written.
The lengths take turns, and the result is the median over the rounds. On a GPU `--kernels N` embeds
the longest text once more under the profiler, and prints for how much of the time the GPU was busy
and its N slowest kernels. The profiler costs time too, so without it the GPU is busy for more.
`--functions N` does so under the profiler of Python, and lists the N functions that take the most
time by themselves.
"""

import argparse
import cProfile
import itertools
import pstats
import statistics
import time
from collections.abc import Iterable, Iterator

import contestants
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

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
    parser.add_argument("--kernels", type=int, help="on a GPU: list as many")
    parser.add_argument("--functions", type=int, help="list as many")
    args = parser.parse_args()
    text = list(contestants.real_sentences())
    elmo = load(args)
    if args.kernels and elmo.device.type != "cuda":
        parser.error(f"--kernels is for a GPU, found {elmo.device}")
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
    if args.kernels:
        kernels(elmo, list(sentences(max(args.tokens), text)), args.kernels)
    if args.functions:
        profiler = cProfile.Profile()
        longest = list(sentences(max(args.tokens), text))
        profiler.runcall(seconds, elmo, iter(longest))
        pstats.Stats(profiler).sort_stats("tottime").print_stats(args.functions)


def kernels(elmo: elmore.Embedder, text: list[list[str]], number: int) -> None:
    """Print how long the GPU was busy with a text, and its slowest kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as result:
        count, taken = seconds(elmo, iter(text))
    busy = covered(kernel_spans(result)) / 1e6  # of microseconds
    print(f"\n{count:,} tokens in {taken:.2f} s, the GPU busy for {busy:.2f} s: {busy / taken:.0%}")
    print("\n| kernel | seconds | calls |\n|---|---|---|")
    rows = sorted(result.key_averages(), key=lambda row: -row.self_device_time_total)
    for row in rows[:number]:
        print(f"| {row.key[:90]} | {row.self_device_time_total / 1e6:.3f} | {row.count} |")


def kernel_spans(result: profile) -> list[tuple[float, float]]:
    """Return when the kernels of a profile began and ended, in microseconds."""
    events = result.events()
    assert events is not None
    on_gpu = (each.time_range for each in events if each.device_type == DeviceType.CUDA)
    return [(each.start, each.end) for each in on_gpu]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans: two streams may be busy at the same time."""
    total, end = 0.0, float("-inf")
    for begin, until in sorted(spans):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


if __name__ == "__main__":
    main()
