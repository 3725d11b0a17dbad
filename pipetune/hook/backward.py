"""Whether gradients are computed between two batches: told to somebody each time, until which loader trains is known.

By all of torch: ``Tensor.backward``, ``torch.autograd.grad``, ``torch.func.grad`` and others end in one function. Those
themselves are left as they are: TorchScript and torch.compile know them by their identity.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

#: In ``torch.autograd``, which calls it by this name; torch replaces it there as well (``torch/compiler/__init__.py``).
_ENGINE = "_engine_run_backward"
#: Frameworks that compute gradients without torch, from batches of torch's loaders.
_OTHER_FRAMEWORKS = ("jax", "tensorflow", "mxnet", "paddle", "mindspore", "tinygrad", "mlx")


def tell_backward(tell: Callable[[], None]) -> Callable[[], None]:
    """Have ``tell`` called whenever torch has computed gradients; returns what ends that."""
    torch: Any = sys.modules["torch"]
    place, name = getattr(torch, "autograd", None), _ENGINE
    if not hasattr(place, name):  # torch of another version
        place, name = getattr(torch, "Tensor", None), "backward"
    original = getattr(place, name, None)
    if original is None:
        return lambda: None
    ours = _telling(original, tell)
    setattr(place, name, ours)

    def end() -> None:
        if getattr(place, name) is ours:  # others may have put theirs in
            setattr(place, name, original)

    return end


def _telling(original: Any, tell: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def compute(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        tell()
        return found

    return compute


def trains_elsewhere() -> bool:
    """Whether another framework than torch is there to compute gradients, of which nothing is heard."""
    return any(name in sys.modules for name in _OTHER_FRAMEWORKS)


def gradients_enabled() -> bool:
    """Whether torch records gradients at this moment, as a training loop has it."""
    return bool(sys.modules["torch"].is_grad_enabled())
