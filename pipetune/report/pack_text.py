"""What a pack will be, and what became of it, in words. Pure."""

from __future__ import annotations

from pipetune.datasets.image_notes import count_noun, describe_audit, list_label_notes
from pipetune.datasets.index import MAX_SKIPPED_KEPT
from pipetune.records.pack import CORES, READING, Gain, PackPlan, PackResult
from pipetune.report.line import Kind, Line
from pipetune.units import format_bytes, format_duration, format_rate, format_share, whole_percent

#: What is nearer to what was predicted than this share is as it was predicted.
_AS_PREDICTED = 0.005

_LIMITS = {CORES: "the cores", READING: "reading the images"}
_DONE = {
    "copied": "keep their bytes", "resized": "are resized", "transcoded": "are written anew without loss",
    "turned": "are turned upright", "turned_lossless": "are turned upright without loss",
    "converted": "become JPEGs",
    "decoded": "become pixels",
}  # fmt: skip
#: From this share of crops on it is said that they are enlarged.
_FEW = 0.01


def plan_lines(name: str, plan: PackPlan, crop: int) -> list[Line]:
    """The plan, for people.

    Args:
        name: of the pack, ``""`` where there is one.
        crop: edge of the training crops that are spoken of (px).
    """
    what = f"{name}: " if name else ""
    half = _half(plan.total_bytes, plan.total_bytes_ci95)
    lines = [Line(
        Kind.HEADLINE,
        f"{what}{count_noun(plan.images, 'image', 'images')} of {count_noun(plan.classes, 'class', 'classes')}, "
        f"{format_bytes(plan.source_bytes)}, {'becomes' if plan.images == 1 else 'become'} about "
        f"{format_bytes(round(plan.total_bytes))} ±{format_share(half)} in "
        f"{count_noun(plan.shards, 'shard', 'shards')}",
    )]  # fmt: skip
    limit = _LIMITS.get(plan.limited_by, "writing")
    what = "Packing" if plan.together == 1 else f"Packing all {plan.together} at the same time"
    lines.append(Line(
        Kind.DETAIL,
        f"{what} takes about {format_duration(plan.seconds)} "
        f"({' to '.join(map(format_duration, plan.seconds_ci95))}, as the disk and the machine are); "
        f"{limit} set{'' if plan.limited_by == CORES else 's'} the pace (an image takes "
        f"{1000 * plan.cpu_s_per_image:.1f} ms of CPU time).",
    ))  # fmt: skip
    if plan.done:
        parts = [f"{whole_percent(count / plan.sampled)} {_DONE[done]}" for done, count in sorted(plan.done.items())]
        lines.append(Line(Kind.DETAIL, f"Of {plan.sampled} images that were packed on trial, {', '.join(parts)}."))
    if plan.decode_time_frac is not None:
        lines.append(Line(
            Kind.DETAIL,
            f"Decoding a packed image takes {whole_percent(plan.decode_time_frac)} of the time of its source (Pillow).",
        ))  # fmt: skip
    if plan.done.get("decoded"):
        lines.append(Line(Kind.DETAIL, "A packed image is not decoded any more."))
    if plan.cut_off_frac >= _FEW:
        lines.append(Line(
            Kind.DETAIL,
            f"The square in the middle of each is packed: {whole_percent(plan.cut_off_frac)} of the sources' pixels "
            "lie outside of it.",
        ))  # fmt: skip
    if plan.gain is not None:
        lines.append(Line(Kind.DETAIL, f"{_gain_text(plan.gain)}, by what the images packed on trial gain."))
    if plan.enlarged_after_frac >= _FEW:
        lines.append(Line(
            Kind.DETAIL,
            f"Of random training crops of {crop} px, {whole_percent(plan.enlarged_after_frac)} have to be enlarged; of "
            f"the sources {whole_percent(plan.enlarged_before_frac)}.",
        ))  # fmt: skip
    if plan.fidelity is not None:
        found = plan.fidelity
        lines.append(Line(
            Kind.DETAIL,
            f"Such crops are {found.psnr_db:.1f} dB from the sources' in the mean, 90 % of them at least "
            f"{found.psnr_db_10:.1f} dB (PSNR; SSIM {found.ssim:.3f}; {found.crops} crops).",
        ))  # fmt: skip
    if plan.sample_rejected:
        lines.append(Line(
            Kind.WARNING, f"{plan.sample_rejected} of {plan.sampled + plan.sample_rejected} images on trial cannot be "
            "packed, and will be listed in rejected.jsonl",
        ))  # fmt: skip
    if plan.unusable:
        first = f"the first {MAX_SKIPPED_KEPT} " if plan.unusable > MAX_SKIPPED_KEPT else ""
        entries = count_noun(plan.unusable, "other entry", "other entries")
        lines.append(Line(Kind.WARNING, f"{entries} cannot be used, and {first}will be listed in rejected.jsonl"))
    if plan.audit is not None:
        lines.append(Line(Kind.DETAIL, f"The source: {describe_audit(plan.audit)}."))
        lines += [Line(Kind.WARNING, note) for note in list_label_notes(plan.audit)]
    if plan.empty_classes:
        lines.append(_describe_empty_classes(plan.empty_classes))
    if plan.total_bytes > plan.source_bytes:
        lines.append(Line(Kind.WARNING, "the pack will be larger than its source"))
    return lines


