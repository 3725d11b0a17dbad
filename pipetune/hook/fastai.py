"""fastai's own loader, which makes torch's iterators itself, by names in its module, and has an optimizer of its own.

What it gives to torch is a stand-in for a loader (``fake_l``), whose ``d`` is fastai's ``DataLoader``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pipetune.hook.seams import Guest, patch_loader

#: Modules to wait for.
LOAD, OPTIMIZER = "fastai.data.load", "fastai.optimizer"
#: Settings that its loader does not take.
FIXED = ("prefetch_factor", "in_order", "start_method")


def patch_load(module: ModuleType, guest: Guest, complain: Callable[[BaseException], None], *, iterators: bool) -> None:
    """Let a guest make the iterators of :data:`LOAD` and change what its loaders are made with."""
    names: Any = module
    several, alone = names._loaders

    def original(loader: Any) -> Any:
        return (alone if loader.num_workers == 0 else several)(loader)

    def iterator(loader: Any) -> Any:
        return guest.iterator(loader, original)

    patch_loader(names.DataLoader, guest, complain, iterators=False)
    if iterators:
        names._loaders = (iterator, iterator)


def patch_optimizer(module: ModuleType, stepped: Callable[[], None]) -> None:
    """Have ``stepped`` called after each step of the optimizer of :data:`OPTIMIZER`."""
    kind: Any = module.Optimizer
    original = kind.step

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        stepped()
        return result

    kind.step = step


def outer(loader: Any) -> Any:
    """fastai's loader behind its stand-in; any other loader is itself."""
    found = getattr(loader, "d", None)
    return found if found is not None and getattr(found, "fake_l", None) is loader else loader
