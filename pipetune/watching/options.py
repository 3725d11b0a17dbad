"""The options of a watch as values: from the command line, a notebook or a script alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipetune.errors import UsageError
from pipetune.units import format_duration

#: Readings of one rank that are kept, and so the maximum of a window: ten minutes at two per second.
MAX_READINGS = 1200
#: Shortest and longest time between two readings, and length of a window (s).
_INTERVAL_S, _WINDOW_S = (0.05, 60.0), (1.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What is watched, how closely, and what is written. The defaults are those of the command and of the API."""

    command: tuple[str, ...] = ()
    """A job to start; empty: the job runs already."""
    pid: int | None = None
    """Process to watch; ``None``: it is searched for."""
    gpu: int | None = None
    """GPU (NVML index) that every rank is taken to use; ``None``: found for each rank."""
    interval_s: float = 0.5
    """Time between two readings (s)."""
    window_s: float = 10.0
    """Length of a window, which has one verdict per rank (s)."""
    for_s: float | None = None
    """The watch ends after this long (s); ``None``: with the job."""
    once: bool = False
    """The watch ends after one window."""
    log: Path | None = None
    """File that every record is appended to as a JSON line."""
    out: Path | None = None
    """Run folder; ``None``: a new one below ``pipetune-runs``."""
    save: bool = True
    """Whether a run folder is written."""
    prometheus: str | None = None
    """Address to serve the newest window at (:func:`pipetune.watching.prometheus.parse_address`)."""
    fail_under: float | None = None
    """The exit code is 1 if less than this share (0..1] of a rank's time was not lost, or nothing could be judged."""
    stacks: bool = True
    """Python stacks are sampled while a stall is suspected."""


def check(options: WatchOptions) -> None:
    """Refuse values that are out of range or contradict each other, before a file or process is touched.

    Raises:
        UsageError: names the option and the value.
    """
    _within("--interval", options.interval_s, *_INTERVAL_S)
    _within("--window", options.window_s, *_WINDOW_S)
    if options.window_s > MAX_READINGS * options.interval_s:
        raise UsageError(
            f"--window {options.window_s:g}s has {options.window_s / options.interval_s:.0f} readings, more than "
            f"{MAX_READINGS}",
            hint=f"choose an --interval of at least {1000 * options.window_s / MAX_READINGS:.0f}ms",
        )
    if options.command and options.pid is not None:
        raise UsageError(
            f"--pid {options.pid} together with a job to start", hint="name a process or a command, not both"
        )
    if options.fail_under is not None and not 0 < options.fail_under <= 1:
        raise UsageError(f"--fail-under {options.fail_under:g} is out of range", hint="write a share such as 0.8")
    if options.gpu is not None and options.gpu < 0:
        raise UsageError(f"--gpu {options.gpu} is out of range", hint="GPUs count from 0: pipetune doctor lists them")
    if options.prometheus is not None:
        from pipetune.watching.prometheus import parse_address

        parse_address(options.prometheus)


def _within(option: str, seconds: float, shortest_s: float, longest_s: float) -> None:
    if not shortest_s <= seconds <= longest_s:
        raise UsageError(
            f"{option} {seconds:g}s is out of range",
            hint=f"choose from {format_duration(shortest_s)} to {format_duration(longest_s)}",
        )
