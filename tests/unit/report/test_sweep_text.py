"""The sweep's text: which lines there are and of which kind; whole texts are compared in tests/golden."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Failure, HostShare
from pipetune.report.line import Kind
from pipetune.report.notices_text import notice_lines
from pipetune.report.sweep_text import conclusion_lines, path_lines, ranking_table
from pipetune.sweeping.result import SweepResult
from tests.fakes import outcome
from tests.unit.sweeping.test_result import BROKEN, CEILING, DEFAULT, TUNED, sweep_result

#: A space that the default and one other candidate exhaust.
ONE = Space(backends=("opencv",), workers=(2,), prefetch=(2,), batch_size=64, pin_memory=False)


def rendered(result: SweepResult, width: int) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(ranking_table(result, width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def kinds(result: SweepResult) -> list[Kind]:
    return [line.kind for line in conclusion_lines(result)]


def of_kind(result: SweepResult, kind: Kind) -> str:
    return "\n".join(line.text for line in conclusion_lines(result) if line.kind is kind)


def test_a_target_that_is_met_has_context_a_headline_and_its_uncertainty() -> None:
    result = sweep_result(CEILING, DEFAULT, TUNED)

    assert kinds(result) == [Kind.CONTEXT, Kind.CONTEXT, Kind.HEADLINE, Kind.UNCERTAINTY]
    assert "1,250 samples/s" in of_kind(result, Kind.CONTEXT)
    assert "pillow, no workers" in of_kind(result, Kind.CONTEXT)
    for part in ("opencv, 2 workers, prefetch 2", "1,200 samples/s ±2.0 %", "96 %", "2.40", "1.0 cores", "512 MiB"):
        assert part in of_kind(result, Kind.HEADLINE)


def test_a_missed_target_says_what_is_nearest_why_and_what_would_help() -> None:
    best = outcome("opencv", 2, rate=600.0, cpu_busy_pct=98.0, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    result = sweep_result(CEILING, DEFAULT, best, space=ONE)

    assert kinds(result)[2:6] == [Kind.HEADLINE, Kind.DETAIL, Kind.DETAIL, Kind.DETAIL]
    assert "90 %" in of_kind(result, Kind.HEADLINE)
    assert "3.7 cores" in of_kind(result, Kind.DETAIL)  # 0.9 x 1,250/s x 3.3 ms


@pytest.mark.parametrize("rate", [600.0, 1200.0])
def test_a_search_that_was_cut_short_does_not_say_what_would_help(rate: float) -> None:
    tried = outcome("opencv", 2, rate=rate, cpu_s_per_1000_samples=3.3, cores_used=1.98)
    ended, cut = (
        sweep_result(CEILING, DEFAULT, tried, space=replace(ONE, workers=workers)) for workers in ((2,), (1, 2))
    )

    assert not cut.complete
    assert cut.doubts
    assert kinds(cut)[-1] is Kind.UNCERTAINTY
    more = kinds(ended).count(Kind.DETAIL) - kinds(cut).count(Kind.DETAIL)
    assert more == (1 if rate == 600.0 else 0)  # another decoder may do it


def test_doubts_and_ties_are_uncertainty() -> None:
    result = replace(sweep_result(CEILING, DEFAULT, TUNED), doubts=(), ties=())
    doubtful = replace(result, doubts=("it may rain", "it may snow"))
    tied = replace(result, ties=(DEFAULT.candidate.key, "another-key", "b", "c", "d"))

    assert Kind.UNCERTAINTY not in kinds(result)
    assert "it may rain; it may snow" in of_kind(doubtful, Kind.UNCERTAINTY)
    assert "pillow, no workers; another-key; b; and 2 more" in of_kind(tied, Kind.UNCERTAINTY)


@pytest.mark.parametrize(("rate", "what"), [(1200.0, "cheapest"), (600.0, "nearest to the target")])
def test_a_tie_does_not_say_that_the_recommended_one_is_the_best_of_them(rate: float, what: str) -> None:
    """A tied candidate may use fewer cores by what chance explains: the table shows it."""
    found = replace(sweep_result(CEILING, DEFAULT, outcome("opencv", 2, rate=rate)), ties=("another-key",))
    assert of_kind(found, Kind.UNCERTAINTY).endswith(f"another-key. Any of them may be the {what}.")


def test_interrupted_and_failed_sweeps() -> None:
    assert kinds(sweep_result(CEILING, DEFAULT, stopped="interrupted"))[-1] is Kind.WARNING
    assert "no ceiling" in of_kind(sweep_result(stopped="failed", message="no ceiling"), Kind.HEADLINE)
    assert kinds(sweep_result(stopped="interrupted")) == [Kind.HEADLINE, Kind.WARNING]


def test_a_step_that_the_workers_slow_down_is_pointed_out() -> None:
    slowed = outcome("opencv", 2, rate=1200.0, step_slower_frac=0.08)

    text = of_kind(sweep_result(CEILING, DEFAULT, slowed), Kind.DETAIL)
    assert "8.0 %" in text
    assert "workers run" in text
    alone = outcome("opencv", 0, rate=1200.0, step_slower_frac=0.08)
    assert "workers" not in of_kind(sweep_result(CEILING, DEFAULT, alone), Kind.DETAIL)
    assert Kind.DETAIL not in kinds(sweep_result(CEILING, DEFAULT, TUNED))


def test_what_misses_a_target_beyond_what_counts_as_healthy_has_no_reason() -> None:
    best = outcome("opencv", 2, rate=1205.0, accelerator_idle_frac=0.036, data_wait_frac=0.1)
    result = sweep_result(CEILING, DEFAULT, best, target=0.98, space=ONE)

    assert kinds(result).count(Kind.DETAIL) == 1  # the nearest candidate


@pytest.mark.parametrize("width", [48, 60, 80, 100, 140, 200])
def test_the_table_never_wraps_and_always_names_candidate_and_rate(width: int) -> None:
    lines = rendered(sweep_result(CEILING, DEFAULT, TUNED, BROKEN), width)
    assert max(len(line) for line in lines) <= width
    assert len([line for line in lines if "pillow, no workers" in line or "opencv, 2 workers" in line]) == 2
    assert "1,200/s ±2.0 %" in "\n".join(lines)


def test_words_in_brackets_or_colons_are_shown_as_they_are() -> None:
    """A stored run may be somebody else's; rich would end at a tag that closes nothing, and draw a train."""
    candidate = replace(TUNED.candidate, transfer="[/x] [b] :train:")
    lines = rendered(sweep_result(CEILING, DEFAULT, replace(TUNED, candidate=candidate)), 200)
    assert "[/x] [b] :train:" in "\n".join(lines)


