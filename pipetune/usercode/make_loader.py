"""The function that makes the user's own loader, pickled by value for the process of a candidate.

Another process cannot import a function that was defined in a notebook or a script, so cloudpickle writes its code.
What it imports is imported again, from the same places.
"""

from __future__ import annotations

import inspect
import os
import pickle
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipetune.errors import MissingPackageError, UsageError
from pipetune.store.regular import open_regular

#: Start of a sweep's data set name where the loader is the user's; the function's name follows.
SCHEME = "own:"
#: Name of the file in the run folder.
FILE = "loader.pkl"
#: The same of a loader that is imported by its name.
NAMED_FILE = "loader.json"
#: What a candidate can give it, under the names of torch's ``DataLoader`` (see
#: :mod:`pipetune.candidates.torch_arguments`).
ARGUMENTS = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")

#: A function that takes some of :data:`ARGUMENTS` by name and returns an iterable of batches.
MakeLoader = Callable[..., Any]


def pack(make_loader: MakeLoader) -> bytes:
    """The function as bytes.

    Raises:
        MissingPackageError: cloudpickle is not installed.
        UsageError: it takes no number of workers, or it holds something that cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise MissingPackageError(
            "cloudpickle, which takes make_loader to another process, is not installed",
            hint="pip install 'pipetune[notebook]'",
        ) from error
    if "num_workers" not in accepted(make_loader):
        raise UsageError(
            f"{name_of(make_loader)} takes no num_workers, so there is nothing to vary",
            hint="write def make_loader(num_workers, prefetch_factor, batch_size): return DataLoader(…)",
        )
    try:
        code: bytes = cloudpickle.dumps(make_loader)
    except Exception as error:  # whatever the objects that it refers to raise
        raise UsageError(
            f"{name_of(make_loader)} cannot be taken to another process: {error}",
            hint="open files, connections and CUDA tensors inside the function",
        ) from error
    return pickle.dumps({"name": name_of(make_loader), "sys_path": sys.path, "code": code})


def file_of(uri: str) -> str:
    """Name of the file in the run folder, of a sweep with this data set name."""
    return NAMED_FILE if ":" in uri.removeprefix(SCHEME) else FILE


def unpack(path: Path) -> MakeLoader:
    """The function of a file that :func:`pack` made.

    Raises:
        UsageError: the file may be somebody else's, and its code would run.
    """
    with open_regular(path) as file:
        require_own(path, os.fstat(file.fileno()))
        stored = pickle.loads(file.read())
    # At the end: a module of the user's must not be imported instead of one of pipetune's with the same name.
    sys.path += [place for place in stored["sys_path"] if place not in sys.path]
    made: MakeLoader = pickle.loads(stored["code"])
    return made


def require_own(path: Path, status: os.stat_result) -> None:
    """Refuse a file with code, or the name of some, that somebody else has written, or could have.

    Raises:
        UsageError: it belongs to another user, or others may write to it.
    """
    if status.st_uid != os.geteuid():
        raise UsageError(
            f"{path} belongs to another user (uid {status.st_uid}), and its code would run",
            hint="start a sweep of your own",
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"others may have written to {path}, and its code would run",
                         hint=f"if you are sure that it is yours: chmod go-w {path}")  # fmt: skip


def name_of(make_loader: MakeLoader) -> str:
    """The function's name, as code calls it."""
    return str(getattr(make_loader, "__name__", None) or type(make_loader).__name__).strip("<>")


def uri_of(make_loader: MakeLoader) -> str:
    """The data set name of its sweep, with the arguments that it takes: ``'own:make_loader(num_workers)'``."""
    wanted = accepted(make_loader)
    return f"{SCHEME}{name_of(make_loader)}({', '.join(name for name in ARGUMENTS if name in wanted)})"


def arguments_in(uri: str) -> tuple[str, ...]:
    """The arguments that the loader of such a name takes."""
    inside = uri.partition("(")[2].rpartition(")")[0]
    return tuple(name for name in ARGUMENTS if name in [part.strip() for part in inside.split(",")])


def accepted(make_loader: MakeLoader) -> set[str]:
    """Which of :data:`ARGUMENTS` the function takes; all of them where it takes any name.

    Raises:
        UsageError: it has no signature.
    """
    known = set(ARGUMENTS)
    try:
        parameters = inspect.signature(make_loader).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name_of(make_loader)}: {error}", hint="write def make_loader(num_workers): …") from error
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return known
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return known & {parameter.name for parameter in parameters if parameter.kind in by_name}
