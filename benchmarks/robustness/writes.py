"""Does a sweep of a script leave the user's files as they were, whatever writes to them and however it ends?

Promise: after a sweep of a script no byte of an earlier file differs, and each new or changed file is named.

One script under torchrun (two ranks, gloo) writes in more than thirty ways (``ways_to_write.py``), each in a folder of
its own with files that existed before, and outside of the current folder. The sweep ends in six ways: with a result,
with an error of pipetune's, with the script's exception, by Ctrl-C, by SIGTERM, and by ``kill -9``, after which
``pipetune report`` opens the run folder. Contents, modes, times and links are compared; the names are those of
``written.json``. Each mechanism of protection that this machine has is tried; as root, the kernel's also in a user
namespace, as another user has it (``--user UID``: needs a Python that this user may start). ``--quick`` ends in two of
the ways.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.robustness.ways_to_write import OTHERS, WAYS, make_files

JOB = Path(__file__).with_name("writing_job.py")
MECHANISMS = ("overlay", "supervised", "guard")
#: How a sweep ends -> what the script does after it has written, and the signal that pipetune gets then.
ENDS: dict[str, tuple[str, signal.Signals | None]] = {
    "result": ("train", None),
    "error": ("end", None),
    "exception": ("raise", None),
    "Ctrl-C": ("train", signal.SIGINT),
    "SIGTERM": ("train", signal.SIGTERM),
    "kill -9": ("train", signal.SIGKILL),
}
LIMIT_S = 240.0
_WRITTEN = "all is written"
#: A way outside of the current folder.
OUTSIDE = "outside"
_LEFT_OUT = ("__pycache__",)

#: Path -> type and mode, time of the last change (ns), and contents, target or nothing.
State = dict[str, tuple[int, int, bytes | str | None]]


@dataclass(slots=True)
class Ending:
    """What came of one sweep."""

    mechanism: str
    end: str
    ways: int = 0
    harmed: tuple[str, ...] = ()
    """Files that differ."""
    unnamed: tuple[str, ...] = ()
    """Files that were made or changed, and not named."""
    problem: str | None = None
    seconds: float = 0.0


def main(options: Namespace) -> bench.Result:
    mechanisms = options.mechanisms.split(",") if options.mechanisms else list(MECHANISMS)
    ends = options.ends.split(",") if options.ends else list(ENDS)
    if options.quick:
        ends = ["exception", "kill -9"]
    endings = []
    for mechanism in mechanisms:
        for end in ends:
            ending = try_end(mechanism, end, options.user)
            endings.append(ending)
            print(describe(ending), flush=True)
    tried = [ending for ending in endings if ending.problem is None or "cannot be protected" not in ending.problem]
    if not tried:
        raise bench.Skipped("no mechanism of protection works on this machine")
    rows = [
        [e.mechanism, e.end, str(e.ways), str(len(e.harmed)), str(len(e.unnamed)), e.problem or ""] for e in endings
    ]
    print(bench.table(["mechanism", "end", "ways", "harmed", "unnamed", "problem"], rows, left=(0, 1, 5)))
    numbers = [
        {"mechanism": e.mechanism, "end": e.end, "ways": e.ways, "harmed": e.harmed, "unnamed": e.unnamed,
         "problem": e.problem, "seconds": round(e.seconds, 1)}
        for e in endings
    ]  # fmt: skip
    holds = not any(ending.harmed or ending.unnamed or ending.problem for ending in tried)
    return bench.Result(holds, {"user": options.user or os.geteuid(), "endings": numbers})


def try_end(mechanism: str, end: str, user: str | None) -> Ending:
    """Run one sweep and compare the files."""
    ending = Ending(mechanism, end)
    root = Path(tempfile.mkdtemp(prefix="writes-"))
    began = time.monotonic()
    try:
        cwd = root / "job"
        for way in (*WAYS, *OTHERS):
            make_files(cwd / "ways" / way)
        make_files(root / OUTSIDE)
        (cwd / "ways" / "open w").joinpath("outside").symlink_to(root / OUTSIDE / "old")
        if user is not None:
            for path in (root, *root.rglob("*")):
                os.chown(path, int(user), int(user), follow_symlinks=False)
        before = read_state(root)
        run(ending, cwd, user)
        compare(ending, before, read_state(root), cwd / "run")
    finally:
        ending.seconds = time.monotonic() - began
        shutil.rmtree(root, ignore_errors=True)
    return ending


def run(ending: Ending, cwd: Path, user: str | None) -> None:
    """The sweep to its end, and the recovery after ``kill -9``."""
    then, number = ENDS[ending.end]
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0",
           "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(JOB), str(cwd / "ways"), then]  # fmt: skip
    words = [sys.executable, "-P", "-m", "pipetune"]
    sweep = [*words, "sweep", "--seconds", "0.3", "--effort", "quick", "--workers", "0", "--blocks", "0",
             "--progress", "none", "--out", "run", "--", *job]  # fmt: skip
    as_user = [] if user is None else ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    environment = {**bench.environment(), "PIPETUNE_PROTECTION": ending.mechanism, "HOME": str(cwd)}
    with open(cwd.parent / "said", "wb") as said:
        process = subprocess.Popen(
            [*as_user, *sweep], cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
        )
        if number is not None:
            wait_for(cwd / "run" / "script.log", process)
            process.send_signal(number)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ending.problem = f"did not end within {LIMIT_S:.0f} s"
    words_said = (cwd.parent / "said").read_text(errors="replace")
    if ending.end == "kill -9":
        again = subprocess.run(
            [*as_user, *words, "report", "run"], cwd=cwd, capture_output=True, text=True, env=environment, check=False
        )
        words_said += again.stdout + again.stderr
    if "cannot be protected" in words_said:
        ending.problem = words_said.strip().splitlines()[-1]
    elif not any(text in words_said for text in ("of yours", "file of yours")):
        ending.problem = ending.problem or f"nothing was said: {words_said.strip()[-300:]!r}"
    (cwd.parent / "said").unlink()
    log = cwd / "run" / "script.log"
    ending.ways = log.read_text(errors="replace").count("wrote: ") if log.exists() else 0


def wait_for(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the script has written."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and _WRITTEN in log.read_text(errors="replace"):
            time.sleep(0.5)
            return
        time.sleep(0.1)


def read_state(root: Path) -> State:
    """Everything below a folder but the run folder."""
    state: State = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if parts[:2] == ("job", "run") or any(part in _LEFT_OUT for part in parts) or parts == ("said",):
            continue
        status = path.lstat()
        content: bytes | str | None = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        # A folder's time changes with new files in it, which are the script's own affair.
        time_ns = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        state[str(path)] = (status.st_mode, time_ns, content)
    return state


def compare(ending: Ending, before: State, after: State, run_folder: Path) -> None:
    """Fill in what differs, and what is not named."""
    ending.harmed = tuple(path for path in before if after.get(path) != before[path])
    try:
        written: dict[str, Any] = json.loads((run_folder / "written.json").read_bytes())
    except OSError:
        ending.problem = ending.problem or "there is no written.json"
        return
    named = {*written["created"], *written["changed"], *written["removed"]}
    new = {path for path in after.keys() - before.keys() if not stat.S_ISDIR(after[path][0])}
    log = (run_folder / "script.log").read_text(errors="replace")
    # Without h5py there is no file for its way.
    touched = {path for way in (*WAYS, *OTHERS) if f"wrote: {way}\n" in log
               for path in map(str, expected(run_folder.parent / "ways" / way, way)) if path in before}  # fmt: skip
    # One name of a file that has several is enough.
    twins = {path.replace("/hard", "/twin") for path in named} | {path.replace("/twin", "/hard") for path in named}
    ending.unnamed = tuple(sorted((new | touched) - named - twins))
    if _WRITTEN not in log:
        ending.problem = ending.problem or f"the script did not write in all ways: {log.strip()[-300:]!r}"


def expected(folder: Path, way: str) -> list[Path]:
    """A file that each way changes or removes."""
    names = {
        "numpy.save": "old.npy", "numpy memmap": "old.npy", "h5py": "old.h5", "SQLite": "old.db",
        "SQLite WAL": "old.db", "zip append": "old.zip", "rmtree": "old_folder/inside",
        "rmtree, made anew": "old_folder/inside", "moved folder": "old_folder/inside", "through hard link": "twin",
    }  # fmt: skip
    return [folder / names.get(way, "old")]


def describe(ending: Ending) -> str:
    """One line."""
    parts = [f"{ending.mechanism}, {ending.end}: {ending.ways} ways, {ending.seconds:.0f} s"]
    parts += [f"harmed: {', '.join(ending.harmed)}"] if ending.harmed else []
    parts += [f"not named: {', '.join(ending.unnamed)}"] if ending.unnamed else []
    return "; ".join([*parts, *([ending.problem] if ending.problem else [])])


if __name__ == "__main__":
    bench.run(
        main, __file__, __doc__,
        mechanisms="only these mechanisms, with commas: overlay,supervised,guard",
        ends=f"only these ends, with commas: {','.join(ENDS)}",
        user="ID of another user who starts the sweep (this one is root)",
    )  # fmt: skip
