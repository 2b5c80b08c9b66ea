"""Measure the end-to-end speed of pretraining in tokens per second, and where the time goes.

    python benchmarks/train_tokens.py SHARDS [--recipe original] [--rows 1024] [--updates 60]

SHARDS is a folder written by `elmore prepare` from real text, with a vocabulary of 200,000 words or
more. A token is one position, counted once for both directions. The time includes data loading,
optimizer and logging: the updates run through the code of `elmore pretrain`, in a temporary run
folder. The first updates, which compile, are not counted; the result is the median of the reports.
To measure a part, it runs alone on the same batch, forward and backward; "rest" is the time that
the parts do not explain. `--kernels N` lists the N slowest kernels.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from elmore.corpus.shards import open_corpus
from elmore.lm import config
from elmore.lm.pretrain import build_alphabet, build_model, train_lm
from elmore.lm.trainable import LMTrainable
from elmore.train import optimizers, precision
from elmore.train.distributed import SINGLE_PROCESS
from elmore.train.loop import run_steps
from elmore.train.prefetch import to_device
from elmore.train.runs import Run

WARM_UP = 3  # reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", type=Path)
    parser.add_argument("--recipe", default="original")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--set", nargs="*", default=[], help="section.key=value")
    parser.add_argument("--kernels", type=int, default=0)
    args = parser.parse_args()
    settings = [
        f"stream.batch_size={args.rows}",
        f"train.steps={args.updates}",
        "train.log_every=5",
    ]
    recipe = config.read_pretrain_recipe(args.recipe, [*settings, *args.set])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus = open_corpus(args.shards)
    training = LMTrainable(
        build_model(recipe, corpus.vocabulary),
        corpus,
        corpus.vocabulary,
        build_alphabet(recipe, corpus.vocabulary),
        recipe.stream,
        recipe.train.seed,
        SINGLE_PROCESS,
    )
    numbers = precision.resolve(recipe.train, device)
    training.evaluate = dict  # type: ignore[method-assign] -- the speed of training alone
    training.save = lambda *_: None  # type: ignore[method-assign]
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{args.recipe}, {numbers}, {args.rows} x {recipe.stream.unroll_steps}, ", end="")
    print(f"{len(corpus.vocabulary):,} words, {name}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        reports = train_lm(training, recipe.train, Run(Path(folder)), device, resume=False)
        kept = [report.metrics for report in itertools.islice(reports, WARM_UP, None)][:-1]
    speed = statistics.median(metrics["per_second"] for metrics in kept)
    waiting = statistics.median(metrics["data_fraction"] for metrics in kept)
    print(f"{speed:,.0f} tokens/s; waiting for data {100 * waiting:.2f} %", end="")
    print(f"; {kept[-1].get('max_gib', 0):.1f} GB")
    shares(training, recipe, device, 1000 * args.rows * recipe.stream.unroll_steps / speed)
    if args.kernels:
        kernels(training, recipe, device, args.kernels)


def shares(
    training: LMTrainable, recipe: config.PretrainConfig, device: torch.device, whole: float
) -> None:
    """Print where the milliseconds of an update go, each part run alone."""
    model = training.module
    batch = to_device(training.make_batch(0), device)
    optimizer = optimizers.build_optimizer(model, recipe.train)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    width = recipe.model.lstm.output_dim
    states = torch.randn(batch.targets[0].numel(), width, device=device, requires_grad=True)

    def characters() -> None:
        out = model.encode_words(batch)
        out.backward(torch.ones_like(out))

    def reading() -> None:
        tops, _ = model.run_directions(batch, None)
        torch.stack([top.float().sum() for top in tops]).sum().backward()

    def softmax() -> None:
        for targets, seed in zip(batch.targets, batch.seeds, strict=True):
            model.softmax.loss(states, targets.flatten(), seed).sum().backward()

    def update() -> None:
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()

    numbers = precision.resolve(recipe.train, device)
    with precision.autocast(numbers, device):
        model(batch, None).loss.backward()
    print("\n| part | ms per update | share |\n|---|---|---|")
    rest = whole
    for name, part in (
        ("characters and LSTMs", reading),
        ("softmax", softmax),
        ("clip and optimiser", update),
    ):
        with precision.autocast(numbers, device):
            took = milliseconds(part, device)
        rest -= took
        print(f"| {name} | {took:.1f} | {100 * took / whole:.0f} % |")
    print(f"| rest | {rest:.1f} | {100 * rest / whole:.0f} % |\n| all | {whole:.1f} | 100 % |")


def milliseconds(part: Callable[[], None], device: torch.device) -> float:
    times = []
    for _ in range(8):
        wait(device)
        begun = time.perf_counter()
        part()
        wait(device)
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times[3:])


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def kernels(
    training: LMTrainable, recipe: config.PretrainConfig, device: torch.device, count: int
) -> None:
    """Print the kernels (on a CPU, the operators) that took longest, over three updates."""
    optimizer = optimizers.build_optimizer(training.module, recipe.train)
    made = run_steps(
        training, optimizer, recipe.train, num_steps=6, device=device, dist_env=SINGLE_PROCESS
    )
    for _ in range(3):
        next(made)
    on_gpu = device.type == "cuda"
    kind = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[kind]) as result:
        for _ in made:
            pass
        wait(device)
    key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = sorted(result.key_averages(), key=lambda row: -getattr(row, key))
    print("\n| kernel | ms per update | calls |\n|---|---|---|")
    for row in rows[:count]:
        print(f"| {row.key[:90]} | {getattr(row, key) / 3000:.2f} | {row.count / 3:.0f} |")
    print(f"| all | {sum(getattr(row, key) for row in rows) / 3000:.2f} | |")


if __name__ == "__main__":
    main()
