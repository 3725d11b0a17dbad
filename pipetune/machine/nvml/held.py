"""GPUs that stay open over a series of measurements, each of which reads them alone.

Where a driver's persistence mode is off and no process has a GPU open, the driver takes the GPU down, and the next
process waits seconds for it to come up again. Between two candidates of a sweep there is no such process but this one.

A process that has GPUs open starts programs and never forks (:mod:`pipetune.machine.nvml.gpu`): fork servers are
programs of their own, and they fork.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from pipetune.machine.nvml.gpu import Gpu
from pipetune.machine.nvml.in_time import call_in_time, open_gpu_in_time


class HeldGpus:
    """The GPUs of a series, each opened when it is first asked for. A context manager: they are closed with it.

    A GPU that is lost is closed when its measurement ends, and all others with theirs: NVML starts anew for the next
    one, as it would in another process. A GPU whose driver hangs is never given back, so the next measurement opens it
    anew, and meets whatever the driver says then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: defaultdict[str | None, list[Gpu]] = defaultdict(list)
        self._era = 0

    def __enter__(self) -> HeldGpus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, uuid: str | None) -> Gpu:
        """A GPU for one measurement, with nothing in its readings of what came before; its ``close`` gives it back.

        Args:
            uuid: as for :func:`pipetune.machine.nvml.gpu.open_gpu`.

        Raises:
            NvmlUnavailable: no binding, library, driver, permission or such GPU, or the driver does not answer.
        """
        with self._lock:
            era = self._era
            held = self._idle[uuid].pop() if self._idle[uuid] else None
        return (held or open_gpu_in_time(uuid)).renew(lambda gpu: self._take_back(uuid, gpu, era))

    def close(self) -> None:
        """Close all that were given back; the others are when they are. May be called again.

        A driver that hangs is left behind, as it is by :func:`open_gpu_in_time`.
        """
        if idle := self._begin_era():
            call_in_time(lambda: _shut_down(idle))

    def _take_back(self, uuid: str | None, gpu: Gpu, era: int) -> None:
        """Called in the thread that has read the GPU, which waits for the driver where that hangs."""
        lost = self._begin_era() if gpu.lost is not None else []
        with self._lock:
            if era == self._era:
                self._idle[uuid].append(gpu)
                return
        _shut_down([*lost, gpu])

    def _begin_era(self) -> list[Gpu]:
        """The GPUs that nobody reads, which are held no more; those that are read now will not be either."""
        with self._lock:
            self._era += 1
            idle = [gpu for gpus in self._idle.values() for gpu in gpus]
            self._idle.clear()
        return idle


def _shut_down(gpus: Sequence[Gpu]) -> None:
    for gpu in gpus:
        gpu.shut_down()
