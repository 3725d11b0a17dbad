from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipetune.measure.recording import Recording
from pipetune.processes.signals import DeferredSignals
from pipetune.records.sweep import Candidate, Outcome
from pipetune.sweeping import run
from pipetune.sweeping.observer import SweepObserver
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.run import Ended, exit_code, start
from tests.fakes import outcome as made_up
from tests.photo_set import enlarge


@pytest.mark.parametrize(
    ("stopped", "status", "code"),
    [
        (0, "target_met", 0),
        (0, "target_missed", 0),
        (0, "failed", 1),  # all that was measured takes more memory than is granted
        (1, "failed", 1),
        (130, "interrupted", 130),
    ],
)
def test_a_sweep_that_recommends_nothing_has_failed(stopped: int, status: str, code: int) -> None:
    result: Any = SimpleNamespace(status=status)

    assert exit_code(Ended(outcomes=[], exit_code=stopped), cast(SweepResult, result), DeferredSignals()) == code


class Servers:
    """In place of fork servers: nothing is started."""

    pids = ()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, *_: object) -> None:
        pass

    def settle(self, *_: object) -> None:
        pass


class StoppedAtTheEnd(SweepObserver):
    """The user stops the sweep when all is measured, and nothing is written yet."""

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            signal.raise_signal(signal.SIGINT)


def test_a_signal_after_the_last_measurement_does_not_lose_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(candidate: Candidate, role: str, *_: object, **__: object) -> tuple[Outcome, Recording]:
        return replace(made_up(role=role), candidate=candidate), Recording()

    monkeypatch.setattr(run, "ForkServers", Servers)
    chosen = SweepOptions(
        dataset=str(enlarge(tmp_path / "photos", copies=20)), device="emulated:1000", backends=("pillow",),
        workers=(0,), prefetch=(2,), blocks=0,
    )  # fmt: skip
    ended = start(chosen, tmp_path / "run", StoppedAtTheEnd(), measure=measure)
    assert (ended.stopped, ended.exit_code) == (None, 130)
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    assert stored["recommended"]["candidate"]["backend"] == "pillow"
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C does again what it did before
        signal.raise_signal(signal.SIGINT)
