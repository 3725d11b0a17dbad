from __future__ import annotations

from typing import Any

import pytest

from pipetune.diagnosis import causes
from pipetune.errors import UsageError
from pipetune.records.sweep import from_dict, to_dict
from pipetune.records.watch import CauseShare
from pipetune.runs.earlier import options_today, stall_today, verdict_today, window_today
from pipetune.sweeping.options import SweepOptions
from tests.watch_fakes import stall, verdict, window

#: As version 0.1 stored them.
AS_TEXT = {
    "dataset": "photos", "backends": "pillow,opencv", "workers": "0,2", "prefetch": "4", "budget": "5m",
    "timeout": None, "vary": "transfer, allocator", "fix": ["channels_last=yes"], "cheapest": "cores,memory",
    "max_ram": "2GiB", "max_shm": None, "seed": 3,
}  # fmt: skip
AS_VALUES = {
    "dataset": "photos", "backends": ("pillow", "opencv"), "workers": (0, 2), "prefetch": (4,), "budget_s": 300.0,
    "timeout_s": None, "vary": ("transfer", "allocator"), "fix": (("channels_last", True),),
    "cheapest": ("cores", "memory"), "max_ram_bytes": 2 * 2**30, "max_shm_bytes": None, "seed": 3,
}  # fmt: skip


def test_options_that_were_stored_as_text_become_values() -> None:
    assert options_today(AS_TEXT) == {
        **AS_VALUES, "effort": "thorough", "ranks": 1, "sync": "step", "bind": "none",
    }  # fmt: skip  # there was no other
    chosen = from_dict(SweepOptions, options_today(AS_TEXT))
    assert (chosen.workers, chosen.budget_s, chosen.fix) == ((0, 2), 300.0, (("channels_last", True),))


def test_options_that_are_values_stay_as_they_are() -> None:
    options = SweepOptions(dataset="photos", workers=(0, 2), fix=(("in_order", False),), budget_s=60.0)
    assert from_dict(SweepOptions, options_today(to_dict(options))) == options


@pytest.mark.parametrize("changes", [{"workers": "many"}, {"fix": ["colour=red"]}, {"budget": "soon"}])
def test_options_that_cannot_be_meant_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        options_today({**AS_TEXT, **changes})


def test_causes_have_todays_names() -> None:
    old = verdict(cause="disk_bound", shares=(CauseShare(cause="other_load", share=1.0, ci95=(0.9, 1.0)),))
    found = window_today(window(verdicts=(old,), stalls=(stall(cause="cpu_bound"),)))

    assert found.verdicts == (verdict_today(old),)
    assert found.stalls == (stall_today(stall(cause="cpu_bound")),)
    assert [found.verdicts[0].cause, found.verdicts[0].shares[0].cause, found.stalls[0].cause] == [
        causes.DISK, causes.CPU_STARVED, causes.CPU_DECODE,
    ]  # fmt: skip
    assert window_today(window()) == window()
