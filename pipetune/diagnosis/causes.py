"""The causes that ``watch`` names, and every threshold it decides by, with its source.

"Own" thresholds were set on the labelled jobs of ``benchmarks/watch/watch_verdicts.py``.
"""

from __future__ import annotations

HEALTHY = "accelerator_bound"
CPU_DECODE = "cpu_decode_bound"
CPU_STARVED = "cpu_starved"
DISK = "disk_fetch_bound"
NETWORK = "network_fetch_bound"
NO_WORKERS = "no_workers"
WORKER_START = "worker_startup"
MAIN_PYTHON = "main_process_python"
H2D_COPY = "host_to_device_copy"
SMALL_BATCH = "batch_too_small"
COMMUNICATION = "communication_bound"
THROTTLED = "power_or_thermal_throttled"
CHECKPOINT = "checkpoint_or_evaluation"
UNDETERMINED = "undetermined"
NOT_STARTED = "not_started"
"""Nothing was seen that could be lost: the job is still setting up, or is over."""

#: How a person reads them.
TITLES = {
    HEALTHY: "the accelerator is the limit",
    CPU_DECODE: "decoding on the CPU",
    CPU_STARVED: "waiting for a CPU core",
    DISK: "reading from disk",
    NETWORK: "fetching over the network",
    NO_WORKERS: "loading without workers",
    WORKER_START: "starting loader workers",
    MAIN_PYTHON: "Python in the main process",
    H2D_COPY: "copying to the device",
    SMALL_BATCH: "steps too small to fill the accelerator",
    COMMUNICATION: "communication between ranks",
    THROTTLED: "power or heat holding the clocks down",
    CHECKPOINT: "checkpoint or evaluation",
    UNDETERMINED: "undetermined",
    NOT_STARTED: "no training seen yet",
}

#: Below this share of lost time a job is healthy (xprof's input-pipeline analysis: 5 % moderate, 20 % high).
HEALTHY_LOST = 0.05
HIGH_LOST = 0.20
#: Fewer looks than this say nothing about a state that is sampled (a saturated disk reader was seen in state D in only
#: 48 of 100 looks).
LEAST_LOOKS = 8
#: A cause below this share of the lost time is no headline (own; the page of rules proposes 60 % for a single cause,
#: but two causes of 45 % are a finding and no ignorance).
LEAST_HEADLINE = 0.35
#: From this share on a second cause is named beside the first (own).
LEAST_SECOND = 0.25
#: More than this much undetermined is the headline itself (own).
MOST_UNDETERMINED = 0.45
#: Busy, but with less than this share of the multiprocessors at work: NVIDIA's DCGM documentation calls SM activity
#: below 0.5 "likely ineffective" use.
UNDERFILLED = 0.5
#: Clocks held down for this share of the time (own).
THROTTLED_FRAC = 0.05
#: The quota stopped the group for this share of the time (own).
QUOTA_FRAC = 0.05
#: Loader workers that together do less than this much per worker are idle, whatever the main thread waits for (own).
IDLE_WORKERS = 0.10
#: Workers younger than this have not delivered yet (s; own: torch, numpy and a decoder take that long to be forked).
YOUNG_WORKER_S = 1.0
#: Some task waited for storage this share of the time (own; 51 % was measured with two readers at 0.1 % iowait).
DISK_PSI_PCT = 20.0
#: A main thread that reads files faster than this is loading by itself (own; bytes per second).
INLINE_READ_BYTES_PER_S = 1e6
#: Bytes per second from the network below which nothing is fetched there; other traffic of a machine is no more (own).
NETWORK_BYTES_PER_S = 50e3
#: Pressure, where it is known, has to be at least this for a disk verdict to be sure (own).
SURE_DISK_PSI_PCT = 5.0
