"""The labelled jobs of ``watch_verdicts.py``: ``python benchmarks/watch/jobs.py NAME --folder F`` runs one.

Every job does real work: real JPEGs, a real DataLoader, real reads of a disk that a control group makes slow, a real
server that sends slowly. Only the accelerator is emulated, or there is none: then a sleep, or a training step on the
CPU, is the step.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.watch import loops, stalls, unseen
from benchmarks.watch.loops import Run
from benchmarks.watch.sources import decode_cv2, serve
from pipetune.diagnosis import causes

DISK_LIMIT, CPU_LIMIT, DALI = "disk limit", "cpu limit", "dali"


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its label."""

    name: str
    accepted: tuple[str, ...]
    """Causes that are right; the first is its label."""
    run: Callable[[Run], None]
    needs: str | None = None
    """A control group that the harness makes, or ``dali``."""
    beside: tuple[str, ...] = ()
    """Keys of :data:`BESIDE` that run at the same time: the server from before it starts, burners once it trains."""
    settle_s: float = 1.0
    """Time from its third step until it behaves as its label says."""
    accelerator: bool = True
    nice: int = 0
    ranks: int = 1
    """With two, the second must be named first, and the first must be found waiting for it."""
    quick: bool = True


def burn(folder: Path) -> None:
    """Keep a core busy, as a foreign process would."""
    while True:
        pass


BESIDE: dict[str, Callable[[Path], None]] = {"server": serve, "burner": burn}

_DECODE = (causes.CPU_DECODE,)
_FULL = (causes.CPU_DECODE, causes.CPU_STARVED)
"""Two decoding workers, or more threads, and a training loop on two cores: both are true."""
_P = functools.partial

