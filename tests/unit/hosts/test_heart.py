"""Beats, and what is measured while this host should end."""

from __future__ import annotations

import threading
import time

import pytest

from pipetune.hosts import heart as hearts
from pipetune.hosts.store import StoreLostError


class Beats:
    """A store whose answers are given."""

    def __init__(self, *, lost: bool = False) -> None:
        self.lost = lost

    def count(self, key: str) -> int:
        if self.lost and threading.current_thread() is not threading.main_thread():
            raise StoreLostError("host 1 no longer answers")
        return 1


@pytest.mark.parametrize("lost", [True, False])
def test_what_is_measured_is_interrupted_where_the_host_should_end(
    monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    monkeypatch.setattr(hearts, "BEAT_S", 0.02)
    sent = threading.Event()
    monkeypatch.setattr(hearts.os, "kill", lambda pid, number: sent.set())
    told = threading.Event()
    with hearts.Heart(Beats(lost=lost), 1, told.is_set) as heart:  # type: ignore[arg-type]
        with heart.measuring():
            told.set()
            assert sent.wait(10)
        assert (heart.lost is not None, heart.told) == (lost, not lost)
        sent.clear()
        with pytest.raises(KeyboardInterrupt), heart.measuring():
            pytest.fail("it should have ended before")
    assert not sent.is_set()


def test_who_does_not_measure_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearts, "BEAT_S", 0.02)
    monkeypatch.setattr(hearts.os, "kill", lambda pid, number: pytest.fail("nothing is measured"))
    with hearts.Heart(Beats(), 1, lambda: True) as heart:  # type: ignore[arg-type]
        while not heart.told:
            time.sleep(0.01)


def test_a_call_that_never_comes_back_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearts, "BEAT_S", 60.0)
    monkeypatch.setattr(hearts, "GIVE_UP_S", 0.1)
    given_up = threading.Event()
    with hearts.Heart(Beats(), 1, give_up=given_up.set):  # type: ignore[arg-type]
        assert given_up.wait(10)
