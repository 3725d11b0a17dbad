"""How much of a GPU's memory the training step of a script takes, by torch's allocator."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

#: Counts errors that torch has raised because memory had ended, in what it tells of its allocator.
_RAISED = "num_ooms"
#: That is asked for at most so often (s): it makes a dictionary of some hundred entries.
_ASK_EVERY_S = 0.05
#: A script that has more than this share of its memory on other GPUs is one model on several.
_ELSEWHERE = 0.1


class CannotMeasureMemoryError(ValueError):
    """The script's memory is not that of one GPU."""


class DeviceMemory:
    """The most memory that is reserved from now on, on the device that has the script's model.

    Nothing runs on the device when it is made.

    Args:
        share: of the memory that the process may have, beyond which torch fails (0..1].
        limit_bytes: the same in bytes, which counts where it is given.

    Raises:
        CannotMeasureMemoryError: the script has nothing on a GPU, or a model on several.
    """

    _own_shares: ClassVar[dict[int, float]] = {}
    """Device -> share of its memory that the script has limited itself to."""

    def __init__(
        self, share: float, limit_bytes: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cuda, self._clock = sys.modules["torch"].cuda, clock
        gc.collect()
        self._cuda.empty_cache()
        self._index = self._of_the_model()
        free, self._total = self._cuda.mem_get_info(self._index)
        # What the process has now it may have again.
        self._free = min(int(free) + int(self._cuda.memory_reserved(self._index)), self._own_limit())
        limit = share * self._free if limit_bytes is None else limit_bytes
        self._cuda.set_per_process_memory_fraction(min(1.0, limit / self._total), self._index)
        self._at_first = self._raised = self._errors()
        self._asked_s = self._clock()
        self._updated = _parameters()
        self._versions = [parameter._version for parameter in self._updated]
        self._cuda.reset_peak_memory_stats(self._index)

    def _of_the_model(self) -> int:
        sizes = [int(self._cuda.memory_allocated(index)) for index in range(self._cuda.device_count())]
        if not sum(sizes):
            raise CannotMeasureMemoryError("the script has nothing in a GPU's memory")
        if sum(sizes) - max(sizes) > _ELSEWHERE * sum(sizes):
            raise CannotMeasureMemoryError("the script's model is on several GPUs")
        return sizes.index(max(sizes))

    def _own_limit(self) -> int:
        """What the script had limited itself to before we did (bytes)."""
        asked = getattr(self._cuda, "get_per_process_memory_fraction", lambda index: 1.0)
        share = self._own_shares.setdefault(self._index, float(asked(self._index)))
        return int(share * self._total)

    def settle(self) -> None:
        """Forget what was before: a loop that is some batches ahead has only now come to those of the new size.

        So do errors that torch has caught itself, which tries cuDNN's algorithms in the first steps.
        """
        self._cuda.empty_cache()
        self._cuda.reset_peak_memory_stats(self._index)
        self._at_first = self._raised = self._errors()

    def ended(self) -> bool:
        """Whether memory has ended since, as a script that catches the error lets it, in step after step."""
        if self._clock() - self._asked_s < _ASK_EVERY_S:
            return False
        self._asked_s = self._clock()
        return self._errors() > self._raised

    def ended_at_all(self) -> bool:
        """Whether it has ended since the beginning, or since :meth:`settle`: if the script is ending, that is why."""
        return self._errors() > self._at_first

    def found(self) -> dict[str, Any]:
        """For the message ``result``: the peak, what this process may have, and what the device has (bytes).

        ``optimizer_stepped`` says whether an optimizer has changed its parameters; it is left out where there is none.
        """
        now = [parameter._version for parameter in self._updated]
        return {
            "gpu_mem_bytes": int(self._cuda.max_memory_reserved(self._index)),
            "gpu_allocated_bytes": int(self._cuda.max_memory_allocated(self._index)),
            "gpu_free_bytes": self._free, "gpu_total_bytes": int(self._total),
            **({"optimizer_stepped": now != self._versions} if now else {}),
        }  # fmt: skip

    def _errors(self) -> int:
        return int(self._cuda.memory_stats(self._index).get(_RAISED, 0))


def _parameters() -> list[Any]:
    """A parameter of each group of the optimizers that there are; none where one is fused, whose steps leave no trace.

    Their versions tell of a step. A hook of torch's would, too, and would be compiled into a step that is.
    """
    kind = getattr(sys.modules.get("torch.optim"), "Optimizer", None)
    if kind is None:
        return []
    # By type: to ask some objects for their class is to import what they stand for.
    groups = [group for one in gc.get_objects() if issubclass(type(one), kind) for group in one.param_groups]
    if any(group.get("fused") for group in groups):
        return []
    return [parameters[0] for group in groups if (parameters := group.get("params"))]
