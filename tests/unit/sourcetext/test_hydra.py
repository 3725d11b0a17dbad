from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.records.script import SourceCall
from pipetune.sourcetext.hydra import find_hydra_key, list_hydra_files
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


def test_another_configuration_that_the_command_names_is_the_one_that_counts(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "conf" / "other.yaml").write_text("data:\n  num_workers: 7\n", encoding="utf-8")
    for words in (["--config-name", "other"], ["--config-name=other.yaml"], ["-cn", "other"]):
        places = [entry.place.name for entry in list_hydra_files(words, files)]
        assert places == ["other.yaml"]
    assert list_hydra_files(["--config-path", "/elsewhere"], files) == []


def test_files_of_an_experiment_and_of_another_package_are_in_effect(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "conf" / "train.yaml").write_text("defaults:\n  - data@source: mnist\n", encoding="utf-8")
    entries = list_hydra_files(["+debug=default"], files)
    assert [(entry.place.name, entry.above) for entry in entries] == [
        ("train.yaml", ()), ("mnist.yaml", ("source",)), ("default.yaml", ()),
    ]  # fmt: skip


def test_the_section_of_the_class_is_the_one_that_counts(files: list[str], tmp_path: Path) -> None:
    place = tmp_path / "conf" / "data" / "mnist.yaml"
    place.write_text("_target_: src.data.Data\nnum_workers: 2\n", encoding="utf-8")
    primary = tmp_path / "conf" / "train.yaml"
    primary.write_text(f"{FILES['train.yaml']}search:\n  num_workers: 2\n", encoding="utf-8")
    assert find_hydra_key("num_workers", [], files) is None
    assert find_hydra_key("num_workers", [], files, "Data") == "data.num_workers"
    place.write_text("_target_: src.data.Data\n", encoding="utf-8")
    assert find_hydra_key("num_workers", [], files, "Data") is None


def test_a_trial_in_the_module_of_a_class_does_not_count_as_its_call(files: list[str]) -> None:
    with Path(files[0]).open("a", encoding="utf-8") as file:
        file.write('\nif __name__ == "__main__":\n    _ = Data()\n')
    calls = [SourceCall(file=files[0], span=(6, 6, 15, 67)), SourceCall(file=files[1], span=(5, 5, 4, 49))]
    option = find_option("num_workers", calls, 2, [])
    assert option is not None
    assert option.words == ("data.num_workers",)
    origin = find_origin("num_workers", calls, 2, [])
    assert origin is not None
    assert Path(origin.file).name == "mnist.yaml"
