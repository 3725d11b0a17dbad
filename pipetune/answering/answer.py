"""From a question and a measured loader to a prediction, or the reason why there can be none."""

from __future__ import annotations

import math
from dataclasses import replace

from pipetune.accelerator.named import emulated_spec
from pipetune.answering.base import Base
from pipetune.answering.changed import Changed, Refused
from pipetune.answering.disks import disk_rate, reads_of
from pipetune.answering.questions import HARD_DISK
from pipetune.answering.shrunken import Size, size_of, size_with
from pipetune.answering.transforms import move_transforms
from pipetune.datasets.index import ImageSet
from pipetune.errors import PipetuneError
from pipetune.predicting.candidates import NEAR, predicted
from pipetune.predicting.changed_images import Pictures, load_ratio
from pipetune.predicting.model import Setting
from pipetune.predicting.page_cache import hits
from pipetune.predicting.past_errors import GIVEN_DEVICE, MEASURED_DEVICE, PUBLISHED_DEVICE
from pipetune.records.explanation import DECODE
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR, Answer, Prediction, Question
from pipetune.registry import USER, loader_for
from pipetune.units import format_bytes, format_rate, format_share, whole_percent

#: The model and the crop that published rates are of.
_PUBLISHED_MODEL, _PUBLISHED_CROP = "resnet50", 224
#: What waiting for the slowest rank costs at most each time that their number doubles (share): simulated with four
#: workers, two batches prefetched, a loader 25 % faster than the accelerator and batch times whose standard deviation
#: is half their mean; goodput falls from 0.96 with one rank to 0.87, 0.75 and 0.69 with 8, 64 and 256. With a sixth of
#: that scatter nothing is lost.
_LOST_PER_DOUBLING = 0.035
#: Images of another format than JPEG that make no difference (share).
_FEW_OTHERS = 0.05
#: Memory that the kernel and other programs need besides the training processes (bytes).
SYSTEM_BYTES = 1 << 30


def answer(question: Question, base: Base) -> Answer:
    """The answer to one question."""
    try:
        changed = apply(question, base)
    except (Refused, PipetuneError) as reason:
        return Answer(question=question, prediction=None, refused=str(reason))
    return Answer(question=question, prediction=prediction_of(changed, base), notes=tuple(changed.notes))


def prediction_of(changed: Changed, base: Base) -> Prediction:
    """What the changed costs and setting come to."""
    kind = kind_of(changed.factors)
    return predicted(
        changed.costs, changed.setting, kind, base.own_errors(kind), demand_error=changed.demand_error,
        storage=changed.storage, least=1 - _lost_to_slowest(base, changed.setting),
    )  # fmt: skip


def _lost_to_slowest(base: Base, setting: Setting) -> float:
    """What waiting for the slowest rank in each step may cost (0..1): see :data:`_LOST_PER_DOUBLING`."""
    if base.workload.sync != "step" or setting.ranks <= base.ranks:
        return 0.0
    return min(0.5, _LOST_PER_DOUBLING * math.log2(setting.ranks / base.ranks))


def kind_of(factors: list[float]) -> str:
    """How far it is from what was measured."""
    real = [factor for factor in factors if not math.isclose(factor, 1.0, rel_tol=0.01)]
    if not real:
        return INTERPOLATED
    near = len(real) == 1 and 1 / NEAR <= real[0] <= NEAR * 1.0001
    return ONE_FACTOR if near else EXTRAPOLATED


def apply(question: Question, base: Base, sizes: dict[int, Size] | None = None) -> Changed:
    """Costs and setting with everything that is asked.

    Args:
        sizes: of images with other shorter edges, where they are known already; what is found out is added.

    Raises:
        Refused: something is not known that the answer needs.
        UsageError: a value that makes no sense.
        PipetuneError: an image cannot be read.
    """
    changed = Changed(costs=base.costs, setting=base.setting)
    changed.file_bytes = base.mean_bytes
    if base.cold and base.storage_per_s is None:
        raise Refused(f"what storage delivers is not known of a sweep: pipetune explain {base.path} measures it")
    _ranks_cores_and_workers(question, base, changed)
    _images(question, base, changed, {} if sizes is None else sizes)
    move_transforms(question, base, changed)
    _device(question, base, changed)
    _storage(question, base, changed)
    return changed


