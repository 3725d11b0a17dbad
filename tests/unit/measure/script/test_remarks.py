from __future__ import annotations

from pipetune.measure.script.remarks import remarks
from tests.unit.measure.script.fake_scripts import OTHER, OWN


def test_workers_of_the_script_that_repeat_samples_are_told_once() -> None:
    (told,) = remarks({"repeats": True}, "baseline", OWN)
    assert f"own {OWN.num_workers} workers yield the same samples" in told
    assert remarks({"repeats": True}, "baseline", OWN, undivided=True) == []
    assert remarks({"repeats": True}, "candidate", OWN) == []


def test_the_wait_for_other_loaders_is_told_where_it_matters() -> None:
    assert "12 % of the time" in remarks({"other_loaders_frac": 0.12}, "baseline", OWN)[0]
    assert remarks({"other_loaders_frac": 0.01}, "baseline", OWN) == []


def test_how_near_decoded_crops_are_is_told_of_candidates_that_decode_otherwise() -> None:
    assert remarks({"psnr_db": 50.0}, "candidate", OTHER) == []
