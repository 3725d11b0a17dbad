from __future__ import annotations

import collections
import itertools
import math
import threading
import zlib
from collections.abc import Callable, Iterable

import pytest

from pipetune.measure.machine_speed import read_speed
from pipetune.stats.drift import relative_change

OUTPUT = 256 * 1024


def ticking(steps: Iterable[float]) -> Callable[[], float]:
    """A clock that advances by the next step at each call (s)."""
    elapsed = itertools.accumulate(steps, initial=0.0)
    return lambda: next(elapsed)


def steady(step: float) -> Callable[[], float]:
    return ticking(itertools.repeat(step))


def rate_of(clock: Callable[[], float]) -> float:
    return read_speed(0.25, clock=clock).per_second


def test_the_rate_is_output_per_time_in_megabytes() -> None:
    assert read_speed(0.2, clock=steady(0.001)).per_second == pytest.approx(OUTPUT / 0.001 / 1e6)


def test_half_the_speed_is_half_the_rate() -> None:
    change = relative_change(rate_of(steady(0.001)), rate_of(steady(0.002)))
    assert change == pytest.approx(-0.5)


def test_one_interruption_does_not_count() -> None:
    steps = itertools.chain(itertools.repeat(0.001, 70), [0.05], itertools.repeat(0.001))
    assert rate_of(ticking(steps)) == pytest.approx(OUTPUT / 0.001 / 1e6)


def test_steady_competition_counts_although_most_calls_run_undisturbed() -> None:
    # 3 ms on the core and 3 ms off it: two of three calls see nothing of it.
    shared = rate_of(ticking(itertools.cycle([0.001, 0.001, 0.004])))
    assert shared < 0.6 * rate_of(steady(0.001))


def test_a_machine_slower_than_the_reading_still_gives_one() -> None:
    assert read_speed(0.01, clock=steady(5.0)).per_second == pytest.approx(OUTPUT / 5.0 / 1e6)


def test_threads_are_summed_and_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)
    own = threading.local()
    inflate = zlib.decompress

    def meet_once(*arguments: object, **options: object) -> bytes:
        if not getattr(own, "met", False):
            together.wait(timeout=20)  # breaks, and fails the test, unless all three are inflating
            own.met = True
        return inflate(*arguments, **options)  # type: ignore[arg-type]

    def clock() -> float:
        now: float = getattr(own, "now", 0.0) + 0.001
        own.now = now
        return now

    monkeypatch.setattr(zlib, "decompress", meet_once)
    assert read_speed(0.1, threads=3, clock=clock).per_second == pytest.approx(3 * OUTPUT / 0.001 / 1e6)


def test_an_error_in_a_thread_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise zlib.error("broken")

    monkeypatch.setattr(zlib, "decompress", broken)
    with pytest.raises(zlib.error, match="broken"):
        read_speed(0.05, threads=2)


def test_the_real_clock_gives_a_rate() -> None:
    for threads in (1, 2):
        speed = read_speed(0.02, threads=threads)
        assert 0 < speed.per_second < math.inf
        assert 0 < speed.per_cpu_second < math.inf


def test_waiting_for_a_core_does_not_count_as_a_slower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    on_core = threading.local()

    def cpu_clock() -> float:  # 1 ms per call, however long it took by the wall
        return float(getattr(on_core, "calls", 0) * 0.001)

    inflate = zlib.decompress

    def counted(*arguments: object, **options: object) -> bytes:
        on_core.calls = getattr(on_core, "calls", 0) + 1
        return inflate(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(zlib, "decompress", counted)
    monkeypatch.setattr("time.thread_time", cpu_clock)
    shared = read_speed(0.2, clock=steady(0.002))
    assert shared.per_second == pytest.approx(OUTPUT / 0.002 / 1e6)
    assert shared.per_cpu_second == pytest.approx(OUTPUT / 0.001 / 1e6)


def test_the_work_is_entropy_decoding_of_always_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[bytes] = set()
    inflate = zlib.decompress

    def recorded(deflated: bytes, **options: int) -> bytes:
        seen.add(deflated)
        return inflate(deflated, **options)

    monkeypatch.setattr(zlib, "decompress", recorded)
    read_speed(0.05, clock=steady(0.001))
    (deflated,) = seen
    content = inflate(deflated)
    assert len(content) == OUTPUT
    assert zlib.crc32(content) == 0xEB4793A1
    counts = collections.Counter(content).values()
    entropy = -sum(count / OUTPUT * math.log2(count / OUTPUT) for count in counts)
    # Stored blocks would take 8 bits per byte and matches far less than the entropy: it is Huffman codes throughout.
    assert entropy < 8 * len(deflated) / OUTPUT < entropy + 0.1


@pytest.mark.parametrize(("seconds", "threads"), [(0, 1), (-1, 1), (math.nan, 1), (math.inf, 1), (0.1, 0)])
def test_a_reading_needs_time_and_a_thread(seconds: float, threads: int) -> None:
    with pytest.raises(ValueError, match=f"got {seconds} s and {threads} threads"):
        read_speed(seconds, threads)
