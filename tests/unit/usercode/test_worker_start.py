from __future__ import annotations

import os
import pickle
import sys
from types import SimpleNamespace

import pytest

from pipetune.usercode.worker_start import WorkerStart, worker_start


def own(worker: int) -> str:
    return f"worker {worker}"


@pytest.mark.parametrize("settings", [{}, {"num_workers": 4}, {"worker_cores": "inherited"}, {"opencv_threads": None}])
def test_without_a_setting_for_it_workers_start_as_the_script_has_it(settings: dict[str, object]) -> None:
    assert worker_start(own, settings, (0, 1)) is own
    assert worker_start(None, settings, (0, 1)) is None


def test_cores_that_are_not_known_are_inherited() -> None:
    assert worker_start(own, {"worker_cores": "all"}, None) is own


def test_a_worker_gets_cores_and_threads_and_then_the_scripts_own_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: asked.append((pid, cores)))
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setNumThreads=asked.append))  # type: ignore[arg-type]
    start = worker_start(own, {"worker_cores": "all", "opencv_threads": 0}, (0, 3))
    assert start(5) == "worker 5"
    assert asked == [(0, (0, 3)), 0]


def test_cores_that_are_refused_and_an_opencv_that_is_not_there_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, cores: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    assert WorkerStart(None, (0,), 1)(5) is None


def test_it_is_pickled_to_workers_that_are_not_forked() -> None:
    start = pickle.loads(pickle.dumps(worker_start(own, {"worker_cores": "all"}, (0,))))
    assert (start.then, start.cores, start.opencv_threads) == (own, (0,), None)
