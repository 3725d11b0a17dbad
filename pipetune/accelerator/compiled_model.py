"""A model that ``torch.compile`` has compiled for batches of one shape, and what its failures are called.

Why mode ``default`` and not ``reduce-overhead``: that records CUDA graphs, which read a batch from an address of their
own. Each batch is copied there once more, a batch of another size records another graph with memory of its own, and
what it wins is the launching of kernels, which matters where batches are small. ``default`` is what most training
scripts ask for. A script that uses another mode is measured as it is: ``pipetune sweep -- python train.py``.

Why one shape: an epoch's last, smaller batch would be compiled anew within the time that is measured, for seconds. The
uncompiled model, which has the same parameters, takes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from pipetune.errors import PipetuneError

#: Of ``torch.compile``. Tests use ``eager``, which traces the model and generates no code.
BACKEND = "inductor"
_RUN_WITHOUT = "run without --compile"


class CompiledModel:
    """A model, compiled when its first batch comes; batches of another shape than the first run uncompiled.

    Args:
        model: stays as it is, and shares its parameters.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._compiled = torch.compile(model, backend=BACKEND, dynamic=False)
        self._shape: torch.Size | None = None

    def __call__(self, images: torch.Tensor) -> Any:
        """What the model returns for images ``[B, 3, S, S]``."""
        if self._shape is None:
            self._shape = images.shape
        return self._compiled(images) if images.shape == self._shape else self._model(images)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Around the first steps of a compiled model: forward and backward pass are compiled in them.

    Afterwards the processes that have compiled are ended: their memory is not the loader's.

    Raises:
        PipetuneError: ``torch.compile`` failed, as it does without a compiler for C++.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # of the device, which a smaller batch helps
    except Exception as error:
        raise PipetuneError(f"torch.compile failed: {_first_line(error)}", hint=_RUN_WITHOUT) from error
    finally:
        with contextlib.suppress(ImportError, AttributeError):
            from torch._inductor.async_compile import shutdown_compile_workers

            shutdown_compile_workers()


def _first_line(error: Exception) -> str:
    """What went wrong, without torch's advice about its own logs.

    An example of such a text, whose second line is what matters::

        backend='inductor' raised:
        InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[1] if lines[0].endswith("raised:") and len(lines) > 1 else lines[0]
