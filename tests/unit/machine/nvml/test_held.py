"""GPUs that are held open over a series: opened once, read by one measurement at a time, closed on every way out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipetune.machine.nvml import held as module
from pipetune.machine.nvml.held import HeldGpus
from tests import ROOT, fake_nvml

#: As good as never, for tests that wait for an event and must not hang.
LONG_S = 30.0


class FakeGpu:
    """An open GPU, or one that was renewed."""

    def __init__(self, log: list[str], name: str, parent: FakeGpu | None = None, on_close: Any = None) -> None:
        self.log, self.name, self._on_close = log, name, on_close
        self._root: FakeGpu = self if parent is None else parent._root
        self.is_lost = False

    @property
    def lost(self) -> str | None:
        return "GPU is lost" if self._root.is_lost else None

    def lose(self) -> None:
        self._root.is_lost = True

    def renew(self, on_close: Any) -> FakeGpu:
        return FakeGpu(self.log, self.name, self, on_close)

    def close(self) -> None:
        self._on_close(self)

    def shut_down(self) -> None:
        self.log.append(f"shut down {self.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened and shut down, in its order."""
    entries: list[str] = []

    def open_gpu_in_time(uuid: str | None) -> FakeGpu:
        entries.append(f"open {uuid}")
        return FakeGpu(entries, str(uuid))

    monkeypatch.setattr(module, "open_gpu_in_time", open_gpu_in_time)
    return entries


def opened(gpus: HeldGpus, uuid: str) -> FakeGpu:
    gpu: Any = gpus.open(uuid)
    assert isinstance(gpu, FakeGpu)
    return gpu


def test_a_gpu_is_opened_once_and_shut_down_at_the_end(log: list[str]) -> None:
    with HeldGpus() as gpus:
        for _ in range(3):
            opened(gpus, "GPU-0").close()
        assert log == ["open GPU-0"]
    assert log == ["open GPU-0", "shut down GPU-0"]
    gpus.close()
    assert log == ["open GPU-0", "shut down GPU-0"]


def test_each_rank_has_its_own_and_two_of_one_gpu_have_two(log: list[str]) -> None:
    with HeldGpus() as gpus:
        for _ in range(2):
            ranks = [opened(gpus, uuid) for uuid in ("GPU-0", "GPU-1", "GPU-1")]
            for gpu in ranks:
                gpu.close()
        assert log == ["open GPU-0", "open GPU-1", "open GPU-1"]
    assert sorted(log[3:]) == ["shut down GPU-0", "shut down GPU-1", "shut down GPU-1"]


def test_after_a_loss_all_are_opened_anew(log: list[str]) -> None:
    with HeldGpus() as gpus:
        opened(gpus, "GPU-2").close()
        lost, beside = opened(gpus, "GPU-0"), opened(gpus, "GPU-1")
        lost.lose()
        lost.close()
        assert log[3:] == ["shut down GPU-2", "shut down GPU-0"]
        beside.close()
        assert log[5:] == ["shut down GPU-1"]
        opened(gpus, "GPU-0").close()
        assert log[6:] == ["open GPU-0"]


def test_one_that_is_never_given_back_is_opened_anew_and_closed_when_its_driver_answers(log: list[str]) -> None:
    with HeldGpus() as gpus:
        hanging = opened(gpus, "GPU-0")
        opened(gpus, "GPU-0").close()
        assert log == ["open GPU-0", "open GPU-0"]
    assert log[2:] == ["shut down GPU-0"]
    hanging.close()
    assert log[3:] == ["shut down GPU-0"]


def test_the_end_does_not_wait_for_a_driver_that_hangs(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    leave, ended = threading.Event(), threading.Event()

    def hang(gpu: FakeGpu) -> None:
        assert leave.wait(LONG_S)
        ended.set()

    monkeypatch.setattr(FakeGpu, "shut_down", hang)
    monkeypatch.setattr(module, "call_in_time", lambda call: call_in_time(call, 0.05))
    from pipetune.machine.nvml.in_time import call_in_time

    with HeldGpus() as gpus:
        opened(gpus, "GPU-0").close()
    assert not ended.is_set()
    leave.set()
    assert ended.wait(LONG_S)


#: Two measurements of one held GPU, 20 s apart, on a clock of their own, with three readings each, half a second apart.
TWICE = """
import dataclasses, json, time
from pipetune.machine.nvml import held, in_time
from pipetune.machine.nvml.gpu import open_gpu

now_ns = 10**12
held.open_gpu_in_time = lambda uuid: open_gpu(clock=lambda: now_ns, unix=lambda: now_ns)
answers = []
with held.HeldGpus() as gpus:
    for _ in range(2):
        gpu = gpus.open(None)
        readings = []
        for _ in range(3):
            readings.append(dataclasses.asdict(gpu.read()))
            now_ns += 500_000_000
        gpu.close()
        after = dataclasses.asdict(gpu.read())
        spans = [dataclasses.astuple(span) for span in gpu.busy_spans(0)]
        answers.append({"readings": readings, "after": after, "spans": spans})
        now_ns += 20_000_000_000
print(json.dumps(answers))
"""


def test_what_is_read_of_a_candidate_is_its_own(nvml_library: Path, tmp_path: Path) -> None:
    # Samples 0.1 s apart, which end when the measurement begins; the energy and byte counters grow at every call.
    first = [f"{999_000_000 + 100_000 * n}=80" for n in range(11)]
    later = [f"{1_020_500_000 + 100_000 * n}=20" for n in range(11)]
    scenario = fake_nvml.HEALTHY + f"nvmlDeviceGetSamples {','.join(first)} - - {','.join(first + later)} - -\n"
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=fake_nvml.environment(nvml_library, scenario, folder=tmp_path), cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    one, two = json.loads(done.stdout)
    for answer in (one, two):
        before, *rest = answer["readings"]
        # The first reading has nothing to compare with: what lies between the candidates is in none.
        assert [before[name] for name in ("pcie_rx_bytes", "pcie_tx_bytes", "power_w", "sm_active_pct")] == [None] * 4
        assert [reading["pcie_rx_bytes"] for reading in rest] == [3_000_000, 3_000_000]
        assert [reading["power_w"] for reading in rest] == [100.0, 100.0]
        assert [reading["sm_active_pct"] for reading in rest] == [55.5, 55.5]
        assert set(answer["after"].values()) == {None}
    assert [reading["util_pct"] for reading in one["readings"]] == [80.0] * 3
    assert [reading["util_pct"] for reading in two["readings"]] == [20.0] * 3
    assert [[busy for _, _, busy in answer["spans"]] for answer in (one, two)] == [[0.8], [0.2]]

    calls = fake_nvml.calls(tmp_path)
    assert (calls.count("nvmlInit"), calls.count("nvmlShutdown")) == (1, 1)
    assert calls.count("nvmlGpmSampleAlloc") == calls.count("nvmlGpmSampleFree") == 4
