"""Facts beside the arrays of an .npz file."""

from dataclasses import dataclass

import numpy as np
import pytest

from elmore import npy
from elmore.errors import DataError
from elmore.weights.forward_state import ForwardState
from elmore.weights.npz_facts import read_facts, write_with_facts
from elmore.weights.pooling import read_poolings
from elmore.weights.whitening import Whitening


@dataclass(frozen=True, kw_only=True)
class Facts:
    format: int
    name: str = "Zürich"


def test_facts_and_arrays_come_back(tmp_path):
    numbers = np.arange(6.0).reshape(2, 3)
    write_with_facts(tmp_path / "new" / "a.npz", Facts(format=2), {"a": numbers}, member="words")
    assert read_facts(tmp_path / "new" / "a.npz", 2, member="words") == {
        "format": 2,
        "name": "Zürich",
    }
    np.testing.assert_array_equal(npy.read_npz(tmp_path / "new" / "a.npz", ["a"])["a"], numbers)


@pytest.mark.parametrize(
    ("load", "member"),
    [(ForwardState.load, "facts"), (Whitening.load, "facts"), (read_poolings, "words")],
)
def test_a_newer_format_is_named_even_if_it_has_other_arrays(tmp_path, load, member):
    write_with_facts(tmp_path / "a.npz", Facts(format=99), {}, member=member)
    with pytest.raises(DataError, match=f"{member}: format 99 is newer than this elmore reads"):
        load(tmp_path / "a.npz")
