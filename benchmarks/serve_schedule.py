"""Simulate the p99 of a server at half load under several orders of its texts, without a server.

    python benchmarks/serve_schedule.py [--precision exact] [--sentences 1024]

It measures the CPU time of steps of 1 to 48 rows with the bundled model (`--precision mg1`: none, a
row costs the same in any batch), halves it for two cores, and simulates Poisson arrivals of the
sentences of $ELMORE_DATA/corpus/valid.txt.xz at half of the rate that 48 rows can read. Printed are
p50, p95 and p99 in units of the p50 of one client alone, for each order.
"""

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import contestants
import numpy as np

import elmore
from elmore.embed.continuous import ContinuousBatcher
from elmore.model.config import Precision
from elmore.text.tokenizers import penn

ROWS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 48)
OVERHEAD = 0.006  # seconds of a request beside its steps, a third of which delays others
MAX_STEPS = 8  # in a call


@dataclass(eq=False)
class Text:
    """A text in the simulated server."""

    arrival: float
    left: int


Order = Callable[[list[Text], float], list[Text]]


def step_costs(precision: Precision | Literal["mg1"]) -> dict[int, float]:
    """Return the seconds of a step of so many rows on two cores."""
    if precision == "mg1":
        return {rows: 1e-3 * rows for rows in ROWS}
    elmo = elmore.load(device="cpu", precision=precision)
    words = list(itertools.islice(itertools.chain(*contestants.real_sentences()), 40 * ROWS[-1]))
    costs = {}
    for rows in ROWS:
        texts, seconds = [words[40 * row : 40 * row + 40] for row in range(rows)], []
        for _ in range(3):
            batch = ContinuousBatcher(elmo.runtime)
            ((*sequences,),) = batch.add([texts])
            start = time.process_time()
            while any(sequence.num_left for sequence in sequences):
                batch.step()
            seconds.append(time.process_time() - start)
        costs[rows] = min(seconds) / 40 / 2
    return costs


def simulate(
    lengths: list[int], cost: Callable[[int], float], rate: float, order: Order, seed: int
) -> list[float]:
    """Return the latencies of 400 seconds of arrivals."""
    chance, now = random.Random(seed), 0.0
    coming = []
    while now < 400:
        now += chance.expovariate(rate)
        coming.append(Text(now, chance.choice(lengths)))
    active: list[Text] = []
    latencies, now, coming = [], 0.0, coming[::-1]
    while coming or active:
        if not active:
            now = max(now, coming[-1].arrival)
        while coming and coming[-1].arrival <= now:
            active.append(coming.pop())
            now += OVERHEAD / 3
        running = order(active, now)
        left = [text.left for text in running]
        steps = min(MAX_STEPS, max(left), max(min(left), 4 + len(running) // 8))
        now += steps * cost(len(running))
        for text in running:
            text.left -= min(steps, text.left)
            if not text.left:
                latencies.append(now - text.arrival + OVERHEAD)
        active = [text for text in active if text.left]
    return latencies


def orders(alone: float) -> dict[str, Order]:
    """Return the orders; `alone` is the time of a token alone."""

    def urgent(rows: int, below: int) -> Order:
        def order(active: list[Text], now: float) -> list[Text]:
            first = sorted(active, key=lambda text: text.arrival - now - text.left * alone)
            return first[: rows if len(active) < below else ROWS[-1]]

        return order

    return {
        "all at once": lambda active, now: active[: ROWS[-1]],
        **{
            f"first come, {rows} at a time": lambda active, now, rows=rows: active[:rows]
            for rows in (1, 2, 3)
        },
        **{f"most urgent, {rows} at a time": urgent(rows, 10**9) for rows in (2, 4, 6)},
        "most urgent, 6 below 14, else all": urgent(6, 14),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=["exact", "fast", "mg1"], default="exact")
    parser.add_argument("--sentences", type=int, default=1024)
    args = parser.parse_args()
    some = itertools.islice(contestants.real_sentences(), args.sentences)
    lengths = [len(penn(" ".join(words)).words) for words in some]
    costs = step_costs(args.precision)
    print(", ".join(f"{rows} rows {2000 * costs[rows]:.1f} ms" for rows in ROWS))

    def cost(rows: int) -> float:
        return float(np.interp(rows, ROWS, list(costs.values())))

    rate = 0.5 / (statistics.mean(lengths) * costs[ROWS[-1]] / ROWS[-1] + OVERHEAD / 3)
    alone = OVERHEAD + cost(1) * np.quantile(lengths, (0.5, 0.99))
    print(
        f"{rate:.1f} requests/s; alone p50 {1000 * alone[0]:.0f} ms, p99 {alone[1] / alone[0]:.1f}"
    )
    for name, order in orders(cost(1)).items():
        times = [x for seed in range(3) for x in simulate(lengths, cost, rate, order, seed)]
        found = np.quantile(times, (0.5, 0.95, 0.99)) / alone[0]
        print(f"{name:35}" + "".join(f"{x:7.1f}" for x in found))


if __name__ == "__main__":
    main()
