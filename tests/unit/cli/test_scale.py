from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

import pipetune
from pipetune.cli.app import app
from pipetune.errors import UsageError
from pipetune.report.schemas import scale_schema
from tests.published import write_table
from tests.unit.scaling.test_points import ranked


def scale(*words: object) -> Result:
    result = CliRunner().invoke(app, ["scale", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_tables_and_the_sentence_that_matters_most_last(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", "ResNet-152", 32)
    words = ("--table", table, "--images", 1_281_167, "--epochs", 90, "--price", "$14.40/h", "--spot", "1.60/h",
             "--interruptions", "5%/h", "--checkpoint", "30m", "--to", "64,256")  # fmt: skip
    result = scale(*words)
    assert result.exit_code == 0
    for text in ("Rates", "measured", "predicted", "Time and cost", "on spot hosts", "$14.40 per hour"):
        assert text in result.output
    assert result.output.splitlines()[-2].startswith("32 accelerators: 596 samples/s measured, 89 %")
    assert result.output.splitlines()[-1].startswith("Most of what is lost with 256 accelerators")


def test_runs_json_and_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib")
    runs = (ranked(tmp_path / "one", 1, 1200.0), ranked(tmp_path / "four", 4, 4000.0))
    metric = tmp_path / "m.csv"
    metric.write_text("time_s,top1\n60,0.3\n120,0.6\n")
    result = scale(*runs, "--json", tmp_path / "x.json", "--html", tmp_path / "x.html", "--metric", f"4={metric}",
                   "--reach", "0.5")  # fmt: skip
    assert result.exit_code == 0
    assert "resnet50 of 224 px on " in result.output
    assert "4 accelerators (" in result.output
    assert "top1 of 0.5 or more after 2 min 00 s, at 4,000 samples/s" in result.output
    written = json.loads((tmp_path / "x.json").read_text())
    jsonschema.validate(written, scale_schema())
    assert [row["accelerators"] for row in written["scaling"]["rows"]][:3] == [1, 4, 8]
    assert "<svg" in (tmp_path / "x.html").read_text()
    alone = scale(*runs, "--json", "-")
    assert json.loads(alone.stdout)["kind"] == "scale"


def test_the_library_gives_the_same(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", "ResNet-152", 32)
    found = pipetune.scale(table=table, images=1000, epochs=2, price=14.4, spot="1.60/h", interruptions=0.05,
                           checkpoint=60, to=[64])  # fmt: skip
    said = scale("--table", table, "--images", 1000, "--epochs", 2, "--price", "14.4/h", "--spot", "1.60/h",
                 "--interruptions", "5%/h", "--checkpoint", "60s", "--to", "64", "--json", "-")  # fmt: skip
    assert json.loads(said.stdout)["scaling"]["rows"][-1]["spot_training_cost"] == pytest.approx(
        found.rows[-1].spot_training_cost
    )
    with pytest.raises(UsageError, match="not int"):
        pipetune.scale(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--price is in"):
        pipetune.scale(table=table, price="$1/h", spot="€1/h")
    assert pipetune.scale(table=table, to=64).rows[-1].accelerators == 64


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no run was named"),
        (("--price", "14.40"), "--price '14.40' is no price"),
        (("--price", "$1/h", "--spot", "€1/h"), "--price is in .*, --spot in"),
        (("--spot", "1/h", "--interruptions", "5"), "--interruptions '5' is no share"),
        (("--interruptions", "5%/h"), "--interruptions 5%/h is for hosts with a spot price"),
        (("--checkpoint", "1h"), "--checkpoint 1h is for hosts"),
        (("--restart", "soon"), "'soon' is not a valid duration"),
        (("--to", "many"), "'many' is not a list of integers"),
        (("--reach", "high"), "--reach 'high' is no list of numbers"),
        (("--metric", "0=x.csv"), "--metric 0=x.csv has no accelerators"),
        (("--json", "-", "--html", "-"), "cannot share standard output"),
        (("--json", "nowhere/x.json"), "the folder nowhere does not exist"),
        (("nowhere",), "nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        scale(*words)
