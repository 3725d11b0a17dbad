"""What a ``DataLoader`` of the script is: where it was made, what it loads, its settings. Imports no torch.

A loader is recognised in another start of the script by its identity: file and function that made it, the classes of
its data set and sampler, and its number among those. Lines shift with edits, so they are for people, and for telling
apart two loaders that one function makes.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import multiprocessing
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

#: Top-level packages whose frames are not the script: the call that made the loader is looked for outside of them.
FRAMEWORKS = frozenset({
    "torch", "lightning", "lightning_fabric", "pytorch_lightning", "accelerate", "transformers", "composer", "ray",
    "torchdata", "fastai", "ignite", "nvidia", "webdataset", "functools", "contextlib", "pipetune",
})  # fmt: skip
#: So many calls outside of the constructor's are noted.
_MAX_CALLS = 16
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
#: What is varied, and shown as the script writes it.
WRITTEN = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")
#: torch's note that the length of a loader over an iterable data set was asked for.
_LENGTH_CALLED = "_IterableDataset_len_called"


@dataclass(frozen=True, slots=True)
class Site:
    """The call that made a loader."""

    file: str
    function: str
    """Its qualified name; ``<module>`` at the top level of a file."""
    line: int
    position: tuple[int, int]
    """Line within the function, and column."""
    span: tuple[int, int, int, int]
    """First line, last line, first column, last column of the call expression."""
    outer: tuple[tuple[CodeType, int, bool], ...] = field(default=(), compare=False, repr=False)
    """Of the calls that led there, outwards: code, place in its instructions, and whether it calls the next inner one
    itself. What they mean is worked out for the loader that is trained on only."""


def site_of(frame: FrameType | None) -> Site | None:
    """The nearest call outside torch and frameworks; ``None``: there is none."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in FRAMEWORKS:
            return _site(frame)
        frame = frame.f_back
    return None


def describe_calls(site: Site) -> list[dict[str, Any]]:
    """The call that made a loader and those that led there, as :class:`pipetune.records.script.SourceCall` has them."""
    here = {"file": site.file, "span": site.span, "direct": True}
    outer = [
        {"file": os.path.abspath(code.co_filename), "span": _span(code, place), "direct": direct}
        for code, place, direct in site.outer
        if not code.co_filename.startswith("<")
    ]
    return [here, *outer]


def _outer(frame: FrameType | None) -> tuple[tuple[CodeType, int, bool], ...]:
    """The calls of the script's own that are outside of a frame."""
    outer: list[tuple[CodeType, int, bool]] = []
    direct = True
    while frame is not None and len(outer) < _MAX_CALLS:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in FRAMEWORKS or _is_library(frame.f_code.co_filename):
            direct = False
        else:
            outer.append((frame.f_code, frame.f_lasti, direct))
            direct = True
        frame = frame.f_back
    return tuple(outer)


def _is_library(file: str) -> bool:
    return file.startswith("<") or "site-packages" in file or file.startswith(_STANDARD_LIBRARY)


def made_by_framework(frame: FrameType | None) -> bool:
    """Whether the direct caller belongs to a framework, which makes a loader again from one of the script's."""
    package = "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in FRAMEWORKS - {"functools", "contextlib", "pipetune"}


def _site(frame: FrameType) -> Site:
    code = frame.f_code
    span = _span(code, frame.f_lasti)
    file = code.co_filename if code.co_filename.startswith("<") else os.path.abspath(code.co_filename)
    return Site(
        file=file, function=code.co_qualname, line=frame.f_lineno,
        position=(frame.f_lineno - code.co_firstlineno, span[2]), span=span, outer=_outer(frame.f_back),
    )  # fmt: skip


def _span(code: CodeType, place: int) -> tuple[int, int, int, int]:
    """First line, last line, first and last column of the expression at a place in a code's instructions."""
    here = next(itertools.islice(code.co_positions(), max(0, place // 2), None), (None,) * 4)
    first, last, left, right = (value or 0 for value in here)
    return first, last, left, right


def expressions_of(site: Site, wanted: Iterable[str] = WRITTEN) -> dict[str, str]:
    """What the call writes for each of these arguments: ``{"num_workers": "args.workers"}``.

    Empty where the file cannot be read, or the arguments come in a ``**dictionary``.
    """
    call = _call_at("".join(linecache.getlines(site.file)), site.span)
    if call is None:
        return {}
    names = set(wanted)
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg in names}


@functools.lru_cache(maxsize=8)
def _call_at(source: str, span: tuple[int, int, int, int]) -> ast.Call | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            if found == span:
                return node
    return None


def class_name(value: Any) -> str:
    """``torchvision.datasets.folder.ImageFolder``; of a class in the script its name alone."""
    kind = type(value)
    module = "" if kind.__module__ in ("__main__", "__mp_main__", "builtins") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def settings_of(loader: Any) -> dict[str, Any]:
    """The settings of a loader as they are, in JSON types, under torch's names."""
    workers = int(getattr(loader, "num_workers", 0) or 0)
    context = getattr(loader, "multiprocessing_context", None)
    return {
        "num_workers": workers,
        "prefetch_factor": getattr(loader, "prefetch_factor", None) if workers else None,
        "pin_memory": bool(getattr(loader, "pin_memory", False)),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "in_order": bool(getattr(loader, "in_order", True)),
        "start_method": _start_method(context),
        "batch_size": batch_size_of(loader),
    }


def _start_method(context: Any) -> str:
    """How its workers are started: its own way, or the process's, or Python's."""
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or ("fork" if sys.version_info < (3, 14) else "forkserver")


def batch_size_of(loader: Any) -> int | None:
    """Samples per batch; ``None``: not known, as with a batch sampler of the script's own or without collating."""
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None) or getattr(loader, "bs", None)
    return size if isinstance(size, int) else None


def true_length(loader: Any) -> int | None:
    """Batches of an epoch, as a loader tells; ``None``: it has no length."""
    values = getattr(loader, "__dict__", {})
    called = values.get(_LENGTH_CALLED)
    try:
        return len(loader)
    except Exception:  # a data set without a length, or one whose length is computed by the user's code
        return None
    finally:
        # torch notes that the script knows the length, and warns of longer epochs from then on.
        if _LENGTH_CALLED in values:
            values[_LENGTH_CALLED] = called
