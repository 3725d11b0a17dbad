"""Limits on what this process and its children may use, by a control group: to measure as on a smaller machine.

Version 1 and 2. A group is made, this process joins it, and leaves it at the end; one that a killed process has left is
removed when the next one is made. Needs the right to write to the groups, which root has.

Sources: cgroups(7); the kernel's admin-guide/cgroup-v1 (blkio-controller, memory) and admin-guide/cgroup-v2 (io.max,
memory.max, "no internal process constraint").
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipetune.machine.cgroup import V2, group_folders

_NAME = "pipetune-limit-"
#: A group whose processes are gone may be kept by requests to the disk that are pending, for so long (s).
_GONE_S, _STEP_S = 10.0, 0.05


class CannotLimitError(Exception):
    """This machine allows no such limit; the text says why."""


@contextlib.contextmanager
def limited_storage(folder: Path, bytes_per_s: float | None, requests_per_s: float | None) -> Iterator[None]:
    """What is started meanwhile reads the disk under a folder no faster.

    Raises:
        CannotLimitError: there is no such right, or no such disk.
    """
    disk = disk_of(folder)
    v1: dict[str, str] = {}
    v2: list[str] = []
    if bytes_per_s is not None:
        # 0 would be no limit.
        v1["blkio.throttle.read_bps_device"] = f"{disk} {max(1, int(bytes_per_s))}"
        v2.append(f"rbps={max(1, int(bytes_per_s))}")
    if requests_per_s is not None:
        v1["blkio.throttle.read_iops_device"] = f"{disk} {max(1, int(requests_per_s))}"
        v2.append(f"riops={max(1, int(requests_per_s))}")
    with _joined("blkio", v1, "io", {"io.max": f"{disk} {' '.join(v2)}"}):
        yield


@contextlib.contextmanager
def limited_memory(most_bytes: int) -> Iterator[None]:
    """What is started meanwhile has so much memory, with the files that it reads.

    Raises:
        CannotLimitError: there is no such right.
    """
    with _joined("memory", {"memory.limit_in_bytes": str(most_bytes)}, "memory", {"memory.max": str(most_bytes)}):
        yield


def disk_of(folder: Path) -> str:
    """``MAJOR:MINOR`` of the disk under a folder, as limits want it: not of one of its partitions.

    Raises:
        CannotLimitError: it is on no disk of its own, e.g. on an overlay or a network file system, or is gone.
    """
    try:
        device = folder.stat().st_dev
        place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        if not place.exists():
            raise CannotLimitError(f"{folder} is on no disk of its own")
        whole = place.resolve().parent if (place / "partition").exists() else place
        return (whole / "dev").read_text().strip()
    except OSError as error:
        raise CannotLimitError(f"{folder}: {error.strerror}") from error


@contextlib.contextmanager
def _joined(v1_name: str, v1: Mapping[str, str], v2_name: str, v2: Mapping[str, str]) -> Iterator[None]:
    levels = group_folders(v1_name)
    if levels:
        parent, settings = levels[0], v1
    else:
        levels = group_folders(V2)
        if levels and levels[0].name.startswith(f"{_NAME}{os.getpid()}-"):
            for name, text in v2.items():  # one group has both limits
                _write(levels[0] / name, text)
            yield
            return
        parent, settings = _parent_of_v2(levels, v2_name), v2
    before = levels[0]
    _remove_left_behind(parent)
    place = parent / f"{_NAME}{os.getpid()}-{v2_name}"
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise CannotLimitError(f"no control group can be made in {parent}: {error.strerror}") from error
    try:
        for name, text in settings.items():
            _write(place / name, text)
        _write(place / "cgroup.procs", str(os.getpid()))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # what is being raised matters more
                (before / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        _remove(place, _GONE_S)


def _parent_of_v2(levels: tuple[Path, ...], controller: str) -> Path:
    """The nearest group whose groups below have this controller: one with processes in it gives it to none.

    Raises:
        CannotLimitError: there is none.
    """
    for level in levels:
        with contextlib.suppress(OSError):
            if controller in (level / "cgroup.subtree_control").read_text().split():
                return level
    raise CannotLimitError(f"this machine has no control groups that limit {controller}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise CannotLimitError(f"{file.name} cannot be set: {error.strerror}") from error


def _remove(place: Path, most_s: float) -> None:
    end = time.monotonic() + most_s
    while True:
        try:
            place.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                return
            time.sleep(_STEP_S)
        else:
            return


def _remove_left_behind(parent: Path) -> None:
    """Groups of processes that were killed."""
    with contextlib.suppress(OSError):
        for place in parent.glob(f"{_NAME}*"):
            pid = place.name.removeprefix(_NAME).partition("-")[0]
            if pid.isdecimal() and not Path("/proc", pid).exists():
                _remove(place, 0.0)
