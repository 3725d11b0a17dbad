"""The GPUs of ranks: NVML and the GPUs are stand-ins, /proc is a folder of plain files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.machine.nvml.visible import GpuUse
from pipetune.sampler.job import gpus
from pipetune.sampler.job.accelerator import Neighbours
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.roles import ProcessInfo, read_info
from tests.unit.sampler.job.fake_job import FakeJob

PID = 4242
MIXED = (
    GpuUse(index=0, uuid="GPU-0", name="RTX 3060", minor=0, pids=()),
    GpuUse(index=1, uuid="GPU-1", name="RTX A6000", minor=1, pids=()),
)


class Found:
    """What a :class:`RankGpus` opened and said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: FakeJob, uses: tuple[GpuUse, ...]) -> None:
        self.notes: list[str] = []
        self.uses = uses
        self.opened: list[int | None] = []
        monkeypatch.setattr(gpus, "list_gpu_uses", lambda: self.uses)
        monkeypatch.setattr(gpus, "open_gpu", self._open)
        self.now_s = 0.0
        self.gpus = RankGpus(forced=None, note=self.notes.append, proc=job.path, clock=lambda: self.now_s)

    def _open(self, *, index: int | None = None, uuid: str | None = None) -> Any:
        self.opened.append(index)
        return SimpleNamespace(name=f"GPU {index}", uuid=f"GPU-{index}", close=lambda: None)


def process(job: FakeJob, pid: int = PID) -> ProcessInfo:
    info = read_info(pid, job.path)
    assert info is not None
    return info


def test_a_gpu_that_cannot_be_told_from_another_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = FakeJob(tmp_path)
    job.job(PID, environ={"CUDA_VISIBLE_DEVICES": "0"})
    job.opens(PID, 3, "/dev/nvidiactl")
    found = Found(monkeypatch, job, MIXED)

    assert found.gpus.of(process(job)) is None
    assert found.opened == []
    (note,) = found.notes
    assert "--gpu N" in note
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note
    assert "1: RTX A6000" in note


def one(*pids: int, **more: Any) -> tuple[GpuUse, ...]:
    return (GpuUse(**{"index": 0, "uuid": "GPU-0", "name": "A100", "minor": 0, "pids": pids, **more}),)


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    """A training process with a worker, and a notebook beside it."""
    made = FakeJob(tmp_path)
    made.job(PID)
    made.opens(PID, 3, "/dev/nvidia0")
    made.job(PID + 1, PID, comm="pt_data_worker")
    made.job(99, command=("/usr/bin/python3", "notebook.py"))
    return made


def neighbours_of(found: Found, job: FakeJob) -> Neighbours | None:
    info = process(job)
    gpu = found.gpus.of(info)
    assert gpu is not None
    return found.gpus.neighbours(info, gpu)


@pytest.mark.parametrize("uses", [one(PID), one(), one(pids=None), one(PID, 99, slices=("MIG-a",))])
def test_a_gpu_of_ones_own(monkeypatch: pytest.MonkeyPatch, job: FakeJob, uses: tuple[GpuUse, ...]) -> None:
    assert neighbours_of(Found(monkeypatch, job, uses), job) is None


def test_who_else_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> None:
    found = Found(monkeypatch, job, one(PID, PID + 1, 99))

    assert neighbours_of(found, job) == Neighbours(frozenset({PID, PID + 1}), {99: "notebook.py (99)"})


def test_ranks_of_the_job_that_share_a_gpu_are_no_strangers(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> None:
    found = Found(monkeypatch, job, one(PID, 99))
    assert neighbours_of(found, job) is not None
    info = process(job)
    gpu = found.gpus.of(info)
    assert gpu is not None
    both = found.gpus.neighbours(info, gpu, [PID, 99])
    assert both == Neighbours(frozenset({PID, 99}), {})


def test_a_neighbour_is_one_before_the_job_itself_is_listed(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> None:
    job.opens(99, 3, "/dev/nvidia0")

    found = neighbours_of(Found(monkeypatch, job, one(99)), job)

    assert found == Neighbours(frozenset({PID}), {99: "notebook.py (99)"})
    assert neighbours_of(Found(monkeypatch, job, one(7001)), job) is None  # a number of the host, perhaps its own


def test_numbers_of_the_host_say_only_that_there_are_several(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> None:
    found = Found(monkeypatch, job, one(7001, 99))

    assert neighbours_of(found, job) == Neighbours(frozenset(), {7001: "process 7001", 99: "process 99"})


def test_a_process_that_comes_later_is_seen_within_half_a_minute(monkeypatch: pytest.MonkeyPatch, job: FakeJob) -> None:
    found = Found(monkeypatch, job, one(PID))
    assert neighbours_of(found, job) is None
    found.uses = one(PID, 99)
    assert neighbours_of(found, job) is None
    found.now_s = 31.0

    assert neighbours_of(found, job) is not None
