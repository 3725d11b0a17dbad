from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.records.script import SourceCall
from pipetune.sourcetext.hydra import find_hydra_key
from pipetune.sourcetext.options import find_option
from pipetune.sourcetext.origins import find_origin

PROGRAM = """
import hydra
@hydra.main(version_base=None, config_path="../conf", config_name="train.yaml")
def main(cfg):
    hydra.utils.instantiate(cfg.data).loader()
"""
DATA = """
class Data:
    def __init__(self, num_workers=0):
        self.save_hyperparameters()
    def loader(self):
        return DataLoader([], num_workers=self.hparams.num_workers)
"""
FILES = {
    "train.yaml": "defaults:\n  - _self_\n  - data: mnist\n  - debug: null\nseed: 1\nlimits:\n  jobs: 3\n",
    "data/mnist.yaml": "batch_size: 8\nnum_workers: 2\n",
    "data/cifar.yaml": "num_workers: 3\n",
    "debug/default.yaml": "# @package _global_\ndata:\n  num_workers: 2\n",
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, text in FILES.items():
        place = tmp_path / "conf" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM, encoding="utf-8")
    (source / "data.py").write_text(DATA, encoding="utf-8")
    return [str(source / "data.py"), str(source / "train.py")]


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("num_workers", [], "data.num_workers"),
        ("num_workers", ["data=cifar"], "data.num_workers"),
        ("num_workers", ["debug=default"], "data.num_workers"),
        ("jobs", [], "limits.jobs"),
        ("seed", [], "seed"),
        ("nothing", [], None),
    ],
)
def test_a_key_is_told_with_what_stands_above_it(
    name: str, words: list[str], expected: str | None, files: list[str]
) -> None:
    assert find_hydra_key(name, words, files) == expected


def test_a_value_that_hydra_gives_to_a_constructor_is_found_in_its_file(files: list[str]) -> None:
    calls = [
        SourceCall(file=files[0], span=(6, 6, 15, 67)), SourceCall(file=files[1], span=(5, 5, 4, 49)),
    ]  # fmt: skip
    origin = find_origin("num_workers", calls, 2, [])
    assert origin is not None
    assert (Path(origin.file).name, origin.line) == ("mnist.yaml", 2)
    option = find_option("num_workers", calls, 2, [])
    assert option is not None
    assert (option.words, option.override) == (("data.num_workers",), True)


def test_another_group_that_the_command_chooses_is_the_one_that_counts(files: list[str]) -> None:
    calls = [SourceCall(file=files[0], span=(6, 6, 15, 67)), SourceCall(file=files[1], span=(5, 5, 4, 49))]
    origin = find_origin("num_workers", calls, 3, ["python", "train.py", "data=cifar"])
    assert origin is not None
    assert Path(origin.file).name == "cifar.yaml"
