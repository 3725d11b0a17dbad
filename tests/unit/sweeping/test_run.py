from __future__ import annotations

from typing import Any, ClassVar

import pytest

from pipetune.measure.fork_server import modules_for
from pipetune.sweeping import run


class Servers:
    made: ClassVar[list[Servers]] = []

    def __init__(self, modules: tuple[str, ...]) -> None:
        self.modules, self.started, self.closed = modules, 0, 0
        Servers.made.append(self)

    def start(self, variables: Any) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ForkServers", Servers)
    Servers.made.clear()


@pytest.mark.parametrize("device", ["emulated:200", " cuda:1", "cpu"])
def test_a_server_imports_while_the_images_are_listed(device: str) -> None:
    with run._Servers(device) as servers:
        (made,) = Servers.made
        assert made.started == 1
        kind = device.strip().partition(":")[0]
        assert made.modules == modules_for(kind)
        assert servers.of_kind(kind) is made  # type: ignore[comparison-overlap]
    assert made.closed == 1


@pytest.mark.parametrize("device", ["auto", "tpu:0", ""])
def test_of_other_devices_nothing_is_known_yet(device: str) -> None:
    with run._Servers(device) as servers:
        assert not Servers.made
        servers.of_kind("emulated")
        assert Servers.made[0].started == 0
    assert Servers.made[0].closed == 1


def test_they_are_closed_where_the_data_set_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="no images"), run._Servers("cpu"):
        raise ValueError("no images")
    assert Servers.made[0].closed == 1


def test_a_system_that_refuses_a_process_is_left_to_the_first_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Servers, variables: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Servers, "start", refuse)
    with run._Servers("cpu"):
        pass
