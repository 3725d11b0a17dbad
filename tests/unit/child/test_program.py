"""The child's program, run in this process: what it sends, phase by phase."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the child's loaders give tensors")

from pipetune.child import program
from pipetune.datasets.index import write_index
from pipetune.measure import wire
from pipetune.records.sweep import AcceleratorSpec, Candidate
from pipetune.registry import default_backend
from tests import ROOT
from tests.photo_set import PHOTOS, candidate, scan, workload

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setattr(program, "die_with_parent", lambda pid: None)

    def run_child(chosen: Candidate, role: str = "candidate", index: str | None = None) -> tuple[int, list[Any]]:
        path = tmp_path / "index.json"
        write_index(str(path), scan(PHOTOS))
        asked = workload(
            index_path=index or str(path), image_size=16, seconds=0.1, warmup_limit_s=0.2
        )  # fmt: skip
        read_fd, write_fd = os.pipe()
        monkeypatch.setenv(wire.FD_VARIABLE, str(write_fd))
        monkeypatch.setattr(sys, "argv", ["child", str(os.getpid())])
        asked_ns = time.monotonic_ns()
        line = wire.encode_request(wire.Request(candidate=chosen, workload=asked, role=role, asked_ns=asked_ns))
        request = io.BytesIO(line)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=request))
        read: list[bytes] = []
        with os.fdopen(read_fd, "rb") as pipe:
            reader = threading.Thread(target=lambda: read.extend(pipe))
            reader.start()
            status = program.main()
            os.close(write_fd)
            reader.join(10)
        return status, [wire.decode_message(line) for line in read]

    return run_child


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    """Type of each message, or its phase; bundles of steps left out."""
    return [message.get("phase", "") or message["type"] for message in messages if message["type"] != "steps"]


def test_a_candidate_is_reported_phase_by_phase(run: Run) -> None:
    status, messages = run(candidate(default_backend(), 0, batch_size=4))
    assert status == 0
    assert kinds(messages) == [
        "open", "hello", "first_batch", "first_batch", "warmup", "timed", "result", "close", "closed",
    ]  # fmt: skip
    by_kind = {message["type"]: message for message in messages}
    assert by_kind["hello"]["pid"] == os.getpid()
    assert by_kind["hello"]["versions"]["torch"]
    stages = by_kind["hello"]["set_up"]
    assert stages["start_s"] >= 0
    assert stages["import_s"] > 0
    assert {stages[name] for name in ("context_s", "model_s", "warm_up_s")} == {None}, "an emulated device has none"
    assert by_kind["first_batch"]["time_to_first_batch_s"] >= by_kind["first_batch"]["open_s"] >= 0
    result = by_kind["result"]
    assert result["warmup_batches"] >= 2
    assert len(result["speed_before"]) == len(by_kind["closed"]["speed_after"]) == 2
    assert result["pss_bytes"] > 0


#: A new process whose device tells what was there before it was asked.
NEW_PROCESS = """
import sys
from pipetune.accelerator import open_accelerator as opening
from pipetune.child import program

def tell(workload, *rest, end_stage, **options):
    raise RuntimeError(" ".join(name for name in ("torch", "torchvision") if name in sys.modules))

opening.open_accelerator = tell
sys.exit(program.measure_request())
"""


@pytest.mark.parametrize(("kind", "imported"), [("emulated", "torch"), ("cpu", "torch torchvision")])
def test_a_new_process_has_imported_what_a_fork_has_before_it_asks_the_device(
    kind: str, imported: str, tmp_path: Path
) -> None:
    """Otherwise the context's seconds would have the imports in them, and the budget would count them for a fork."""
    path = tmp_path / "index.json"
    write_index(str(path), scan(PHOTOS))
    spec = workload().accelerator if kind == "emulated" else AcceleratorSpec(kind="cpu", name="CPU")
    request = wire.Request(candidate=candidate(default_backend(), 0), workload=workload(
        index_path=str(path), accelerator=spec), role="candidate")  # fmt: skip
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as pipe:
        subprocess.run(
            [sys.executable, "-c", NEW_PROCESS], input=wire.encode_request(request), pass_fds=(write_fd,), cwd=ROOT,
            env={**os.environ, wire.FD_VARIABLE: str(write_fd)}, check=False,
        )  # fmt: skip
        os.close(write_fd)
        messages = [wire.decode_message(line) for line in pipe]
    (failure,) = [message["failure"] for message in messages if message["type"] == "failure"]
    assert failure["message"].endswith(f": {imported}")


def test_all_steps_are_sent_with_their_phase(run: Run) -> None:
    _, messages = run(candidate(default_backend(), 0, batch_size=4))
    bundles = [message for message in messages if message["type"] == "steps"]
    rows = {phase: [row for one in bundles if one["phase"] == phase for row in one["rows"]]
            for phase in ("first_batch", "warmup", "timed")}  # fmt: skip
    warmup = wire.rows_to_steps(rows["first_batch"] + rows["warmup"])
    timed = wire.rows_to_steps(rows["timed"])
    (result,) = (message for message in messages if message["type"] == "result")
    assert len(warmup) == result["warmup_batches"]
    assert len(timed) >= 3 * result["window_batches"] > 0
    assert all(step.samples == 4 for step in (*warmup, *timed))
    ends = [step.t_end_ns for step in (*warmup, *timed)]
    assert ends == sorted(ends)


def test_the_ceiling_replays_batches(run: Run) -> None:
    status, messages = run(candidate(default_backend(), 0, batch_size=4), role="ceiling")
    assert status == 0
    steps = [step for one in messages if one["type"] == "steps" for step in wire.rows_to_steps(one["rows"])]
    assert sum(step.data_wait_s for step in steps) < 0.2 * sum(step.compute_s for step in steps)


def test_every_image_is_tried(run: Run) -> None:
    status, messages = run(candidate(default_backend(), 0), role=wire.CHECK)
    assert status == 0
    assert kinds(messages) == ["open", "check", "checked", "result", "closed"]
    assert messages[2]["done"] == len(scan(PHOTOS).images)
    assert messages[2]["bad"] == []


def test_whatever_is_raised_is_a_failure_with_its_phase(run: Run) -> None:
    status, messages = run(candidate(default_backend(), 0), index="/nowhere/index.json")
    assert status == 1
    assert kinds(messages) == ["open", "failure"]
    failure = messages[-1]["failure"]
    assert failure["phase"] == "open"
    assert "index.json" in failure["message"]
    assert json.dumps(failure)
