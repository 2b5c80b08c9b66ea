"""Write checkpoints as TensorFlow's `Saver` does, without TensorFlow and without elmore.

The index is a LevelDB table (doc/table_format.md there): blocks of keys that share beginnings, with
a restart point at every 16th, each block followed by a byte for "not compressed" and a masked
CRC-32C. Its values are the messages BundleHeaderProto and BundleEntryProto. Tensors lie in the data
files, little-endian, one after another in the order of their names.

Used by weights/test_checkpoint, tests/test_migrate and fuzz/models.
"""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message; numbers that are 0 are not written."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value) if value else b""


def entry(array: NDArray, part: int, begin: int) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    crc = varint(6 << 3 | 5) + struct.pack("<I", masked_crc(array.tobytes()))
    where = field(3, part) + field(4, begin) + field(5, array.nbytes)
    return field(1, KINDS[array.dtype.name]) + field(2, shape) + where + crc


def block(rows: list[tuple[bytes, bytes]]) -> bytes:
    out, restarts, before = b"", [], b""
    for number, (key, value) in enumerate(rows):
        shared = 0
        if number % 16 == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        before = key
    restarts = restarts or [0]
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(rows: list[tuple[bytes, bytes]], rows_per_block: int) -> bytes:
    out, places = b"", []

    def add(contents: bytes) -> bytes:
        nonlocal out
        place = varint(len(out)) + varint(len(contents))
        out += contents + b"\0" + struct.pack("<I", masked_crc(contents + b"\0"))
        return place

    for start in range(0, len(rows), rows_per_block):
        chunk = rows[start : start + rows_per_block]
        places.append((chunk[-1][0], add(block(chunk))))
    footer = add(block([])) + add(block(places))
    return out + footer.ljust(40, b"\0") + struct.pack("<II", 0x8B80FB57, 0xDB477524)


def write_checkpoint(
    prefix: Path, variables: dict[str, NDArray], *, num_parts: int = 1, rows_per_block: int = 20
) -> Path:
    """Write PREFIX.index and its data; gives the path of the index."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    parts = [b""] * num_parts
    rows = [(b"", field(1, num_parts) + field(3, field(1, 1)))]
    for number, name in enumerate(sorted(variables, key=str.encode)):
        array, part = variables[name], number % num_parts
        rows.append((name.encode(), entry(array, part, len(parts[part]))))
        parts[part] += array.tobytes()
    for part, data in enumerate(parts):
        Path(f"{prefix}.data-{part:05}-of-{num_parts:05}").write_bytes(data)
    index = Path(f"{prefix}.index")
    index.write_bytes(table(rows, rows_per_block))
    return index


def training_variables(
    weights: dict[str, NDArray], softmax: tuple[NDArray, NDArray] | None = None
) -> dict[str, NDArray]:
    """What bilm-tf's training saves of a model that is given by its HDF5 names."""
    renames = {
        "RNN/MultiRNNCell/Cell": "rnn/multi_rnn_cell/cell_",
        "LSTMCell/W_0": "lstm_cell/kernel",
        "LSTMCell/B": "lstm_cell/bias",
        "LSTMCell/W_P_0": "lstm_cell/projection/kernel",
    }
    result = {f"lm/{name}": array for name, array in _renamed(weights, renames).items()}
    if softmax:
        result |= {"lm/softmax/W": softmax[0], "lm/softmax/b": softmax[1]}
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in result.items()}
    return result | slots | {"global_step": np.array(7), "train_perplexity": np.float32([39.7])}


def module_variables(
    weights: dict[str, NDArray], mix: tuple[list[float], float] = ([0, 0, 0], 1)
) -> dict[str, NDArray]:
    """What google/elmo holds: the graph of prediction, so a zero row before the characters."""
    renames = {
        "LSTMCell/W_0": "rnn/lstm_cell/kernel",
        "LSTMCell/B": "rnn/lstm_cell/bias",
        "LSTMCell/W_P_0": "rnn/lstm_cell/projection/kernel",
    }
    result = {f"bilm/{name}": array for name, array in _renamed(weights, renames).items()}
    table = result["bilm/char_embed"]
    result["bilm/char_embed"] = np.concatenate([np.zeros_like(table[:1]), table])
    return result | {
        "aggregation/weights": np.float32(mix[0]),
        "aggregation/scaling": np.array(mix[1], np.float32),
    }


def _renamed(weights: dict[str, NDArray], renames: dict[str, str]) -> dict[str, NDArray]:
    result = {}
    for name, array in weights.items():
        for old, new in renames.items():
            name = name.replace(old, new)
        result[name] = array
    return result


def write_module(folder: Path, variables: dict[str, NDArray]) -> Path:
    """A module as it lies in TF-Hub's cache, its graph left empty."""
    write_checkpoint(folder / "variables" / "variables", variables)
    (folder / "assets").mkdir()
    for name in ("saved_model.pb", "tfhub_module.pb"):
        (folder / name).write_bytes(b"")
    return folder