def _ranks_cores_and_workers(question: Question, base: Base, changed: Changed) -> None:
    workers, ranks = base.candidate.num_workers, question.ranks or base.ranks
    if question.ranks is not None:
        changed.factors.append(ranks / base.ranks)
    if question.cores is not None:
        if base.blocking and question.device is None and question.cores > base.cores:
            raise Refused("how much faster the processor computes a training step with more cores is not known")
        changed.factors.append(question.cores / base.cores)
        if question.workers is None and workers:
            workers = scaled_workers(workers, question.cores / base.cores * base.ranks / ranks)
            if workers != base.candidate.num_workers:
                changed.notes.append("with as many workers per core as now")
    if question.workers is not None:
        workers = question.workers
        if not workers and loader_for(base.candidate).min_workers:
            raise Refused(f"{base.candidate.backend} needs at least one worker")
        before = base.candidate.num_workers
        # With workers and without, other things are done.
        changed.factors.append(math.inf if (workers > 0) != (before > 0) else max(1, workers) / max(1, before))
    changed.setting = replace(
        changed.setting, cores=question.cores or base.cores, workers=workers, ranks=ranks
    )  # fmt: skip
    if ranks > base.ranks:
        changed.notes.append(
            f"each of {ranks} ranks has {workers_text(workers)} and an accelerator of its own; they share the cores"
        )
        lost = _lost_to_slowest(base, changed.setting)
        if lost:
            changed.notes.append(
                f"a step waits for the slowest of {ranks} ranks: where batch times vary by half, that costs up to "
                f"{whole_percent(lost)}, which the interval allows for"
            )


def scaled_workers(workers: int, factor: float) -> int:
    """As many workers per core as before."""
    return max(1, round(workers * factor))


def _images(question: Question, base: Base, changed: Changed, sizes: dict[int, Size]) -> None:
    """Smaller crops, smaller images, or both."""
    if question.image_size is None and question.shorter_edge is None:
        return
    now = base.workload.image_size
    images = _jpegs_of(base)
    before = size_of(images)
    after = before
    if question.shorter_edge is not None:
        if question.shorter_edge not in sizes:
            sizes[question.shorter_edge] = size_with(images, question.shorter_edge)
        after = sizes[question.shorter_edge]
    crop = question.image_size or now
    ratio = load_ratio(
        base.stages, Pictures(pixels=before.pixels, size_bytes=before.size_bytes, crop=now),
        Pictures(pixels=after.pixels, size_bytes=after.size_bytes, crop=crop),
        base.candidate.backend, reuse_buffers=base.candidate.reuse_buffers,
    )  # fmt: skip
    costs = changed.costs.faster(1 / ratio)
    # What processes add goes with the batches, however long decoding takes.
    changed.costs = replace(costs, process_s=min(changed.costs.process_s * (crop / now) ** 2, costs.load_s))
    changed.file_bytes = after.size_bytes
    if question.shorter_edge is not None:
        changed.factors.append(after.pixels / before.pixels)
        changed.notes.append(
            f"{whole_percent(after.changed_frac)} of the images are made smaller: {before.size_bytes / 1e3:,.0f} KB "
            f"become {after.size_bytes / 1e3:,.0f} KB in the mean"
        )
        if question.shorter_edge < crop:
            changed.notes.append(f"all crops of {crop} px are enlarged then")
    if crop != now:
        _other_crop(question, base, changed, (crop / now) ** 2)


def _other_crop(question: Question, base: Base, changed: Changed, pixels: float) -> None:
    """The accelerator works as long on each pixel; so does a training step on the CPU."""
    costs = changed.costs
    changed.costs = replace(
        costs, demand_per_s=costs.demand_per_s / pixels, step_s=costs.step_s * (pixels if base.blocking else 1.0),
        hand_over_per_s=None if costs.hand_over_per_s is None else costs.hand_over_per_s / pixels,
    )  # fmt: skip
    changed.factors.append(pixels)
    if question.device is None:
        changed.demand_error = PUBLISHED_DEVICE
        changed.notes.append(
            f"the accelerator takes {format_rate(changed.costs.demand_per_s)} of {question.image_size} px where it "
            "works as long on each pixel; --device emulated:RATE sets another rate"
        )


def _jpegs_of(base: Base) -> ImageSet:
    """The images, where what they cost is known.

    Raises:
        Refused: it is not.
    """
    if base.candidate.loader == USER:
        raise Refused("images and crops are in your own loader: measure it with others")
    if base.images is None:
        raise Refused(f"the images of {base.path} are not known any more")
    if loader_for(base.candidate).native_workers:
        raise Refused(f"what decoding and cropping take of {base.candidate.backend} cannot be told from the rest")
    if DECODE not in [name for cost in base.stages for name in cost.stages]:
        raise Refused(f"what decoding and cropping take is not known of {base.path}: pipetune explain measures it")
    if sum(max(0.0, cost.cpu_s_per_1000_samples) for cost in base.stages) <= 0:
        raise Refused(f"{base.path}: no stage takes any time")
    others = sum(image.format != "jpeg" for image in base.images.images)
    if others > _FEW_OTHERS * len(base.images.images):
        raise Refused("what decoding takes can be told of JPEGs only")
    return base.images


