from __future__ import annotations

import pytest

from pipetune.answering.questions import (
    DISKS,
    Asked,
    parse_disks,
    parse_memory,
    question_text,
    questions_of,
)
from pipetune.errors import UsageError
from pipetune.records.prediction import Disk, Question


def test_every_combination_is_asked_in_the_order_of_the_options() -> None:
    found = questions_of(Asked(cores="4, 8", device="a100,emulated:900"))
    assert [(one.cores, one.device) for one in found] == [
        (4.0, "a100"), (4.0, "emulated:900"), (8.0, "a100"), (8.0, "emulated:900"),
    ]  # fmt: skip
    assert questions_of(Asked()) == ()
    assert questions_of(Asked(workers="0,2,2")) == (Question(workers=0), Question(workers=2))


def test_reads_belong_to_the_bytes_before_them() -> None:
    assert parse_disks("500MB/s,8000iops,hdd") == (Disk(bytes_per_s=5e8, requests_per_s=8000.0), DISKS["hdd"])
    assert parse_disks("8kiops") == (Disk(requests_per_s=8000.0),)
    assert parse_disks("1GiB/s, 100 MB/s") == (Disk(bytes_per_s=2.0**30), Disk(bytes_per_s=1e8))
    assert parse_disks("500MB/s;8000iops") == (Disk(bytes_per_s=5e8), Disk(requests_per_s=8000.0))
    assert parse_disks("hdd,100iops") == (DISKS["hdd"], Disk(requests_per_s=100.0))


@pytest.mark.parametrize("text", ["10Gb/s", "500mbit/s", "10 Gbps"])
def test_bits_are_not_taken_for_bytes(text: str) -> None:
    with pytest.raises(UsageError, match="bits"):
        parse_disks(text)


@pytest.mark.parametrize("text", ["fast", "500", "0MB/s", "", ",", "nan MB/s"])
def test_what_is_no_storage_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="storage"):
        parse_disks(text)


def test_a_mistyped_disk_has_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        parse_disks("nvmee")
    assert "nvme" in str(caught.value)


def test_memory_is_read_as_it_is_sold() -> None:
    assert parse_memory("64GB") == parse_memory("64 GiB") == parse_memory("64g") == 64 * 2**30
    assert parse_memory("68719476736") == 64 * 2**30
    for text in ("64", "0GB", "many", "-1GB"):
        with pytest.raises(UsageError, match="--memory"):
            parse_memory(text)


@pytest.mark.parametrize(
    ("asked", "option"),
    [(Asked(cores="0"), "--cores"), (Asked(cores="nan"), "--cores"), (Asked(cores=","), "--cores"),
     (Asked(workers="-1"), "--workers"), (Asked(workers="1.5"), "--workers"), (Asked(ranks="0"), "--ranks"),
     (Asked(image_size="1"), "--image-size"), (Asked(shorter_edge="x"), "--shorter-edge"),
     (Asked(disk="x"), "--disk"), (Asked(memory="x"), "--memory")],
)  # fmt: skip
def test_a_bad_value_is_named_with_its_option(asked: Asked, option: str) -> None:
    with pytest.raises(UsageError) as caught:
        questions_of(asked)
    assert option in str(caught.value)


def test_too_many_combinations_are_a_mistake() -> None:
    many = ",".join(map(str, range(1, 21)))
    with pytest.raises(UsageError, match="400 questions"):
        questions_of(Asked(cores=many, workers=many))


def test_a_question_in_words() -> None:
    assert question_text(Question()) == "as it is"
    assert question_text(Question(cores=1.0, workers=0)) == "1 core, no workers"
    full = Question(
        ranks=8, cores=64.0, workers=6, device="a100", disk=Disk(bytes_per_s=5e8, requests_per_s=8000.0),
        memory_bytes=64 * 2**30, image_size=160, shorter_edge=256, transforms="device",
    )  # fmt: skip
    assert question_text(full) == (
        "8 ranks, 64 cores, 6 workers, accelerator a100, 500 MB/s and 8,000 reads/s, 64.0 GiB of memory, crops of 160 "
        "px, images with a shorter edge of 256 px, images augmented on the device"
    )
    assert question_text(Question(transforms="worker")) == "images augmented in workers"
