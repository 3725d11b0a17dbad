"""Is a pack that is killed again and again the same bytes as one that nobody disturbed?

Promise: a pack killed at ten random moments and resumed has the same bytes as an undisturbed one.

Each format is packed whole, and then again with the process killed (SIGKILL) at random moments and resumed. Beside
that: a disk that becomes full, sources that change while they are packed, and a second pack into the same folder each
have to end in one line, with exit code 1 or 2, and nothing in the folder may look whole that is not. The small disk is
a tmpfs, which needs root; without it that case is left out and said to be.

``--quick`` takes one format and about a minute, the full run about 8.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

FORMATS, QUICK = ("webdataset", "recordio", "folder", "mds", "tfrecord"), ("webdataset",)
KILLS, IMAGES, QUICK_IMAGES = 10, 6000, 2500
#: Of the disk that becomes full: the pack would fit.
SMALL_MB = 256
SETTINGS = ("--shorter-edge", "160", "--shard-size", "1MB", "--verify", "none")


def main(options: Namespace) -> bench.Result:
    rows, cases = [], {}
    with tempfile.TemporaryDirectory(prefix="pipetune-pack-") as scratch:
        folder = Path(scratch)
        source = photographs(folder, QUICK_IMAGES if options.quick else IMAGES)
        for name in QUICK if options.quick else FORMATS:
            found = killed_again_and_again(source, folder, name)
            cases[name] = found
            rows.append([name, str(found["kills"]), str(found["files"]), bench.yes(found["same"])])
        print(bench.table(["format", "kills", "files", "the same bytes"], rows))
        faults = {text: case(source, folder) for text, case in FAULTS.items()}
    for text, reason in faults.items():
        print(f"{text}: {reason or 'as it should'}")
    holds = all(case["same"] and case["kills"] == KILLS for case in cases.values())
    return bench.Result(holds and not any(faults.values()), {"formats": cases, "faults": faults})


def photographs(folder: Path, count: int) -> Path:
    """Class folders with links to synthetic photographs."""
    from pipetune.datasets.index import read_index

    conditions = bench.loader_setting(folder, f"synthetic:caltech256?n={count}", seconds=1.0, rate=1000)
    index = read_index(conditions.workload.index_path)
    source = folder / "source"
    for number, image in enumerate(index.images):
        place = source / f"class{number % 20:02d}" / f"{number:06d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(index.root, image.path))
    return source


def command(source: Path, out: Path, *more: str) -> list[str]:
    """The command that packs."""
    return [sys.executable, "-m", "pipetune", "pack", str(source), str(out), *SETTINGS, *more]


def pack(source: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Pack, and wait."""
    return subprocess.run(
        command(source, out, *more), env=bench.environment(), capture_output=True, text=True, check=False
    )


def killed_again_and_again(source: Path, folder: Path, name: str) -> dict[str, Any]:
    """One format, whole and killed."""
    whole, out = folder / f"{name}-whole", folder / f"{name}-killed"
    done = pack(source, whole, "--format", name)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr}")
    shards = json.loads((whole / "pack.json").read_text())["plan"]["shards"]
    draw = random.Random(name)
    kills = 0
    while kills < KILLS:
        resume = ["--resume"] if (out / "pack.json").exists() else []
        running = subprocess.Popen(
            command(source, out, "--format", name, *resume), env=bench.environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # Each time a little further, and some time after that; the first time before anything is written.
        after = kills * shards // (KILLS + 1)
        while running.poll() is None and written(out) < after:
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 0.4))
        if running.poll() is not None:
            break  # it has ended by itself
        running.send_signal(signal.SIGKILL)
        running.wait()
        kills += 1
    done = pack(source, out, "--format", name, "--resume")
    if done.returncode:
        print(done.stderr)
    undisturbed, resumed = contents(whole), contents(out)
    names = sorted(undisturbed.keys() | resumed.keys())
    different = [file for file in names if undisturbed.get(file) != resumed.get(file)]
    if different:
        print(f"{name}: {len(different)} files differ, are too many or missing: {', '.join(different[:5])}")
    return {"kills": kills, "files": len(undisturbed), "same": not different}


def written(out: Path) -> int:
    """Number of shards that are finished."""
    return len(list((out / ".pipetune-parts").glob("*.jsonl")))


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the one that has times in it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("pack.json", ".pipetune-lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def a_full_disk(source: Path, folder: Path) -> str | None:
    """Why a disk that becomes full does not end as it should; ``None``: it does."""
    place = folder / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        print("a full disk: left out, because a small file system cannot be mounted here")
        return None
    try:
        out = place / "out"
        # Space is there when it begins; another program takes it meanwhile.
        running = subprocess.Popen(command(source, out), env=bench.environment(), stderr=subprocess.PIPE, text=True)
        while running.poll() is None and not list(out.glob("*.tar")):
            time.sleep(0.01)
        if running.poll() is None:
            (place / "other").write_bytes(bytes(SMALL_MB << 20))
        errors = running.communicate()[1]
    except OSError:
        errors = running.communicate()[1]
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)
    return ends_cleanly(running.returncode, errors, "No space left")


def a_changing_source(source: Path, folder: Path) -> str | None:
    """The same of images that change after they were listed."""
    changing = folder / "changing"
    for path in sorted(source.rglob("*.jpg"))[:600]:
        copy = changing / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    out = folder / "of-changing"
    running = subprocess.Popen(
        command(changing, out, "--strict"), env=bench.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    while running.poll() is None and not (out / "pack.json").exists():
        time.sleep(0.005)
    last = sorted(changing.rglob("*.jpg"))
    for path in last:
        path.write_bytes(path.read_bytes() + b"\0")
    running.communicate()
    rejected = (out / "rejected.jsonl").read_text() if (out / "rejected.jsonl").exists() else ""
    if running.returncode != 1 or "was changed" not in rejected:
        return f"exit code {running.returncode}, {rejected.count('was changed')} images said to be changed"
    return None


def two_at_once(source: Path, folder: Path) -> str | None:
    """The same of two packs into one folder."""
    out = folder / "twice"
    first = subprocess.Popen(command(source, out), env=bench.environment(), stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)  # fmt: skip
    while first.poll() is None and not written(out):
        time.sleep(0.002)
    first.send_signal(signal.SIGSTOP)  # or it might have ended before the other one begins
    second = pack(source, out, "--resume")
    first.send_signal(signal.SIGCONT)
    first.wait()
    if first.returncode:
        return f"the first one ended with {first.returncode}"
    return ends_cleanly(second.returncode, second.stderr, "another process")


FAULTS = {
    "a disk that becomes full": a_full_disk, "sources that change": a_changing_source, "two packs at once": two_at_once,
}  # fmt: skip


def ends_cleanly(code: int, errors: str, word: str) -> str | None:
    """Why it is no clean end; ``None``: it is."""
    last = errors.strip().splitlines()[-1] if errors.strip() else ""
    if code in (1, 2) and word in last and "Traceback" not in errors:
        return None
    return f"exit code {code}: {last or os.strerror(0)}"


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
