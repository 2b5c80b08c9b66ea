"""Measure the training speed of each LSTM kernel in tokens per second, forward and backward.

    python benchmarks/lstm_kernels.py                                           # on a GPU
    python benchmarks/lstm_kernels.py --sizes tiny mini small --batches 32 128  # on a CPU

Runs two layers in two directions with both clips, without softmax, encoder and optimizer. On a GPU
the matmuls run in bfloat16 under autocast. cuDNN's nn.LSTM with projection, all in bfloat16, is the
reference, although it cannot clip. A step captured in a CUDA graph has no launch cost. On a CPU
everything is float32. A token counts once for both directions. The kernels take turns, and the
result is the median over the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmore.model.lstm import backends
from elmore.model.lstm.call import Call, LSTMState, LSTMWeights

SIZES = {  # cell width, output width: those of the recipes
    "tiny": (128, 32),
    "mini": (512, 128),
    "small": (1024, 128),
    "medium": (2048, 256),
    "original": (4096, 512),
}
NUM_LAYERS, NUM_DIRECTIONS = 2, 2
OPTIONS = {"forget_bias": 1.0, "cell_clip": 3.0, "output_clip": 3.0}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def weights(cell_dim: int, output_dim: int) -> list[Tensor]:
    shapes = (4 * cell_dim, output_dim), (4 * cell_dim, output_dim), (4 * cell_dim,)
    drawn = [torch.randn(shape, device=DEVICE) / 30 for shape in (*shapes, (output_dim, cell_dim))]
    return [weight.requires_grad_() for weight in drawn]


def ours(backend: str, inputs: Tensor, cell_dim: int) -> Callable[[], None]:
    batch, num_tokens, output_dim = inputs.shape
    mask = torch.ones(batch, num_tokens, dtype=torch.bool, device=DEVICE)
    start = LSTMState(inputs.new_zeros(batch, output_dim), inputs.new_zeros(batch, cell_dim))
    stacks = [
        [weights(cell_dim, output_dim) for _ in range(NUM_LAYERS)] for _ in range(NUM_DIRECTIONS)
    ]

    def step() -> None:
        inputs.grad = None
        for layers in stacks:
            hidden = inputs
            for layer in layers:
                for weight in layer:
                    weight.grad = None
                with torch.autocast("cuda", torch.bfloat16, enabled=DEVICE.type == "cuda"):
                    call = Call.create(hidden, mask, start, LSTMWeights(*layer), **OPTIONS)
                    hidden, _ = backends.run(call, backend)
            hidden.backward(torch.ones_like(hidden))

    return step


def cudnn(inputs: Tensor, cell_dim: int) -> Callable[[], None]:
    size = inputs.shape[2]
    stacks = [nn.LSTM(size, cell_dim, NUM_LAYERS, proj_size=size) for _ in range(NUM_DIRECTIONS)]
    stacks = [stack.to(DEVICE, torch.bfloat16) for stack in stacks]
    inputs = inputs.detach().transpose(0, 1).bfloat16().contiguous().requires_grad_()

    def step() -> None:
        inputs.grad = None
        for stack in stacks:
            stack.zero_grad()
            hidden, _ = stack(inputs)
            hidden.backward(torch.ones_like(hidden))

    return step


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Launch it all as one CUDA graph: what is left is the time of the GPU itself."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # a capture wants everything to have run once
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds(step: Callable[[], None], repeats: int) -> float:
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    synchronize()
    return (time.perf_counter() - start) / repeats


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def measure(size: str, batch: int, args: argparse.Namespace) -> None:
    cell_dim, output_dim = SIZES[size]
    inputs = torch.randn(batch, args.tokens, output_dim, device=DEVICE, requires_grad=True)
    contestants = {
        "reference": ours("reference", inputs, cell_dim),
        "training": ours("training", inputs, cell_dim),
    }
    if DEVICE.type == "cuda":
        contestants["training, captured"] = captured(ours("training", inputs, cell_dim))
        contestants["cuDNN, no clips"] = cudnn(inputs, cell_dim)
    for step in contestants.values():
        seconds(step, 2)  # the first time compiles and allocates
    rounds = [
        [seconds(step, args.repeats) for step in contestants.values()] for _ in range(args.rounds)
    ]
    num_tokens = batch * args.tokens
    products = 4 * cell_dim * 2 * output_dim + cell_dim * output_dim  # per token, layer, direction
    flops = 3 * 2 * products * num_tokens * NUM_LAYERS * NUM_DIRECTIONS
    for name, times in zip(contestants, zip(*rounds, strict=True), strict=True):
        took = statistics.median(times)
        print(
            f"| {size} | {batch} x {args.tokens} | {name} | {1e3 * took:.1f} "
            f"| {num_tokens / took:,.0f} | {flops / took / 1e12:.3g} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["original", "small"])
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 512, 1024])
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="steps per round")
    args = parser.parse_args()
    where = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    print(f"{where}, torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| size | batch | kernel | ms | tokens/s | TFLOP/s |\n|---|---|---|---|---|---|")
    for size in args.sizes:
        for batch in args.batches:
            measure(size, batch, args)


if __name__ == "__main__":
    main()
