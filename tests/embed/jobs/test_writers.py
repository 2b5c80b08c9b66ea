"""Files of vectors: memory while they are written."""

import numpy as np
from pyarrow import parquet

from elmore.embed.jobs import writers
from elmore.embed.jobs.journal import EmbedJob, Row

JOB = EmbedJob(
    model="",
    layers="top",
    pool=None,
    dtype="float32",
    tokenized=True,
    split=False,
    initial_state="zero",
    precision="exact",
    errors="strict",
    column="text",
    num_layers=3,
    width=4,
)


def test_long_cells_of_other_columns_fill_a_row_group_too(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "_ROW_GROUP_BYTES", 4000)
    rows = [Row(n, "a", ["a"], np.zeros((1, 4), np.float32), {"body": "b" * 999}) for n in range(9)]
    path = tmp_path / "a.parquet"
    with writers.ParquetWriter(path, JOB, {"body": "string"}, sentence_index=False) as file:
        for row in rows:
            file.write(row)
    with parquet.ParquetFile(path) as file:
        assert file.num_row_groups == 3
        assert file.read()["body"].to_pylist() == ["b" * 999] * 9
