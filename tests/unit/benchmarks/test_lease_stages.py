"""The parts of the stages that need no device."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import clocks, commands, decode_stage
from benchmarks.gpu.leasing.findings import Findings, write_json
from benchmarks.gpu.probe_memory import fork_writer, read_vm_flags
from benchmarks.gpu.repeat import describe_noise
from benchmarks.gpu.sweep import read_result
from benchmarks.gpu.test_files import read_rows, run_file
from benchmarks.gpu.watch_stage import judge_rates
from benchmarks.gpu.workloads import cpu_relatives, default_candidate, device_candidates, gpu_decoders
from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.errors import PipetuneError
from pipetune.records.sweep import Candidate
from pipetune.registry import BACKENDS


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    write_json(tmp_path / "a.json", {"stage": "a"})
    return Findings(tmp_path / "a.json", "cuda:0", tmp_path, 60)


def test_pictures_with_the_same_error_are_named_together() -> None:
    pytest.importorskip("torch", reason="the stages train with torch")
    from benchmarks.gpu.parity import list_problems

    rows = {"a.jpg": {"error": "E"}, "b.jpg": {"mean": 0.3}, "c.jpg": {"error": "E"}, "d.jpg": {"mean": 0.1}}
    assert list_problems(rows, 0.2) == ["b.jpg: mean difference 0.3", "a.jpg, c.jpg: E"]


SMAPS = """\
7f00-8000 rw-s 00000000 00:01 1037 /dev/zero (deleted)
Size:               4 kB
VmFlags: rd wr sh mr mw me ms dc
8000-9000 rw-p 00000000 00:00 0
VmFlags: rd wr
"""


@pytest.mark.parametrize(("address", "flags"), [(0x7F00, "rd wr sh mr mw me ms dc"), (0x8000, "rd wr"), (0x9000, "")])
def test_flags_of_a_mapping(address: int, flags: str, tmp_path: Path) -> None:
    (tmp_path / "smaps").write_text(SMAPS)
    assert read_vm_flags(address, str(tmp_path / "smaps")) == flags.split()


def test_a_forked_writer() -> None:
    assert fork_writer(lambda: None) == "lives"
    assert fork_writer(lambda: os.kill(os.getpid(), 9)) == "SIGKILL"


def test_candidates_that_differ_on_a_gpu_come_from_the_registry() -> None:
    candidates = device_candidates(BACKENDS["dali"], 4, 128)

    assert candidates[0] == replace(default_candidate(BACKENDS["dali"], 4, 128), decode_region="whole")
    assert [candidate.decode_region for candidate in candidates] == ["whole"] * 3 + ["window"] * 3
    assert len({candidate.key for candidate in candidates}) == len(candidates)
    pairs = {(candidate.decode_region, candidate.hw_decoder_load) for candidate in candidates}
    assert pairs == {(region, load) for region in ("window", "whole") for load in (None, 0.0, 1.0)}
    assert device_candidates(BACKENDS["pillow"], 0, 16) == [default_candidate(BACKENDS["pillow"], 0, 16)]


def test_backends_that_are_measured_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.workloads.installed_version", lambda backend: f"{backend.name} 1.0")
    decoders = [backend.name for backend in BACKENDS.values() if backend.decodes_on_cuda]
    assert [backend.name for backend in gpu_decoders(True)] == decoders
    assert [backend.name for backend in gpu_decoders(False)] == ["dali"]  # it decodes on the CPU as well
    assert [backend.name for backend in cpu_relatives(True)] == ["dali-cpu"]
    assert cpu_relatives(False) == []


class Clock:
    """A clock that only sleeping moves."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Bursts:
    """Four workers that always end together: a batch of 10 samples from each, every 50 ms; two rounds are queued."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._taken = clock, 0

    def __iter__(self) -> Bursts:
        return self

    def __next__(self) -> Any:
        due_s = 0.05 * (self._taken // 4 - 2)
        self._taken += 1
        self._clock.sleep(max(0.0, due_s - self._clock.now_s))
        return SimpleNamespace(images=[0] * 10, labels=[0] * 10)


def test_rates_are_of_whole_rounds_and_without_what_was_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the stages train with torch")
    from benchmarks.gpu import decode_rates

    clock = Clock()
    monkeypatch.setattr(decode_rates, "time", clock)
    stream = Bursts(clock)
    decode_rates.skip(stream, 12)
    assert decode_rates.count_rate(stream, 0.12, lambda: None, 4) == pytest.approx(800)
    device = EmulatedAccelerator(1e6, lambda: round(1e9 * clock.now_s), clock.sleep)
    assert decode_rates.count_steps(stream, device, 0.12, 4) == pytest.approx(800, rel=0.01)


def test_candidates_that_crashed_a_process_are_kept_and_their_backend_comes_last(
    findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("pillow", "dali", "nvjpeg", "dali", "pillow")
    candidates = [replace(default_candidate(BACKENDS[name], 2, 8), num_workers=n) for n, name in enumerate(names, 2)]
    processes: list[list[str]] = []

    def measure(findings: Findings, waiting: list[Candidate], take: Callable[[dict[str, Any]], None]) -> None:
        processes.append([candidate.key for candidate in waiting])
        take({"alone_per_s": 1.0})
        if len(processes) == 1:
            raise commands.ProgramFailed("ended with SIGSEGV")
        while waiting:
            take({"alone_per_s": 1.0})

    monkeypatch.setattr(decode_stage, "list_candidates", lambda is_cuda: list(candidates))
    monkeypatch.setattr(decode_stage, "measure_rates", measure)
    decode_stage.run_stage(findings)

    keys = [candidate.key for candidate in candidates]
    assert processes == [keys, [keys[2], keys[4], keys[3]]]
    assert [row.get("failure") for row in findings.numbers["rates"]] == [None, "ended with SIGSEGV", None, None, None]


def test_noise_between_runs() -> None:
    rows = [{"samples_per_s": rate, "ci95": (rate - 3, rate + 3)} for rate in (100.0, 102.0, 110.0)]
    noise = describe_noise(rows)
    assert noise["runs"] == 3
    assert (noise["pairs"], noise["covered"]) == (6, 2)
    assert noise["relative_stdev"] == pytest.approx(0.0509, abs=1e-4)


def test_a_sweep_that_was_ended_keeps_its_outcomes(tmp_path: Path) -> None:
    candidate = {"backend": "pillow", "num_workers": 2, "prefetch_depth": 4}
    rows: list[dict[str, Any]] = [
        {"candidate": candidate, "role": "baseline", "measurement": {"samples_per_s": 5.0}, "failure": None},
        {"candidate": candidate, "role": "candidate", "measurement": None, "failure": {"kind": "crashed"}},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "outcomes.jsonl").write_text(text + '{"candidate": ')

    measured, failed = read_result(tmp_path / "none.json", tmp_path)["outcomes"]

    assert (measured["key"], measured["samples_per_s"]) == ("pillow-w2-p4", 5.0)
    assert "failure" not in measured
    assert failed["failure"] == {"kind": "crashed"}
    assert read_result(tmp_path / "none.json", tmp_path / "nowhere") == {}


def test_the_test_that_hangs_is_named() -> None:
    rows = [{"name": "a", "status": "started"}, {"name": "a", "status": "passed"}, {"name": "b", "status": "started"}]
    assert read_rows([json.dumps(row) for row in rows]) == ([{"name": "a", "status": "passed"}], "b")
    assert read_rows([]) == ([], None)


TESTS = """
import time
import pytest
pytestmark = pytest.mark.gpu
def test_good(): pass
def test_bad(): assert 1 == 2
def test_without(): pytest.skip("no such package")
def test_hangs(): time.sleep(600)
def test_later(): pass
"""


@pytest.mark.thorough
def test_a_hanging_test_loses_the_rest_of_its_file_only(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu.test_files.MAX_FILE_S", 12.0)
    (tmp_path / "test_x.py").write_text(TESTS)

    run_file(findings, tmp_path / "test_x.py")

    content = json.loads((tmp_path / "a.json").read_text())
    statuses = {row["name"]: row["status"] for row in content["numbers"]["tests"]}
    assert statuses == {"test_good": "passed", "test_bad": "failed", "test_without": "skipped"}
    assert any("assert 1 == 2" in problem for problem in content["problems"])
    assert content["problems"][-1] == "test_x.py: test_hangs was not done after 12 s"
    assert [item["reason"] for item in content["not_proven"]] == ["Skipped: no such package"]


def test_a_programs_lines_are_taken_as_they_come(findings: Findings, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[Any] = []
    code = "print('words'); print('{\"a\": 1}'); print('{broken')"

    assert commands.run_command(findings, [sys.executable, "-c", code], 30, lines.append) == 0
    assert lines == [{"a": 1}]
    assert "words" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("program", "error", "kept"),
    [
        ("import sys; sys.exit(3)", commands.ProgramFailed, "problems"),
        ("import os; os.kill(os.getpid(), 9)", commands.ProgramFailed, "problems"),
        ("import time; time.sleep(60)", commands.NotDone, "not_proven"),
    ],
)
def test_a_program_that_fails_is_a_problem_and_one_that_is_late_is_none(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, error: type[Exception], kept: str
) -> None:
    (tmp_path / "lease_program.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(commands.NotDone) as raised:
        commands.run_program(findings, "lease_program", limit_s=2, on_line=print)
    commands.report(findings, "this", raised.value)

    assert type(raised.value) is error
    content = json.loads((tmp_path / "a.json").read_text())
    assert {"problems", "not_proven"} & set(content) == {kept}


@pytest.mark.parametrize(
    ("watched", "unwatched", "status"),
    [([100.0, 98.0], [101.0], None), ([80.0], [100.0, 104.0], "problems"), ([], [100.0], "not_proven")],
)
def test_a_job_that_watch_slows(
    watched: list[float], unwatched: list[float], status: str | None, findings: Findings, tmp_path: Path
) -> None:
    judge_rates(findings, "fed", watched, unwatched)
    content = json.loads((tmp_path / "a.json").read_text())
    assert {name for name in ("problems", "not_proven") if content.get(name)} == ({status} if status else set())


@pytest.mark.parametrize(
    ("rates", "error", "kept", "unproven"),
    [
        ([100.0, 130.0, 131.0], None, {"samples_per_s": 130.0, "speedup": 1.3}, ""),
        ([], None, {}, "there was no time left after it was compiled"),
        ([], PipetuneError("torch.compile failed: no Python.h", hint="run without"), None, "no Python.h"),
    ],
)
def test_a_compiled_model(
    rates: list[float],
    error: Exception | None,
    kept: dict[str, float] | None,
    unproven: str,
    findings: Findings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_warm(findings: Findings, *, compiled: bool) -> None:
        assert compiled
        if error is not None:
            raise error

    monkeypatch.setattr(clocks, "open_warm", open_warm)
    monkeypatch.setattr(clocks, "train", lambda accelerator, seconds: ({"samples_per_s": rate} for rate in rates))
    clocks.measure_compiled(findings, 100.0)

    content = json.loads((tmp_path / "a.json").read_text())
    compiled = content["numbers"].get("compiled")
    assert (compiled is None) == (kept is None)
    assert {**(compiled or {}), **(kept or {})} == (compiled or {})
    reasons = [item["reason"] for item in content.get("not_proven", [])]
    assert [unproven in reason for reason in reasons] == ([True] if unproven else [])
