from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.records.sweep import Candidate
from pipetune.sweeping import imported_loader
from pipetune.sweeping.imported_loader import Facts, ImportedLoader, options_for, resumed_options
from pipetune.sweeping.options import SweepOptions

OWN = Candidate(backend="own", num_workers=6, prefetch_depth=8, batch_size=32)
CHOSEN = SweepOptions(dataset="", workers=(0, 2, 8), batch_size=64)


def loader(own: Candidate | None = OWN, **facts: object) -> ImportedLoader:
    return ImportedLoader(packed=b"", uri="own:mine:loader()", own=own, facts=Facts(**facts))  # type: ignore[arg-type]


def test_its_own_batch_size_and_settings_are_those_of_the_sweep() -> None:
    found = options_for(CHOSEN, loader())
    assert (found.batch_size, found.untuned, found.workers, found.remarks) == (32, OWN, (0, 2, 8), ())


def test_one_that_takes_settings_is_asked_for_the_users() -> None:
    assert options_for(CHOSEN, loader(None)) == replace(CHOSEN, dataset="own:mine:loader()")


@pytest.mark.parametrize(
    ("own_workers", "facts", "workers", "most", "said"),
    [
        (6, {"iterable": True, "told_workers": ("num_workers",)}, (6,), None, "was told theirs (num_workers)"),
        (6, {"iterable": True, "shards": 4}, (0, 2, 8), 6, "more than 6 workers were not tried: the data set has 4"),
        (1, {"iterable": True, "shards": 4}, (0, 2, 8), 4, "more than 4 workers"),
        (1, {"own_generators": ("rng",)}, (0, 2, 8), 1, "random generators of its own (rng)"),
        (6, {"iterable": True}, (0, 2, 8), None, "whether it divides its samples among workers cannot be seen"),
    ],
)
def test_numbers_of_workers_that_would_change_its_batches_are_left_out_and_that_is_said(
    own_workers: int, facts: dict[str, object], workers: tuple[int, ...], most: int | None, said: str
) -> None:
    found = options_for(CHOSEN, loader(replace(OWN, num_workers=own_workers), **facts))
    assert (found.workers, found.max_workers) == (workers, most)
    (remark,) = found.remarks
    assert said in remark


def test_generators_of_a_loader_that_has_workers_are_its_own_affair() -> None:
    assert options_for(CHOSEN, loader(own_generators=("rng",))).remarks == ()


def test_the_users_own_limit_stays() -> None:
    found = options_for(replace(CHOSEN, max_workers=3), loader(replace(OWN, num_workers=1), iterable=True, shards=9))
    assert found.max_workers == 3


MODULE = """
import numpy as np
from torch.utils.data import DataLoader, IterableDataset
class Numbers(IterableDataset):
    urls = None
    def __iter__(self): return iter(range(100))
class Drawn:
    def __init__(self): self.rng = np.random.default_rng(0)
    def __len__(self): return 100
    def __getitem__(self, index): return index
def loader(workers={workers}): return DataLoader(Drawn(), batch_size={size}, num_workers=workers)
endless = DataLoader(Numbers(), batch_size=4)
"""


def test_what_a_real_loader_is_found_to_be(tmp_path: Path) -> None:
    (tmp_path / "mine_of_test.py").write_text(MODULE.format(workers=1, size=4))
    drawn = imported_loader.find_loader("mine_of_test:loader()", str(tmp_path))
    assert drawn.own == Candidate(backend="own", num_workers=1, prefetch_depth=2, batch_size=4)
    assert drawn.facts == Facts(own_generators=("rng",))
    assert imported_loader.find_loader("mine_of_test:endless", str(tmp_path)).facts == Facts(iterable=True)
    stored = options_for(CHOSEN, drawn)
    again = resumed_options(replace(stored, workers=(1, 2, 4), max_workers=8), drawn.packed)
    assert (again.workers, again.max_workers, again.remarks) == ((1, 2, 4), 1, stored.remarks), "as at first"

    (tmp_path / "mine_of_test.py").write_text(MODULE.format(workers=2, size=128))
    with pytest.raises(UsageError, match="mine_of_test:loader\\(\\) has other settings now"):
        resumed_options(stored, drawn.packed)
    gone = json.dumps({"import": "mine_of_test:loader()", "cwd": str(tmp_path / "gone")}).encode()
    with pytest.raises(UsageError, match="No such file"):
        resumed_options(stored, gone)
