"""What is generated holds everything that its table holds."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest

from docs.parts import commands, examples, tables
from pipetune.accelerator.named import NAMED
from pipetune.candidates.settings import SETTINGS
from pipetune.diagnosis.causes import CAUSES
from pipetune.records.watch import Window
from pipetune.registry import BACKENDS
from pipetune.search.choice import CRITERIA
from pipetune.watching.prometheus import start
from tests import ROOT
from tests.docs.test_commands import GROUP
from tests.unit.samples import sample


def first_cells(table: str) -> list[str]:
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return [line.split("`")[1] for line in lines]


def test_causes() -> None:
    text = tables.causes()
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(CAUSES)
    for cause in CAUSES.values():
        assert cause.explanation in text
        assert cause.advice is None or cause.advice in text
    assert not re.search(r"\d%", text)  # as everywhere else: a space before the sign


def test_settings_decoders_devices_and_criteria() -> None:
    assert first_cells(tables.settings()) == list(SETTINGS)
    assert first_cells(tables.decoders()) == list(BACKENDS)
    assert first_cells(tables.accelerators()) == [f"emulated:{name}" for name in NAMED]
    assert first_cells(tables.criteria()) == list(CRITERIA)


def test_a_decoder_is_described_by_its_module() -> None:
    (line,) = [line for line in tables.decoders().splitlines() if line.startswith("| `jpeg-roi` |")]
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert cells[1].endswith(".")
    assert "crop of a JPEG" in cells[1]
    assert cells[2:4] == ["55 dB", "processes or threads"]


@pytest.mark.parametrize("name", list(GROUP.commands))
def test_options(name: str) -> None:
    text = commands.options(name)
    for parameter in GROUP.commands[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert option in text or parameter.param_type_name == "argument" or option == "--help"
    assert "<" not in "".join(first_cells(text))


def test_metrics() -> None:
    """Those that are really served."""
    exporter = start("127.0.0.1:0")
    try:
        exporter.update(sample(Window))
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as response:
            served = response.read().decode()
    finally:
        exporter.close()
    assert set(re.findall(r"^# TYPE (\w+)", served, re.MULTILINE)) == set(first_cells(tables.metrics()))


@pytest.mark.parametrize("name", ["sweep", "watch"])
def test_fields_of_the_json(name: str) -> None:
    schema = json.loads((ROOT / "pipetune" / "report" / f"{name}.schema.json").read_text())
    text = tables.schema(name)
    for part in (schema, *schema["$defs"].values()):
        for field in part.get("properties", {}):
            assert f"`{field}`" in text


def test_packages() -> None:
    found = first_cells(tables.packages())
    packages = {f"{path.parent.name}/" for path in (ROOT / "pipetune").glob("*/__init__.py")}
    assert packages <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", ["sweep", "watch.jsonl"])
def test_an_example_fits(name: str) -> None:
    lines = examples.shown(name).splitlines()
    assert (lines[0], lines[-1]) == ("```text", "```")
    assert max(map(len, lines)) <= 114
    assert len(lines) > 8


def test_an_example_names_no_place() -> None:
    for path in examples.FOLDER.rglob("*.json*"):
        assert not re.search(r"/(?:root|tmp|work|home/(?!me\b))", path.read_text()), path
