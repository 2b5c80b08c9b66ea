"""`elmore embed --engine ray` on a real local Ray with two workers, against the local engine."""

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from elmore.embed.embedder import Embedder
from elmore.embed.jobs import job as jobs
from elmore.embed.jobs import ray as ray_job
from elmore.embed.loading import load
from elmore.errors import ConfigError, DataError
from elmore.text.tokenizers import penn
from elmore.weights import folder
from tests.support import doc_blocks, shell_commands
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-integrations")

# Worker processes take seconds to start, on a busy machine many.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray's own sockets
]

WORDS = ("The", "bank", "of", "the", "river", "naïve", "日本", "x" * 70, "once", "more", ".")
LINES = [
    *(" ".join(WORDS[(i + j) % len(WORDS)] for j in range(7 * i % 23)) for i in range(300)),
    "half \ud800 a character",
    " ".join(["long"] * 300),
    "",
]


@pytest.fixture(scope="module")
def cluster():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        # Else the workers' niceness is 15: beside other tests they get a thirtieth of a core.
        _system_config={"worker_niceness": 0},
        num_cpus=2,
        num_gpus=0,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
    )
    yield
    ray.shutdown()
    torch.set_num_threads(threads)


@pytest.fixture
def elmo(tmp_path, rng) -> Embedder:
    options = bilm_options()
    return load(*write_bilm(tmp_path / "model", options, bilm_weights(options, rng)), device="cpu")


def describe(elmo: Embedder, **choices):
    usual = {
        "layers": "average",
        "pool": None,
        "dtype": "float32",
        "tokenized": False,
        "split": False,
        "initial_state": "zero",
        "errors": "strict",
        "column": "text",
    }
    return jobs.describe_job(elmo, **(usual | choices))


def assert_the_same(found: Path, expected: Path) -> None:
    tables = [parquet.read_table(path) for path in (found, expected)]
    assert tables[0].schema == tables[1].schema
    assert tables[0].num_rows == tables[1].num_rows
    for left, right in zip(*(table.to_pylist() for table in tables), strict=True):
        assert left["line"] == right["line"]
        assert left["tokens"] == right["tokens"]
        for name in left.keys() - {"line", "tokens"}:
            assert np.array(left[name]).tobytes() == np.array(right[name]).tobytes()


@pytest.mark.usefixtures("cluster")
def test_workers_give_the_rows_of_the_local_engine(tmp_path, elmo, capfd):
    job = describe(elmo, layers="all", dtype="float16", split=True, initial_state="warm")
    elmo = Embedder(elmo.bundle, device="cpu", initial_state=job.initial_state)
    lines = [*LINES, ["tokens", "of", "a", "list"]]
    jobs.run_job(elmo, lines, tmp_path / "local.parquet", job)
    capfd.readouterr()
    ray_job.run_on_ray(elmo, lines, tmp_path / "ray.parquet", job, workers=2, shard_lines=64)
    assert capfd.readouterr().out == ""
    assert_the_same(tmp_path / "ray.parquet", tmp_path / "local.parquet")
    assert not (tmp_path / "ray.parquet.parts").exists()


@pytest.mark.usefixtures("cluster")
def test_the_command_of_the_page_gives_the_rows_of_the_local_engine(tmp_path, elmo, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for line in LINES if "\ud800" not in line]
    parquet.write_table(pyarrow.table({"body": lines}), "table.parquet")
    page = doc_blocks.DOCS / "guides/bulk.md"
    (command,) = [line for line in doc_blocks.commands(page, "console") if "--engine ray" in line]
    folder.save(elmo.bundle, Path("ours"))
    more = ["--model", "ours", "--tokenized"]
    shell_commands.run(command, lambda arguments: [*arguments, *more])
    local = "elmore embed table.parquet --column body -o local.parquet"
    shell_commands.run(local, lambda arguments: [*arguments, *more])
    assert_the_same(Path("vectors.parquet"), Path("local.parquet"))
    assert parquet.read_table("vectors.parquet").num_rows == len(lines)


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_is_replaced_and_its_lines_are_embedded(tmp_path, elmo):
    job = describe(elmo, pool="mean")
    jobs.run_job(elmo, LINES, tmp_path / "local.parquet", job)
    at_work = tmp_path / "at_work"
    at_work.mkdir()

    def deadly_once(text: str) -> object:
        """Note who works, a file per process and a byte per line; the first dies in a shard."""
        with (at_work / str(os.getpid())).open("ab") as file:
            file.write(b".")
            line = file.tell()
        if line == 52:
            with contextlib.suppress(FileExistsError):
                (tmp_path / "dead").symlink_to(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
        return penn(text)

    watched = Embedder(elmo.bundle, device="cpu", tokenizer=deadly_once)
    ray_job.run_on_ray(watched, LINES, tmp_path / "ray.parquet", job, workers=1, shard_lines=32)

    done = {path.name: path.stat().st_size for path in at_work.iterdir()}
    assert done.pop(str((tmp_path / "dead").readlink())) == 52
    assert sum(done.values()) + 32 >= len(LINES)  # its unfinished shard was begun again
    assert_the_same(tmp_path / "ray.parquet", tmp_path / "local.parquet")


@pytest.mark.usefixtures("cluster")
def test_lines_that_kill_every_worker_are_named(tmp_path, elmo, monkeypatch):
    def deadly(text: str) -> object:
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return penn(text)

    monkeypatch.setattr(ray_job, "_MAX_TRIES", 2)
    elmo = Embedder(elmo.bundle, device="cpu", tokenizer=deadly)
    said = r"^lines 3 to 4: 2 workers died of them; is there enough memory for the longest line\?$"
    with pytest.raises(DataError, match=said):
        ray_job.run_on_ray(
            elmo,
            ["a", "b", "die", "c"],
            tmp_path / "x.parquet",
            describe(elmo),
            workers=1,
            shard_lines=2,
        )
    assert not list(tmp_path.glob("x.parquet*"))


@pytest.mark.usefixtures("cluster")
def test_no_lines_give_no_rows(tmp_path, elmo):
    ray_job.run_on_ray(elmo, [], tmp_path / "ray.parquet", describe(elmo))
    assert parquet.read_table(tmp_path / "ray.parquet").num_rows == 0


@pytest.mark.parametrize("name", ["out.hdf5", "out.jsonl", "out"])
def test_only_parquet_is_written(tmp_path, elmo, name):
    with pytest.raises(ConfigError, match=r"expected a name that ends in \.parquet"):
        ray_job.run_on_ray(elmo, LINES, tmp_path / name, describe(elmo))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.usefixtures("cluster")
def test_existing_output_is_replaced_only_with_overwrite(tmp_path, elmo):
    out = tmp_path / "out.parquet"
    out.write_text("precious")
    with pytest.raises(DataError, match="exists already"):
        ray_job.run_on_ray(elmo, [], out, describe(elmo))
    assert out.read_text() == "precious"
    ray_job.run_on_ray(elmo, [], out, describe(elmo), overwrite=True)
    assert parquet.read_table(out).num_rows == 0


def test_fewer_than_one_worker_is_refused(tmp_path, elmo):
    with pytest.raises(ConfigError, match="at least 1, found 0"):
        ray_job.run_on_ray(elmo, LINES, tmp_path / "out.parquet", describe(elmo), workers=0)
