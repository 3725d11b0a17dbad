"""Stands for DALI in the children of these tests: it hands out its own memory, and writes into it again at once.

Real DALI finds no device in the stand-in CUDA runtime. The n-th batch (from 0) is full of n, its labels as well.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import torch

#: Shape of a batch.
SHAPE = (4, 3, 32, 32)


class Anything:
    """Has every attribute, and can be called; gives two outputs, or as many as it is asked for."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Anything]:
        return iter((self, self))

    def __call__(self, *_: Any, num_outputs: int | None = None, **__: Any) -> Any:
        return self if num_outputs is None else (self,) * num_outputs


class Pipeline:
    """Keeps what it was made with."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **options: Any) -> None:
        self.device_id = options.get("device_id")
        Pipeline.made.append(options)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set_outputs(self, *_: Any) -> None:
        pass

    def build(self) -> None:
        pass


def pipeline_def(**options: Any) -> Callable[[Any], Callable[[], Pipeline]]:
    return lambda function: lambda: Pipeline(**options)


class _Lent:
    """A buffer, as the owner of other memory describes it to torch."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.__cuda_array_interface__ = buffer.__cuda_array_interface__


class Iterator_:
    """DALI's iterator for PyTorch, with ``exec_dynamic``: its tensors are DALI's memory until the last one is gone."""

    batches = 12

    def __init__(self, pipelines: list[Pipeline] | Pipeline, *_: Any, **__: Any) -> None:
        pipeline = pipelines[0] if isinstance(pipelines, list) else pipelines
        self._device = None if pipeline.device_id is None else torch.device("cuda", pipeline.device_id)
        self._stream = None if self._device is None else torch.cuda.Stream(self._device)
        self._free: list[torch.Tensor] = []
        self._number = 0

    def __iter__(self) -> Iterator[list[dict[str, torch.Tensor]]]:
        return self

    def __next__(self) -> list[dict[str, torch.Tensor]]:
        if self._number == self.batches:
            raise StopIteration
        labels = torch.full((SHAPE[0], 1), self._number)
        if self._device is None or self._stream is None:
            self._number += 1
            return [{"images": torch.full(SHAPE, float(self._number - 1)), "labels": labels}]
        buffer = self._free.pop() if self._free else torch.empty(SHAPE, device=self._device)
        with torch.cuda.stream(self._stream):
            buffer.copy_(torch.full(SHAPE, float(self._number)).pin_memory(), non_blocking=True)
        self._stream.synchronize()
        lent = _Lent(buffer)
        weakref.finalize(lent, self._free.append, buffer)
        self._number += 1
        return [{"images": torch.as_tensor(lent, device=self._device), "labels": labels}]


def install() -> None:
    """Take DALI's place among the modules."""
    contents: dict[str, dict[str, Any]] = {
        "nvidia.dali": {"fn": Anything(), "types": Anything(), "pipeline_def": pipeline_def},
        "nvidia.dali.pipeline": {"Pipeline": Pipeline},
        "nvidia.dali.plugin": {},
        "nvidia.dali.plugin.pytorch": {"DALIGenericIterator": Iterator_},
    }
    for name, values in contents.items():
        module = ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module
