from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.answering.nearest import NotHereError, nearest
from pipetune.records.prediction import Question
from pipetune.records.sweep import AcceleratorSpec, Candidate
from tests.unit.answering.bases import base


def near(question: Question, cores: float = 2.0, memory: int | None = 24 * 2**30) -> tuple[Question, tuple[str, ...]]:
    return nearest(question, base(), cores_here=cores, memory_here=memory, devices_here=0)


def test_what_the_machine_can_do_is_measured_as_it_is() -> None:
    question = Question(cores=1.0, workers=2)
    assert near(question) == (question, ())


def test_more_cores_than_there_are_become_all_of_them() -> None:
    question, notes = near(Question(cores=16.0))
    assert question.cores == 2
    assert notes == ("with 2 cores, as this machine has 2",)


def test_cores_of_another_machine_are_limited_though_nobody_asks() -> None:
    question, notes = near(Question(workers=1))  # the run had four
    assert (question.cores, question.workers) == (2.0, 1)
    assert notes


def test_fractions_of_cores_become_whole_ones() -> None:
    question, notes = near(Question(cores=1.4))
    assert question.cores == 1
    assert "whole" in notes[0]


def test_workers_and_ranks_have_an_end() -> None:
    question, notes = near(Question(cores=2.0, workers=64, ranks=64))
    assert (question.workers, question.ranks) == (16, 8)
    assert len(notes) == 2


def test_a_cuda_device_stands_in_only_where_there_is_one() -> None:
    real = base()
    real = replace(
        real, workload=replace(real.workload, accelerator=AcceleratorSpec(kind="cuda", name="x", device_index=0))
    )
    with pytest.raises(NotHereError, match="emulated:RATE"):
        nearest(Question(cores=2.0), real, cores_here=2.0, memory_here=None, devices_here=0)
    asked = Question(cores=2.0, ranks=8)
    assert nearest(asked, real, cores_here=2.0, memory_here=None, devices_here=2)[0].ranks == 2
    named = Question(cores=2.0, device="emulated:900")
    assert nearest(named, real, cores_here=2.0, memory_here=None, devices_here=0) == (named, ())


def test_a_scripts_loader_is_open_in_the_script_only() -> None:
    script = base(candidate=Candidate(backend="script", num_workers=2, prefetch_depth=2, batch_size=8, loader="user"))
    with pytest.raises(NotHereError, match="script"):
        nearest(Question(cores=2.0), script, cores_here=2.0, memory_here=None, devices_here=0)


def test_a_quota_that_is_as_it_was_stays() -> None:
    half = base(cores=1.5)
    assert nearest(Question(), half, cores_here=1.5, memory_here=None, devices_here=0) == (Question(), ())


def test_more_memory_than_there_is_cannot_be_had() -> None:
    with pytest.raises(NotHereError, match=r"24\.0 GiB"):
        near(Question(cores=2.0, memory_bytes=64 * 2**30))
    assert near(Question(cores=2.0, memory_bytes=64 * 2**30), memory=None)[1] == ()
