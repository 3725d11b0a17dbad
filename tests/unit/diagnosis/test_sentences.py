"""Which numbers and causes a sentence names; whole sentences are in tests/golden."""

from __future__ import annotations

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.sentences import run_sentence
from pipetune.records.observation import LOADER_WAIT, NVML
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene


def test_a_window_names_its_loss_and_its_causes_largest_first() -> None:
    sentence = judged(scenes.STARVED).sentence

    first, second = (sentence.index(causes.title_of(cause)) for cause in (causes.CPU_STARVED, causes.CPU_DECODE))
    assert sentence.startswith("60 %")
    assert first < second


def test_a_cause_below_a_quarter_of_the_loss_is_not_named() -> None:
    assert causes.title_of(causes.CPU_STARVED) not in judged(scenes.DECODES).sentence


@pytest.mark.parametrize("readings", [scenes.HEALTHY, scene(0.99)])
def test_a_healthy_window_names_no_cause_of_loss(readings: list[object]) -> None:
    sentence = judged(readings).sentence  # type: ignore[arg-type]

    assert "1 %" in sentence
    assert causes.title_of(causes.HEALTHY) in sentence


def test_a_run_names_at_most_four_causes() -> None:
    names = [causes.DISK, causes.NETWORK, causes.CPU_DECODE, causes.MAIN_PYTHON, causes.H2D_COPY]
    sentence = run_sentence(causes.DISK, NVML, 0.5, dict.fromkeys(names, 0.2), 61.0)

    assert [causes.title_of(name) in sentence for name in names] == [True] * 4 + [False]
    assert "61 s" in sentence
    assert "50 %" in sentence


def test_a_run_that_lost_nothing_names_its_headline() -> None:
    sentence = run_sentence(causes.HEALTHY, NVML, 0.02, {causes.DISK: 1.0}, 30.0)

    assert causes.title_of(causes.HEALTHY) in sentence
    assert causes.title_of(causes.DISK) not in sentence


def test_what_was_measured_is_named() -> None:
    texts = {source: run_sentence(causes.DISK, source, 0.5, {causes.DISK: 1.0}, 30.0) for source in (NVML, LOADER_WAIT)}

    assert "accelerator" in texts[NVML]
    assert "accelerator" not in texts[LOADER_WAIT]
