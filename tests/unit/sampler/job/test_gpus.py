"""The GPUs of ranks: NVML and the GPUs are stand-ins, /proc is a folder of plain files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.machine.nvml.visible import GpuUse
from pipetune.sampler.job import gpus
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
        self.opened: list[int | None] = []
        monkeypatch.setattr(gpus, "list_gpu_uses", lambda: uses)
        monkeypatch.setattr(gpus, "open_gpu", self._open)
        self.gpus = RankGpus(forced=None, note=self.notes.append, proc=job.path)

    def _open(self, *, index: int | None = None, uuid: str | None = None) -> Any:
        self.opened.append(index)
        return SimpleNamespace(name=f"GPU {index}", close=lambda: None)


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
