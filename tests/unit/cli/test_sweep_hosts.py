"""``pipetune sweep --hosts``: which host this is, and what a user's mistakes come to."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pipetune.cli.app import app
from pipetune.cli.sweep_hosts import all_hosts, host_place, serve_this_host
from pipetune.errors import Interrupted, UsageError
from pipetune.hosts import agent
from pipetune.hosts.place import HostPlace
from pipetune.measure import harness

PLACE = HostPlace(host=1, hosts=2, address="127.0.0.1", port=9)
LAUNCHER = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}


def refused(*words: str) -> str:
    found = CliRunner().invoke(app, ["sweep", *words]).exception
    assert isinstance(found, UsageError)
    return str(found)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "GROUP_RANK", "SLURM_STEP_NODELIST", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_without_the_option_this_host_is_alone() -> None:
    assert host_place(None) is None
    with all_hosts(None) as machines:
        assert machines.measure is harness.measure


def test_one_host_measures_as_without_the_option() -> None:
    with all_hosts(HostPlace(host=0, hosts=1, address="127.0.0.1", port=9)) as machines:
        assert machines.measure is harness.measure


def test_without_a_launcher_it_is_refused() -> None:
    assert "--hosts auto: no launcher says which host this is" in refused("--dataset", "/d", "--hosts", "auto")
    assert "--hosts 'x' is no number of hosts" in refused("--dataset", "/d", "--hosts", "x")


def test_what_is_no_data_set_is_refused_before_anybody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHER.items():
        monkeypatch.setenv(name, value)
    for words in (["--", "python", "train.py"], ["--loader", "pkg.mod:make"]):
        assert "--hosts is for a data set, not for a script" in refused("--hosts", "auto", *words)


def test_what_this_host_did_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(agent, "serve", lambda place, say: 3)
    assert serve_this_host(PLACE) == 0
    assert capsys.readouterr().err == "host 2 of 2: done, 3 measurements\n"
    assert serve_this_host(PLACE, "json") == 0
    assert capsys.readouterr().err == "", "where each line is an object"


def test_an_interruption_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise Interrupted(15)

    monkeypatch.setattr(agent, "serve", interrupted)
    assert serve_this_host(PLACE) == 143


def test_batch_sizes_are_found_for_a_new_sweep_of_a_data_set() -> None:
    for words in (["--", "python", "train.py"], ["--loader", "pkg.mod:make"], ["--resume", "run"]):
        assert "--batch-size auto is for a data set and a new sweep" in refused("--batch-size", "auto", *words)
