from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.records.script import ScriptOption
from pipetune.sourcetext.command_options import find_value, find_word, set_option

WORKERS = ScriptOption(words=("--workers", "-j"), program="/job/train.py")
HYDRA = ScriptOption(words=("data.num_workers",), program="/job/train.py", override=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py --workers 4 --lr 1", "python train.py --workers 8 --lr 1"),
        ("python train.py --workers=4", "python train.py --workers=8"),
        ("python train.py -j 4", "python train.py -j 8"),
        ("python train.py -j4", "python train.py -j8"),
        ("python train.py -j 2 --workers 4", "python train.py -j 2 --workers 8"),
        ("python train.py", "python train.py --workers 8"),
        ("torchrun -m job.train", "torchrun -m job.train --workers 8"),
        ("bash run.sh", None),
        ("bash run.sh -j 4", "bash run.sh -j 8"),
    ],
)
def test_the_option_that_counts_gets_the_value(words: str, expected: str | None) -> None:
    changed = set_option(WORKERS, words.split(), 8)
    assert (None if changed is None else " ".join(changed)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py data.num_workers=4", "python train.py data.num_workers=8"),
        ("python train.py ++data.num_workers=4 x=1", "python train.py ++data.num_workers=8 x=1"),
        ("python train.py", "python train.py data.num_workers=8"),
    ],
)
def test_an_override_is_one_word(words: str, expected: str) -> None:
    changed = set_option(HYDRA, words.split(), 8)
    assert changed is not None
    assert " ".join(changed) == expected


def test_what_a_command_says_is_read() -> None:
    assert find_value(WORKERS, ["x", "--workers", "4"]) == "4"
    assert find_value(WORKERS, ["x", "-j=4"]) == "4"
    assert find_value(WORKERS, ["x", "--workers-too", "4"]) is None
    assert find_value(HYDRA, ["x", "data.num_workers=4"]) == "4"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python train.py --lr 1 run", "python train.py --workers 8 --lr 1 run"),
        ("torchrun -m job.train run", "torchrun -m job.train --workers 8 run"),
        ("python train.py --workers 2 run", "python train.py --workers 8 run"),
    ],
)
def test_an_option_that_comes_first_is_put_behind_the_program(words: str, expected: str) -> None:
    changed = set_option(replace(WORKERS, comes_first=True), words.split(), 8)
    assert changed is not None
    assert " ".join(changed) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--num-workers=4", "--num-workers"), ("DATA.NUM_WORKERS", "DATA.NUM_WORKERS"), ("++data.num_workers=4",) * 2,
        ("--workers=4", None), ("num_workers_too=1", None),
    ],
)  # fmt: skip
def test_the_word_of_a_command_that_names_a_setting_is_found(word: str, expected: str | None) -> None:
    assert find_word("num_workers", ["python", word]) == (None if expected is None else expected.partition("=")[0])
