"""A training whose batches come from no loader: recognised by its optimizer steps, with the function that makes them.

Such a script would be waited for until it has trained to its end. After :data:`STEPS` optimizer steps without a batch
of any loader it is told, with the place: between the last steps before that, the returns of the user's functions are
watched. The one that hands out the most numbers in tensors that need no gradient makes the batches, as ``get_batch``
does in many scripts. What runs within a model, a backward pass or an optimizer makes none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

#: Module whose optimizers tell each of their steps.
OPTIMIZER = "torch.optim.optimizer"
#: So many steps without a loader are told; returns are watched for the last of them.
STEPS, WATCHED_STEPS = 64, 4
#: The same once a loader was iterated, for an evaluation, say: an inner loop may step often on one batch.
STEPS_AFTER_LOADER = 1024
#: Depth of containers, and number of items, that are looked through for tensors.
_MAX_DEPTH, _MAX_ITEMS = 3, 32
#: Functions of torch that call a model and compute gradients, and the file that calls an optimizer's step.
_TRAINING_CALLS = ("_wrapped_call_impl", "_call_impl", "_engine_run_backward")
_OPTIMIZER_FILE = os.path.join("torch", "optim", "optimizer.py")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class StepsWithoutLoader:
    """Counts optimizer steps since the last batch of a loader.

    Args:
        tell: is called once with what is known of such a training: ``steps``; ``function``, ``file`` and ``line`` of
            the function that makes the batches; ``loop``, the place of the step. What is not known is ``None``.
    """

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._steps = 0
        self._limit = STEPS
        self._is_over = False
        self._makers: dict[CodeType, int] = {}
        """Functions of the user's with the numbers in the tensors that they have returned."""

    def batch_taken(self) -> None:
        """A loop has taken a batch of a loader."""
        self._steps, self._limit = 0, STEPS_AFTER_LOADER
        self._unwatch()

    def end(self) -> None:
        """It is known what the script trains on."""
        self._is_over = True
        self._unwatch()

    def stepped(self) -> None:
        """An optimizer has made a step: called from within it."""
        if self._is_over:
            return
        self._steps += 1
        if self._steps == self._limit - WATCHED_STEPS and sys.getprofile() is None:  # it may be measured by others
            sys.setprofile(self._watch)
        elif self._steps < self._limit - WATCHED_STEPS:
            self._unwatch()  # a batch was taken in another thread
        if self._steps >= self._limit:
            self.end()
            self._tell({"steps": self._steps, **self._describe_maker(), "loop": _place_of_step(sys._getframe(1))})

    def _unwatch(self) -> None:
        if sys.getprofile() == self._watch:
            sys.setprofile(None)

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "return" or argument is None or not is_users(frame.f_code.co_filename):
            return
        numbers = sum(count_numbers(tensor) for tensor in tensors_in(argument))
        if numbers and not is_within_training(frame):
            self._makers[frame.f_code] = self._makers.get(frame.f_code, 0) + numbers

    def _describe_maker(self) -> dict[str, Any]:
        if not self._makers:
            return {"function": None, "file": None, "line": None}
        # Of functions that hand on the same batch, the innermost has returned first.
        code = max(self._makers, key=lambda code: self._makers[code])
        return {"function": code.co_qualname, "file": os.path.abspath(code.co_filename), "line": code.co_firstlineno}


def is_users(file: str) -> bool:
    """Whether a file is neither a library's nor pipetune's."""
    return not (file.startswith(("<", _OURS)) or any(part in file for part in _LIBRARIES))


def is_within_training(frame: FrameType | None) -> bool:
    """Whether a frame was called by a model, a backward pass or an optimizer."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in _TRAINING_CALLS or code.co_filename.endswith(_OPTIMIZER_FILE):
            return True
        frame = frame.f_back
    return False


def tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors in what a function returns, in containers or by themselves."""
    if hasattr(value, "untyped_storage") and hasattr(value, "numel"):
        yield value
    elif depth < _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        items = value.values() if isinstance(value, Mapping) else value
        for _, item in zip(range(_MAX_ITEMS), items, strict=False):
            yield from tensors_in(item, depth + 1)


def count_numbers(tensor: Any) -> int:
    """Numbers in a tensor of data; 0: it was computed with parameters, or is a single number, as a loss is."""
    if tensor.requires_grad or tensor.numel() <= 1:
        return 0
    return int(tensor.numel())


def _place_of_step(frame: FrameType | None) -> str | None:
    """``FILE:LINE`` of the user's call that has led to a step; ``None``: there is none."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None
