"""Processes that write photo-like JPEGs into class folders, and end with their parent, however it ends.

Why not ``multiprocessing``: its spawned processes run the caller's main script again, so a script that calls pipetune
without ``if __name__ == "__main__"`` would start itself endlessly. A maker is a plain ``python -c`` instead: one line
of JSON in, one line of text out per few images.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipetune.datasets.folder_walk import Progress
from pipetune.datasets.photo_like import PROFILES, forget_noise, make_jpeg
from pipetune.errors import PipetuneError
from pipetune.processes.parent_death import die_with_parent

#: Fewer images are made in this process: a new process takes a second until its first image.
MIN_FOR_PROCESSES = 100
_REPORT_EVERY = 8
_STAGE = "making synthetic images"
_PROGRAM = (
    "import json, sys; request = json.loads(sys.stdin.readline()); sys.path[:] = request['sys_path']; "
    "from pipetune.datasets.photo_makers import run_maker; run_maker(request)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoJob:
    """A folder of images to make."""

    folder: str
    """Folder that exists and is empty."""
    profile: str
    """A name in :data:`pipetune.datasets.photo_like.PROFILES`."""
    seed: int
    count: int
    classes: int
    """Number of classes; image ``i`` has the label ``i % classes``."""


def make_photos(job: PhotoJob, *, workers: int, progress: Progress) -> None:
    """Write all images of a job with ``workers`` processes (a small job in this process).

    The kernel kills the makers when the calling *thread* ends, so call this from a thread that waits.

    Raises:
        OSError: an image could not be written, e.g. because the disk is full.
        PipetuneError: a maker died.
    """
    for label in range(job.classes):
        os.mkdir(_class_folder(job, label))
    progress(_STAGE, 0, job.count)
    if workers <= 1 or job.count < MIN_FOR_PROCESSES:
        try:
            _write_share(job, 0, 1, lambda done: progress(_STAGE, done, job.count))
        finally:
            forget_noise()
    else:
        with contextlib.ExitStack() as stack:
            makers = [stack.enter_context(_maker(job, first, workers)) for first in range(workers)]
            _follow(makers, lambda done: progress(_STAGE, done, job.count))
    progress(_STAGE, job.count, job.count)


def _write_share(job: PhotoJob, first: int, step: int, report: Callable[[int], None]) -> None:
    """Write the images ``first``, ``first + step``, …; ``report`` is called with the number written so far."""
    profile = PROFILES[job.profile]
    for done, number in enumerate(range(first, job.count, step), 1):
        path = os.path.join(_class_folder(job, number % job.classes), f"{number:07d}.jpg")
        with open(path, "wb") as file:
            file.write(make_jpeg(profile, job.seed, number))
        if done % _REPORT_EVERY == 0:
            report(done)


def _class_folder(job: PhotoJob, label: int) -> str:
    """The folder of a class; its number is padded with zeros, so that names sort as labels do."""
    return os.path.join(job.folder, f"class-{label:0{len(str(job.classes - 1))}d}")


@contextlib.contextmanager
def _maker(job: PhotoJob, first: int, step: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes every ``step``-th image; killed at the end of the block if it still runs.

    It has a process group of its own: Ctrl-C reaches the parent alone, which then ends the makers in order.
    """
    request = {
        "sys_path": sys.path,
        "parent": os.getpid(),
        "job": dataclasses.asdict(job),
        "first": first,
        "step": step,
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM],  # not the modules of the current folder
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as process:
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it died at once: its output says why
                    process.stdin.write(json.dumps(request).encode() + b"\n")
            yield process
        finally:
            process.kill()


def run_maker(request: dict[str, Any]) -> None:
    """The main program of a maker: prints ``done N`` lines, and ``error ERRNO TEXT`` where a file cannot be written."""
    die_with_parent(request["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _write_share(PhotoJob(**request["job"]), request["first"], request["step"], lambda done: _say(f"done {done}"))
    except OSError as error:
        _say(f"error {error.errno} {error.strerror}")
        sys.exit(1)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _follow(makers: list[subprocess.Popen[bytes]], report: Callable[[int], None]) -> None:
    """Read the makers' lines until all have ended.

    Raises:
        OSError: an image could not be written.
        PipetuneError: a maker died.
    """
    done = [0] * len(makers)
    last_lines = [""] * len(makers)
    with selectors.DefaultSelector() as selector:
        for place, maker in enumerate(makers):
            if maker.stdout is not None:
                selector.register(maker.stdout, selectors.EVENT_READ, (place, maker.stdout))
        while selector.get_map():
            for key, _ in selector.select():
                place, stream = key.data
                line = stream.readline()
                if not line:
                    selector.unregister(stream)
                    _check_ended(makers[place], last_lines[place])
                    continue
                word, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
                if word == "done":
                    done[place] = int(rest)
                    report(sum(done))
                elif word == "error":
                    number, _, text = rest.partition(" ")
                    raise OSError(int(number), text)
                else:
                    last_lines[place] = f"{word} {rest}".strip() or last_lines[place]


def _check_ended(maker: subprocess.Popen[bytes], last_line: str) -> None:
    code = maker.wait()
    if code < 0:
        raise PipetuneError(
            f"a process that makes synthetic images was ended by {signal.Signals(-code).name}",
            hint="use fewer workers if the memory ran out",
        )
    if code > 0:
        raise PipetuneError(f"a process that makes synthetic images failed with exit code {code}: {last_line}")
