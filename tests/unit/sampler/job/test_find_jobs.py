"""Real processes: whose they are, what they run and who started them is read by psutil."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipetune.errors import UsageError
from pipetune.sampler.job.find_jobs import list_jobs, named_process
from tests import ROOT
from tests.unit.sampler.job.fake_job import real_job, until

#: A process that adopts orphans, and is another program than the job whose worker is orphaned: then runs ``argv[1:]``.
ADOPTS = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp('sh', ['sh', '-c', sys.argv[1]])"
UNKNOWN_PID = 2**22 - 1


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def test_the_parent_of_loader_workers_is_a_job(tmp_path: Path) -> None:
    with real_job(tmp_path, "fork", 2) as pid:
        found = {guess.pid: guess for guess in list_jobs(())}
        workers = {child.pid for child in psutil.Process(pid).children()}
    assert (found[pid].title, found[pid].why) == ("train.py", "has torch loader workers")
    assert len(workers) == 2
    assert not workers & found.keys()


def test_a_process_that_adopted_an_orphaned_worker_is_no_job(tmp_path: Path) -> None:
    # The job of ``real_job`` without its end: it is killed, and its worker sleeps on.
    name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'pt_data_worker')"
    worker = f"{name}; print('ready', flush=True); time.sleep(60)"
    job = tmp_path / "job.py"
    job.write_text(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}]).wait()")
    with process(sys.executable, "-c", ADOPTS, f"{sys.executable} {job} & read _") as adopter:
        assert adopter.stdout is not None
        assert adopter.stdout.readline() == b"ready\n"
        (trainer,) = psutil.Process(adopter.pid).children()
        (orphan,) = trainer.children()
        try:
            assert trainer.pid in {guess.pid for guess in list_jobs(())}
            trainer.kill()
            until(orphan.ppid, lambda parent: parent == adopter.pid)
            assert orphan.ppid() == adopter.pid
            assert adopter.pid not in {guess.pid for guess in list_jobs(())}
        finally:
            orphan.kill()


def test_a_named_training_process_is_watched_itself(tmp_path: Path) -> None:
    with real_job(tmp_path, "fork", 1) as pid:
        info, remark = named_process(pid)
    assert (info.pid, info.title, remark) == (pid, "train.py", None)


def test_a_loader_worker_leads_to_its_training_process(tmp_path: Path) -> None:
    with real_job(tmp_path, "fork", 1) as pid:
        (worker,) = psutil.Process(pid).children()
        info, remark = named_process(worker.pid)
    assert info.pid == pid
    assert "loader worker" in (remark or "")


def test_a_thread_leads_to_its_process(tmp_path: Path) -> None:
    with real_job(tmp_path, "thread", 1) as pid:
        thread = next(thread.id for thread in psutil.Process(pid).threads() if thread.id != pid)
        info, remark = named_process(thread)
    assert info.pid == pid
    assert "thread" in (remark or "")


def test_a_process_that_cannot_be_watched_is_refused() -> None:
    with process(sys.executable, "-c", "") as ended:
        assert ended.stdout is not None
        ended.stdout.read()  # from now on it waits to be reaped
        until(psutil.Process(ended.pid).status, lambda status: status == psutil.STATUS_ZOMBIE)
        refused = {UNKNOWN_PID: "there is no process", ended.pid: "has ended", threading.get_native_id(): "itself"}
        for pid, reason in refused.items():
            with pytest.raises(UsageError, match=reason):
                named_process(pid)


def test_a_process_of_another_user_is_refused_by_the_user_s_name() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    program = (
        "import os, psutil, sys; from pipetune.sampler.job.find_jobs import list_jobs, named_process;"
        "os.setgid(65534); os.setuid(65534); assert list_jobs(()) == []; named_process(int(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(os.getpid())], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "belongs to root" in done.stderr.splitlines()[-1]
