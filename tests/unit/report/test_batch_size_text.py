from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from pipetune.records.batch_size import BatchPoint, BatchSizes, ScriptBatches
from pipetune.report.batch_size_text import batch_lines, batch_rows, batch_table, heading
from tests.unit.scaling.test_batch_size import GIB


def point(size: int, rate: float, gib: float, **more: Any) -> BatchPoint:
    return BatchPoint(batch_size=size, samples_per_s=rate, peak_bytes=round(gib * GIB), **more)


POINTS = (point(64, 900.0, 6), point(128, 1000.0, 11), point(192, 1010.0, 17))
FOUND = BatchSizes(
    model="resnet50", image_size=224, precision="bf16", device="GPU 0", total_bytes=round(20 * GIB),
    limit_bytes=round(18 * GIB), predicted_largest=200, largest=192, knee=128, points=POINTS, fixed_bytes=GIB,
    bytes_per_sample=80e6,
)  # fmt: skip
WITH = (point(192, 790.0, 8, checkpointing=True), point(400, 800.0, 16, checkpointing=True))
SCRIPT = ScriptBatches(command=("python", "train.py"), own=64, where="train.py:7", option="--batch-size")


def text(found: BatchSizes) -> str:
    return "\n".join(line.text for line in batch_lines(found, 4))


def test_rows_with_checkpointing_come_last_and_are_marked() -> None:
    rows = batch_rows(replace(FOUND, points=(*WITH, *POINTS), checkpointed_largest=400))
    assert [row[0] for row in rows] == ["64", "128", "192", "192 ckpt", "400 ckpt"]
    assert [row[2] for row in rows] == ["89 %", "99 %", "100 %", "99 %", "100 %"]


def test_whether_checkpointing_pays() -> None:
    assert "checkpointing" not in text(FOUND)
    slower = replace(FOUND, points=(*POINTS, *WITH), checkpointed_largest=400)
    assert "(ckpt) 400 fit, and the best rate is -21 %: not worth it for speed." in text(slower)
    faster = replace(slower, points=(*POINTS, point(400, 1200.0, 16, checkpointing=True)))
    assert "batches of 400 are +19 % faster than the best without it: worth it." in text(faster)
    none = replace(FOUND, points=(*POINTS, BatchPoint(batch_size=400, samples_per_s=None, peak_bytes=None, failure="x",
                                                      out_of_memory=True, checkpointing=True)))  # fmt: skip
    assert "nothing that was measured fits" in text(none)
    alone = replace(slower, points=WITH, knee=None, largest=None)
    assert "(ckpt) 400 fit, and batches of 192 are as fast as any." in text(alone)


def test_what_a_script_has_and_where_it_is_changed() -> None:
    script = replace(FOUND, model="train.py", image_size=None, precision="as in the script", script=SCRIPT)
    assert heading(script) == "train.py on GPU 0, precision as in the script"
    said = text(script)
    assert "the first two sizes alone said 200" in said
    assert "The script has batches of 64; +11 % with 128 if its loader keeps up." in said
    assert "Set --batch-size 128, and accumulate fewer gradients or adapt the learning rate" in said
    smaller = text(replace(script, script=replace(SCRIPT, own=512)))
    assert "Set --batch-size 128, and accumulate more gradients" in smaller
    assert "/dev/shm" not in said
    assert "batch_size=128 at train.py:7" in text(replace(script, script=replace(SCRIPT, option=None)))
    fast = text(replace(script, script=replace(SCRIPT, own=192, ranks=2)))
    assert "The script has batches of 192 in each of 2 ranks: as fast, nothing is to be changed." in fast
    assert "Set " not in fast


def test_with_several_ranks_it_says_whose_the_numbers_are() -> None:
    ranks = replace(FOUND, model="train.py", image_size=None, script=replace(SCRIPT, ranks=2))
    assert heading(ranks).endswith("batch sizes and memory are of each of 2 ranks, rates of all")


def test_the_largest_is_said_to_be_measured_only_where_more_might_fit() -> None:
    assert "The largest that fits 18.0 GiB of 20.0 GiB is 192" in text(FOUND)
    assert "The largest measured that fits" in text(replace(FOUND, limit_bytes=round(30 * GIB)))
    assert "The largest measured that fits" in text(replace(FOUND, stopped="interrupted"))


def test_memory_that_grows_with_no_sample_is_not_told() -> None:
    assert "for each sample" in text(FOUND)
    assert "for each sample" not in text(replace(FOUND, bytes_per_sample=-5.0))


def test_on_a_narrow_terminal_numbers_are_whole() -> None:
    failed = BatchPoint(
        batch_size=400, samples_per_s=None, peak_bytes=None, failure="the script ended with exit code 1"
    )
    rows = replace(FOUND, points=(*POINTS, failed))
    console = Console(width=60, file=io.StringIO(), force_terminal=False)
    console.print(batch_table(rows))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(cell in printed for row in batch_rows(rows)[:3] for cell in row)
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 60
