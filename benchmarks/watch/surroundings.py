"""What ``watch_verdicts.py`` puts around a job: process groups, control groups, and a measure of foreign CPU time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.watch.jobs import CPU_LIMIT, DALI, DISK_LIMIT
from benchmarks.watch.sources import DISK_BYTES_PER_S
from pipetune.machine.proc import TICK_S, read_once, tree_pids
from pipetune.registry import BACKENDS, installed_version

#: CPU cores' worth of time for a job under quota.
QUOTA_CORES = 0.5
_GROUPS = Path("/sys/fs/cgroup")
_SHARED = re.compile(r" (\d+) +/dev/shm/")
_PR_SET_CHILD_SUBREAPER = 36


class Unfit(Exception):
    """This machine cannot run the job; the text says why."""


def adopt_orphans() -> None:
    """Make descendants that lose their parent children of this process, so that they can be waited for."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def started(command: list[str], folder: Path, groups: Sequence[Path]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process group inside the control groups; all of it is ended by force."""
    for group in groups:
        command = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
    with (folder / "errors").open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it, wait for them, and remove what they had in shared memory."""
    # Stopped first, so that what they have in shared memory is all there is. Torch's ranks have groups of their own.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    pids = tree_pids(process.pid) if process.poll() is None else []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    shared = {path for pid in pids for path in shared_files(pid)}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    for pid in (*pids, -process.pid):
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(pid, 0)
    for path in shared:
        path.unlink(missing_ok=True)


def shared_files(pid: int) -> list[Path]:
    """Entries of /dev/shm that a process has mapped, or that torch named after it."""
    # By inode: a semaphore is mapped under another name than it is given at last.
    mapped = {int(number) for number in _SHARED.findall(read_whole(f"/proc/{pid}/maps"))}
    found = []
    for path in Path("/dev/shm").iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_ino in mapped or path.name.startswith(f"torch_{pid}_"):
                found.append(path)
    return found


def read_whole(path: str) -> str:
    """The text of a file; empty where it is unavailable."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


class Neighbours:
    """CPU time of all processes but this one and its descendants, from when it is made."""

    def __init__(self) -> None:
        self._before = self._now()

    def cores(self) -> float:
        """Cores in use, on average since then."""
        at_s, busy_s, own_s = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return max(0.0, busy_s - own_s) / max(at_s, 1e-3)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        user, nice, system, _, _, irq, soft, steal = map(int, (read_once("/proc/stat") or b"").split(None, 9)[1:9])
        own = 0
        for pid in tree_pids(os.getpid()):
            # With the children that were waited for: workers that ended meanwhile.
            stat = (read_once(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
            own += sum(map(int, stat[11:15]))
        return time.monotonic(), (user + nice + system + irq + soft + steal) * TICK_S, own * TICK_S


@contextlib.contextmanager
def limits(needs: str | None, folder: Path) -> Iterator[tuple[Path, ...]]:
    """Make the control groups that a job needs.

    Raises:
        Unfit: this machine allows none, or something else that it needs is missing.
    """
    if needs == DALI and not installed_version(BACKENDS["dali"]):
        raise Unfit("DALI is not installed")
    if needs == CPU_LIMIT:
        quota = str(int(100_000 * QUOTA_CORES))
        with group("cpu", {"cpu.cfs_quota_us": quota}, {"cpu.max": f"{quota} 100000"}) as made:
            yield (made,)
    elif needs == DISK_LIMIT:
        disk, limit = disk_of(folder), DISK_BYTES_PER_S
        v1, v2 = {"blkio.throttle.read_bps_device": f"{disk} {limit}"}, {"io.max": f"{disk} rbps={limit}"}
        with group("blkio", v1, v2) as made:
            yield (made,)
    else:
        yield ()


def join(group: Path, pids: Iterable[int]) -> None:
    """Put running processes into a control group."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


@contextlib.contextmanager
def group(controller: str, v1: Mapping[str, str], v2: Mapping[str, str]) -> Iterator[Path]:
    """Make a control group with these settings (file -> text), in version 1 where the machine has it."""
    old = (_GROUPS / controller).is_dir()
    place = (_GROUPS / controller if old else _GROUPS) / f"pipetune-watch-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        raise Unfit(f"no control group can be made: {error.strerror}") from error
    try:
        for name, text in (v1 if old else v2).items():
            try:
                (place / name).write_text(text)
            except OSError as error:
                raise Unfit(f"this control group has no {name}: {error.strerror}") from error
        yield place
    finally:
        for _ in range(200):  # a dead process's requests to the disk are still pending
            with contextlib.suppress(OSError):
                place.rmdir()
                break
            time.sleep(0.05)


def disk_of(folder: Path) -> str:
    """``MAJOR:MINOR`` of the disk under a folder, as limits want it: not of one of its partitions.

    Raises:
        Unfit: it is on no disk of its own.
    """
    device = folder.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not place.exists():
        raise Unfit(f"{folder} is on no disk of its own")
    whole = place.resolve().parent if (place / "partition").exists() else place
    return (whole / "dev").read_text().strip()
