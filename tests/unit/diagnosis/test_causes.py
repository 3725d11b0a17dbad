from __future__ import annotations

import re
from pathlib import Path

import pytest

import pipetune
from pipetune.diagnosis import causes
from pipetune.diagnosis.causes import CAUSES, GENERAL, OLD_NAMES, canonical_cause, title_of
from pipetune.plot.style import COLOURS, GREY, colour_of

PACKAGE = Path(pipetune.__file__).parent
NUMBERS = sorted(name for name, value in vars(causes).items() if name.isupper() and isinstance(value, (int, float)))


def test_each_cause_has_a_name_of_its_own_and_a_title_of_its_own() -> None:
    assert len({cause.title for cause in CAUSES.values()}) == len(CAUSES)
    assert all(name == cause.name for name, cause in CAUSES.items())


@pytest.mark.parametrize("name", CAUSES)
def test_the_words_of_a_cause_are_sentences(name: str) -> None:
    cause = CAUSES[name]

    for text in (cause.explanation, *([cause.advice] if cause.advice else [])):
        assert text[0].isupper() or text.startswith("persistent_workers") or text.startswith("pin_memory")
        assert text.endswith(".")
    assert cause.colour in COLOURS
    assert colour_of(name) == COLOURS[cause.colour]
    assert cause.named_by


@pytest.mark.parametrize("threshold", [*GENERAL, *(each for cause in CAUSES.values() for each in cause.thresholds)])
def test_a_threshold_shows_its_number_and_has_a_source(threshold: causes.Threshold) -> None:
    assert re.search(r"\d", threshold.text)
    assert "{" not in threshold.text
    assert threshold.source


@pytest.mark.parametrize("number", NUMBERS)
def test_each_number_is_explained_in_the_table_and_decides_something(number: str) -> None:
    table = (PACKAGE / "diagnosis" / "causes.py").read_text(encoding="utf-8")
    others = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "causes.py")

    assert re.search(rf"Threshold\({number}\b", table)
    assert re.search(rf"\bcauses\.{number}\b", others)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_a_name_of_an_old_run_is_still_read(old: str) -> None:
    assert old not in CAUSES
    assert canonical_cause(old) in CAUSES
    assert title_of(old) == CAUSES[canonical_cause(old)].title
    assert colour_of(old) == colour_of(canonical_cause(old))


def test_a_name_of_a_newer_version_is_shown_in_words() -> None:
    assert canonical_cause("cosmic_rays") == "cosmic_rays"
    assert title_of("cosmic_rays") == "cosmic rays"
    assert colour_of("cosmic_rays") == GREY
