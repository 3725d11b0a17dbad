"""What loader workers do while the main thread waits for them: the split of a loader's lost time. Pure.

The kernel counts how much of each interval a worker was on a core, and how much it waited for one. The rest it slept;
what it slept for is sampled at each reading. Sleeping because there is no work does not count: what limits the loader
is what its workers do while they have work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pipetune.diagnosis import causes
from pipetune.records.observation import DISK, NETWORK, PIPE, RUNNING, RankReading, TaskReading
from pipetune.sampler.stacks.activity import DECODE, FETCH_DISK, FETCH_NETWORK, WORKER_IDLE

#: Key of time in which a worker had no work, which does not count.
IDLE = "idle"
#: Bytes per second and worker (one page): a worker that reads less does not wait for a disk.
_PAGE_BYTES = 4096
_BY_STACK = {
    FETCH_NETWORK: causes.NETWORK,
    FETCH_DISK: causes.DISK,
    WORKER_IDLE: IDLE,
    DECODE: causes.UNDETERMINED,  # asleep inside the data set's own code, for a reason that cannot be seen from outside
}
#: From so many stacks of workers on, they decide what a sleep is for, and not the wait itself.
_MIN_STACKS = 2


def split_loader_time(
    readings: Sequence[RankReading],
    weights: Sequence[float],
    *,
    received_per_s: float | None = None,
    worker_stacks: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Shares of the loader's lost time by cause; they sum to 1.

    Args:
        readings: of one rank, with at least one worker each.
        weights: how much of the lost time lies in each reading.
        received_per_s: bytes per second from the network.
        worker_stacks: activity of the workers (:mod:`pipetune.sampler.stacks.activity`) → number of stacks.
    """
    asleep = _asleep(readings, weights, received_per_s, worker_stacks or {})
    total: dict[str, float] = defaultdict(float)
    workers = 0.0
    for reading, weight in zip(readings, weights, strict=True):
        if reading.youngest_worker_s is not None and reading.youngest_worker_s < causes.YOUNG_WORKER_S:
            total[causes.WORKER_START] += weight * len(reading.workers)
            workers += weight * len(reading.workers)
            continue
        for task in reading.workers:
            cpu, delay, rest = parts_of(task)
            if task.starting:
                total[causes.WORKER_START] += weight
                workers += weight
                continue
            total[causes.CPU_DECODE] += weight * cpu
            total[causes.CPU_STARVED] += weight * delay
            for cause, share in _rest_of(reading, task, received_per_s, worker_stacks or {}, asleep).items():
                total[cause] += weight * rest * share
            workers += weight
    total.pop(IDLE, None)
    done = sum(total.values())
    if not workers or done < causes.IDLE_WORKERS * workers / max(1, _max_workers(readings)):
        # All workers are idle, and still no batch comes: it is on its way between the processes.
        return {causes.UNDETERMINED: 1.0}
    return {cause: value / done for cause, value in total.items() if value > 0}


def parts_of(task: TaskReading) -> tuple[float, float, float]:
    """Shares of an interval: on a core (at most 1), waiting for one, asleep."""
    # Comparisons instead of min() and max(): this is called some thousand times for a verdict.
    cpu = task.cpu_frac if task.cpu_frac < 1.0 else 1.0
    rest = 1.0 - cpu
    delay = task.run_delay_frac or 0.0
    return (cpu, rest, 0.0) if delay > rest else (cpu, delay, rest - delay)


def fetches_in_poll(reading: RankReading, task: TaskReading, received_per_s: float | None) -> bool:
    """Whether a worker in poll or select waits for the network: it has a connection, and data arrives."""
    return task.wait == PIPE and bool(reading.has_sockets) and _receives(received_per_s)


def _receives(received_per_s: float | None) -> bool:
    return received_per_s is not None and received_per_s >= causes.NETWORK_BYTES_PER_S


def _max_workers(readings: Sequence[RankReading]) -> int:
    # Batches are delivered in order, so one slow worker holds up all: it may be the only one that works.
    return max((len(reading.workers) for reading in readings), default=1)


def _asleep(
    readings: Sequence[RankReading], weights: Sequence[float], received_per_s: float | None, stacks: Mapping[str, int]
) -> dict[str, float]:
    """Causes of the sleep of workers found asleep, as shares; used for those found running, which slept unseen."""
    seen: dict[str, float] = defaultdict(float)
    for reading, weight in zip(readings, weights, strict=True):
        for task in reading.workers:
            if task.wait != RUNNING:
                for cause, share in _sleep_of(reading, task, received_per_s, stacks).items():
                    seen[cause] += weight * parts_of(task)[2] * share
    total = sum(seen.values())
    return {cause: value / total for cause, value in seen.items()} if total > 0 else {}


def _rest_of(
    reading: RankReading,
    task: TaskReading,
    received_per_s: float | None,
    stacks: Mapping[str, int],
    asleep: Mapping[str, float],
) -> Mapping[str, float]:
    if task.wait != RUNNING:
        return _sleep_of(reading, task, received_per_s, stacks)
    return asleep or {IDLE: 1.0}


def _sleep_of(
    reading: RankReading, task: TaskReading, received_per_s: float | None, stacks: Mapping[str, int]
) -> dict[str, float]:
    """Causes of one worker's sleep, as shares."""
    if task.wait == DISK:
        # Waiting for a network file system looks the same to the kernel, but nothing comes from a block device.
        seconds = reading.interval_s or 1.0
        from_device = task.read_bytes is None or task.read_bytes >= _PAGE_BYTES * seconds
        return {causes.DISK if from_device or not _receives(received_per_s) else causes.NETWORK: 1.0}
    if task.wait == NETWORK:
        return {causes.NETWORK: 1.0}
    fetches = fetches_in_poll(reading, task, received_per_s)
    known = sum(stacks.values())
    if known >= _MIN_STACKS and reading.worker_kind == "process":
        shares: dict[str, float] = defaultdict(float)
        for activity, count in stacks.items():
            shares[_BY_STACK.get(activity, causes.UNDETERMINED)] += count / known
        if fetches and causes.UNDETERMINED in shares:
            # In an event loop (aiohttp, aiobotocore) the frames of what is awaited are not on the stack.
            shares[causes.NETWORK] += shares.pop(causes.UNDETERMINED)
        return dict(shares)
    if fetches:
        return {causes.NETWORK: 1.0}
    # A pipe or a lock: it waits for work. A plain sleep or a hidden name has no known meaning.
    return {causes.UNDETERMINED if task.wait in ("sleep", "other") else IDLE: 1.0}
