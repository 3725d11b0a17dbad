from __future__ import annotations

from dataclasses import replace

from pipetune.candidates.torch_arguments import dataloader_arguments, written_arguments
from pipetune.records.sweep import Candidate
from pipetune.usercode.make_loader import ARGUMENTS

TWO = Candidate(backend="opencv", num_workers=2, prefetch_depth=4, batch_size=8)
NONE = replace(TWO, num_workers=0, prefetch_depth=0)


def test_arguments() -> None:
    assert dataloader_arguments(TWO) == {
        "batch_size": 8, "num_workers": 2, "prefetch_factor": 4, "in_order": True, "multiprocessing_context": "fork",
        "persistent_workers": True, "pin_memory": False,
    }  # fmt: skip
    assert set(ARGUMENTS) < set(dataloader_arguments(TWO))


def test_without_workers_torch_takes_less() -> None:
    arguments = dataloader_arguments(replace(NONE, start_method="spawn"))
    assert arguments["prefetch_factor"] is None
    assert arguments["persistent_workers"] is False
    assert arguments["multiprocessing_context"] is None
    assert dataloader_arguments(replace(TWO, persistent_workers=False))["persistent_workers"] is False


def test_only_what_torch_does_not_do_by_itself_is_written() -> None:
    assert written_arguments(NONE) == ["batch_size=8", "num_workers=0"]
    assert written_arguments(TWO)[2:] == ["prefetch_factor=4", "persistent_workers=True"]
    other = replace(TWO, in_order=False, start_method="spawn", persistent_workers=False, pin_memory=True)
    assert written_arguments(other)[3:] == [
        "in_order=False", "multiprocessing_context='spawn'", "persistent_workers=False", "pin_memory=True",
    ]  # fmt: skip
