"""The function for Spark on docs/guides/bulk.md, given frames as Spark would; there is no Spark."""

from unittest import mock

import numpy as np
import pytest

import elmore
from tests.support import doc_blocks

pandas = pytest.importorskip("pandas", reason="`make test-integrations` installs pandas")
(BLOCK,) = [
    block.values[0]
    for block in doc_blocks.python_blocks(doc_blocks.DOCS / "guides/bulk.md")
    if "import pandas" in block.values[0]
]
LINES = ["One line .", "Another one .", "", "The last ."]


def test_the_block_runs():
    doc_blocks.run_block(BLOCK)


def test_all_partitions_of_a_process_share_one_model():
    module = {"__name__": "embedding"}
    with mock.patch.object(elmore, "load", wraps=elmore.load) as load:
        exec(compile(BLOCK, "embedding.py", "exec"), module)
        assert load.call_count == 0
        halves = [LINES[:2], LINES[2:]]
        frames = [pandas.DataFrame({"text": half}) for half in halves]
        result = [next(module["embed"](iter([frame]))) for frame in frames]
        assert load.call_count == 1
    together = pandas.concat(result)
    assert together["text"].tolist() == LINES
    assert together.columns.tolist() == ["text", "vector"]
    expected = elmore.load(device="cpu").encode(LINES)
    np.testing.assert_allclose(np.stack(together["vector"].tolist()), expected, atol=1e-5)
