"""Damage to files that a library writes: HDF5, torch's own, parquet, and what is packed."""

import bz2
import gzip
import io
import lzma
import pickle
from collections.abc import Callable
from random import Random

import h5py
import numpy as np
import torch

from tests.fuzz import raw

PACKERS = {
    ".gz": (gzip.compress, gzip.decompress),
    ".xz": (lzma.compress, lzma.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
}


def mutate_hdf5(data: bytes, rng: Random) -> bytes:
    buffer = io.BytesIO(data)
    with h5py.File(buffer, "a") as file:
        names: list[str] = []
        file.visit(
            lambda name: names.append(name) if isinstance(file[name], h5py.Dataset) else None
        )
        name = rng.choice(names)
        array = file[name][()]
        del file[name]
        rng.choice(_HDF5)(file, name, array, rng)
    return buffer.getvalue()


def _values(array: np.ndarray, rng: Random) -> object:
    """Give something else to put in the place of a dataset."""
    return rng.choice(
        (
            *(h5py.Empty(kind) for kind in ("f4", "i4", "S3")),
            *(array[:1], array[..., :0], array[None], array.T, array.ravel()),
            *(array.astype(kind) for kind in ("i4", "u1", "f8", "f2", "c8", "S4", ">f4", "?")),
            *("text", b"bytes", 3.0, 7, np.zeros(2, "f4,i4"), [b"a", b"b"]),
            *(np.full_like(array, number) for number in (np.nan, np.inf, 1e38)),
            *map(h5py.SoftLink, ("/nowhere", "/")),
            h5py.ExternalLink("/etc/passwd", "/a"),
        )
    )


_HDF5 = (
    *[lambda file, name, array, rng: file.__setitem__(name, _values(array, rng))] * 6,
    lambda file, name, array, rng: file.__setitem__(name, h5py.SoftLink(f"/{name}")),
    lambda file, name, array, rng: file.create_group(name),
    lambda file, name, array, rng: file.__setitem__(rng.choice(("more", "RNN_0/x")), array),
    lambda file, name, array, rng: file.create_dataset(name, (2**40,), "f4", chunks=(1024,)),
    lambda file, name, array, rng: file.create_dataset(name, (3,), h5py.vlen_dtype(np.float32)),
    lambda file, name, array, rng: file.create_dataset(name, data=array, compression="gzip"),
    lambda file, name, array, rng: None,
)


class _Runs:
    def __reduce__(self):
        return (print, ("this pickle was run",))


def mutate_torch(data: bytes, rng: Random) -> bytes:
    result = torch.load(io.BytesIO(data), weights_only=True)
    name = rng.choice(list(result))
    tensor, kind = result[name], rng.randrange(10)
    if kind == 0:
        del result[name]
    elif kind == 1:
        result[name] = rng.choice((None, 3, "x", [tensor], {"a": tensor}))
    elif kind == 2:
        result[name] = rng.choice(
            (tensor[:1], tensor[..., :0], tensor[None], tensor.T, tensor.sum())
        )
    elif kind == 3:
        result[name] = tensor.to(
            rng.choice(
                (torch.int64, torch.bfloat16, torch.bool, torch.complex64, torch.float8_e4m3fn)
            )
        )
    elif kind == 4:
        result[name] = rng.choice(
            (
                tensor.to_sparse(),
                tensor.to("meta"),
                torch.full_like(tensor, torch.nan),
                torch.nn.Parameter(tensor),
            )
        )
    elif kind == 5:
        result[rng.choice(("more", f"{name}x", "scalar_mix_0.gamma", 3, (1, 2)))] = tensor
    elif kind == 6:
        result[name] = torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8)
    elif kind == 7:
        result = rng.choice((list(result.values()), tensor, None, {}, {3: tensor}))
    else:
        return pickle.dumps(rng.choice((_Runs(), {"a": _Runs()}, {name: 3}, [1])))
    out = io.BytesIO()
    torch.save(result, out)
    return out.getvalue()


def packed(
    ending: str, inside: Callable[[bytes, Random], bytes]
) -> Callable[[bytes, Random], bytes]:
    """Damage what is packed, or the packed bytes."""
    pack, unpack = PACKERS[ending]

    def mutate(data: bytes, rng: Random) -> bytes:
        return pack(inside(unpack(data), rng)) if rng.random() < 0.5 else raw.mutate(data, rng)

    return mutate


def mutate_parquet(data: bytes, rng: Random) -> bytes:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(data))
    size = table.num_rows
    columns = (
        pyarrow.array([None] * size, pyarrow.string()),
        pyarrow.array(range(size)),
        pyarrow.array([[1]] * size),
        pyarrow.array([["a", None]] * size),
        pyarrow.array([b"\xff\xfe"] * size),
        pyarrow.array([{"a": 1}] * size),
        pyarrow.Array.from_buffers(
            pyarrow.string(),
            size,
            [
                None,
                pyarrow.py_buffer(np.arange(size + 1, dtype=np.int32)),
                pyarrow.py_buffer(b"\xff" * size),
            ],
        ),
        pyarrow.array(["a"] * size).dictionary_encode(),
        pyarrow.array([2**62] * size, pyarrow.timestamp("ns")),
    )
    names = rng.choice((["text"], ["text"], ["x"], ["text", "x"], ["x", "text"], ["text", "text"]))
    result = pyarrow.table([rng.choice(columns) for _ in names], names=names)
    out = io.BytesIO()
    parquet.write_table(result, out)
    return out.getvalue()
