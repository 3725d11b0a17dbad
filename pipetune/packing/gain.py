"""How fast a training is with the sources and with the pack: the same loader, measured in turn."""

from __future__ import annotations

import math
import os
import tempfile
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from pipetune.datasets.index import replace_images, write_index
from pipetune.errors import PipetuneError
from pipetune.explaining.options import ExplainOptions, find_subject
from pipetune.explaining.subject import Subject
from pipetune.install.find import find_jpeg_roi
from pipetune.machine.host import describe_host
from pipetune.measure import harness
from pipetune.measure.conditions import Conditions
from pipetune.measure.failures import may_be_a_bad_image
from pipetune.measure.fork_servers import ForkServers
from pipetune.packing.formats.contract import Format, Row, Sample, ShardRows
from pipetune.packing.formats.table import FORMATS
from pipetune.packing.pixels import Packed
from pipetune.packing.shards import read_source
from pipetune.packing.sources import Sources
from pipetune.records.pack import Gain
from pipetune.records.sweep import Measurement
from pipetune.registry import CROP_DECODER
from pipetune.stats.noise import run_noise

Report = Callable[[str, int, int | None], None]

BEFORE, AFTER, SAMPLE_BEFORE, SAMPLE_AFTER = "sources", "pack", "sampled sources", "sample packed"
#: A sample has so many images at least, each several times if need be: fewer are not two batches.
_LEAST_IMAGES = 256
#: Relative standard error of a sample's mean time per image, before and after together: images differ by some 40 %,
#: which mostly cancels in the ratio.
_SAMPLE_ERROR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GainOptions:
    """What is measured."""

    model: str = "resnet50"
    """As for a sweep, like the device."""
    device: str = "auto"
    candidate: str | None = None
    """The loader's key; ``None``: the usual one, or for pixels jpeg-roi where it is there, with a worker per core."""
    image_size: int = 224
    seconds: float = 2.0
    blocks: int = 3
    raw: bool = False
    """The pack holds pixels."""

    @property
    def key(self) -> str | None:
        """Of the loader."""
        if self.candidate is not None or not self.raw or find_jpeg_roi() is None:
            return self.candidate
        return f"{CROP_DECODER}-w{max(1, round(describe_host().cores_usable))}-p2-b64"


def gain_options(
    *, model: str | None, device: str | None, candidate: str | None, crop: int, raw: bool
) -> GainOptions | None:
    """What is measured; ``None``: none of the three was named, so nothing is.

    Args:
        crop: edge of the training crops (px).
        raw: the pack holds pixels.
    """
    if model is None and device is None and candidate is None:
        return None
    return GainOptions(model=model or "resnet50", device=device or "auto", candidate=candidate, image_size=crop, raw=raw)


def subject_of(dataset: str, chosen: GainOptions, report: Report) -> Subject:
    """The loader over a data set.

    Raises:
        UsageError: an option that does not fit the machine or the data set.
    """
    asked = ExplainOptions(
        dataset=dataset, candidate=chosen.key, model=chosen.model, device=chosen.device, image_size=chosen.image_size,
        seconds=chosen.seconds,
    )  # fmt: skip
    return find_subject(asked, report)


def measured_gain(source: str, folder: Path, chosen: GainOptions, report: Report) -> Gain:
    """The rates with the sources and with the pack.

    Raises:
        UsageError: an option that does not fit the machine or the data set.
        PipetuneError: a rate could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    subjects = {name: subject_of(str(path), chosen, report) for name, path in ((BEFORE, source), (AFTER, folder))}
    found = _measured(subjects, chosen, report)
    (before, before_ci95), (after, after_ci95) = _mean(found[BEFORE]), _mean(found[AFTER])
    return _gain(subjects[BEFORE], before, before_ci95, after, after_ci95)


def predicted_gain(
    source: Subject, sources: Sources, order: array[int], packed: Mapping[int, Packed], format_: Format, *, out: Path,
    chosen: GainOptions, report: Report,
) -> Gain:  # fmt: skip
    """The rate with the sources, and with the pack by what a sample's images gain.

    Args:
        source: from :func:`subject_of`.
        packed: the sample: place in the order -> the image as it is packed.
        out: a folder in which there is room for the sample.

    Raises:
        PipetuneError: a rate could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    with tempfile.TemporaryDirectory(prefix=".pipetune-trial-", dir=out) as scratch:
        before, after = Path(scratch) / "before", Path(scratch) / "after"
        numbers = [order[position] for position in packed]
        as_it_is = FORMATS["webdataset" if source.images.in_shards else "folder"]
        datas = [read_source(sources.where(number)) for number in numbers]
        labels = [sources.label(number) for number in numbers]
        _write(before, as_it_is, [(data, _ending(data)) for data in datas], labels)
        _write(after, format_, [(one.data, one.ending) for one in packed.values()], labels)
        subjects = {
            BEFORE: source, SAMPLE_BEFORE: subject_of(str(before), chosen, report),
            SAMPLE_AFTER: subject_of(str(after), chosen, report),
        }  # fmt: skip
        found = _measured(subjects, chosen, report)
    rates = {name: _mean(measurements) for name, measurements in found.items()}
    (rate, ci95), (one, one_ci95), (other, other_ci95) = (rates[name] for name in (BEFORE, SAMPLE_BEFORE, SAMPLE_AFTER))
    after_rate = rate * other / one
    relative = math.hypot(
        _half(rate, ci95), _half(one, one_ci95), _half(other, other_ci95), 2 * _SAMPLE_ERROR
    )  # fmt: skip
    half = relative * after_rate
    return _gain(source, rate, ci95, after_rate, (max(0.0, after_rate - half), after_rate + half))


