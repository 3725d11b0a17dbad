"""Which values ``run.json`` and ``result.json`` have, of what is read from them again.

Fields that are not named here may hold anything. A value of another type is left out where the files are read
(:mod:`pipetune.store.fitting`), so that nobody behind it meets one.
"""

from __future__ import annotations

from typing import Any, TypedDict

from pipetune.records.batch_size import BatchSizes
from pipetune.records.explanation import Explanation
from pipetune.records.prediction import WhatIf
from pipetune.records.script import ScriptSummary
from pipetune.records.summaries import DatasetSummary, WorkloadSummary
from pipetune.records.sweep import AcceleratorSpec, Candidate, Failure, Goal


class StoredHost(TypedDict, total=False):
    """The machine: see :class:`pipetune.machine.host.Host`."""

    hostname: str | None
    kernel: str | None
    cpu_model: str | None
    cores_present: int | None
    cores_affinity: list[int]
    cpu_quota_cores: float | None
    cores_usable: float | None
    memory_total_bytes: int | None
    memory_limit_bytes: int | None
    memory_available_bytes: int | None
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    open_files_limit: int | None
    python: str | None
    versions: dict[str, str]


class StoredWorkload(TypedDict, total=False):
    """What all candidates of a sweep have in common: see :class:`pipetune.records.sweep.Workload`."""

    dataset: str
    index_path: str
    accelerator: AcceleratorSpec
    model: str
    image_size: int
    precision: str
    seconds: float
    warmup_limit_s: float
    cache: str
    seed: int
    loader_path: str | None
    ranks: int
    sync: str
    bind: str
    checkpointing: bool
    compiled: bool
    gpu_memory_limit_bytes: int | None
    augment: str


class StoredSpace(TypedDict, total=False):
    """The candidates: see :class:`pipetune.candidates.space.Space`."""

    backends: list[str]
    workers: list[int]
    prefetch: list[int]
    batch_size: int
    pin_memory: bool
    default_backend: str
    settings: list[Any]
    accelerator_decodes: list[str]
    usable_cores: float | None
    ranks: int
    untuned: Candidate | None
    confirm_alone: bool
    alternates: bool
    restart_remedies: list[Any]


class StoredUnfit(TypedDict):
    """A candidate that does not fit on the machine."""

    candidate: Candidate
    failure: Failure


class StoredRow(TypedDict):
    """A candidate in a result."""

    key: str


class StoredInfo(TypedDict, total=False):
    """``run.json`` of a sweep, a watch, an observed loop, an explanation or a check of predictions."""

    kind: str
    pipetune: str
    started: str
    command: str
    cwd: str
    options: dict[str, Any]
    workload: StoredWorkload
    goal: Goal
    space: StoredSpace
    host: StoredHost
    gpus: list[str | dict[str, Any]]
    dataset: str | dict[str, Any]
    dataset_fingerprint: str
    limit_bytes: int | None
    notes: list[str]
    does_not_fit: list[StoredUnfit]
    resumed: list[dict[str, Any]]
    script: ScriptSummary | None
    pid: int | None
    title: str
    job_command: list[str]
    found: str
    interval_s: float
    window_s: float
    unix_s: float
    monotonic_ns: int
    warmup_steps: int
    clock: str | None
    gpu: str | None
    of: str | None
    candidate: Candidate
    subset_images: int | None


class StoredResult(TypedDict, total=False):
    """``result.json`` of the same."""

    kind: str
    status: str
    message: str | None
    target: float
    target_metric: str
    ceiling_samples_per_s: float | None
    accelerator: AcceleratorSpec
    dataset: DatasetSummary
    workload: WorkloadSummary
    host: StoredHost
    recommended: StoredRow | None
    does_not_fit: list[StoredUnfit]
    complete: bool
    script: ScriptSummary | None
    reused: int
    seconds: float
    reason: str
    verdicts: list[dict[str, Any]]
    stalls: int
    stalled_s: float
    own_core_frac: float | None
    own_rss_bytes: int | None
    job_exit_code: int | None
    explanation: Explanation | None
    whatif: WhatIf
    batch_sizes: BatchSizes
    below: str | None
