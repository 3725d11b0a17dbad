"""Keeps a file before a Python process of the script changes it, where the kernel offers no protection.

Python's audit hooks tell what it is about to open, rename or remove. Libraries that write from compiled code are not
seen by them; of those that are known, the functions are replaced.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from pipetune.hook.seams import when_imported
from pipetune.protection import before_change
from pipetune.protection.keeper import Keeper
from pipetune.protection.state import STATE

#: A file on the command line of another program is copied up to this size: most are only read.
MAX_NAMED_BYTES = 256 << 20
#: Programs that may remove or move a folder that stands on their command line.
_REMOVERS = frozenset({"rm", "mv", "find", "rsync", "unlink"})
#: A folder that is given to a function that saves has so many files at most; others are not looked at.
MAX_FOLDER_FILES = 1000
#: Functions and methods that write from compiled code to a file, or into a folder, that is one of their arguments.
_SAVERS = MappingProxyType(
    {
        "torch": ("_C.PyTorchFileWriter",),
        "torch.jit._serialization": ("save",),
        "torchvision.io.image": ("write_file", "write_jpeg", "write_png"),
        "safetensors": ("serialize_file",),
        "h5py._hl.files": ("File.__init__",),
        "pyarrow.parquet.core": ("ParquetWriter.__init__", "write_table"),
        "pyarrow.feather": ("write_feather",),
        "lmdb": ("open",),
        "cv2": ("imwrite", "imwritemulti", "imwriteanimation"),
        "transformers.tokenization_utils_fast": ("PreTrainedTokenizerFast._save_pretrained",),
        "lightgbm.basic": ("Booster.save_model",),
        "xgboost.core": ("Booster.save_model", "DMatrix.save_binary"),
        "netCDF4": ("Dataset",),
        "onnx": ("save_model", "save"),
    }
)


def enter(folder: str) -> None:
    """Guard this process, and those that it forks.

    Args:
        folder: has the journal.
    """
    state = json.loads((Path(folder) / STATE).read_bytes())
    files = FileGuard(Keeper(folder, state["open_places"]))
    sys.addaudithook(files.on_event)
    when_imported(tuple(_SAVERS), files.patch_savers)


class FileGuard:
    """The guard of one process."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._busy = threading.local()
        self._handlers: Mapping[str, Callable[..., None]] = MappingProxyType(
            {
                "open": self._on_open,
                "os.rename": self._on_rename,
                "os.remove": lambda path, folder=-1: before_change.before_remove(keeper, resolve(path, folder)),
                "os.rmdir": lambda path, folder=-1: before_change.before_rmdir(keeper, resolve(path, folder)),
                "os.truncate": self._on_truncate,
                "os.link": self._on_link,
                "os.symlink": lambda target, path, folder=-1: keeper.note_created(resolve(path, folder)),
                "os.mkdir": lambda path, mode, folder=-1: keeper.note_created(resolve(path, folder)),
                "os.chmod": lambda path, mode, folder=-1: self._on_attributes(path, folder),
                "os.chown": lambda path, uid, gid, folder=-1: self._on_attributes(path, folder),
                "os.utime": lambda path, times, ns, folder=-1: self._on_attributes(path, folder),
                "sqlite3.connect": self._on_database,
                "subprocess.Popen": lambda program, words, cwd, _: self._on_program(words, cwd),
                "os.system": lambda command: self._on_program(command, None),
                "os.exec": lambda program, words, _: self._on_program(words, None),
                "os.posix_spawn": lambda program, words, _: self._on_program(words, None),
                "os.spawn": lambda mode, program, words, _: self._on_program(words, None),
            }
        )

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit hook.

        Raises:
            OSError: a file cannot be kept; the call does not happen.
        """
        handler = self._handlers.get(event)
        if handler is None or getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            handler(*arguments)
        except (TypeError, ValueError):
            return  # arguments of another version of Python, or a path with a null: the call will say so
        finally:
            self._busy.now = False

    def _on_open(self, path: Any, mode: Any, flags: int) -> None:
        if flags & before_change.WRITING and isinstance(path, str | bytes | os.PathLike):
            exclusive = flags & os.O_CREAT and flags & os.O_EXCL
            before_change.before_open(self._keeper, resolve(path, follow=not exclusive), flags)

    def _on_rename(self, old: Any, new: Any, old_folder: int = -1, new_folder: int = -1) -> None:
        before_change.before_rename(self._keeper, resolve(old, old_folder), resolve(new, new_folder))

    def _on_link(self, old: Any, new: Any, old_folder: int = -1, new_folder: int = -1) -> None:
        before_change.before_link(self._keeper, resolve(old, old_folder), resolve(new, new_folder))

    def _on_truncate(self, path: Any, size: int) -> None:
        if not isinstance(path, int):
            before_change.before_truncate(self._keeper, resolve(path, follow=True))

    def _on_attributes(self, path: Any, folder: int) -> None:
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        self._keeper.keep_attributes(resolve(path, folder, follow=True))

    def _on_database(self, path: Any, *_: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.fsdecode(path)
        if name in ("", ":memory:"):
            return
        if name.startswith("file:"):
            name = name[5:].partition("?")[0]
        main = resolve(name, follow=True)
        for place in (main, f"{main}-wal", f"{main}-shm", f"{main}-journal"):
            before_change.before_open(self._keeper, place, os.O_RDWR | os.O_CREAT)

    def _on_program(self, words: Any, cwd: Any) -> None:
        """Another program may change what stands on its command line."""
        base = os.fsdecode(cwd) if cwd is not None else os.getcwd()
        removes = any(os.path.basename(part) in _REMOVERS for part in _parts(words))
        for path in named_files(words, base):
            if removes and os.path.isdir(path):
                with contextlib.suppress(OSError):  # too many files are in it
                    self._keeper.keep_name(path)
            state = _regular_state(path)
            if state is not None and state.st_size <= MAX_NAMED_BYTES and os.access(path, os.W_OK):
                self._keeper.keep_in_advance(path)
                self._keeper.keep_attributes(path)

    def patch_savers(self, module: ModuleType) -> None:
        """Replace the functions of a library that write from compiled code."""
        for name in _SAVERS[module.__name__]:
            owner: Any = module
            *outer, last = name.split(".")
            for part in outer:
                owner = getattr(owner, part, None)
            original = getattr(owner, last, None)
            if original is not None:
                setattr(owner, last, self._keeping(original))

    def _keeping(self, original: Any) -> Any:
        @functools.wraps(original, updated=())
        def save(*args: Any, **kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()):
                if isinstance(value, str | bytes | os.PathLike):
                    self._keep_target(value)
            return original(*args, **kwargs)

        return save

    def _keep_target(self, value: Any) -> None:
        self._busy.now = True
        try:
            path = resolve(value, follow=True)
            if not os.path.isdir(path):
                if os.path.isdir(os.path.dirname(path)) and b"\n" not in os.fsencode(path):
                    self._keeper.keep_content(path)
                return
            names = os.listdir(path)
            for name in names if len(names) <= MAX_FOLDER_FILES else ():
                self._keeper.keep_content(os.path.join(path, name))
        except ValueError:  # no path
            return
        finally:
            self._busy.now = False


def resolve(path: Any, folder: int = -1, *, follow: bool = False) -> str:
    """The absolute path without links in its folders.

    Args:
        folder: descriptor of the folder that a relative path begins at; -1: the current one.
        follow: the last part is followed, too, if it is a link.
    """
    name = os.fsdecode(path)
    if not name.startswith("/"):
        base = os.getcwd() if folder < 0 else os.readlink(f"/proc/self/fd/{folder}")
        name = os.path.join(base, name)
    if follow:
        return os.path.realpath(name)
    parent, last = os.path.split(name.rstrip("/") or "/")
    return os.path.realpath(name) if last in (".", "..", "") else os.path.join(os.path.realpath(parent), last)


def named_files(words: Any, base: str) -> Iterator[str]:
    """Files that a command line names: ``cp a b``, ``--out=b``, ``sh -c 'echo > b'``, and ``a`` in a folder ``b``.

    Args:
        words: a list, or a line for the shell.
        base: the folder that relative paths begin at.
    """
    parts = _parts(words)
    paths = [resolve(os.path.join(base, part), follow=True) for part in parts if part and "\0" not in part]
    yield from paths
    folders = [path for path in paths if os.path.isdir(path)]
    for folder in folders:
        yield from (os.path.join(folder, os.path.basename(path)) for path in paths)


def _parts(words: Any) -> list[str]:
    """The words of a command line, those within a word for the shell, and what stands behind ``=``; each once."""
    if isinstance(words, str | bytes | os.PathLike):
        words = [os.fsdecode(words)]
    parts: dict[str, None] = {}
    for word in map(os.fsdecode, words):
        parts[word] = None
        if any(sign in word for sign in " ><;|&"):
            lexer = shlex.shlex(word, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            try:
                parts.update(dict.fromkeys(lexer))
            except ValueError:  # an open quote
                parts.update(dict.fromkeys(word.split()))
    parts.update(dict.fromkeys([part.partition("=")[2] for part in parts if "=" in part]))
    return list(parts)


def _regular_state(path: str) -> os.stat_result | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state if stat.S_ISREG(state.st_mode) else None
