from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from pipetune.cli.run_file import Grid, Option, as_toml, labels_of, read_run_file, runs_of
from pipetune.cli.run_file_schema import FILE, schema, text
from pipetune.errors import UsageError

OPTIONS = {
    one.name: one
    for one in (
        Option("batch-size", "batch_size", int), Option("target", "target", float), Option("model", "model", str),
        Option("grid", "grid", bool), Option("fix", "fix", str, many=True), Option("out", "out", str),
    )
}  # fmt: skip
COMMANDS = ("sweep", "whatif")


def read(folder: Path, content: str) -> dict[str, object]:
    file = folder / "run.toml"
    file.write_text(content)
    return read_run_file(file, "sweep", OPTIONS, COMMANDS)


def test_options_stand_at_the_top_or_in_the_table_of_their_command(tmp_path: Path) -> None:
    found = read(tmp_path, 'model = "vit"\n[sweep]\nbatch-size = 32\ntarget = 1\ngrid = true\n[whatif]\ncores = 4\n')
    assert found == {"model": "vit", "batch_size": 32, "target": 1.0, "grid": True}
    assert isinstance(found["target"], float)


def test_names_may_be_written_as_in_python(tmp_path: Path) -> None:
    assert read(tmp_path, "batch_size = 8") == {"batch_size": 8}


def test_a_list_is_a_grid_unless_the_option_takes_one(tmp_path: Path) -> None:
    found = read(tmp_path, 'model = ["a", "b"]\nfix = ["x=1", "y=2"]\nbatch-size = [1, 2, 3]')
    assert found["fix"] == ["x=1", "y=2"]
    assert found["model"] == Grid(("a", "b"))
    runs = runs_of(found)
    assert len(runs) == 6
    assert runs[1] == {"model": "a", "batch_size": 2}
    assert runs_of({"model": "a"}) == [{}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("batchsize = 3", "did you mean 'batch-size'"),
        ("qqqq = 3", "it has batch-size, fix"),
        ("[swep]\nmodel = 1", r"no command 'swep'.*did you mean \[sweep\]"),
        ("batch-size = 'a'", 'batch-size = "a" is not a whole number'),
        ("batch-size = 1.5", "is not a whole number"),
        ("batch-size = true", "is not a whole number"),
        ("model = true", "is not text"),
        ("grid = 1", "is not true or false"),
        ("target = 2026-01-01", "is not a number"),
        ("model = []", "a grid of no runs"),
        ("model = [[1]]", "is not text"),
        ("model == 1", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, content)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_run_file(tmp_path / "none.toml", "sweep", OPTIONS, COMMANDS)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not valid TOML"):
        read_run_file(tmp_path / "bytes.toml", "sweep", OPTIONS, COMMANDS)


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(UsageError, match="10,000 runs"):
        runs_of({"a": Grid(tuple(range(100))), "b": Grid(tuple(range(100)))})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    values = {"model": 'a "b" \\ \x7f \n ü 😀', "batch_size": 3, "target": 0.5, "grid": True, "fix": ["a=1", "b=2"]}
    assert read(tmp_path, as_toml("sweep", {"target": float("inf")}, OPTIONS)) == {"target": float("inf")}
    assert read(tmp_path, as_toml("sweep", values, OPTIONS)) == values


def test_labels_are_names_of_folders_and_each_is_another() -> None:
    assert labels_of([{"model": "a/../b c", "batch_size": 3}]) == ["model=a-..-b-c,batch-size=3"]
    assert len(labels_of([{"model": "ü" * 500}])[0].encode()) == 200
    assert labels_of([{"out": "/a/b"}, {"out": "/a-b"}]) == ["out=-a-b", "out=-a-b,2"]


def test_a_command_and_an_option_may_have_the_same_name(tmp_path: Path) -> None:
    assert read(tmp_path, '[sweep]\nmodel = "a"\n') == {"model": "a"}
    with pytest.raises(UsageError, match="no option 'sweep'"):
        read(tmp_path, "sweep = 3")
    check = jsonschema.Draft202012Validator(json.loads(text()))
    for fine in ('run = "pipetune-runs/x"', '[run]\ntuned = "pipetune-runs/x"'):
        assert not list(check.iter_errors(tomllib.loads(fine))), fine


def test_the_schema_is_up_to_date_and_takes_what_a_run_file_may_have() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "python -m pipetune.cli.run_file_schema"
    jsonschema.Draft202012Validator.check_schema(schema())
    check = jsonschema.Draft202012Validator(json.loads(text()))
    fine = tomllib.loads('seed = 3\n[sweep]\nmodel = ["resnet18", "resnet50"]\nbatch-size = 64\nfix = ["a=1"]')
    assert not list(check.iter_errors(fine))
    for wrong in ("[sweep]\nmodl = 1", "[swep]\nmodel = 1", '[sweep]\nimage-size = "x"'):
        assert list(check.iter_errors(tomllib.loads(wrong))), wrong
