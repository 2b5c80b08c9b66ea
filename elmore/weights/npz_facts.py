"""Arrays in an `.npz` file, with a member of JSON that says what they are: its facts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from elmore import config, npy, strict_json


def write_with_facts(
    path: Path,
    facts: object,
    arrays: Mapping[str, Shaped[np.ndarray, "..."]],
    *,
    member: str = "facts",
) -> None:
    """Write arrays and their facts, a dataclass; the file is complete or absent.

    Raises:
        DataError: The file cannot be written.
    """
    text = json.dumps(config.as_dict(facts)).encode()
    npy.write_npz(path, {member: np.frombuffer(text, np.uint8), **arrays})


def read_facts(path: Path, newest_format: int, *, member: str = "facts") -> Any:  # noqa: ANN401 -- any JSON value
    """Read the facts as JSON, of a format that is known; read the arrays after them.

    Raises:
        DataError: The file is missing or damaged, or its format is newer.
    """
    facts = strict_json.parse(npy.read_npz(path, (member,))[member].tobytes(), member)
    if isinstance(facts, dict):
        config.check_format(facts, newest_format, member)
    return facts
