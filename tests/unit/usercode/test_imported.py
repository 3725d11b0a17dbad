"""Loaders of the user's that are imported by their name."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.usercode.imported import import_loader, make_loader_of

pytest.importorskip("torch", reason="what is imported are torch's loaders")

MODULE = """
from torch.utils.data import DataLoader
DATA = list(range(12))
def with_settings(num_workers, batch_size=4):
    return DataLoader(DATA, batch_size, num_workers=num_workers)
def without():
    return DataLoader(DATA, 4, num_workers=1, prefetch_factor=3)
def build(size):
    return DataLoader(DATA, size)
OBJECT = without()
NUMBER = 3
class Module:
    prepared = []
    def prepare_data(self):
        self.prepared.append("data")
    def setup(self, stage):
        self.prepared.append(stage)
    def train_dataloader(self):
        return without()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "loaders_of_a_user.py").write_text(MODULE)
    before = list(sys.path)
    yield str(tmp_path)
    sys.path[:] = before
    sys.modules.pop("loaders_of_a_user", None)


def test_a_function_that_takes_settings_is_called_with_them(folder: str) -> None:
    made = import_loader("loaders_of_a_user:with_settings", folder)
    assert made(num_workers=2).num_workers == 2
    assert not hasattr(made, "own_loader")


@pytest.mark.parametrize("name", ["without", "OBJECT", "Module"])
def test_settings_of_others_are_varied_on_copies(folder: str, name: str) -> None:
    made = import_loader(f"loaders_of_a_user:{name}", folder)
    copy = made(num_workers=2, prefetch_factor=4, pin_memory=False)
    assert (copy.num_workers, copy.prefetch_factor, copy.batch_size) == (2, 4, 4)
    assert (made.own_loader.num_workers, made.own_loader.prefetch_factor) == (1, 3)  # type: ignore[attr-defined]
    assert [batch.tolist() for batch in made(num_workers=0, prefetch_factor=None)] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11],
    ]  # fmt: skip


def test_a_data_module_is_prepared_first(folder: str) -> None:
    import_loader("loaders_of_a_user:Module", folder)
    assert sys.modules["loaders_of_a_user"].Module.prepared == ["data", "fit"]


def test_a_call_gets_its_values(folder: str) -> None:
    assert import_loader("loaders_of_a_user:build(6)", folder).own_loader.batch_size == 6  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_module:x", "no_such_module"), ("loaders_of_a_user:none", "has no none"),
     ("loaders_of_a_user:NUMBER", "int, which is no torch DataLoader")],
)  # fmt: skip
def test_what_is_no_loader_is_refused(folder: str, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        import_loader(name, folder)


def test_a_name_that_others_may_have_written_is_not_imported(folder: str) -> None:
    path = Path(folder, "loader.json")
    path.write_text(json.dumps({"import": "loaders_of_a_user:OBJECT", "cwd": folder}))
    path.chmod(0o600)
    assert make_loader_of(path)(num_workers=2, prefetch_factor=2).num_workers == 2
    path.chmod(0o666)
    with pytest.raises(UsageError, match="others may have written to"):
        make_loader_of(path)