def _describe_empty_classes(count: int) -> Line:
    have = "class before the last has" if count == 1 else "classes before the last have"
    return Line(
        Kind.WARNING,
        f"{count:,} {have} no image: ImageFolder counts folders, and gives the classes behind lower labels than the "
        "source has; every other --format keeps the labels",
    )


def result_lines(name: str, plan: PackPlan, result: PackResult) -> list[Line]:
    """What became of it, beside what was predicted."""
    what = f"{name}: " if name else ""
    if not result.complete:
        return [Line(
            Kind.DETAIL,
            f"{what}{result.shards:,} of {plan.shards:,} shards are written; once all are, the same command with "
            "--resume and without --part checks them and writes the index",
        )]  # fmt: skip
    lines = [Line(
        Kind.HEADLINE,
        f"{what}{count_noun(result.images, 'image', 'images')} in {count_noun(result.shards, 'shard', 'shards')}, "
        f"{format_bytes(result.total_bytes)}{_beside(result.total_bytes, plan.total_bytes)}, in "
        f"{format_duration(result.seconds)}{_beside(result.seconds, plan.seconds)}"
        f"{'' if plan.together == 1 else ', all together'}",
    )]  # fmt: skip
    if result.verified:
        lines.append(Line(Kind.DETAIL, f"{result.verified:,} images were read again: all as they were written."))
    if result.turned:
        lines.append(Line(
            Kind.DETAIL,
            f"{result.turned:,} images keep a tag with their orientation, which some loaders obey and others do not; "
            "--upright turns them",
        ))  # fmt: skip
    if result.empty_classes > plan.empty_classes:  # otherwise the plan has said so
        lines.append(_describe_empty_classes(result.empty_classes))
    if result.rejected:
        some = "1 image was" if result.rejected == 1 else f"{result.rejected:,} images were"
        lines.append(Line(Kind.WARNING, f"{some} not packed: see rejected.jsonl"))
    return lines


def gain_lines(name: str, plan: PackPlan, gain: Gain) -> list[Line]:
    """What a training gains by the whole pack, beside what was predicted."""
    beside = "" if plan.gain is None else _beside(gain.after_samples_per_s, plan.gain.after_samples_per_s)
    return [Line(Kind.DETAIL, f"{f'{name}: ' if name else ''}{_gain_text(gain)}{beside}.")]


def _gain_text(gain: Gain) -> str:
    before, after = (
        f"{format_rate(rate, '')} ±{format_share(_half(rate, ci95))}"
        for rate, ci95 in (
            (gain.before_samples_per_s, gain.before_ci95), (gain.after_samples_per_s, gain.after_ci95),
        )
    )  # fmt: skip
    return (
        f"Training with {gain.candidate} on {gain.device}: {before} images/s from the sources, {after} from the pack, "
        f"{gain.factor:.2f} times as many"
    )


def _beside(value: float, predicted: float) -> str:
    if not predicted:
        return ""
    off = value / predicted - 1
    if abs(off) < _AS_PREDICTED:
        return " (as predicted)"
    return f" ({whole_percent(abs(off))} {'more' if off > 0 else 'less'} than predicted)"


def _half(value: float, interval: tuple[float, float]) -> float:
    return (interval[1] - interval[0]) / 2 / value if value else 0.0
