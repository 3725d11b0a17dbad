"""One candidate at a time in a real child process: what is measured, and every way in which a child can end badly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.datasets.index import write_index
from pipetune.measure import session
from pipetune.measure.harness import Conditions, Live, measure
from pipetune.records.sweep import Failure
from tests.fakes import measurement
from tests.photo_set import PHOTOS, candidate, enlarge, scan, workload

pytest.importorskip("torch", reason="the children measure torch loaders")


@pytest.fixture(scope="module")
def conditions_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Conditions]:
    root = enlarge(tmp_path_factory.mktemp("photos"), copies=10)
    images = scan(root)
    index = str(root / "index.json")
    write_index(index, images)

    def make(rate: str = "100000", timeout_s: float | None = None, **changes: Any) -> Conditions:
        chosen = workload(**{"index_path": index, "accelerator": emulated_spec(rate), "image_size": 64, **changes})
        paths = [image.path for image in images.images]
        return Conditions(workload=chosen, paths=paths, cores=frozenset(os.sched_getaffinity(0)), timeout_s=timeout_s)

    return make


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    assert left == []


def failure_of(conditions: Conditions, backend: str = "opencv", workers: int = 0, on_live: Any = None) -> Failure:
    outcome, _ = measure(
        candidate(backend, workers), "candidate", conditions, **({"on_live": on_live} if on_live else {})
    )
    assert outcome.measurement is None
    assert outcome.failure is not None
    return outcome.failure


def test_the_ceiling_of_an_emulated_accelerator_is_its_rate(conditions_for: Callable[..., Conditions]) -> None:
    outcome, recording = measure(candidate("pillow"), "ceiling", conditions_for(rate="500"))
    assert outcome.measurement is not None
    # On the accelerator's own clock: a machine that is busy delays the process, and the accelerator is idle meanwhile.
    busy_frac = 1 - outcome.measurement.accelerator_idle_frac
    assert outcome.measurement.samples_per_s == pytest.approx(500 * busy_frac, rel=0.05)
    assert outcome.measurement.data_wait_frac < 0.5
    assert recording.hello["versions"]["torch"]
    assert outcome.measurement.warnings == () or all("clean" not in text for text in outcome.measurement.warnings)
    assert recording.speed_after is not None


def test_a_starved_accelerator_and_why(conditions_for: Callable[..., Conditions]) -> None:
    lives: list[Live] = []
    outcome, recording = measure(
        candidate("pillow", 1),
        "candidate",
        # On a busy machine the sampler reads the processes only now and then: a phase of half a second may have no two.
        conditions_for(seconds=3.0),
        ceiling=measurement(samples_per_s=100_000.0, ci95=(99_000.0, 101_000.0)),
        on_live=lives.append,
    )
    m = outcome.measurement
    assert m is not None
    assert m.goodput is not None
    assert m.goodput < 0.2
    assert m.accelerator_idle_frac > 0.8
    assert m.data_wait_frac > 0.8
    assert m.warmup_batches >= 4  # 2 x workers x prefetch
    assert m.cores_used is not None
    assert m.cores_used > 0.3
    assert (m.minor_faults_per_sample or 0) > 0
    assert (m.context_switches_per_sample or 0) > 0
    first = recording.warmup[0]
    assert m.time_to_first_batch_s >= first.data_wait_s
    assert {"page cache", "open", "first_batch", "warmup", "timed", "close"} <= {live.phase for live in lives}
    # Parent and child share one clock: the sampler's readings surround the steps.
    assert recording.readings[0].t_ns < recording.timed[0].t_start_ns < recording.readings[-1].t_ns


@pytest.mark.parametrize(
    ("library", "kind", "expected"),
    [
        ("import os; os.abort()", "crashed", "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("import os; os.fork() or __import__('time').sleep(1000); os._exit(3)", "crashed", "exit code 3"),
    ],
    ids=["abort", "kill", "orphan"],
)
def test_a_backend_that_fails(
    library: str, kind: str, expected: str, tmp_path: Path, conditions_for: Callable[..., Conditions],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "cv2.py").write_text(library)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    failure = failure_of(conditions_for())
    assert failure.kind == kind
    assert expected in failure.message
    assert failure.phase == "open"
    assert failure.hint
    assert len(failure.stderr_tail) < 10_000


def test_a_loader_worker_that_is_killed_and_what_it_leaves_in_shared_memory(
    conditions_for: Callable[..., Conditions],
) -> None:
    left: list[Path] = []

    def kill_it_between_open_and_unlink(live: Live) -> None:
        if live.phase == "warmup" and not left:
            (worker,) = psutil.Process().children()[0].children()
            left.append(Path(f"/dev/shm/torch_{worker.pid}_4711_0"))
            left[0].write_bytes(b"half a batch")
            worker.kill()

    failure = failure_of(conditions_for(seconds=20.0), "pillow", 1, kill_it_between_open_and_unlink)
    # torch notices by its signal handler or by a time-out, whichever comes first, and words it differently.
    assert failure.kind in ("killed", "crashed")
    assert "DataLoader worker" in failure.message
    assert failure.hint
    assert not left[0].exists()


def test_a_loader_that_crashes_while_it_ends_was_measured_all_the_same(
    conditions_for: Callable[..., Conditions],
) -> None:
    def kill_the_child(live: Live) -> None:
        if live.phase == "close":
            for process in psutil.Process().children():
                process.kill()

    outcome, _ = measure(candidate("pillow", 1), "candidate", conditions_for(seconds=2.5), on_live=kill_the_child)
    assert outcome.measurement is not None
    assert any("did not end cleanly" in text for text in outcome.measurement.warnings)


def test_a_training_repository_with_a_module_of_ours_or_pythons_name_does_no_harm(
    conditions_for: Callable[..., Conditions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("statistics", "queue", "PIL", "pipetune"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    outcome, _ = measure(candidate("pillow"), "candidate", conditions_for())
    assert outcome.measurement is not None


def test_a_data_set_that_is_gone_is_a_failure_too(conditions_for: Callable[..., Conditions], tmp_path: Path) -> None:
    conditions = conditions_for()
    gone = Conditions(workload=conditions.workload, paths=[str(tmp_path / "gone.jpg")], cores=conditions.cores)
    failure = failure_of(gone, "pillow")
    assert failure.kind == "dataset_changed"
    assert "gone.jpg" in failure.message


def test_a_cold_run_starts_cold_and_reads_from_the_disk(
    conditions_for: Callable[..., Conditions], tmp_path: Path
) -> None:
    photo = (PHOTOS / "people" / "chelsea.jpg").read_bytes()
    for number in range(300):
        (tmp_path / f"{number}.jpg").write_bytes(photo)
    os.sync()  # dirty pages cannot be dropped
    images = scan(tmp_path)
    index = str(tmp_path / "index.json")
    write_index(index, images)
    conditions = conditions_for(rate="100", cache="cold", seconds=1.2, index_path=index)
    conditions = replace(conditions, paths=[image.path for image in images.images])
    outcome, _ = measure(candidate("pillow", 0, batch_size=2), "candidate", conditions)
    m = outcome.measurement
    assert m is not None
    if m.cache_resident_frac is None or m.cache_resident_frac > 0.02:
        assert m.warnings  # a file system that keeps its pages (tmpfs, overlay): it must say so
    else:
        assert (m.read_bytes_per_sample or 0) > len(photo) / 4


def test_a_cold_run_on_too_few_images_says_so(conditions_for: Callable[..., Conditions]) -> None:
    failure = failure_of(conditions_for(cache="cold"), "pillow")
    assert failure.kind == "too_short"
    assert "more images" in (failure.hint or "")


def test_no_thread_outlives_a_measurement(conditions_for: Callable[..., Conditions]) -> None:
    before = set(threading.enumerate())
    measure(candidate("pillow"), "candidate", conditions_for())
    assert set(threading.enumerate()) == before


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_ctrl_c_while_the_child_is_born_leaves_no_child(
    conditions_for: Callable[..., Conditions], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.subprocess.Popen

    def born_at_a_bad_moment(*args: Any, **kwargs: Any) -> Any:
        process = real(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)  # it is there, but nobody knows it yet
        return process

    monkeypatch.setattr(session.subprocess, "Popen", born_at_a_bad_moment)
    before = descriptors()
    with pytest.raises(KeyboardInterrupt):
        measure(candidate("pillow"), "candidate", conditions_for())
    assert psutil.Process().children() == []
    assert descriptors() == before


def test_a_ctrl_c_while_the_child_is_buried_keeps_its_result_and_leaves_nothing_open(
    conditions_for: Callable[..., Conditions], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.Sampler.stop

    def stopped_at_a_bad_moment(self: Any, *limit_s: float) -> bool:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return real(self, *limit_s)

    monkeypatch.setattr(session.Sampler, "stop", stopped_at_a_bad_moment)
    threads, before = set(threading.enumerate()), descriptors()
    outcome, recording = measure(candidate("pillow"), "candidate", conditions_for())
    assert outcome.measurement is not None
    assert isinstance(recording.stopped, KeyboardInterrupt)
    assert set(threading.enumerate()) == threads
    assert descriptors() == before


def test_a_signal_handler_that_does_not_raise_makes_the_candidate_a_failure(
    conditions_for: Callable[..., Conditions],
) -> None:
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))

    def ask(live: Live) -> None:
        if live.phase == "warmup" and not asked:
            signal.raise_signal(signal.SIGINT)

    try:
        failure = failure_of(conditions_for(seconds=20.0), "pillow", 0, ask)
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == [signal.SIGINT]
    assert failure.kind == "interrupted"


def test_what_others_write_to_the_pipe_is_the_candidates_failure(conditions_for: Callable[..., Conditions]) -> None:
    written: list[int] = []

    def interfere(live: Live) -> None:
        if live.phase != "timed" or written:
            return
        (child,) = psutil.Process().children()
        own = {os.readlink(f"/proc/self/fd/{fd}"): int(fd) for fd in os.listdir("/proc/self/fd") if _is_pipe(fd)}
        theirs = {os.readlink(f"/proc/{child.pid}/fd/{fd}"): fd for fd in map(str, child_pipes(child.pid))}
        wire = min((own[pipe], fd) for pipe, fd in theirs.items() if pipe in own)[1]
        target = os.open(f"/proc/{child.pid}/fd/{wire}", os.O_WRONLY)
        written.append(os.write(target, b"half a mess\n"))
        os.close(target)

    failure = failure_of(conditions_for(seconds=20.0), "pillow", 0, interfere)
    assert written
    assert failure.kind == "error"
    assert failure.message.startswith("what the child sent cannot be read: ")


def _is_pipe(fd: str, pid: int | str = "self") -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}").startswith("pipe:")
    except OSError:  # closed meanwhile
        return False


def child_pipes(pid: int) -> list[int]:
    """Descriptors that are pipes, besides standard input and output."""
    return [int(fd) for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2 and _is_pipe(fd, pid)]
