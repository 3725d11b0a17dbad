"""Whether gradients are computed between two batches: told to somebody each time, until which loader trains is known.

By all of torch: ``Tensor.backward`` and ``torch.func.grad`` call these functions by their names in ``torch.autograd``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

_FUNCTIONS = ("backward", "grad")
#: Frameworks that compute gradients without torch, from batches of torch's loaders.
_OTHER_FRAMEWORKS = ("jax", "tensorflow", "mxnet", "paddle", "mindspore", "tinygrad", "mlx")


def tell_backward(tell: Callable[[], None]) -> Callable[[], None]:
    """Have ``tell`` called whenever torch has computed gradients; returns what ends that."""
    autograd: Any = getattr(sys.modules["torch"], "autograd", None)
    originals = {name: getattr(autograd, name) for name in _FUNCTIONS if hasattr(autograd, name)}
    ours = {name: _telling(original, tell) for name, original in originals.items()}
    for name, function in ours.items():
        setattr(autograd, name, function)

    def end() -> None:
        for name, function in ours.items():
            if getattr(autograd, name) is function:  # the script may have put its own in
                setattr(autograd, name, originals[name])

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
