"""Ways in which a training script writes to files that existed before, for ``writes.py`` and its job.

Every way has a folder of its own with the same files: ``old`` (bytes), ``other``, ``link`` (to ``old``), ``hard`` and
``twin`` (one file with two names), ``old.db`` (SQLite), ``old.npy``, ``old.zip``, ``old.h5`` and ``old_folder/inside``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import importlib
import json
import mmap
import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

OLD = b"precious " * 1000
NEW = b"overwritten " * 500


def make_files(folder: Path) -> None:
    """Make the files that exist before."""
    import numpy as np

    folder.mkdir(parents=True)
    for name in ("old", "other", "hard"):
        (folder / name).write_bytes(OLD + name.encode())
    os.link(folder / "hard", folder / "twin")
    (folder / "link").symlink_to("old")
    with contextlib.closing(sqlite3.connect(folder / "old.db")) as base:
        base.execute("create table t (x)")
        base.commit()
    np.save(folder / "old.npy", np.arange(1000))
    with zipfile.ZipFile(folder / "old.zip", "w") as archive:
        archive.writestr("a", OLD)
    with contextlib.suppress(ImportError):
        h5py: Any = importlib.import_module("h5py")
        with h5py.File(folder / "old.h5", "w") as file:
            file["x"] = np.arange(1000)
    (folder / "old_folder").mkdir()
    (folder / "old_folder" / "inside").write_bytes(OLD)
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)


def _torch_save(folder: Path) -> None:
    import torch

    torch.save({"x": torch.ones(10)}, folder / "old")


def _torch_save_to_file(folder: Path) -> None:
    import torch

    with open(folder / "old", "wb") as file:
        torch.save({"x": torch.ones(10)}, file)


def _safetensors(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.ones(10)}, folder / "old")


def _numpy(folder: Path) -> None:
    import numpy as np

    np.save(folder / "old.npy", np.zeros(3))


def _numpy_memmap(folder: Path) -> None:
    import numpy as np

    array = np.load(folder / "old.npy", mmap_mode="r+")
    array[:] = 7
    array.flush()


def _hdf5(folder: Path) -> None:
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError:
        return
    with h5py.File(folder / "old.h5", "r+") as file:
        file["x"][:] = 0


def _pickle(folder: Path) -> None:
    with open(folder / "old", "wb") as file:
        pickle.dump(list(range(100)), file)


def _open_w(folder: Path) -> None:
    (folder / "old").open("w").write("short")


def _open_a(folder: Path) -> None:
    with open(folder / "old", "ab") as file:
        file.write(NEW)


def _open_r_plus(folder: Path) -> None:
    with open(folder / "old", "r+b") as file:
        file.seek(100)
        file.write(NEW)


def _os_replace(folder: Path) -> None:
    (folder / "old.tmp").write_bytes(NEW)
    os.replace(folder / "old.tmp", folder / "old")


def _rename_old_over_other(folder: Path) -> None:
    os.rename(folder / "old", folder / "other")


def _temporary_file(folder: Path) -> None:
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        json.dump({"x": 1}, file)
    os.replace(file.name, folder / "old")


def _thread(folder: Path) -> None:
    thread = threading.Thread(target=(folder / "old").write_bytes, args=(NEW,))
    thread.start()
    thread.join()


def _process(folder: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=(folder / "old").write_bytes, args=(NEW,))
    child.start()
    child.join()


def _signal_handler(folder: Path) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: (folder / "old").write_bytes(NEW))
    signal.raise_signal(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)


def _c_code(folder: Path) -> None:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(os.fsencode(folder / "old"), b"w"))
    libc.fputs(b"from C", file)
    libc.fclose(file)


def _shutil_copy(folder: Path) -> None:
    shutil.copyfile(folder / "other", folder / "old")


def _shutil_move(folder: Path) -> None:
    shutil.move(folder / "other", folder / "old")


def _cp(folder: Path) -> None:
    subprocess.run(["cp", folder / "other", folder / "old"], check=True)


def _shell(folder: Path) -> None:
    subprocess.run("echo new > old; sed -i s/precious/gone/g other; rm -f hard", shell=True, cwd=folder, check=True)


def _sqlite(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "old.db")) as base:
        base.execute("insert into t values (1)")
        base.commit()


def _sqlite_wal(folder: Path) -> None:
    base = sqlite3.connect(folder / "old.db")
    base.execute("pragma journal_mode=wal")
    base.execute("insert into t values (2)")
    base.commit()  # left open: -wal and -shm stay when the process is killed


def _mmap(folder: Path) -> None:
    with open(folder / "old", "r+b") as file, mmap.mmap(file.fileno(), 0) as area:
        area[:4] = b"mmap"


def _unlink(folder: Path) -> None:
    os.unlink(folder / "old")


def _rmtree(folder: Path) -> None:
    shutil.rmtree(folder / "old_folder")


def _rmtree_and_again(folder: Path) -> None:
    shutil.rmtree(folder / "old_folder")
    (folder / "old_folder").mkdir()
    (folder / "old_folder" / "new").write_bytes(NEW)


def _move_folder(folder: Path) -> None:
    shutil.move(folder / "old_folder", folder / "moved")
    (folder / "old_folder").mkdir()
    (folder / "old_folder" / "inside").write_bytes(NEW)


def _chmod(folder: Path) -> None:
    os.chmod(folder / "old", 0o600)


def _utime(folder: Path) -> None:
    os.utime(folder / "old")


def _truncate(folder: Path) -> None:
    os.truncate(folder / "old", 5)


def _ftruncate(folder: Path) -> None:
    descriptor = os.open(folder / "old", os.O_RDWR)
    os.ftruncate(descriptor, 1 << 20)
    os.pwrite(descriptor, b"x", 5)
    os.close(descriptor)


def _symlink_instead(folder: Path) -> None:
    (folder / "old").unlink()
    (folder / "old").symlink_to("other")


def _through_symlink(folder: Path) -> None:
    (folder / "link").write_bytes(NEW)


def _through_hard_link(folder: Path) -> None:
    (folder / "twin").write_bytes(NEW)


def _link_over(folder: Path) -> None:
    os.unlink(folder / "old")
    os.link(folder / "other", folder / "old")


def _unnamed_file(folder: Path) -> None:
    descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    os.write(descriptor, NEW)
    root = os.open("/", os.O_RDONLY)  # only with a folder's descriptor Python follows the link
    os.link(f"/proc/self/fd/{descriptor}", folder / "new", src_dir_fd=root, follow_symlinks=True)
    os.close(root)
    os.close(descriptor)
    os.replace(folder / "new", folder / "old")


def _copy_file_range(folder: Path) -> None:
    source, target = os.open(folder / "other", os.O_RDONLY), os.open(folder / "old", os.O_WRONLY | os.O_TRUNC)
    os.sendfile(target, source, 0, 500)
    os.close(source)
    os.close(target)


def _pathlib(folder: Path) -> None:
    pathlib.Path(folder, "old").write_text("text")


def _zip_append(folder: Path) -> None:
    with zipfile.ZipFile(folder / "old.zip", "a") as archive:
        archive.writestr("b", NEW)


def _gzip(folder: Path) -> None:
    with gzip.open(folder / "old", "wb") as file:
        file.write(NEW)


def _relative_path(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    target = os.open("old", os.O_WRONLY | os.O_TRUNC, dir_fd=descriptor)
    os.write(target, NEW)
    os.close(target)
    os.unlink("other", dir_fd=descriptor)
    os.close(descriptor)


def write_now(folder: Path) -> None:
    """What ways do that differ in who writes, and when."""
    (folder / "old").write_bytes(NEW)
    (folder / "new").write_bytes(NEW)


#: Way -> what it does in its folder, in the process of rank 0.
WAYS: dict[str, Callable[[Path], Any]] = {
    "torch.save": _torch_save,
    "torch.save to a file": _torch_save_to_file,
    "safetensors": _safetensors,
    "numpy.save": _numpy,
    "numpy memmap": _numpy_memmap,
    "h5py": _hdf5,
    "pickle": _pickle,
    "open w": _open_w,
    "open a": _open_a,
    "open r+": _open_r_plus,
    "os.replace": _os_replace,
    "os.rename over": _rename_old_over_other,
    "temporary file": _temporary_file,
    "thread": _thread,
    "process": _process,
    "signal handler": _signal_handler,
    "C code": _c_code,
    "shutil.copyfile": _shutil_copy,
    "shutil.move": _shutil_move,
    "subprocess cp": _cp,
    "shell": _shell,
    "SQLite": _sqlite,
    "SQLite WAL": _sqlite_wal,
    "mmap": _mmap,
    "unlink": _unlink,
    "rmtree": _rmtree,
    "rmtree, made anew": _rmtree_and_again,
    "moved folder": _move_folder,
    "chmod": _chmod,
    "utime": _utime,
    "truncate": _truncate,
    "ftruncate": _ftruncate,
    "symlink instead": _symlink_instead,
    "through symlink": _through_symlink,
    "through hard link": _through_hard_link,
    "link over": _link_over,
    "unnamed file": _unnamed_file,
    "sendfile": _copy_file_range,
    "pathlib": _pathlib,
    "zip append": _zip_append,
    "gzip": _gzip,
    "dir_fd": _relative_path,
}
#: Ways of other processes, and of the end: the job calls :func:`write_now` there.
OTHERS = ("rank 1", "loader worker", "atexit", "signal handler at the end")
