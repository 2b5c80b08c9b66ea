"""Measure what an update of a task model costs: time, CPU time, time of the GPU, kernels.

    python benchmarks/task_updates.py [--tasks srl squad] [--updates 40] [--device cuda]
                                      [--words-only] [--set words.freeze=false] [--functions 15]

The models, data and settings are those of benchmarks/paper.py, with GloVe and the bundled biLM
(`--words-only` leaves the biLM out), whose layers are computed and cached before. CPU time is that
of all threads of the process, so it includes the preparation of batches; on a machine that trains
several models at a time it bounds how many updates there are per second. The first updates are not
counted. All numbers are milliseconds: "CPU" of an update, "batch" of making a batch and finding its
tensors twice, as pinning and copying do, measured alone, and "GPU" for how long the GPU is busy
under the profiler. `--functions N` lists the N functions of the main thread that take the most time
by themselves, from another pass under the profiler of Python.
"""

import argparse
import cProfile
import itertools
import pstats
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from data_folder import data_path
from embed_tokens import covered, kernel_spans
from model_quality import GLOVE
from paper import data_files
from paper_cells import PROTOCOL, TASKS, recipe_name, task_class
from torch.profiler import ProfilerActivity, profile

from elmore.tasks import registry
from elmore.tasks.data.datasets import Subset, TaskDatasets
from elmore.tasks.train import TaskTrainable, new_task
from elmore.train import precision
from elmore.train.distributed import SINGLE_PROCESS, select_device
from elmore.train.loop import Step, run_steps
from elmore.train.optimizers import build_optimizer
from elmore.train.prefetch import map_tensors

WARM_UP = 8  # updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS))
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--words-only", action="store_true", help="no biLM")
    parser.add_argument("--set", nargs="*", default=[], help="settings over those of paper.toml")
    parser.add_argument("--functions", type=int, help="list as many")
    parser.add_argument("--place", type=Path, default=Path("build/paper"), help="as in paper.py")
    args = parser.parse_args()
    args.place.mkdir(parents=True, exist_ok=True)
    asked = args.tasks or [task for task in TASKS if not TASKS[task].get("on_request")]
    print("| task | ms | quartiles | CPU | batch | GPU | kernels |\n|---|---|---|---|---|---|---|")
    for task in asked:
        trainable, device = load(task, args)
        wall, cpu = measure(updates(trainable, device), args.updates, device)
        gpu, kernels = profiled(updates(trainable, device), args.updates, device)
        middle, batch = statistics.median(wall), batch_cost(trainable, args.updates)
        quartiles = " to ".join(f"{q:.1f}" for q in statistics.quantiles(wall, n=4)[::2])
        times = f"{middle:.1f} | {quartiles} | {cpu:.1f} | {batch:.1f} | {gpu:.1f}"
        print(f"| {task} | {times} | {kernels:.0f} |")
        if args.functions:
            list_functions(updates(trainable, device), args.updates, args.functions)


def load(task: str, args: argparse.Namespace) -> tuple[TaskTrainable, torch.device]:
    """Read the data of a task, and build its network."""
    kind = task_class(task)
    settings = [*PROTOCOL["settings"], *TASKS[task]["settings"], *args.set]
    recipe = registry.load_recipe(kind, recipe_name(task), settings)
    train, dev, _ = map(Path, data_files(task, args.place))
    spec = f"glove:{data_path(GLOVE)}" + ("" if args.words_only else "+elmo:english")
    device = select_device(args.device)
    datasets = TaskDatasets(
        kind(recipe), train, dev, embedder=spec, dist_env=SINGLE_PROCESS, device=device
    )
    examples = datasets.training_examples(Subset())
    trained = new_task(datasets, recipe, examples)
    dtype = precision.weight_dtype(precision.resolve(recipe.train, device))
    trained.network.to(device, dtype).train()
    return TaskTrainable(trained, examples, datasets), device


def updates(trainable: TaskTrainable, device: torch.device) -> Iterator[Step]:
    """Make updates as `elmore task train` makes them."""
    config = trainable.trained.task.config.train
    return run_steps(
        trainable,
        build_optimizer(trainable.module, config),
        config,
        num_steps=10**6,
        device=device,
        dist_env=SINGLE_PROCESS,
    )


def measure(steps: Iterator[Step], count: int, device: torch.device) -> tuple[list[float], float]:
    """Return the milliseconds of each update, and the mean milliseconds of CPU time."""
    for _ in itertools.islice(steps, WARM_UP):
        pass
    synchronize(device)
    marks, cpu = [time.perf_counter()], time.process_time()
    for _ in itertools.islice(steps, count):
        marks.append(time.perf_counter())
    synchronize(device)
    marks[-1] = time.perf_counter()
    cpu = time.process_time() - cpu
    return [1e3 * (b - a) for a, b in itertools.pairwise(marks)], 1e3 * cpu / count


def batch_cost(trainable: TaskTrainable, count: int) -> float:
    """Return the milliseconds of CPU time for making a batch and walking it twice."""
    seconds = []
    for number in range(WARM_UP + count):
        started = time.process_time()
        batch = trainable.make_batch(number)
        for _ in range(2):
            map_tensors(batch, lambda tensor: tensor)
        seconds.append(time.process_time() - started)
    return 1e3 * statistics.mean(seconds[WARM_UP:])


def profiled(steps: Iterator[Step], count: int, device: torch.device) -> tuple[float, float]:
    """Return for how many milliseconds of an update the GPU is busy, and with how many kernels."""
    if device.type != "cuda":
        return 0.0, 0.0
    for _ in itertools.islice(steps, WARM_UP):
        pass
    synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as result:
        for _ in itertools.islice(steps, count):
            pass
        synchronize(device)
    spans = kernel_spans(result)
    return covered(spans) / 1e3 / count, len(spans) / count


def list_functions(steps: Iterator[Step], count: int, number: int) -> None:
    """Print the functions of the main thread with the most time of their own."""
    for _ in itertools.islice(steps, WARM_UP):
        pass
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in itertools.islice(steps, count):
        pass
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(number)


def synchronize(device: torch.device) -> None:
    """Wait for the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
