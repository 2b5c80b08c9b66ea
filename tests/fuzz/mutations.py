"""How a file is damaged, told by its name: what it says, more often, or else its bytes."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz import arrays, columns, libraries, plain_data, raw
from tests.fuzz.plain_data import either

Mutation = Callable[[bytes, Random], bytes]

_BY_ENDING: dict[str, Mutation] = {
    ".json": either(plain_data.mutate_json, 0.85),
    ".jsonl": either(plain_data.mutate_jsonl),
    ".toml": either(plain_data.mutate_toml),
    ".npy": either(arrays.mutate_npy),
    ".safetensors": either(arrays.mutate_safetensors),
    ".hdf5": either(libraries.mutate_hdf5),
    ".pkl": either(libraries.mutate_torch),
    ".th": either(libraries.mutate_torch),
    ".parquet": either(libraries.mutate_parquet),
}
_TEXT = (
    ".txt",
    ".vec",
    ".dic",
    ".xml",
    ".conllu",
    ".conll",
    ".tsv",
    ".sense",
    ".sha256",
    ".utf8",
    ".csv",
)


def mutation_for(name: str) -> Mutation:
    """Choose by the ending of a file's name; a packed one is damaged inside or outside."""
    path = Path(name)
    if path.suffix in libraries.PACKERS:
        return libraries.packed(path.suffix, mutation_for(path.stem))
    if path.suffix in (".zip", ".npz"):
        return either(arrays.zipped(mutation_for))
    if path.suffix in _TEXT or name == "checkpoint":
        return either(columns.mutate)
    return _BY_ENDING.get(path.suffix, raw.mutate)
