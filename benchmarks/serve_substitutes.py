"""Measure how long a sentence waits in `elmore serve` beside clients of a route without vectors.

    python benchmarks/serve_substitutes.py [--route /score] [--clients 40] [--seconds 30]

The server is a process of its own with the bundled model. Some clients ask /substitutes for a word
of a sentence, or /score for all of its words, each again as soon as it has its answer, and one
client asks /encode for a sentence. The sentences are those of $ELMORE_DATA/corpus/valid.txt.xz.
Printed are latencies of both, the median over the rounds.
"""

import argparse
import asyncio
import itertools
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import contestants
from serve_load import Request, Server, Tally, closed_loop, for_seconds, make_request

SENTENCES = 256
BODIES = {
    "/substitutes": lambda words: {"tokens": words, "position": len(words) // 2},
    "/score": lambda words: {"texts": [words]},
}


async def beside(
    port: int, encode: Iterator[Request], others: Iterator[Request], args: argparse.Namespace
) -> list[Tally]:
    """Run both kinds of clients at the same time."""
    tallies = await asyncio.gather(
        closed_loop(port, for_seconds(encode, args.seconds), 1),
        closed_loop(port, for_seconds(others, args.seconds), args.clients),
    )
    return list(tallies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--route", choices=("/substitutes", "/score"), default="/substitutes")
    parser.add_argument("--clients", type=int, default=40, help="of the route")
    parser.add_argument("--seconds", type=float, default=30, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    some = (words for words in contestants.real_sentences() if 10 <= len(words) <= 30)
    sentences = list(itertools.islice(some, SENTENCES))
    encode = [make_request("/encode", {"texts": [words]}, len(words)) for words in sentences]
    others = [
        make_request(args.route, BODIES[args.route](words), len(words)) for words in sentences
    ]
    rounds = []
    with tempfile.TemporaryDirectory() as name:
        server = Server([], "exact", Path(name))
        try:
            asyncio.run(closed_loop(server.port, encode, 1))  # the words are known from now on
            endless = itertools.cycle(encode), itertools.cycle(others)
            for _ in range(args.rounds):
                tallies = asyncio.run(beside(server.port, *endless, args))
                rounds.append([tally.summary(args.seconds, 1) for tally in tallies])
        finally:
            server.stop()
    print("| route | requests/s | p50, ms | p99, ms | worst, ms | answers |")
    print("|---|---|---|---|---|---|")
    for route, column in zip(("/encode", args.route), zip(*rounds, strict=True), strict=True):
        names = ("requests a second", "p50 ms", "p99 ms", "worst ms")
        rate, *times = (statistics.median(row[name] for row in column) for name in names)
        statuses = {status for row in column for status in row["statuses"]}
        cells = (f"{time:,.0f}" for time in times)
        print(f"| {route} | {rate:.1f} | {' | '.join(cells)} | {', '.join(sorted(statuses))} |")


if __name__ == "__main__":
    main()
