"""How fast a training is with the sources and with the pack: the same loader, measured in turn."""

from __future__ import annotations

import contextlib
import math
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from pipetune.datasets.index import replace_images, write_index
from pipetune.errors import PipetuneError, UsageError
from pipetune.explaining.options import ExplainOptions, find_subject
from pipetune.explaining.subject import Subject
from pipetune.install.find import find_jpeg_roi
from pipetune.machine.host import describe_host
from pipetune.machine.nvml.held import HeldGpus
from pipetune.measure import harness
from pipetune.measure.conditions import Conditions
from pipetune.measure.failures import may_be_a_bad_image
from pipetune.measure.fork_servers import ForkServers
from pipetune.packing.formats.contract import Format, Row, Sample, ShardRows
from pipetune.packing.formats.table import FORMATS
from pipetune.packing.pixels import Packed, Rejected
from pipetune.packing.shards import read_source
from pipetune.packing.sources import Sources
from pipetune.processes.temporary_folder import temporary_folder
from pipetune.records.pack import Gain
from pipetune.records.sweep import Measurement
from pipetune.registry import BACKENDS, CROP_DECODER
from pipetune.stats.noise import run_noise
from pipetune.stats.rates import mean_of_blocks

Report = Callable[[str, int, int | None], None]

#: What is measured: a training with ...
BEFORE, AFTER, SAMPLE, SAMPLE_PACKED = "the sources", "pack", "a sample of them", "the sample in pack"
#: A sample has so many images at least, each several times if need be: fewer are not two batches.
_LEAST_IMAGES = 256
#: Relative standard error of what a sample of 200 images gains, which is assumed: images differ in what they take,
#: before and after alike. Of six predictions of ``pack_gain.py`` five were within 7 %; one was 41 % too low, at a time
#: when the machine was slow.
_SAMPLE_ERROR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GainOptions:
    """What is measured."""

    model: str = "resnet50"
    """As for a sweep, like the device."""
    device: str = "auto"
    candidate: str | None = None
    """The loader's key; ``None``: the usual one, with a worker per core; for pixels jpeg-roi where it is there, with
    bytes in memory that is used again: new memory for floats takes longer than pixels do."""
    image_size: int = 224
    seconds: float = 2.0
    blocks: int = 2
    raw: bool = False
    """The pack holds pixels."""
    compile: bool = False
    """``torch.compile`` compiles the model."""

    @property
    def key(self) -> str | None:
        """Of the loader."""
        if self.candidate is not None or not self.raw or find_jpeg_roi() is None:
            return self.candidate
        return f"{CROP_DECODER}-w{max(1, round(describe_host().cores_usable))}-p2-b64-reuse-u8"


def gain_options(
    *, model: str | None, device: str | None, candidate: str | None, crop: int, raw: bool, compile: bool = False
) -> GainOptions | None:
    """What is measured; ``None``: no option asks for it, so nothing is.

    Args:
        crop: edge of the training crops (px).
        raw: the pack holds pixels.
    """
    if model is None and device is None and candidate is None and not compile:
        return None
    return GainOptions(
        model=model or "resnet50",
        device=device or "auto",
        candidate=candidate,
        image_size=crop,
        raw=raw,
        compile=compile,
    )


def subject_of(dataset: str, chosen: GainOptions, report: Report) -> Subject:
    """The loader over a data set.

    Raises:
        UsageError: an option that does not fit the machine or the data set, or a loader that takes no pixels.
    """
    backend = (chosen.key or "").partition("-w")[0]
    if chosen.raw and backend in BACKENDS and not BACKENDS[backend].reads_raw:
        raise UsageError(
            f"--candidate {chosen.key} decodes, and --format raw stores pixels",
            hint="name one that takes pixels, e.g. --candidate jpeg-roi-w2-p2-b64",
        )
    asked = ExplainOptions(
        dataset=dataset, candidate=chosen.key, model=chosen.model, device=chosen.device, image_size=chosen.image_size,
        seconds=chosen.seconds, compile=chosen.compile,
    )  # fmt: skip
    return find_subject(asked, report)


def measured_gains(source: str, folders: Sequence[Path], chosen: GainOptions, report: Report) -> list[Gain]:
    """The rates with the sources and with each pack.

    Raises:
        UsageError: an option that does not fit the machine or a pack.
        PipetuneError: a rate could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    subjects = {BEFORE: subject_of(source, chosen, report)}
    for number, folder in enumerate(folders):
        subjects[f"{AFTER} {number + 1}"] = subject_of(str(folder), chosen, report)
    before, *after = (_mean(found) for found in _measured(subjects, chosen, report).values())
    return [_gain(subjects[BEFORE], before, one) for one in after]


def predicted_gains(
    source: Subject, sources: Sources, order: array[int], packed: Sequence[Mapping[int, Packed]], format_: Format,
    chosen: GainOptions, report: Report,
) -> list[Gain | None]:  # fmt: skip
    """The rate with the sources, and with each pack by what a sample's images gain; ``None``: none of them is in it.

    Args:
        source: from :func:`subject_of`.
        packed: the sample of each pack: place in the order -> the image as it is packed.

    Raises:
        PipetuneError: a rate could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    positions = sorted({position for one in packed for position in one})
    datas = _read(sources, order, positions)
    as_it_is = FORMATS["webdataset" if source.images.in_shards else "folder"]
    images = max(_LEAST_IMAGES, 2 * source.candidate.batch_size)
    with temporary_folder("sample") as scratch:
        before = scratch / "before"
        labels = {position: sources.label(order[position]) for position in datas}
        _write(before, as_it_is, {position: (data, _ending(data)) for position, data in datas.items()}, labels, images)
        subjects = {BEFORE: source, SAMPLE: subject_of(str(before), chosen, report)}
        for number, one in enumerate(packed):
            there = {position: (image.data, image.ending) for position, image in one.items() if position in datas}
            if there:
                after = scratch / f"after-{number}"
                _write(after, format_, there, labels, images)
                subjects[f"{SAMPLE_PACKED} {number + 1}"] = subject_of(str(after), chosen, report)
        found = {name: _mean(of) for name, of in _measured(subjects, chosen, report).items()}
    return [
        _by_sample(source, found[BEFORE], found[SAMPLE], found[name]) if name in found else None
        for name in (f"{SAMPLE_PACKED} {number + 1}" for number in range(len(packed)))
    ]


