"""What the Ray engine refuses before there is any Ray (the rest is in tests/integrations)."""

import pytest

import elmore
from elmore.embed.jobs.job import describe_job
from elmore.embed.jobs.ray import run_on_ray
from elmore.errors import DataError


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_programs_folder_at_the_path_of_the_parts_is_left_alone(tmp_path, overwrite):
    elmo = elmore.load()
    job = describe_job(
        elmo, layers="top", pool=None, dtype="float32", tokenized=True, split=False,
        initial_state="zero", errors="strict", column="text",
    )  # fmt: skip
    folder = tmp_path / "out.parquet.parts"
    folder.mkdir()
    (folder / "shards").write_text("dear to somebody")
    with pytest.raises(DataError, match="which is not ours"):
        run_on_ray(elmo, ["a"], tmp_path / "out.parquet", job, overwrite=overwrite)
    assert (folder / "shards").read_text() == "dear to somebody"
