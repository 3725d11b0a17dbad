"""Starts of a script, each with what it will say, for :class:`pipetune.measure.script.bench.ScriptBench`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.measure.conditions import Conditions
from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.script import bench, follow
from pipetune.measure.script.bench import ScriptBench
from pipetune.records.sweep import AcceleratorSpec, Candidate, Outcome
from tests.photo_set import workload
from tests.unit.measure.script.fake_session import FakeSession

OWN = Candidate(backend="script", num_workers=2, prefetch_depth=2, batch_size=16, loader="user")
OTHER = replace(OWN, num_workers=4)
CONDITIONS = Conditions(
    workload=workload(accelerator=AcceleratorSpec(kind="cpu", name="CPU")), paths=(),
    cores=frozenset(os.sched_getaffinity(0)), speed_before=Speed(1.0, 1.0),
)  # fmt: skip


def answer(steps: int = 80) -> list[dict[str, Any]]:
    """What a script says of one measurement: a step each 50 ms."""
    rows = [[number * 50_000_000, 0.01, None, 0.04, 0.01, (number + 1) * 50_000_000, 16] for number in range(steps)]
    return [
        {"type": "phase", "phase": "first_batch"},
        {"type": "first_batch", "open_s": 0.1, "time_to_first_batch_s": 0.2},
        {"type": "steps", "phase": "warmup", "rows": rows[:10]},
        {"type": "steps", "phase": "timed", "rows": rows[10:]},
        {
            "type": "result", "warmup_batches": 10, "steady": True, "window_batches": 6, "ended_early": False,
            "stop_at": steps, "changed_in_place": False, "psnr_db": None,
        },
        {"type": "resting"},
    ]  # fmt: skip


class NoSampler:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.readings: list[Any] = []

    def start(self) -> None:
        """Nothing is read."""

    def stop(self) -> bool:
        return True


class Scripts:
    """Starts of the script, each with what it will say."""

    def __init__(self) -> None:
        self.recognised = True
        """A start finds the loader that a profile is for."""
        self.next: list[FakeSession] = []
        self.started: list[tuple[FakeSession, dict[str, str], Any]] = []

    def will_say(self, *script: dict[str, Any] | str, **attributes: Any) -> FakeSession:
        session = FakeSession(*script, **attributes)
        session.add()
        self.next.append(session)
        return session

    def open(
        self, command: Any, variables: dict[str, str], log: Path, profile: Any, stop: Any, **_: Any
    ) -> FakeSession:
        session = self.next.pop(0)
        session.is_asked_to_stop = stop
        self.started.append((session, dict(variables), profile))
        for tuned in (profile or {}).get("loaders", ()):
            session.ready[0].ready["measures"] = "measure" in profile  # type: ignore[index]
            if self.recognised:
                session.ready[0].ready["settings"] = tuned["settings"]  # type: ignore[index]
        return session


def install_scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Let a bench start these scripts, and read nothing of the machine."""
    scripts = Scripts()
    monkeypatch.setattr(bench, "ScriptSession", scripts.open)
    monkeypatch.setattr(follow, "Sampler", NoSampler)
    monkeypatch.setattr(follow, "settle", lambda pid: None)
    monkeypatch.setattr(follow, "tree_pss", lambda pid: 2**28)
    monkeypatch.setattr(follow, "present_speed", lambda: Speed(1.0, 1.0))
    return scripts


def begun(tmp_path: Path) -> ScriptBench:
    script_bench = ScriptBench(["python", "train.py"], tmp_path / "log")
    script_bench.begin()
    script_bench.settle_on(OWN)
    return script_bench


def measure(script_bench: ScriptBench, candidate: Candidate, role: str = "candidate", **changes: Any) -> Outcome:
    outcome, recording = script_bench.measure(candidate, role, replace(CONDITIONS, **changes))
    assert isinstance(recording, Recording)
    return outcome