def test_emulated_utilisation_is_called_emulated_and_the_rows_are_marked() -> None:
    lines = rendered(sweep_result(CEILING, DEFAULT, TUNED), 160)
    assert "EMULATED util" in lines[0]
    assert any(line.startswith("> opencv") for line in lines)
    assert any(line.startswith("* pillow") for line in lines)


def test_notices_name_candidates_in_words_and_come_in_order() -> None:
    noisy, too = outcome("torchvision", 1, warnings=("too loud",)), outcome("opencv", 1, warnings=("too loud",))
    lacking = Failure(kind="shm", phase="spawn", message="needs 2 GiB of shared memory", hint="mount more")
    candidates = [Candidate(backend="opencv", num_workers=n, prefetch_depth=2, batch_size=64) for n in (8, 4)]
    result = sweep_result(
        CEILING, DEFAULT, noisy, too, BROKEN, does_not_fit=tuple((candidate, lacking) for candidate in candidates)
    )

    lines = notice_lines(result)

    assert {line.kind for line in lines} == {Kind.WARNING}
    skipped, failed, warned = (line.text for line in lines)
    assert skipped == (
        "opencv, 4 workers, prefetch 2 (and 1 more): skipped: needs 2 GiB of shared memory; mount more"
    )  # fmt: skip
    assert failed == "dali, 2 threads, prefetch 2: failed in phase timed (killed): gone; less"
    assert warned == "torchvision, 1 worker, prefetch 2; opencv, 1 worker, prefetch 2: too loud"


def test_candidates_measured_in_a_slow_moment_share_a_line() -> None:
    slow = outcome("torchvision", 2, machine_speed_before=100.0, machine_speed_after=100.0)
    result = sweep_result(CEILING, DEFAULT, TUNED, outcome("opencv", 1), slow)

    (line,) = notice_lines(result)

    assert line.kind is Kind.WARNING
    assert line.text.endswith("torchvision, 2 workers, prefetch 2 (-50 %)")


def test_the_path_has_a_line_per_measurement() -> None:
    again = replace(TUNED, attempt=2, why="once more")
    lines = path_lines(sweep_result(CEILING, DEFAULT, TUNED, again, replace(TUNED, block=1), BROKEN))

    assert lines == [
        "pillow, no workers: 500/s ±2.0 %, 40 %",
        "opencv, 2 workers, prefetch 2: 1,200/s ±2.0 %, 96 %",
        "opencv, 2 workers, prefetch 2 again: 1,200/s ±2.0 %, 96 % (once more)",
        "opencv, 2 workers, prefetch 2 in block 1: 1,200/s ±2.0 %, 96 %",
        "dali, 2 threads, prefetch 2: failed (killed)",
    ]


def test_several_hosts_are_told_together_and_apart() -> None:
    def share(host: int, rate: float) -> HostShare:
        return HostShare(
            host=host, name=f"n{host + 1}", samples_per_s=rate, ci95=(rate, rate), goodput=None, data_wait_frac=0.0,
            accelerator_idle_frac=0.0, cores_used=1.0, read_bytes_per_s=0.1e6 * rate, together_frac=1.0,
        )  # fmt: skip

    def text(*rates: float) -> str:
        tuned = outcome("opencv", 2, rate=1200.0, hosts=tuple(share(n, rate) for n, rate in enumerate(rates)))
        return of_kind(sweep_result(CEILING, DEFAULT, tuned), Kind.DETAIL)

    assert text(1200.0, 1300.0) == (
        "2 hosts at the same time deliver 2,500 samples/s together; the slowest, n1, 1,200 samples/s, n2 8.3 % more; "
        "together they read 250 MB/s from storage."
    )
    assert text(1200.0, 1200.0).startswith(
        "2 hosts at the same time deliver 2,400 samples/s together, each 1,200 samples/s; "
    )
