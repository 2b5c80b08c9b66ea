"""What the C of vectors.h is allowed: instructions that this CPU has, and threads."""

import platform

import torch

_WIDE = {
    "AVX2": ("-mavx2", "-mfma"),
    "AVX512": (
        *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
        "-mprefer-vector-width=512",
    ),
}
_DOTS = {"AVX512": ("-mavx512vnni",)}
_WORTH = 2**18  # multiplications, some microseconds: another thread is not called for less


def wide() -> tuple[str, ...]:
    """Give the flags for vectors as wide as this CPU has them."""
    return _WIDE.get(torch.backends.cpu.get_cpu_capability(), ())


def wide_with_dots() -> tuple[str, ...]:
    """Give them with those for dot products of bytes, which the C asks for before it uses them."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return ("-march=armv8.2-a+dotprod",)
    return wide() + _DOTS.get(torch.backends.cpu.get_cpu_capability(), ())


def threads(multiplications: int) -> int:
    """Say how many threads a step of so many multiplications is worth."""
    return torch.get_num_threads() if multiplications >= _WORTH else 1
