"""The user's loader, named as ``pkg.mod:make_loader``, imported in each process that needs it.

The name may be of a function that takes settings, of one without any parameter that returns its ``DataLoader``, of a
``DataLoader``, of an object with ``train_dataloader()``, or of a call with plain values: ``pkg.mod:build("cfg.yaml")``.
Where it takes no settings they are varied through copies of the loader (:mod:`pipetune.usercode.loader_view`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError
from pipetune.store.regular import open_regular
from pipetune.usercode.loader_name import EXAMPLE, parse_name
from pipetune.usercode.loader_view import view_of
from pipetune.usercode.make_loader import require_own

#: What a copy of a loader can have.
VIEW_ARGUMENTS = ("num_workers", "prefetch_factor", "pin_memory")
_MOST_BYTES = 1 << 20


def make_loader_of(path: Path) -> Callable[..., Any]:
    """The function that makes the loader, from a file of :func:`pack_name`; takes settings by name.

    Raises:
        UsageError: there is no such module or name, it is no loader, or the file may be somebody else's.
    """
    with open_regular(path) as file:
        require_own(path, os.fstat(file.fileno()))
        stored = json.loads(file.read(_MOST_BYTES))
    return import_loader(str(stored["import"]), str(stored["cwd"]))


def import_loader(text: str, cwd: str) -> Callable[..., Any]:
    """The same, from a name. Code of the user's runs.

    Args:
        cwd: folder that comes first on the import path.
    """
    named = parse_name(text)
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
    try:
        found: Any = importlib.import_module(named.module)
    except ImportError as error:
        raise UsageError(f"--loader {text}: cannot import {named.module}: {error}", hint=EXAMPLE) from error
    for attribute in named.attributes:
        if not hasattr(found, attribute):
            raise UsageError(f"--loader {text}: {named.module} has no {'.'.join(named.attributes)}", hint=EXAMPLE)
        found = getattr(found, attribute)
    if named.arguments is not None:
        found = found(*named.arguments, **named.by_name)
    elif callable(found) and takes_settings(found):
        return found  # type: ignore[no-any-return]
    loader = loader_in(found, text)

    def with_settings(num_workers: int, prefetch_factor: int | None, pin_memory: bool = False) -> Any:
        settings = {"num_workers": num_workers, "prefetch_factor": prefetch_factor, "pin_memory": pin_memory}
        return view_of(loader, settings, None)

    with_settings.own_loader = loader  # type: ignore[attr-defined]
    with_settings.__name__ = named.attributes[-1]
    return with_settings


def takes_settings(found: Any) -> bool:
    """Whether it is a function whose number of workers can be chosen."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "num_workers" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def loader_in(found: Any, text: str) -> Any:
    """The ``DataLoader`` that something is, returns, or has as ``train_dataloader()``.

    Raises:
        UsageError: none.
    """
    from torch.utils.data import DataLoader

    if isinstance(found, type) or (callable(found) and not isinstance(found, DataLoader)
                                   and not hasattr(found, "train_dataloader")):  # fmt: skip
        found = found()
    if not isinstance(found, DataLoader) and hasattr(found, "train_dataloader"):
        for prepare in ("prepare_data", "setup"):
            if callable(step := getattr(found, prepare, None)):
                step(*(["fit"] if prepare == "setup" else []))
        found = found.train_dataloader()
    if not isinstance(found, DataLoader):
        raise UsageError(
            f"--loader {text} gives {type(found).__name__}, which is no torch DataLoader",
            hint="return a DataLoader, or take num_workers as an argument",
        )
    return found
