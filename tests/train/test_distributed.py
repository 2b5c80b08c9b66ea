"""Shares of rows, and devices; real processes are in `tests/contracts/test_ranks.py`."""

import contextlib
import weakref

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, ElmoreError
from elmore.train.distributed import (
    SINGLE_PROCESS,
    DistEnv,
    all_reduce_sum,
    gather_rows,
    init_distributed,
    scatter_rows,
)


@given(st.integers(1, 8), st.integers(1, 5))
def test_ranks_share_all_rows_in_order(size, share):
    weights = [DistEnv(rank, size).local_rows(size * share) for rank in range(size)]
    assert [row for rows in weights for row in rows] == list(range(size * share))
    carried = {"state": torch.arange(size * share * 2).reshape(-1, 2)}
    parts = [scatter_rows(DistEnv(rank, size), carried)["state"] for rank in range(size)]
    assert torch.equal(torch.cat(parts), carried["state"])


def test_rows_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(ConfigError, match="32 rows cannot be divided evenly among 3 processes"):
        DistEnv(0, 3).local_rows(32)


def test_a_single_process_has_all_rows():
    values = torch.tensor([1.0, 2.0])
    assert all_reduce_sum(SINGLE_PROCESS, values) is values
    assert gather_rows(SINGLE_PROCESS, {"state": values}) == {"state": values}
    assert SINGLE_PROCESS.is_main
    assert not DistEnv(1, 2).is_main


def test_without_torchrun_there_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with init_distributed("cpu") as (dist_env, device):
        assert dist_env == SINGLE_PROCESS
        assert device == torch.device("cpu")


@pytest.mark.parametrize(("name", "expected"), [("cuda:1", ["begin", "end"]), ("cpu", [])])
def test_a_gpu_is_the_current_device_while_its_process_works_and_a_cpu_asks_for_none(
    monkeypatch, name, expected
):
    """CUDA graphs are captured on the current device, which is the first GPU by default."""
    seen = []

    @contextlib.contextmanager
    def current_device(device):
        assert device == torch.device("cuda:1")
        seen.append("begin")
        yield
        seen.append("end")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device", current_device)
    with init_distributed(name) as (_, device):
        assert device == torch.device(name)
        assert seen == expected[:1]
    assert seen == expected


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("abacus", "unknown device 'abacus'; use auto, cpu or cuda"),
        ("meta", "unknown device 'meta'; use auto, cpu or cuda"),
        ("cpu:3", "unknown device 'cpu:3'; use auto, cpu or cuda"),
        ("cuda:", "unknown device 'cuda:'; use auto, cpu or cuda"),
        ("cuda:one", "unknown device 'cuda:one'; use auto, cpu or cuda"),
        pytest.param(
            "cuda",
            "there is no CUDA GPU; use cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_a_device_that_is_not_there_is_refused(name, found):
    with pytest.raises(ConfigError, match=found), init_distributed(name):
        pass


@pytest.mark.parametrize(
    ("name", "rank", "refused"),
    [
        ("cuda:9", "0", "cuda:9"),
        ("cuda", "2", "cuda:2"),
        ("cuda:1", "0", None),
        ("cuda", "1", None),
    ],
)
def test_a_gpu_beyond_those_that_are_there_is_refused(monkeypatch, name, rank, refused):
    for variable, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", rank)):
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    if refused is None:
        with init_distributed(name) as (_, place):
            assert place == torch.device("cuda", 1)
        return
    result = f"device '{refused}' is not available: there are 2 CUDA GPUs; start no more"
    with pytest.raises(ConfigError, match=result), init_distributed(name):
        pass


def test_objects_of_a_failed_run_are_freed_before_the_process_group(monkeypatch):
    """Held longer, it would tear the group down from within, which can wait for itself forever."""
    held: list[weakref.ref] = []
    left: list[object] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: left.append(held[0]()))

    def talk() -> None:
        talker = torch.nn.Linear(1, 1)
        held.append(weakref.ref(talker))
        raise RuntimeError("Connection closed by peer")

    def training() -> None:
        with init_distributed("cpu"):
            talk()

    with pytest.raises(ElmoreError, match="another process of this training died") as raised:
        training()
    assert raised.value.__cause__ is not None  # who looks for the reason still finds it
    assert left == [None]
