"""A SLURM of two hosts on this machine, from Debian's packages ``slurm-wlm`` and ``munge``, which tests start and stop.

Two ``slurmd`` on ports of their own are two hosts. Everything lies in one folder; nothing stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Programs that it takes.
_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "sinfo", "scontrol", "squeue", "scancel")
_START_S, _STOP_S = 20.0, 10.0


def why_not() -> str | None:
    """Why there can be none here; ``None``: there can."""
    missing = [name for name in _PROGRAMS if _which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: slurm-wlm munge)"
    if os.getuid() != 0:
        return "slurmd is started by root"
    return None


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command of SLURM, or one that uses it."""
        return subprocess.run(
            words, env=self.environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=60
        )

    def states(self, job: str) -> dict[str, str]:
        """Element of an array -> its state, ended ones included as long as the controller remembers them."""
        said = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        found = {}
        for line in said.splitlines():
            values = dict(word.partition("=")[::2] for word in line.split())
            found[values.get("ArrayTaskId", values.get("JobId", ""))] = values.get("JobState", "")
        return found

    def wait_until_ended(self, *jobs: str, seconds: float = 300.0) -> None:
        """Wait until none of the jobs is queued or runs."""
        until = time.monotonic() + seconds
        while True:
            found = self.run("squeue", "--noheader", "--jobs", ",".join(jobs))
            if not found.stdout.strip() and (found.returncode == 0 or "Invalid job id" in found.stderr):
                return
            assert time.monotonic() < until, self.run("squeue").stdout + self.log()
            time.sleep(0.3)

    def log(self) -> str:
        """The last lines of all logs."""
        texts = (f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.log"))
        return "\n".join(texts)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start the cluster in a folder; stop it at the end."""
    ports = _free_ports(3)
    host = socket.gethostname()
    for name in ("state", "spool1", "spool2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    munge = folder / "munge.socket"
    conf = folder / "slurm.conf"
    conf.write_text(f"""ClusterName=pipetune
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
MinJobAge=3600
SchedulerParameters=sched_interval=1,bf_interval=1
JobRequeue=1
GresTypes=gpu
NodeName=1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=2000 Gres=gpu:a100:8 Feature=a100
NodeName=2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=2000 Gres=gpu:a100:8 Feature=a100
PartitionName=main Nodes=1,2 Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=1 MaxTime=30 State=UP
""")
    for number in range(8):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu Type=a100 File={folder}/gpu[0-7]\n")
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        log = (folder / f"{Path(words[0]).name}-{len(processes)}.log").open("wb")
        processes.append(
            subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder)
        )
        log.close()

    cluster = Slurm(folder, environment)
    try:
        places = [f"--key-file={key}", f"--socket={munge}", f"--log-file={folder}/munged.log"]
        places += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed"]
        start("munged", "--foreground", "--force", "--num-threads=2", *places)
        _wait(munge.exists, cluster)
        start("slurmctld", "-D", "-i", "-f", str(conf))
        for number in (1, 2):
            start("slurmd", "-D", "-N", str(number), "-f", str(conf))
        _wait(
            lambda: cluster.run("sinfo", "--noheader", "--states=idle", "--format=%D").stdout.split()[:1] == ["2"],
            cluster,
        )
        yield cluster
    finally:
        if len(processes) > 1:
            cluster.run("scancel", "--user=root")
            with contextlib.suppress(AssertionError):
                _wait(lambda: not cluster.run("squeue", "--noheader").stdout.strip(), cluster)
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def _wait(ready: Callable[[], bool], cluster: Slurm) -> None:
    until = time.monotonic() + _START_S
    while not ready():
        assert time.monotonic() < until, cluster.log()
        time.sleep(0.1)
