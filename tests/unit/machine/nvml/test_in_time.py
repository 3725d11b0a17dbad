from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.machine.nvml import in_time as module
from pipetune.machine.nvml.gpu import NvmlUnavailable
from pipetune.machine.nvml.in_time import open_gpu_in_time

#: As good as never, for tests that wait for an event and must not hang.
LONG_S = 30.0


def test_an_open_gpu_and_a_refusal_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_gpu(*, uuid: str) -> Any:
        if uuid == "GPU-1":
            raise NvmlUnavailable("no GPU with UUID GPU-1", reason="no_such_gpu")
        return f"opened {uuid}"

    monkeypatch.setattr(module, "open_gpu", open_gpu)
    assert open_gpu_in_time("GPU-0") == "opened GPU-0"
    with pytest.raises(NvmlUnavailable) as refused:
        open_gpu_in_time("GPU-1")
    assert refused.value.reason == "no_such_gpu"


def test_a_driver_that_hangs_is_given_up_and_a_late_answer_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    leave, closed = threading.Event(), threading.Event()

    def open_gpu(*, uuid: str) -> Any:
        assert leave.wait(LONG_S)
        return SimpleNamespace(close=closed.set)

    monkeypatch.setattr(module, "open_gpu", open_gpu)
    with pytest.raises(NvmlUnavailable, match=r"did not answer within 0.05 s") as gave_up:
        open_gpu_in_time("GPU-0", 0.05)
    assert gave_up.value.reason == "no_answer"
    assert "nvidia-smi" in (gave_up.value.hint or "")
    leave.set()
    assert closed.wait(LONG_S)


def test_where_no_thread_can_be_started_there_are_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NvmlUnavailable, match="can't start new thread"):
        open_gpu_in_time("GPU-0")
