from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.sourcetext.config_files import find_in_config
from pipetune.sourcetext.config_lines import list_config_lines

TEXTS = {
    "c.yaml": "train:\n  loader:\n    workers: 4  # many\nval:\n  workers: 4\nlist:\n  - workers: 3\n",
    "c.json": '{\n  "train": {\n    "loader": {\n      "workers": 4\n    }\n  },\n  "val": {"workers": 4}\n}\n',
    "c.toml": "[train.loader]\nworkers = 4\n[val]\nworkers = 4\n",
    "c.py": "train = dict(\n    loader={'workers': 4})\nval = dict(workers=4)\n",
}


@pytest.mark.parametrize(("name", "line"), [("c.yaml", 3), ("c.json", 4), ("c.toml", 2), ("c.py", 2)])
def test_a_line_has_its_whole_key(name: str, line: int, tmp_path: Path) -> None:
    place = tmp_path / name
    place.write_text(TEXTS[name], encoding="utf-8")
    entry = next(entry for entry in list_config_lines(place) if entry.keys[-1] == "workers")
    assert (entry.line, entry.keys, entry.text) == (line, ("train", "loader", "workers"), "4")


@pytest.mark.parametrize("name", TEXTS)
def test_the_section_of_the_expression_is_the_one_that_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name], encoding="utf-8")
    words = ["python", "train.py", str(tmp_path / name)]
    origin = find_in_config(["cfg", "train", "workers"], 4, words, [])
    assert origin is not None
    assert Path(origin.file).name == name
    assert find_in_config(["cfg", "workers"], 4, words, []) == origin, "no one trains on the loader of the validation"
    assert find_in_config(["cfg", "train", "workers"], 5, words, []) is None


def test_a_line_that_refers_to_another_one_is_not_named(tmp_path: Path) -> None:
    place = tmp_path / "c.yaml"
    place.write_text("jobs: 4\ntrain:\n  workers: ${jobs}\nmore:\n  workers: 4\n", encoding="utf-8")
    assert find_in_config(["cfg", "workers"], 4, [str(place)], []) is None


def test_a_file_that_is_gone_or_large_has_no_lines(tmp_path: Path) -> None:
    assert list_config_lines(tmp_path / "gone.yaml") == []
    place = tmp_path / "large.yaml"
    place.write_text("workers: 4\n" * 20_000, encoding="utf-8")
    assert list_config_lines(place) == []
