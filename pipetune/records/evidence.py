"""The signals that a verdict rests on: which one a line of evidence is about, and its number. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Signal(StrEnum):
    """What was read of a job or its machine."""

    ACCELERATOR = "accelerator"
    MAIN_THREAD = "main_thread"
    """Share of a core that the main thread used."""
    STACKS = "stacks"
    """How many stacks of the main thread show what the line names."""
    WORKERS = "workers"
    """Number of loader workers."""
    WORKER_STACKS = "worker_stacks"
    """How many stacks of loader workers were taken."""
    WAIT_CHANNEL = "wait_channel"
    RUN_DELAY = "run_delay"
    CPU = "cpu"
    """Busy share of the machine's CPU (%)."""
    PRESSURE = "pressure"
    """Share of the time in which some task waited for storage (%; PSI io some)."""
    CPU_QUOTA = "cpu_quota"
    """Share of the time in which the quota stopped the job (0..1)."""
    DISK = "disk"
    """Bytes per second that the loader read from disk."""
    NETWORK = "network"
    """Bytes per second that the machine received."""
    GPU_CLOCK = "gpu_clock"
    """Clock of the GPU's multiprocessors, as a share of the highest (0..1)."""
    GPU_SHARING = "gpu_sharing"
    """Share of the time in which other processes compute on the GPU (0..1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalValue:
    """A signal and the number behind one line of evidence."""

    signal: str
    """One of :class:`Signal`; a text, so that a newer version's files stay readable."""
    value: float
    """In the unit that :class:`Signal` says."""
