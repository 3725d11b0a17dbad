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


ALL_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1")


def two(*pids_of_second: int, pids_of_first: tuple[int, ...] = ()) -> tuple[GpuUse, ...]:
    return (
        GpuUse(index=0, uuid="GPU-0", name="A100", minor=0, pids=pids_of_first),
        GpuUse(index=1, uuid="GPU-1", name="A100", minor=1, pids=pids_of_second),
    )


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Found, FakeJob]:
    """A job that was started with the watch: NVML has been asked when it used no GPU."""
    job = FakeJob(tmp_path)
    job.job(PID)
    found = Found(monkeypatch, job, two())
    assert found.gpus.of(process(job)) is None
    return found, job


def open_all(job: FakeJob, pid: int = PID) -> None:
    for number, target in enumerate(ALL_FILES):
        job.opens(pid, 3 + number, target)


def read_gpu(found: Found, job: FakeJob, now_s: float) -> int | None:
    found.now_s = now_s
    gpu = found.gpus.of(process(job))
    return None if gpu is None else int(gpu.name.removeprefix("GPU "))


def test_nvml_is_asked_anew_which_of_its_open_gpus_a_job_uses(begun: tuple[Found, FakeJob]) -> None:
    found, job = begun
    open_all(job)
    assert read_gpu(found, job, 3.0) is None, "it has no context yet"
    found.uses = two(PID)
    assert read_gpu(found, job, 6.0) == 1
    assert (found.opened, found.notes) == ([1], [])
    found.uses = two(pids_of_first=(PID,))
    assert read_gpu(found, job, 60.0) == 0, "it may have been in passing"
    found.uses = two(PID)
    assert read_gpu(found, job, 100.0) == 0, "what is known stays"


def test_a_rank_that_is_on_the_first_gpu_for_a_moment_is_read_where_it_trains(begun: tuple[Found, FakeJob]) -> None:
    found, job = begun
    open_all(job)
    found.uses = two(pids_of_first=(PID,))
    assert read_gpu(found, job, 3.0) == 0
    found.uses = two(PID)
    assert read_gpu(found, job, 6.0) == 1
    assert found.notes == [f"process {PID} uses GPU 1, as NVML shows by now: that one is read"]
    assert read_gpu(found, job, 50.0) == 1


def test_where_nvml_never_lists_the_job_one_is_taken_after_a_while_and_asked_for_again(
    begun: tuple[Found, FakeJob],
) -> None:
    found, job = begun
    open_all(job)
    assert [read_gpu(found, job, now_s) for now_s in (3.0, 6.0, 33.0)] == [None] * 3
    assert read_gpu(found, job, 39.0) == 0
    assert "name another one with --gpu N" in found.notes[0]
    found.uses = two(PID)
    assert read_gpu(found, job, 45.0) == 0, "the list is at most 30 s old"
    assert read_gpu(found, job, 70.0) == 1
    assert found.notes[-1] == f"process {PID} uses GPU 1, as NVML shows by now: that one is read"


def test_a_job_that_was_there_before_the_watch_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = FakeJob(tmp_path)
    job.job(PID)
    open_all(job)
    found = Found(monkeypatch, job, two())
    assert read_gpu(found, job, 0.0) == 0
    found.uses = two(PID)
    assert read_gpu(found, job, 3.0) == 1


def test_gpus_of_several_kinds_are_not_complained_of_before_nvml_can_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = FakeJob(tmp_path)
    job.job(PID, environ={"CUDA_VISIBLE_DEVICES": "0"})
    found = Found(monkeypatch, job, MIXED)
    assert read_gpu(found, job, 0.0) is None
    open_all(job)
    assert read_gpu(found, job, 3.0) is None
    assert found.notes == []
    assert read_gpu(found, job, 40.0) is None
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in found.notes[0]


def test_in_wsl_the_only_gpu_is_found_and_of_several_the_user_is_asked(begun: tuple[Found, FakeJob]) -> None:
    found, job = begun
    job.opens(PID, 3, "/dev/dxg")
    assert read_gpu(found, job, 3.0) is None
    assert found.notes == []
    assert read_gpu(found, job, 40.0) is None
    (note,) = found.notes
    assert note.startswith(f"which GPU process {PID} uses is unknown: NVML does not list it")
    assert note.endswith("name it with --gpu N")
    found.uses = one()
    assert read_gpu(found, job, 80.0) == 0
