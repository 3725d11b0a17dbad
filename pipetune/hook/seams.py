"""Where torch lets us in: its classes' methods, never names in modules, so that it matters not who imported what when.

``DataLoader.__init__``: know each loader, and give it tuned settings. ``DataLoader._get_iterator``: the only place from
which torch makes an iterator. ``register_optimizer_step_post_hook``: which loader is trained on.

Why not ``DataLoader.__iter__``: a generator in its place starts workers late, hides ``_workers`` from classes that look
at them, and misses classes with an ``__iter__`` of their own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any, Protocol

from pipetune.usercode.loader_view import MARK

#: The module with the class, and one with a subclass that makes its iterators itself.
DATALOADER, STATEFUL = "torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader"

#: Makes an iterator of a loader or a view of one.
GetIterator = Callable[[Any], Any]


#: Loaders whose constructor runs.
_MAKING: set[int] = set()


class Guest(Protocol):
    """What is done at the seams. Whatever these raise, the script gets what it would have got without us."""

    def arguments(self, frame: FrameType | None, arguments: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
        """A loader is being made: the arguments that it gets, and what :meth:`made` is told; ``None``: as they are."""

    def made(self, loader: Any, known: Any) -> None:
        """It was made."""

    def iterator(self, loader: Any, original: GetIterator) -> Any:
        """The loader's iterator."""


def when_imported(names: Sequence[str], act: Callable[[ModuleType], None]) -> None:
    """Have ``act`` called with each module of these names as soon as it has been imported; at once if it has been."""

    def try_to_act(module: ModuleType) -> None:
        # torch of another version may lack what is looked for: the script runs without us.
        try:
            act(module)
        except Exception as error:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"pipetune: cannot use {module.__name__}: {type(error).__name__}: {error}\n")

    for name in names:
        if name in sys.modules:
            try_to_act(sys.modules[name])
    sys.meta_path.insert(0, _Watch(frozenset(names), try_to_act))


class _Watch(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and acts once it has been executed."""

    def __init__(self, names: frozenset[str], act: Callable[[ModuleType], None]) -> None:
        self._names, self._act = names, act

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        if name not in self._names:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Acting(spec.loader, self._act)
                return spec
        return None


class _Acting(importlib.abc.Loader):
    def __init__(self, loader: Any, act: Callable[[ModuleType], None]) -> None:
        self._loader, self._act = loader, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Execute it as it would have been; from then on its loader is the real one."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._act(module)


def patch_loader(kind: Any, guest: Guest, complain: Callable[[BaseException], None], *, iterators: bool = True) -> None:
    """Patch a class of loaders: torch's, or one that sets all attributes itself as torchdata's does.

    Args:
        complain: is told what a guest raised.
        iterators: the guest makes iterators, too.
    """
    original = kind.__init__
    signature = inspect.signature(original)
    takes_any = (p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD)
    others = next(takes_any, None)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        known, changed, given = None, None, None
        if id(self) not in _MAKING:  # a base class's constructor, called by one that was patched as well
            with contextlib.suppress(TypeError):  # the constructor itself will say what is wrong with the arguments
                bound = signature.bind(self, *args, **kwargs).arguments
                given = {name: value for name, value in bound.items() if name not in ("self", others)}
                given |= bound.get(others or "", {})
        if given is not None:
            try:
                changed, known = guest.arguments(caller_of(sys._getframe(1), self), given)
            except Exception as error:
                complain(error)
        if changed is None:
            original(self, *args, **kwargs)
            return
        _MAKING.add(id(self))
        known_names = {*signature.parameters, *(given or ())}
        try:
            original(self, **{name: value for name, value in changed.items() if name in known_names})
        finally:
            _MAKING.discard(id(self))
        try:
            guest.made(self, known)
        except Exception as error:
            complain(error)

    kind.__init__ = __init__
    if iterators:
        patch_get_iterator(kind, guest)


def patch_get_iterator(kind: Any, guest: Guest) -> None:
    """Patch a class's own ``_get_iterator``."""
    original = kind._get_iterator

    @functools.wraps(original)
    def _get_iterator(self: Any) -> Any:
        if getattr(self, MARK, False):
            return original(self)
        return guest.iterator(self, original)

    kind._get_iterator = _get_iterator


def caller_of(frame: FrameType | None, loader: Any) -> FrameType | None:
    """The frame that made the loader, beyond the constructors of its own class and its bases."""
    while frame is not None and frame.f_code.co_name == "__init__":
        names = frame.f_code.co_varnames
        if not names or frame.f_locals.get(names[0]) is not loader:
            break
        frame = frame.f_back
    return frame


def sampler_class(arguments: dict[str, Any]) -> str:
    """Name of the class of the sampler that a loader will have, from its constructor's arguments."""
    sampler = arguments.get("sampler")
    if sampler is None and (batches := arguments.get("batch_sampler")) is not None:
        sampler = getattr(batches, "sampler", None) or batches
    if sampler is not None:
        return type(sampler).__qualname__
    return "RandomSampler" if arguments.get("shuffle") else "SequentialSampler"
