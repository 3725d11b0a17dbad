"""What several stages measure: data set, batch size, candidates of the registry, conditions of a measurement."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.candidates.settings import SETTINGS, Setting, has_effect
from pipetune.datasets.index import ImageSet, write_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.measure.conditions import Conditions
from pipetune.records.sweep import AcceleratorSpec, Candidate, Workload
from pipetune.registry import BACKENDS, Backend, installed_version, loaders_of, without_cuda

#: ``lease.sh --small`` sets it, for a rehearsal on the stand-in CUDA runtime: there is no cuDNN, so that a step of a
#: real model takes launches by the hundred thousand.
SMALL = "PIPETUNE_LEASE_SMALL"
IS_SMALL = SMALL in os.environ
#: The device is the limit, the loader is the limit, the device is the limit with any loader.
MODEL, FAST_MODEL, SLOW_MODEL = ("squeezenet1_1",) * 3 if IS_SMALL else ("resnet50", "resnet18", "vit_l_16")
IMAGE_SIZE = 64 if IS_SMALL else 224
#: An emulated device is a rehearsal: it takes fewer samples, so that a small machine comes to an end.
EMULATED = "emulated:400"
PREFETCH = 2
#: Of each photograph of a script's data set: an epoch is 125 batches. In one of a few batches, waiting for the first
#: batch of each epoch would be most of what a job loses, however well it is fed.
COPIES = 100 if IS_SMALL else 2000


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def batch_size(is_cuda: bool) -> int:
    """Samples per batch; a rehearsal's are small."""
    return 128 if is_cuda and not IS_SMALL else 16


def dataset_uri(is_cuda: bool, images: int = 6000) -> str:
    """Synthetic photographs: they decode as real ones do, and nothing has to be carried."""
    return f"synthetic:imagenet?n={images}" if is_cuda and not IS_SMALL else "synthetic:caltech256?n=200"


def fastest_cpu_backend() -> Backend:
    """The installed backend that is likely to take the least CPU time for Pillow's pixels or nearly those."""
    usable = [
        backend
        for backend in BACKENDS.values()
        if backend.releases_gil
        and backend.deviation is not None
        and backend.deviation.psnr_db >= 50
        and installed_version(backend) is not None
    ]
    return min(usable, key=lambda backend: backend.usual_cost, default=BACKENDS["pillow"])


def gpu_decoders(is_cuda: bool) -> list[Backend]:
    """The backends that decode on a CUDA device and can be used here; on an emulated one they decode on the CPU."""
    decoders = [backend for backend in BACKENDS.values() if backend.decodes_on_cuda]
    return [backend for backend in decoders if is_usable(backend, is_cuda)]


def cpu_relatives(is_cuda: bool) -> list[Backend]:
    """The libraries of the GPU decoders, decoding on the CPU beside a CUDA device."""
    relatives = [BACKENDS[backend.on_cpu] for backend in BACKENDS.values() if backend.on_cpu is not None]
    return [backend for backend in relatives if is_usable(backend, is_cuda)]


def is_usable(backend: Backend, is_cuda: bool) -> bool:
    """Whether a backend is installed, and a candidate on such a device."""
    return installed_version(backend) is not None and (is_cuda or without_cuda(backend) is None)


def default_candidate(backend: Backend, workers: int, samples: int) -> Candidate:
    """A candidate of the backend with its default loader and settings."""
    workers = max(workers, min(loader.min_workers for loader in loaders_of(backend)))
    return Candidate(
        backend=backend.name, num_workers=workers, prefetch_depth=PREFETCH if workers else 0, batch_size=samples
    )


def device_candidates(backend: Backend, workers: int, samples: int) -> list[Candidate]:
    """The candidates of a backend that differ in what only a CUDA device has, in the order in which a sweep tries them:
    one that crashes costs a new process."""
    candidates = [default_candidate(backend, workers, samples)]
    for setting in SETTINGS.values():
        if setting.needs_cuda and has_effect(setting, candidates[0]):
            candidates = [
                replace(candidate, **{setting.name: value}) for candidate in candidates for value in end_values(setting)
            ]
    return candidates


def begin_as_sweep(candidate: Candidate) -> Candidate:
    """The candidate with the values that a sweep beside a CUDA device tries first, of settings that need one."""
    values = {
        name: setting.tried[0]
        for name, setting in SETTINGS.items()
        if setting.needs_cuda and has_effect(setting, candidate)
    }
    return replace(candidate, **values)


def end_values(setting: Setting) -> tuple[Any, ...]:
    """The values of a setting, the one that is tried first in front; of a range the default and its ends."""
    return (setting.default, *setting.limits) if setting.limits else setting.tried


def accelerator_of_device(device: str, index: int) -> AcceleratorSpec:
    """The device as workloads name it."""
    if device.startswith("cuda"):
        return AcceleratorSpec(kind="cuda", name=f"CUDA device {index}", device_index=index)
    from pipetune.accelerator.named import emulated_spec

    return emulated_spec(EMULATED.partition(":")[2])


def open_images(uri: str) -> ImageSet:
    """The images of a data set; synthetic ones are made with all cores."""
    return open_dataset(uri, seed=0, limit_images=10**6, limit_bytes=2**40, workers=usable_cores(), progress=None)


def make_workload(images: ImageSet, folder: Path, spec: AcceleratorSpec, seconds: float) -> Workload:
    """A workload over the images; their index is written into ``folder``.

    Args:
        seconds: length of the timed phase; the warm-up may take twice as long.
    """
    index = folder / "index.json"
    write_index(str(index), images)
    return Workload(
        dataset=images.name,
        index_path=str(index),
        accelerator=spec,
        model=MODEL,
        image_size=IMAGE_SIZE,
        precision="auto" if spec.kind == "cuda" else "emulated",
        seconds=seconds,
        warmup_limit_s=max(2.0, 2 * seconds),
        cache="warm",
        seed=0,
    )


def make_conditions(images: ImageSet, workload: Workload) -> Conditions:
    """The conditions of single measurements."""
    return Conditions(workload=workload, paths=images.files, cores=frozenset(os.sched_getaffinity(0)))


def training_words(is_cuda: bool, data: Path, *words: str) -> list[str]:
    """The command line of :mod:`benchmarks.gpu.training_script`; on an emulated device it trains a small model."""
    program = [sys.executable, str(Path(__file__).with_name("training_script.py")), str(data)]
    if is_cuda and not IS_SMALL:
        return [*program, *words]
    small = ["--model", "squeezenet1_1", "--crop", "64", "--batch-size", "8"]
    return [*program, *words, *small, "--device", "cuda" if is_cuda else "cpu"]
