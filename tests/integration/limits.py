"""Real limits for the commands under test: control groups, mounts, a user without rights."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

_GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cpu_group(cores: float) -> Iterator[Path]:
    """A control group whose processes may use so many cores' worth of time."""
    with _group("cpu") as (group, version):
        if version == 1:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))
        else:
            (group / "cpu.max").write_text(f"{int(cores * 100_000)} 100000")
        yield group


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group whose processes the kernel kills beyond so many bytes."""
    with _group("memory") as (group, version):
        (group / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit_bytes))
        swap = group / ("memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max")
        if swap.exists():
            with contextlib.suppress(OSError):
                swap.write_text(str(limit_bytes if version == 1 else 0))
        yield group


@contextlib.contextmanager
def _group(controller: str) -> Iterator[tuple[Path, int]]:
    version = 1 if (_GROUPS / controller).is_dir() else 2
    group = (_GROUPS / controller if version == 1 else _GROUPS) / f"pipetune-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of our own: {error.strerror}")
    try:
        name = {
            1: {"cpu": "cpu.cfs_quota_us", "memory": "memory.limit_in_bytes"},
            2: {"cpu": "cpu.max", "memory": "memory.max"},
        }
        if not (group / name[version][controller]).exists():
            pytest.skip(f"this control group has no {controller} controller")
        yield group, version
    finally:
        for _ in range(100):  # a process that has just died still counts for a moment
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def inside(command: list[str], group: Path) -> list[str]:
    """The command as a member of the group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]


def with_mount(command: list[str], place: str, options: str) -> list[str]:
    """The command in a mount namespace of its own, with a small file system at ``place``."""
    try:
        subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no mounts of our own: {error}")
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs {place} && exec "$@"', "sh", *command]


def without_privileges(command: list[str]) -> list[str]:
    """The command as somebody who may not read everything: as we are, or as root without that right."""
    if os.geteuid() != 0:
        return command
    rights = "-dac_override,-dac_read_search"
    start = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    try:
        subprocess.run([*start, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root may read everything: {error}")
    return [*start, *command]


def without_a_home(command: list[str], *variables: str) -> list[str]:
    """The command as a user that the system does not know, and without ``HOME``, as in many containers.

    Args:
        variables: of the environment, as ``NAME=value``, besides PATH.
    """
    # The interpreter may lie in a folder of root's.
    rights = "+dac_read_search"
    start = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", f"--inh-caps={rights}"]
    start += [f"--ambient-caps={rights}", "env", "-i"]
    start += [f"PATH={os.environ['PATH']}", f"PYTHONPATH={ROOT}"]
    try:
        subprocess.run([*start, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot become another user: {error}")
    return [*start, *variables, *command]
