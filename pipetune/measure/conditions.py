"""The conditions of a measurement, the same for all candidates of a sweep, and what is known while one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure.fork_servers import ForkServers
from pipetune.measure.machine_speed import Speed
from pipetune.records.sweep import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is known of the running candidate now, over its newest steps."""

    phase: str
    """See :class:`pipetune.records.sweep.Failure`."""
    samples_per_s: float | None = None
    idle_frac: float | None = None
    data_wait_frac: float | None = None
    images_done: int | None = None
    """Number of images that were tried, where all are tried one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All that a measurement depends on besides the candidate."""

    workload: Workload
    paths: Sequence[str]
    """Files of the images, which are brought to the same state of the page cache."""
    cores: frozenset[int]
    """Cores that this process may run on."""
    stages: tuple[str, ...] = ()
    """What the loader does of :data:`pipetune.records.explanation.STAGES`; ``()``: all."""
    timeout_s: float | None = None
    """Longest time for one child (s); ``None``: computed from the workload."""
    interval_s: float = 0.1
    """Time between two readings of the sampler (s)."""
    servers: ForkServers | None = None
    """Of which the candidate gets a fork; ``None``: it gets a new process."""
    gpus: HeldGpus | None = None
    """GPUs that the series of measurements holds open for NVML's readings; ``None``: the measurement opens its own."""
    new_process: bool = False
    """The candidate gets a new process though there are servers."""
    speed_before: Speed | None = None
    """The machine's speed a moment ago; ``None``: it was not read."""
    on_ready: Callable[[], object] | None = None
    """Called when the page cache is in its state and the child is about to be started; ``None``: nobody wants to know.
    """
    device_noise: float | None = None
    """Relative standard deviation between runs in which the accelerator sets the pace; ``None``: what is usual for its
    kind (see :func:`pipetune.stats.noise.device_noise`)."""
