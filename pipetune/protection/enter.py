"""Enters the view of a script and becomes the script's command.

Run as a program, with pipetune's Python: ``python -P -E -S enter.py PLAN COMMAND …``; standard library only. ``PLAN``
is a JSON file::

    {"user_namespace": true, "root": null, "options": "userxattr", "cwd": "/home/u/job", "layers":
     [{"kind": "overlay", "path": "/home", "lower": "/home", "stored": "…/0", "recursive": false}, …]}

``stored`` has the folders ``upper`` and ``work``. Descriptors stand for all folders, because overlayfs would take a
comma, a colon or a backslash in a path for the end of an option.

The exit code is 125 where the view cannot be made; a line on standard error says why. With ``--trial`` before the plan,
nothing is started: standard output gets ``{"failed": {"/home": "reason"}}``, the layers that the kernel refuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

CANNOT_ENTER, CANNOT_START = 125, 127
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _SLAVE = 1, 32, 4096, 16384, 1 << 19
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
#: Flags of mount(2) that a remount in a user namespace has to keep, by the bits of statvfs(3).
_KEPT_FLAGS = {
    os.ST_NOSUID: 2,
    os.ST_NODEV: 4,
    os.ST_NOEXEC: 8,
    os.ST_NOATIME: 1024,
    os.ST_NODIRATIME: 2048,
    os.ST_RELATIME: 1 << 21,
}

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Enter the view, and become the command; returns only where that fails, and from a trial."""
    trial = arguments[0] == "--trial"
    path, *command = arguments[1:] if trial else arguments
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    try:
        failed = enter_view(plan, trial=trial)
    except OSError as error:
        sys.stderr.write(f"cannot make the view of the files: {error.strerror or error}\n")
        return CANNOT_ENTER
    if trial:
        sys.stdout.write(json.dumps({"failed": failed}) + "\n")
        return 0
    # The change of credentials has cleared what supervise.py has asked for.
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]!r}: {error.strerror}\n")
        return CANNOT_START


def enter_view(plan: dict[str, Any], *, trial: bool = False) -> dict[str, str]:
    """Make the view in namespaces of this process's own.

    Args:
        trial: go on where a layer is refused.

    Returns:
        Path of a layer that is refused -> why.

    Raises:
        OSError: the kernel refuses the view, or one of its layers.
    """
    _unshare(user=plan["user_namespace"])
    _mount(None, "/", None, _REC | _SLAVE)
    # Everything is opened before a layer covers it, and after the namespace has its own mounts.
    layers = [(layer, _open_folders(layer)) for layer in plan["layers"]]
    root = plan["root"] or ""
    failed: dict[str, str] = {}
    for layer, folders in layers:
        target = root if root and layer["path"] == "/" else root + layer["path"]
        try:
            _put(layer, folders, target, plan["options"])
        except OSError as error:
            if layer["kind"] == "open":  # it has gone meanwhile, or this user may not enter it
                continue
            if not trial:
                raise OSError(error.errno, f"{layer['path']}: {error.strerror}") from None
            failed[layer["path"]] = error.strerror or str(error)
    for _, folders in layers:
        for descriptor in folders.values():
            os.close(descriptor)
    if root:
        _change_root(root)
    os.chdir(plan["cwd"])
    return failed


def _unshare(*, user: bool) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEWNS | (_NEWUSER if user else 0)), "unshare")
    if user:  # each ID stands for itself: the script is who it was
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _open_folders(layer: dict[str, Any]) -> dict[str, int]:
    """Descriptors of a layer's folders, by their names in overlayfs's options; one that cannot be opened is missing."""
    paths = {"lowerdir": layer["lower"]}
    if layer["kind"] in ("overlay", "shadow"):
        paths |= {"upperdir": f"{layer['stored']}/upper", "workdir": f"{layer['stored']}/work"}
    descriptors = {}
    for name, path in paths.items():
        with contextlib.suppress(OSError):
            descriptors[name] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return descriptors


def _put(layer: dict[str, Any], folders: dict[str, int], target: str, options: str) -> None:
    kind = layer["kind"]
    places = {name: f"/proc/self/fd/{descriptor}" for name, descriptor in folders.items()}
    if "lowerdir" not in places:
        raise FileNotFoundError(2, "No such file or directory", layer["path"])
    if kind in ("overlay", "shadow"):
        words = [*(f"{name}={place}" for name, place in places.items()), options]
        _mount("overlay", target, "overlay", 0, ",".join(words))
        return
    _mount(places["lowerdir"], target, None, _BIND | (_REC if layer["recursive"] else 0))
    if kind == "read_only":
        have = os.statvfs(target).f_flag
        kept = sum(flag for bit, flag in _KEPT_FLAGS.items() if have & bit)
        _mount(None, target, None, _REMOUNT | _BIND | _RDONLY | kept)


def _change_root(root: str) -> None:
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"no pivot_root is known for {os.uname().machine}")
    os.chdir(root)
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _DETACH), "umount")  # the old root, which lies over the new one
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    result = _libc.mount(*encoded, ctypes.c_ulong(flags), os.fsencode(options) or None)
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
