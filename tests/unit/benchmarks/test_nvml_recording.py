"""Recordings of NVML: what a file keeps, and what is concluded from one. On clocks of the tests' own."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest

from benchmarks.gpu.nvml_analysis import find_lag
from benchmarks.gpu.nvml_recorder import describe_recording
from benchmarks.gpu.nvml_recording import RecordedBinding, RecordingWriter, pack_recording, read_recording

HANDLE = object()
BEGAN_NS, UNIX_NS = 5 * 10**9, 1_700_000_000 * 10**9


class Machine:
    """A binding whose values follow a load that is on for half a second and off for half a second."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *, lag_s: float = 0.0, period_s: float = 0.1, call_us: int = 50) -> None:
        self.now_ns = BEGAN_NS
        self._lag_ns, self._period_ns = round(1e9 * lag_s), round(1e9 * period_s)
        self._call_us = call_us

    def unix_ns(self) -> int:
        return UNIX_NS + self.now_ns - BEGAN_NS

    def is_on(self, t_ns: int) -> bool:
        return (t_ns - BEGAN_NS) // 500_000_000 % 2 == 0

    def nvmlDeviceGetUtilizationRates(self, _handle: Any) -> Any:
        self.now_ns += 1000 * self._call_us
        updated_ns = (self.now_ns - self._lag_ns) // self._period_ns * self._period_ns
        number = updated_ns // self._period_ns % 5
        return SimpleNamespace(gpu=90 + number if self.is_on(updated_ns) else number, memory=0)

    def nvmlDeviceGetPowerUsage(self, _handle: Any) -> int:
        self.now_ns += 1000 * self._call_us
        if self.now_ns // 10_000_000 % 4 == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return 120_000

    def nvmlDeviceGetSamples(self, _handle: Any, _kind: int, seen_us: int) -> Any:
        self.now_ns += 1000 * self._call_us
        newest_us = UNIX_NS // 1000 + (self.now_ns - BEGAN_NS) // 200_000_000 * 200_000 - 70_000
        if newest_us <= seen_us:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 1, [SimpleNamespace(timeStamp=newest_us, sampleValue=SimpleNamespace(uiVal=50))]


def record(path: Path, machine: Machine, seconds: float) -> None:
    writer = RecordingWriter(path, {"name": "no GPU"}, clock=lambda: machine.now_ns, unix=machine.unix_ns)
    binding = RecordedBinding(machine, writer, lambda: machine.now_ns)
    seen_us = 0
    while machine.now_ns < BEGAN_NS + round(1e9 * seconds):
        binding.nvmlDeviceGetUtilizationRates(HANDLE)
        with contextlib.suppress(pynvml.NVMLError):
            binding.nvmlDeviceGetPowerUsage(HANDLE)
        with contextlib.suppress(pynvml.NVMLError):
            _, samples = binding.nvmlDeviceGetSamples(HANDLE, 0, seen_us)
            seen_us = samples[-1].timeStamp
        machine.now_ns += 5_000_000
    writer.close()


def wave(seconds: int) -> list[tuple[int, bool]]:
    return [(BEGAN_NS + number * 500_000_000, number % 2 == 0) for number in range(2 * seconds)]


@pytest.mark.parametrize(("lag_s", "period_s"), [(0.0, 0.1), (0.3, 0.1), (0.2, 0.25)])
def test_period_and_lag_of_a_value_under_a_square_wave(tmp_path: Path, lag_s: float, period_s: float) -> None:
    path = tmp_path / "recording.txt"
    record(path, Machine(lag_s=lag_s, period_s=period_s), 12.0)

    rates = describe_recording(path, wave(12))["calls"]["nvmlDeviceGetUtilizationRates"]

    value = rates["values"]["gpu"]
    assert value["update_s"] == pytest.approx(period_s, abs=0.006)
    assert value["lag_s"] == pytest.approx(lag_s, abs=0.021)
    assert value["correlation"] > 0.6
    assert (rates["median_us"], rates["p90_us"], rates["median_busy_us"], rates["median_idle_us"]) == (50, 50, 50, 50)
    assert rates["gap_s"] == pytest.approx(0.00515, abs=1e-4)


def test_failures_are_a_share_by_code(tmp_path: Path) -> None:
    path = tmp_path / "recording.txt"
    record(path, Machine(), 4.0)

    described = describe_recording(path)

    power = described["calls"]["nvmlDeviceGetPowerUsage"]
    assert list(power["errors"]) == [str(pynvml.NVML_ERROR_TIMEOUT)]
    assert power["errors"]["10"] == pytest.approx(0.25, abs=0.03)
    assert power["values"]["value"] == {"distinct": 1, "min": 120_000, "max": 120_000, "updates": 0, "update_s": None}
    assert described["seconds"] == pytest.approx(4.0, abs=0.01)
    assert described["clock_drift_us"] == 0


def test_samples_have_a_length_and_an_age(tmp_path: Path) -> None:
    path = tmp_path / "recording.txt"
    record(path, Machine(), 4.0)

    samples = describe_recording(path)["calls"]["nvmlDeviceGetSamples(0)"]

    assert samples["sample_s"] == pytest.approx(0.2)
    assert samples["age_s"] == pytest.approx([0.07, 0.0735, 0.077], abs=0.004)
    assert samples["errors"]["6"] > 0.9


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "recording.txt"
    record(path, Machine(), 1.0)
    whole = read_recording(path)
    cut = tmp_path / "cut.txt"
    cut.write_text(path.read_text()[:-3])
    packed = pack_recording(path)

    assert read_recording(cut).answers == whole.answers[:-1]
    assert read_recording(packed) == whole
    assert not path.exists()


def test_a_packed_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "recording.txt"
    record(path, Machine(), 20.0)
    whole = read_recording(path)
    packed = pack_recording(path)
    packed.write_bytes(packed.read_bytes()[: -packed.stat().st_size // 2])

    answers = read_recording(packed).answers

    assert answers == whole.answers[: len(answers)]


@pytest.mark.parametrize("text", ["", "{}\n", "no JSON\n", '{"format": 99}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no recording of NVML"):
        read_recording(path)


def test_a_lag_of_more_than_a_period_is_found_in_a_wave_of_several_periods() -> None:
    pytest.importorskip("torch", reason="the stages train with torch")
    from benchmarks.gpu.square_wave import PARTS

    edges_us: list[tuple[float, bool]] = []
    begin_us = 0.0
    for busy, idle in itertools.islice(itertools.cycle(PARTS), 9):
        edges_us += [(begin_us, True), (begin_us + 1e6 * busy, False)]
        begin_us += 1e6 * (busy + idle)
    times_us = np.arange(0.0, begin_us, 5e4)
    late_us = times_us - 1.3e6
    states = [next((on for edge_us, on in reversed(edges_us) if edge_us <= t_us), False) for t_us in late_us]

    lag_s, correlation = find_lag(times_us, np.array(states, dtype=float), edges_us, int(begin_us))

    assert lag_s == pytest.approx(1.3, abs=0.06)
    assert correlation is not None
    assert correlation > 0.9
