"""A driver that is slow, keeps no samples, or stamps them by another clock: what is still known of the utilisation."""

from __future__ import annotations

import pytest

from pipetune.stats.busy_spans import busy_frac_within
from tests.unit.machine.nvml.slow_library import BEGAN_NS, SlowLibrary, make_gpu, read_for


def warm_up_then_busy(t_s: float) -> float:
    """A candidate: set-up whose load varies for 3 s, then a phase that is busy for 80 % of its time."""
    return 10 * (round(7 * t_s) % 6) if t_s < 3 else 80


def busy_between(gpu: object, began_s: float, ended_s: float) -> float | None:
    spans = gpu.busy_spans(0)  # type: ignore[attr-defined]
    return busy_frac_within(spans, BEGAN_NS + round(1e9 * began_s), BEGAN_NS + round(1e9 * ended_s))


def test_a_driver_that_never_has_samples_is_not_asked_for_them_for_ever() -> None:
    library = SlowLibrary(warm_up_then_busy)
    read_for(library, 25.0)
    # It may begin to keep some, so it was asked for a second, and is asked again after half a minute.
    assert library.calls.count("nvmlDeviceGetSamples") <= 12
    assert library.calls.count("nvmlDeviceGetUtilizationRates") == 250


def test_samples_that_come_late_are_found_by_a_rare_question() -> None:
    library = SlowLibrary(warm_up_then_busy)
    gpu = read_for(library, 5.0)
    library.samples = True
    for _ in range(400):
        library.now_ns += 100_000_000
        gpu.read()
    since_ns = library.now_ns - 2_000_000_000
    lengths = {span.t_end_ns - span.t_start_ns for span in gpu.busy_spans(since_ns)}
    assert lengths == {250_000_000}


@pytest.mark.parametrize(
    ("call_ms", "computes", "per_s", "told"),
    [
        (0.1, False, 10, False),
        (1, False, 10, False),
        (3, False, 4, True),
        (30, False, 0.3, True),
        (0.1, True, 10, False),
        (1, True, 3, True),
        (3, True, 1, True),
    ],
)
def test_a_slow_driver_tells_ten_values_a_second_or_that_it_cannot(
    call_ms: float, computes: bool, per_s: float, told: bool
) -> None:
    library = SlowLibrary(warm_up_then_busy, call_s=call_ms / 1000, computes=computes)
    gpu = read_for(library, 8.0)
    began, cpu_s = len(library.calls), library.cpu_s
    seconds = 20.0
    for tick in range(round(10 * seconds)):
        library.now_ns = max(library.now_ns, BEGAN_NS + 8_000_000_000 + 100_000_000 * tick)
        gpu.read()
    values = library.calls[began:].count("nvmlDeviceGetUtilizationRates")
    assert values >= 0.99 * per_s * seconds
    assert library.cpu_s - cpu_s <= 0.006 * seconds
    problem = gpu.describe_slow_utilisation(0.1)
    assert (problem is not None) is told
    if problem:
        assert problem.startswith(f"NVML takes {call_ms:.1f} ms to tell the GPU's utilisation, so it was read every ")
        assert problem.endswith(" instead of every 0.1 s")


def test_buffered_samples_are_all_there_however_slow_the_driver_is() -> None:
    library = SlowLibrary(warm_up_then_busy, call_s=0.03, period_s=0.1, samples=True)
    gpu = read_for(library, 12.0)
    assert library.calls.count("nvmlDeviceGetSamples") < 20
    spans = [span for span in gpu.busy_spans(0) if span.t_end_ns < BEGAN_NS + 9_000_000_000]
    assert len(spans) >= 10 * 8
    assert gpu.describe_slow_utilisation(0.1) is None


@pytest.mark.parametrize("period_s", [1 / 6, 0.25, 0.5, 1.0])
def test_a_short_phase_is_not_described_by_its_warm_up(period_s: float) -> None:
    gpu = read_for(SlowLibrary(warm_up_then_busy, period_s=period_s), 6.5)
    busy_frac = busy_between(gpu, 3.0, 6.0)
    assert busy_frac == pytest.approx(0.8, abs=0.02)


def test_a_phase_that_is_shorter_than_two_periods_is_not_known() -> None:
    gpu = read_for(SlowLibrary(warm_up_then_busy, period_s=1.0), 5.0)
    assert busy_between(gpu, 3.3, 4.8) is None


def test_the_values_of_a_very_slow_driver_describe_no_short_phase() -> None:
    gpu = read_for(SlowLibrary(warm_up_then_busy, call_s=0.03), 8.0)
    assert busy_between(gpu, 3.0, 4.5) is None


@pytest.mark.parametrize("clock_error_s", [0.0, 0.5])
def test_a_late_sample_is_placed_by_its_stamp(clock_error_s: float) -> None:
    library = SlowLibrary(warm_up_then_busy, samples=True, clock_error_s=clock_error_s)
    gpu = read_for(library, 7.0)
    assert busy_between(gpu, 3.0 - clock_error_s + 0.25, 6.0 - clock_error_s) == pytest.approx(0.8, abs=0.02)
    assert gpu.describe_slow_utilisation(0.1) is None


@pytest.mark.parametrize(("clock_error_s", "words"), [(5.0, "5.0 s behind"), (59.0, "s behind"), (-2.0, "s ahead of")])
def test_samples_of_another_clock_are_placed_by_when_they_came_and_that_is_told(
    clock_error_s: float, words: str
) -> None:
    gpu = read_for(SlowLibrary(warm_up_then_busy, samples=True, clock_error_s=clock_error_s), 7.0)
    assert busy_between(gpu, 3.0, 6.0) == pytest.approx(0.8, abs=0.02)
    assert words in (gpu.describe_slow_utilisation(0.1) or "")


def test_slow_calls_before_do_not_move_the_samples() -> None:
    library = SlowLibrary(warm_up_then_busy, call_s=0.02, samples=True)
    gpu = read_for(library, 7.0)
    ends = [span.t_end_ns % 250_000_000 for span in gpu.busy_spans(0)]
    assert set(ends) == {0}


def test_the_pace_of_the_driver_is_known_in_the_next_measurement() -> None:
    """Its figure never changes, so that nothing but the pace tells how late it may be."""
    library = SlowLibrary(lambda t_s: warm_up_then_busy(t_s) if t_s < 6 else 0)
    first = read_for(library, 8.0)
    first.close()
    gpus = (first.renew(lambda gpu: None), make_gpu(library))
    for _ in range(30):
        library.now_ns += 100_000_000
        for gpu in gpus:
            gpu.read()
    read_since, opened_anew = (gpu.busy_spans(0)[-1].t_end_ns for gpu in gpus)
    assert library.now_ns - read_since < 500_000_000 < 900_000_000 < library.now_ns - opened_anew