def _read(sources: Sources, order: array[int], positions: Sequence[int]) -> dict[int, bytes]:
    """The sampled sources, without those that were changed or removed meanwhile."""
    found = {}
    for position in positions:
        with contextlib.suppress(OSError, Rejected):
            found[position] = read_source(sources.where(order[position]))
    if not found:
        raise PipetuneError("no image of the sample can be read again", hint="was the data set changed meanwhile?")
    return found


#: A rate (images/s) with its 95 % interval.
_Rate = tuple[float, tuple[float, float]]


def _by_sample(source: Subject, before: _Rate, sample: _Rate, packed: _Rate) -> Gain:
    rate = before[0] * packed[0] / sample[0]
    half = rate * math.hypot(*(_half(*one) for one in (before, sample, packed)), 2 * _SAMPLE_ERROR)
    return _gain(source, before, (rate, (max(0.0, rate - half), rate + half)))


def _half(rate: float, ci95: tuple[float, float]) -> float:
    return (ci95[1] - ci95[0]) / 2 / rate


def _gain(subject: Subject, before: _Rate, after: _Rate) -> Gain:
    return Gain(
        candidate=subject.candidate.key, device=subject.workload.accelerator.name, before_samples_per_s=before[0],
        before_ci95=before[1], after_samples_per_s=after[0], after_ci95=after[1],
    )  # fmt: skip


def _ending(data: bytes) -> str:
    return "png" if data.startswith(b"\x89PNG") else "webp" if data[8:12] == b"WEBP" else "jpg"


def _write(
    folder: Path, format_: Format, images: Mapping[int, tuple[bytes, str]], labels: Mapping[int, int], least: int
) -> None:
    """A shard of these images, each as often as it takes to have so many."""
    folder.mkdir()
    positions = list(images) * math.ceil(least / len(images))
    name, rows = format_.shard_name(0), []
    writer = format_.open(folder, name, len(positions))
    try:
        for number, position in enumerate(positions):
            (data, ending), label = images[position], labels[position]
            key = f"class{label:08d}/{number}"
            place = writer.add(Sample(number, key, ending, label, data))
            rows.append(Row(number, key, label, place.start, place.length))
        size = writer.finish()
        writer.publish()
    except BaseException:
        writer.abandon()
        raise
    classes = [str(label) for label in range(max(labels.values()) + 1)]
    format_.write_index(folder, [ShardRows(name, rows, size)], classes)


def _measured(subjects: Mapping[str, Subject], chosen: GainOptions, report: Report) -> dict[str, list[Measurement]]:
    """Each in each block, in random order.

    Raises:
        PipetuneError: one could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    found: dict[str, list[Measurement]] = {name: [] for name in subjects}
    number = 0
    with temporary_folder("rates") as scratch, ForkServers() as servers, HeldGpus() as gpus:
        servers.begin(next(iter(subjects.values())).workload.accelerator)
        ready = {
            name: _conditions(subject, scratch / f"{place}.json", servers, gpus)
            for place, (name, subject) in enumerate(subjects.items())
        }
        for block in range(1, chosen.blocks + 1):
            for name in Random(block).sample(sorted(subjects), len(subjects)):
                report(f"measuring a training with {name}", number, chosen.blocks * len(subjects))
                found[name].append(_once(subjects[name], ready[name]))
                number += 1
    return found


def _conditions(subject: Subject, index: Path, servers: ForkServers, gpus: HeldGpus) -> Conditions:
    write_index(str(index), subject.images)
    return Conditions(
        workload=replace(subject.workload, index_path=str(index)), paths=subject.images.files,
        cores=frozenset(os.sched_getaffinity(0)), servers=servers, gpus=gpus,
    )  # fmt: skip


def _once(subject: Subject, conditions: Conditions) -> Measurement:
    for attempt in (1, 2):
        outcome, recording = harness.measure(
            subject.candidate, "candidate", conditions, attempt=attempt, run_noise=run_noise((), ())
        )
        if recording.stopped is not None:
            raise recording.stopped
        failure = outcome.failure
        if failure is None or attempt == 2 or not may_be_a_bad_image(failure):
            break
        bad = harness.find_bad_images(subject.candidate, conditions)
        if not bad:
            break
        write_index(conditions.workload.index_path, replace_images(subject.images, bad))
    if outcome.measurement is None:
        assert outcome.failure is not None
        raise PipetuneError(
            f"the training cannot be measured with {subject.candidate.key}: {outcome.failure.message}",
            hint="name another loader with --candidate, or omit --model, --device and --candidate",
        )
    return outcome.measurement


def _mean(found: Sequence[Measurement]) -> _Rate:
    return mean_of_blocks([(one.samples_per_s, one.ci95) for one in found])
