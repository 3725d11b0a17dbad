from __future__ import annotations

from dataclasses import replace

from pipetune.records.pack import Fidelity, PackPlan, PackResult
from pipetune.report.line import Kind, texts
from pipetune.report.pack_text import plan_lines, result_lines

PLAN = PackPlan(
    images=120_000, classes=100, source_bytes=12 << 30, sampled=100, sample_rejected=0, unusable=0,
    total_bytes=3.0 * (1 << 30), total_bytes_ci95=(2.7 * (1 << 30), 3.3 * (1 << 30)), shards=12, seconds=600.0,
    seconds_ci95=(540.0, 660.0), limited_by="cores", cpu_s_per_image=0.0033, write_bytes_per_s=1e9,
    decode_time_frac=0.31, enlarged_before_frac=0.25, enlarged_after_frac=0.64,
    fidelity=Fidelity(crop=224, crops=96, psnr_db=39.6, psnr_db_10=36.3, ssim=0.98), done={"copied": 3, "resized": 97},
)  # fmt: skip
RESULT = PackResult(
    images=119_990, rejected=10, unusable=0, shards=12, total_bytes=3 << 30, seconds=630.0, done={"resized": 119_990},
    turned=7, verified=200, complete=True,
)  # fmt: skip


def test_a_plan_says_what_will_come_of_it() -> None:
    assert texts(plan_lines("", PLAN, 224)) == [
        "120,000 images of 100 classes, 12.0 GiB, become about 3.00 GiB ±10.0 % in 12 shards",
        "Packing takes about 10 min 00 s (9 min 00 s to 11 min 00 s, as the disk and the machine are); the cores set "
        "the pace (an image takes 3.3 ms of CPU time).",
        "Of 100 images that were packed on trial, 3 % keep their bytes, 97 % are resized.",
        "Decoding a packed image takes 31 % of the time of its source (Pillow).",
        "Of random training crops of 224 px, 64 % have to be enlarged; of the sources 25 %.",
        "Such crops are 39.6 dB from the sources' in the mean, 90 % of them at least 36.3 dB (PSNR; SSIM 0.980; "
        "96 crops).",
    ]


def test_what_to_know_is_a_warning() -> None:
    lines = plan_lines("train", replace(PLAN, total_bytes=13e9 * 1.2, unusable=3, sample_rejected=2), 224)
    assert lines[0].text.startswith("train: 120,000 images")
    assert [text for kind, text in lines if kind is Kind.WARNING] == [
        "2 of 102 images on trial cannot be packed, and will be listed in rejected.jsonl",
        "3 other entries cannot be used, and will be listed in rejected.jsonl",
        "the pack will be larger than its source",
    ]


def test_a_result_stands_beside_its_prediction() -> None:
    lines = texts(result_lines("", PLAN, RESULT))
    assert lines[0] == (
        "119,990 images in 12 shards, 3.00 GiB (as predicted), in 10 min 30 s (5 % more than predicted)"
    )
    assert lines[1] == "200 images were read again: all as they were written."
    assert "7 images keep a tag with their orientation" in lines[2]
    assert lines[3] == "10 images were not packed: see rejected.jsonl"


def test_a_part_says_what_is_next() -> None:
    (line,) = texts(result_lines("", PLAN, replace(RESULT, complete=False, shards=5)))
    assert line.startswith("5 of 12 shards are written; once all are, the same command with --resume")
    assert texts(result_lines("", replace(PLAN, total_bytes=0.0, seconds=0.0), RESULT))[0].endswith("in 10 min 30 s")