JOBS: tuple[Job, ...] = (
    Job("decode-pillow-1", _DECODE, _P(loops.decode, workers=1)),
    Job("decode-renamed-2", _FULL, _P(loops.decode, workers=2, worker_init_fn=_P(loops.rename, b"pt_multiprocess"))),
    Job("decode-training-1", _DECODE, loops.decode_for_the_cpu, accelerator=False),
    Job("decode-opencv-1", _DECODE, _P(loops.decode, workers=1, decoder=decode_cv2), quick=False),
    Job("decode-unnamed-sleep-1", _DECODE, loops.decode_without_accelerator, accelerator=False),
    Job("decode-spawned-1", _DECODE, _P(loops.decode, workers=1, multiprocessing_context="spawn"), quick=False),
    Job("decode-threads-1", _DECODE, _P(loops.decode_in_threads, threads=1)),
    Job("decode-dali-1", _DECODE, loops.decode_by_dali, needs=DALI),
    Job("disk-direct-4", (causes.DISK,), _P(loops.from_disk, workers=4, direct=True), needs=DISK_LIMIT, settle_s=4),
    Job(
        "disk-buffered-1", (causes.DISK,), _P(loops.from_disk, workers=1, direct=False), needs=DISK_LIMIT, settle_s=4,
        quick=False,
    ),
    Job("network-socket-1", (causes.NETWORK,), _P(loops.from_network, workers=1, http=False), beside=("server",)),
    Job(
        "network-http-1", (causes.NETWORK,), _P(loops.from_network, workers=1, http=True), beside=("server",),
        quick=False,
    ),
    Job("network-http-4", (causes.NETWORK,), _P(loops.from_network, workers=4, http=True), beside=("server",)),
    Job("quota-2", (causes.CPU_STARVED,), _P(loops.decode, workers=2), needs=CPU_LIMIT),
    Job("neighbours-2", (causes.CPU_STARVED,), _P(loops.decode, workers=2), beside=4 * ("burner",), nice=10),
    Job("inline-pillow-0", (causes.NO_WORKERS,), _P(loops.decode, workers=0)),
    Job("inline-opencv-0", (causes.NO_WORKERS,), _P(loops.decode, workers=0, decoder=decode_cv2), quick=False),
    Job("python-augments-2", (causes.MAIN_PYTHON,), stalls.python_augments, quick=False),
    Job("python-metrics-1", (causes.MAIN_PYTHON,), stalls.python_metrics),
    Job("copies-1", (causes.H2D_COPY,), stalls.copies),
    Job("small-batches-1", (causes.SMALL_BATCH,), stalls.small_batches),
    Job("launches-1", (causes.SMALL_BATCH,), stalls.launches),
    Job("healthy-pillow-2", (causes.HEALTHY,), _P(loops.decode, workers=2, faster=0.4)),
    Job("healthy-pillow-0", (causes.HEALTHY,), _P(loops.decode, workers=0, faster=0.4), quick=False),
    Job(
        "healthy-opencv-4", (causes.HEALTHY,), _P(loops.decode, workers=4, decoder=decode_cv2, faster=0.4), quick=False,
    ),
    Job(
        "healthy-training-1", (causes.HEALTHY,), _P(loops.decode_for_the_cpu, repeats=4), accelerator=False,
        quick=False,
    ),
    Job("checkpoints-1", (causes.CHECKPOINT,), stalls.checkpoints, settle_s=3),
    Job("evaluations-2", (causes.CHECKPOINT,), stalls.evaluations, settle_s=3),
    Job("restarts-2", (causes.WORKER_START,), loops.restarted_workers, settle_s=3),
    Job("unseen-pool-1", _DECODE, unseen.pool_of_threads, accelerator=False),
    Job("unseen-queue-1", _DECODE, unseen.queue_of_threads, accelerator=False, quick=False),
    Job("unseen-stages-3", _FULL, unseen.stages_of_threads, accelerator=False, quick=False),
    Job("unseen-processes-1", _DECODE, unseen.queue_of_processes, accelerator=False, quick=False),
    Job(
        "unseen-network-2", (causes.NETWORK,), unseen.fetches_in_threads, accelerator=False, beside=("server",),
        quick=False,
    ),
    Job("unseen-inline-0", (causes.NO_WORKERS,), unseen.decodes_itself, accelerator=False, quick=False),
    Job("unseen-tokens-0", (causes.MAIN_PYTHON,), unseen.tokenises, accelerator=False),
    Job("unseen-metrics-1", (causes.MAIN_PYTHON,), unseen.counts_metrics, accelerator=False, quick=False),
    Job("unseen-checkpoints-1", (causes.CHECKPOINT,), unseen.checkpoints, accelerator=False, settle_s=3),
    Job("unseen-evaluations-1", (causes.CHECKPOINT,), unseen.evaluations, accelerator=False, settle_s=3, quick=False),
    Job("unseen-healthy-0", (causes.HEALTHY,), unseen.trains_from_memory, accelerator=False),
    Job("unseen-healthy-1", (causes.HEALTHY,), unseen.trains_beside_threads, accelerator=False, quick=False),
    Job("slow-rank-1", _DECODE, stalls.two_ranks, ranks=2),
    Job(
        "disk-and-decode-1", (causes.DISK, causes.CPU_DECODE), loops.from_disk_and_decode, needs=DISK_LIMIT,
        settle_s=4, quick=False,
    ),
    Job(
        "python-and-decode-1", (causes.MAIN_PYTHON, causes.CPU_DECODE), stalls.python_augments_beside_decoding,
        quick=False,
    ),
    Job(
        "disk-and-network-1", (causes.DISK, causes.NETWORK), loops.from_disk_and_network, needs=DISK_LIMIT,
        beside=("server",), settle_s=4, quick=False,
    ),
)  # fmt: skip


def main() -> None:
    jobs = {job.name: job for job in JOBS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*jobs, *BESIDE])
    parser.add_argument("--folder", type=Path, required=True, help="for what it writes; the caller's to remove")
    parser.add_argument("--seconds", type=int, default=60, help="ends after this long at the latest")
    parser.add_argument("--seed", type=int, default=0, help="another order of the data, another rate")
    options = parser.parse_args()
    signal.alarm(options.seconds)
    if options.name in BESIDE:
        BESIDE[options.name](options.folder)
    else:
        jobs[options.name].run(Run(options.folder, options.seed))


if __name__ == "__main__":
    main()