def _device(question: Question, base: Base, changed: Changed) -> None:
    if question.device is None:
        return
    rate, error, note = device_rate(question.device, base, question.image_size or base.workload.image_size)
    changed.factors.append(rate / base.costs.demand_per_s)
    changed.costs = replace(changed.costs, demand_per_s=rate)
    changed.demand_error = error
    if base.blocking:  # the step leaves the CPU
        changed.costs = replace(changed.costs, step_s=0.0)
        changed.setting = replace(changed.setting, blocking=False)
    if note is not None:
        changed.notes.append(note)


def device_rate(text: str, base: Base, crop: int) -> tuple[float, float, str | None]:
    """What a device takes (samples/s), the relative uncertainty of that, and a remark.

    Raises:
        UsageError: there is no such device.
        Refused: its rate is known of another model, or another crop, only.
    """
    spec = emulated_spec("" if text == "emulated" else text.removeprefix("emulated:"))
    assert spec.rate_samples_per_s is not None
    if spec.source is None:
        return spec.rate_samples_per_s, GIVEN_DEVICE, None
    accelerator, model = base.workload.accelerator, base.workload.model
    if accelerator.kind == "emulated" and accelerator.source is not None:
        return spec.rate_samples_per_s * (base.workload.image_size / crop) ** 2, MEASURED_DEVICE, None
    if model != _PUBLISHED_MODEL or not crop:
        raise Refused(f"the published rates are of {_PUBLISHED_MODEL}, not of {model}: write --device emulated:RATE")
    rate = spec.rate_samples_per_s * (_PUBLISHED_CROP / crop) ** 2
    name = spec.name.removeprefix("EMULATED ")
    return rate, PUBLISHED_DEVICE, f"{name} takes {format_rate(rate)} as published ({spec.source})"


def _storage(question: Question, base: Base, changed: Changed) -> None:
    if question.disk is None and question.memory_bytes is None and not base.cold:
        return
    served = (0.0, 0.0, 0.0) if question.memory_bytes is None else _memory(question.memory_bytes, base, changed)
    if served[0] >= 1:
        changed.setting = replace(changed.setting, storage_per_s=None)
        return
    middle, low, high = _delivers(question, base, changed)
    provisioned = question.disk is not None and question.disk.name != HARD_DISK
    changed.setting = replace(
        changed.setting, storage_per_s=middle / (1 - served[0]), queueing=not provisioned
    )  # fmt: skip
    changed.storage = low / (1 - served[1]), high / (1 - served[2]) if served[2] < 1 else None


def _delivers(question: Question, base: Base, changed: Changed) -> tuple[float, float, float]:
    """Files per second from storage, with the lowest and the highest.

    Raises:
        Refused: it is not known.
    """
    size, now, before = changed.file_bytes, base.mean_bytes, base.storage_per_s
    if question.disk is not None:
        if size is None:
            raise Refused("how large the files are is not known")
        rate = disk_rate(question.disk, size, reads_of(base, size))
        changed.factors.append(rate / before if base.cold and before is not None else math.inf)
        return rate, rate, rate
    if before is None:
        raise Refused(
            f"what storage delivers is not known of {base.path}: pipetune explain measures it, or name one with --disk"
        )
    setting = changed.setting
    readers = max(1, setting.workers) * setting.ranks / (max(1, base.candidate.num_workers) * base.ranks)
    if readers != 1:
        changed.notes.append("whether storage delivers as much to other numbers of readers is not known, which the "
                             "interval allows for")  # fmt: skip
    low, high = before * min(1.0, readers), before * max(1.0, readers)
    if not size or not now or size >= now:
        return before, low, high
    changed.notes.append("whether storage is limited by bytes or by reads is not known, which the interval allows for")
    return before * math.sqrt(now / size), low, high * now / size


def _memory(memory: int, base: Base, changed: Changed) -> tuple[float, float, float]:
    """Share of the reads that memory serves, with the lowest and the highest."""
    if base.images is None or changed.file_bytes is None:
        raise Refused("how large all files together are is not known")
    ranks = changed.setting.ranks / base.ranks
    room = memory - (base.pss_bytes or 0) * ranks - SYSTEM_BYTES
    whole = changed.file_bytes * base.images_in_all
    if room <= 0:
        raise Refused(f"{format_bytes(memory)} of memory are less than the training processes and the system take")
    cached = min(1.0, room / whole)
    changed.factors.append(math.inf)
    if cached >= 1:
        changed.notes.append(f"all {format_bytes(round(whole))} of the files fit: from the second epoch on storage is "
                             "not read")  # fmt: skip
        return 1.0, 1.0, 1.0
    found = hits(cached)
    changed.notes.append(
        f"memory holds {format_share(cached)} of {format_bytes(round(whole))}, and serves {whole_percent(found[1])} of "
        f"the reads in the second epoch, {whole_percent(found[2])} at most later"
    )
    return found


def workers_text(count: int) -> str:
    """``'no workers'``, ``'1 worker'``, ``'2 workers'``."""
    return f"{count or 'no'} worker{'s' * (count != 1)}"
