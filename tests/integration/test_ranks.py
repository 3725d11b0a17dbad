"""Several ranks at once in real processes: what is measured, and every way in which one of them can end badly."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.child import ranks as child_ranks
from pipetune.datasets.index import write_index
from pipetune.measure.fork_servers import ForkServers, modules_for
from pipetune.measure.harness import Conditions, Live, measure
from pipetune.records.sweep import AcceleratorSpec, Failure, Measurement
from tests.integration.commands import Done, outcomes_in, python, run, start, wait_until
from tests.photo_set import candidate, enlarge, scan, workload

pytest.importorskip("torch", reason="the children measure torch loaders")

RANKS = 3


def pipetune(*words: object, cwd: Path) -> Done:
    return run([*python(), *map(str, words)], cwd=cwd)


@pytest.fixture(scope="module")
def conditions(tmp_path_factory: pytest.TempPathFactory) -> Conditions:
    root = enlarge(tmp_path_factory.mktemp("photos"), copies=10)
    images = scan(root)
    index = str(root / "index.json")
    write_index(index, images)
    chosen = workload(index_path=index, accelerator=emulated_spec("400"), image_size=32, ranks=RANKS)
    return Conditions(
        workload=chosen, paths=[image.path for image in images.images], cores=frozenset(os.sched_getaffinity(0))
    )


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    assert left == []


def measured(conditions: Conditions, role: str = "candidate", workers: int = 1, **more: object) -> Measurement:
    outcome, _ = measure(candidate("opencv", workers), role, conditions, **more)  # type: ignore[arg-type]
    assert outcome.failure is None
    assert outcome.measurement is not None
    return outcome.measurement


def at_once(act: Callable[[psutil.Process], None], rank: int) -> Callable[[Live], None]:
    """Once, as soon as the timed phase begins, to the process of a rank."""
    done: list[int] = []

    def on_live(live: Live) -> None:
        if live.phase == "timed" and not done:
            (leader,) = psutil.Process().children()
            children = sorted(leader.children(), key=lambda child: child.pid)  # forked one after the other
            done.append(children[rank].pid)
            act(children[rank])

    return on_live


def failure_of(conditions: Conditions, on_live: Callable[[Live], None] = lambda live: None) -> Failure:
    outcome, _ = measure(candidate("opencv", 1), "candidate", conditions, on_live=on_live)
    assert outcome.measurement is None
    assert outcome.failure is not None
    return outcome.failure


@pytest.mark.parametrize("sync", ["step", pytest.param("none", marks=pytest.mark.slow)])
def test_ranks_are_measured_together(conditions: Conditions, sync: str) -> None:
    # Long enough for two readings of the cores: they are rare where they cost much, as on a busy machine.
    conditions = replace(conditions, workload=replace(conditions.workload, sync=sync, seconds=4.0))
    ceiling = measured(conditions, "ceiling")
    assert [share.rank for share in ceiling.ranks] == list(range(RANKS))
    assert ceiling.samples_per_s == pytest.approx(400 * RANKS, rel=0.1)
    found = measured(conditions, ceiling=ceiling)
    assert len(found.ranks) == RANKS
    # Their sum is the host's rate (unit tests), but for a stall after the last whole window, as on a busy machine.
    assert all(0 < share.samples_per_s < 1.2 * 400 for share in found.ranks)
    assert 0 < found.samples_per_s < 1.2 * 400 * RANKS
    assert found.goodput == min(share.goodput for share in found.ranks if share.goodput is not None)
    assert found.others_wait_frac is not None
    if sync == "step":  # they have ended the same steps in the same time
        rates = {share.samples_per_s for share in found.ranks}
        assert max(rates) == pytest.approx(min(rates))
    else:
        assert found.others_wait_frac == 0.0
    assert found.cores_used is not None
    assert found.pss_bytes is not None
    assert found.sampler_readings > 0


@pytest.mark.slow
def test_memory_is_that_of_all_ranks_with_shared_pages_counted_once(conditions: Conditions) -> None:
    one = measured(replace(conditions, workload=replace(conditions.workload, ranks=1)))
    several = measured(conditions)
    assert one.pss_bytes is not None
    assert several.pss_bytes is not None
    # The libraries are in memory once, what each rank has decoded and computed is not.
    assert one.pss_bytes < several.pss_bytes < RANKS * one.pss_bytes


@pytest.mark.slow
def test_a_fork_of_a_server_becomes_ranks_as_a_new_process_does(conditions: Conditions) -> None:
    with ForkServers(modules_for("emulated")) as servers:
        outcome, _ = measure(candidate("opencv", 1), "candidate", replace(conditions, servers=servers))
    assert outcome.failure is None
    assert outcome.forked
    assert outcome.measurement is not None
    assert len(outcome.measurement.ranks) == RANKS


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_killed_ends_the_candidate_and_is_named(conditions: Conditions, rank: int) -> None:
    # However late a busy machine tells of the timed phase, it is not over.
    lasting = replace(conditions, workload=replace(conditions.workload, seconds=20.0))
    failure = failure_of(lasting, at_once(lambda process: process.kill(), rank))
    assert failure.kind == "killed"
    assert failure.message.startswith(f"rank {rank}: ")
    assert "SIGKILL" in failure.message


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["step", "none"])
def test_a_rank_that_is_stopped_is_named_when_the_time_is_over(conditions: Conditions, sync: str) -> None:
    limited = replace(
        conditions, timeout_s=child_ranks.STUCK_S + 12.0, workload=replace(conditions.workload, sync=sync, seconds=2.5)
    )
    failure = failure_of(limited, at_once(lambda process: process.send_signal(signal.SIGSTOP), 1))
    assert failure.kind == "hung"
    assert "the others waited for rank 1" in failure.message


@pytest.mark.slow
def test_a_library_that_fails_in_one_rank_is_that_ranks_failure(
    conditions: Conditions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(
        "import os\nif os.environ.get('RANK') == '1': raise RuntimeError('out of tiles')\n"
        "while True: __import__('time').sleep(100)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    failure = failure_of(conditions)
    assert failure.message.startswith("rank 1: ")
    assert "out of tiles" in failure.message


def test_a_rank_that_ends_by_itself_is_a_failure(
    conditions: Conditions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(
        "import os\nif os.environ.get('RANK') == '1': os._exit(0)\nwhile True: __import__('time').sleep(100)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    failure = failure_of(conditions)
    assert failure.message == "rank 1: the child ended with exit code 0 and no result"


@pytest.mark.slow
def test_what_a_rank_wrote_before_it_was_aborted_is_its_reason(
    conditions: Conditions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(
        "import os, sys\nif os.environ.get('RANK') == '2':\n"
        "    sys.stderr.write('  what():  CUDA error: out of memory\\n'); sys.stderr.flush(); os.abort()\n"
        "while True: __import__('time').sleep(100)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    failure = failure_of(conditions)
    assert failure.kind == "out_of_gpu_memory"
    assert failure.message.startswith("rank 2: the child was ended by SIGABRT: ")


@pytest.mark.slow
def test_real_steps_end_together_too(conditions: Conditions) -> None:
    pytest.importorskip("torchvision", reason="it has the model")
    workload_ = replace(
        conditions.workload, accelerator=AcceleratorSpec(kind="cpu", name="CPU"), model="squeezenet1_1",
        precision="fp32", ranks=2, seconds=0.5,
    )  # fmt: skip
    found = measured(replace(conditions, workload=workload_))
    rates = [share.samples_per_s for share in found.ranks]
    assert rates[0] == pytest.approx(rates[1], rel=0.3)
    assert found.others_wait_frac is not None


@pytest.mark.slow
def test_an_epoch_of_a_cold_cache_ends_the_phases_of_all_ranks(conditions: Conditions) -> None:
    cold = replace(conditions, workload=replace(conditions.workload, cache="cold", seconds=30.0))
    outcome, _ = measure(candidate("opencv", 1), "candidate", cold)
    assert outcome.failure is None or outcome.failure.kind == "too_short"
    assert outcome.wall_s < 60


@pytest.mark.slow
def test_a_sweep_with_ranks_that_is_interrupted_leaves_nobody(tmp_path: Path) -> None:
    photos, out = enlarge(tmp_path / "photos", copies=10), tmp_path / "run"
    sweep = start([
        *python(), "sweep", "--dataset", str(photos), "--device", "3x300", "--backends", "pillow,opencv",
        "--image-size", "32", "--batch-size", "8", "--out", str(out), "--progress", "lines",
    ], cwd=tmp_path)  # fmt: skip
    wait_until(lambda: len(outcomes_in(out)) >= 2, seconds=120)
    children = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(signal.SIGINT)
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 130
    assert "INTERRUPTED" in printed
    wait_until(lambda: not any(is_alive(child) for child in children), seconds=20)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_sweep_with_ranks_tells_them_apart(tmp_path: Path) -> None:
    photos, out = enlarge(tmp_path / "photos", copies=10), tmp_path / "run"
    done = pipetune(
        "sweep", "--dataset", photos, "--device", "2x300", "--backends", "pillow,opencv", "--workers", "1,2",
        "--image-size", "32", "--batch-size", "8", "--seconds", "0.5", "--vary", "none", "--bind", "even",
        "--out", out, "--json", tmp_path / "sweep.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert found["workload"]["ranks"] == 2
    assert found["ceiling_samples_per_s"] == pytest.approx(600, rel=0.1)
    assert [share["rank"] for share in found["recommended"]["ranks"]] == [0, 1]
    assert "2 ranks are measured at the same time" in " ".join((done.stdout + done.stderr).split())
    assert "Of 2 ranks the slowest" in " ".join(done.stdout.split())
    assert "Set in each of 2 ranks: " in done.stdout
    assert "pipetune.open_loader(" in done.stdout  # a plain DataLoader would give each rank everything
    page = pipetune("report", out, "--html", tmp_path / "page.html", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert "Ranks of this configuration" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--ranks", "two"), "--ranks 'two' is no number of ranks"),
        (("--ranks", "300"), "--ranks 300 is out of range"),
        (("--device", "300xa100"), "--ranks 300 is out of range"),
        (("--ranks", "4", "--device", "8xa100"), "--device 8xa100 is for 8 ranks, --ranks is 4"),
        (("--ranks", "2", "--device", "cpu", "--sync", "epoch"), "--sync 'epoch' is unknown"),
        (("--ranks", "2", "--bind", "odd"), "--bind 'odd' is unknown"),
        (("--ranks", "30", "--batch-size", "64"), "fewer than a batch of 64 for each of 30 ranks"),
    ],
)
def test_options_that_cannot_be_used_are_named(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    photos = enlarge(tmp_path / "photos", copies=20)
    done = pipetune("sweep", "--dataset", photos, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
