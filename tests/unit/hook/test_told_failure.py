from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.hook.told_failure import describe_failure, tell_of_lost_worker


def worker(code: int | None) -> Any:
    return SimpleNamespace(exitcode=code, join=lambda seconds: None)


def source(*codes: int | None, **loader: Any) -> Any:
    return SimpleNamespace(
        inner=SimpleNamespace(_workers=[worker(code) for code in codes]), loader=SimpleNamespace(**loader)
    )


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_of_an_error_in_a_worker_its_last_line_and_the_whole_traceback_are_told() -> None:
    error = raised(ValueError("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback\nValueError: cut"))
    told = describe_failure(error, source(None))
    assert (told["error"], told["message"], told["worker_signal"]) == ("ValueError", "ValueError: cut", None)
    assert told["traceback"].startswith("Traceback (most recent call last)")
    assert told["traceback"].endswith("ValueError: cut\n")


@pytest.mark.parametrize(
    ("error", "codes", "signal"),
    [
        (ConnectionResetError("reset"), (None, -7), 7),
        (RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), (0, -9), 9),
        (EOFError(), (None, 1), None),
        (ValueError("no data"), (-15,), None),
    ],
)
def test_how_a_worker_has_ended_is_told_where_the_error_is_about_that(
    error: Exception, codes: tuple[int | None, ...], signal: int | None
) -> None:
    assert describe_failure(raised(error), source(*codes))["worker_signal"] == signal


def test_a_script_that_gets_the_error_itself_tells_of_a_signal_alone() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    channel: Any = SimpleNamespace(send=lambda kind, **fields: sent.append((kind, fields)))
    tell_of_lost_worker(channel, StopIteration(), source(-9).inner)
    tell_of_lost_worker(channel, ValueError("no data"), source(-9).inner)
    tell_of_lost_worker(channel, EOFError(), source(None, -11).inner)
    assert sent == [("lost_worker", {"signal": 11})]


def test_another_librarys_workers_tell_nothing() -> None:
    inner = SimpleNamespace(_workers=[object()])
    assert describe_failure(EOFError(), SimpleNamespace(inner=inner, loader=None))["worker_signal"] is None  # type: ignore[arg-type]


def test_what_cannot_be_pickled_is_named() -> None:
    error = raised(AttributeError("Can't pickle local object 'main.<locals>.<lambda>'"))
    told = describe_failure(error, source(collate_fn=lambda batch: batch))
    assert told["message"].startswith("workers cannot start: collate_fn at ")
    assert told["message"].endswith("is a lambda, which spawn cannot pickle")
    unknown = describe_failure(error, source(collate_fn=None))
    assert unknown["message"] == "Can't pickle local object 'main.<locals>.<lambda>'"