def _half(rate: float, ci95: tuple[float, float]) -> float:
    return (ci95[1] - ci95[0]) / 2 / rate


def _gain(
    subject: Subject, before: float, before_ci95: tuple[float, float], after: float, after_ci95: tuple[float, float]
) -> Gain:  # fmt: skip
    return Gain(
        candidate=subject.candidate.key, device=subject.workload.accelerator.name, before_samples_per_s=before,
        before_ci95=before_ci95, after_samples_per_s=after, after_ci95=after_ci95,
    )  # fmt: skip


def _ending(data: bytes) -> str:
    return "png" if data.startswith(b"\x89PNG") else "webp" if data[8:12] == b"WEBP" else "jpg"


def _write(folder: Path, format_: Format, images: Sequence[tuple[bytes, str]], labels: Sequence[int]) -> None:
    """A shard of these images, each as often as it takes to have enough."""
    folder.mkdir()
    times = max(1, math.ceil(_LEAST_IMAGES / len(images)))
    name, rows = format_.shard_name(0), []
    writer = format_.open(folder, name, times * len(images))
    try:
        for number in range(times * len(images)):
            data, ending = images[number % len(images)]
            label = labels[number % len(images)]
            key = f"class{label:08d}/{number}"
            place = writer.add(Sample(number, key, ending, label, data))
            rows.append(Row(number, key, label, place.start, place.length))
        size = writer.finish()
        writer.publish()
    except BaseException:
        writer.abandon()
        raise
    format_.write_index(folder, [ShardRows(name, rows, size)], [str(label) for label in range(max(labels) + 1)])


def _measured(subjects: Mapping[str, Subject], chosen: GainOptions, report: Report) -> dict[str, list[Measurement]]:
    """Each in each block, in random order.

    Raises:
        PipetuneError: one could not be measured.
        KeyboardInterrupt, Interrupted: asked to stop.
    """
    found: dict[str, list[Measurement]] = {name: [] for name in subjects}
    number = 0
    with tempfile.TemporaryDirectory(prefix="pipetune-rates-") as scratch, ForkServers() as servers:
        servers.begin(next(iter(subjects.values())).workload.accelerator)
        ready = {
            name: _conditions(subject, Path(scratch) / f"{place}.json", servers)
            for place, (name, subject) in enumerate(subjects.items())
        }
        for block in range(1, chosen.blocks + 1):
            for name in Random(block).sample(sorted(subjects), len(subjects)):
                report(f"measuring a training with the {name}", number, chosen.blocks * len(subjects))
                found[name].append(_once(subjects[name], ready[name]))
                number += 1
    return found


def _conditions(subject: Subject, index: Path, servers: ForkServers) -> Conditions:
    write_index(str(index), subject.images)
    return Conditions(
        workload=replace(subject.workload, index_path=str(index)), paths=subject.images.files,
        cores=frozenset(os.sched_getaffinity(0)), servers=servers,
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
            hint=outcome.failure.hint or "omit --model, --device and --candidate: the pack is planned without it",
        )
    return outcome.measurement


def _mean(found: Sequence[Measurement]) -> tuple[float, tuple[float, float]]:
    """Mean rate over the blocks, with its 95 % interval: each block's is widened by the machine's noise already."""
    rate = fmean(one.samples_per_s for one in found)
    half = math.sqrt(sum(((one.ci95[1] - one.ci95[0]) / 2) ** 2 for one in found)) / len(found)
    return rate, (max(0.0, rate - half), rate + half)
