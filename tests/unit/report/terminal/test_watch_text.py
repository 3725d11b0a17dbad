from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pipetune.diagnosis import causes
from pipetune.records.observation import EMULATED, LOADER_WAIT
from pipetune.records.watch import CauseShare
from pipetune.report.terminal.signs import bar, busy_points, clean, draws, timeline_of
from pipetune.report.terminal.watch_text import STAND_IN, stall_line, summary_lines, verdict_lines, window_line
from tests.watch_fakes import main_reading, rank_readings, stall, verdict, window

HOSTILE = "\x1b]0;owned\x07\x1b[2Jtrain\u202e\r\n\x9b31m.py"


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("ascii", [False, True])
def test_a_verdict_keeps_to_the_width_and_says_everything(width: int, ascii: bool) -> None:
    made = verdict(sentence="long " * 60, advice="a-word-without-a-break" * 10, evidence=("fact " * 50, "second"))
    lines = verdict_lines(made, width=width, title="train.py (process 4000)", ascii=ascii)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert lines[0] == "train.py (process 4000)"
    for part in (
        "long long",
        "confidence: high",
        "evidence: fact",
        "second",
        "suggestion: ",
        "missing signals: stacks: py-spy",
    ):
        assert part in text
    assert not ascii or text.isascii()


def test_shares_are_rows_with_their_interval_and_a_bar() -> None:
    rows = [line for line in verdict_lines(verdict(), width=80) if "█" in line]
    assert [row.split("%")[0].strip() for row in rows] == [
        "decoding on the CPU         90",
        "Python in the main process  10",
    ]
    assert "± 8 %" in rows[0]
    assert rows[0].count("█") > 7 * rows[1].count("█") > 0
    assert "#" in verdict_lines(verdict(), width=80, ascii=True)[2]


def test_a_narrow_terminal_gets_the_shares_without_bars() -> None:
    made = verdict(shares=(CauseShare(cause=causes.SMALL_BATCH, share=1.0, ci95=(0.8, 1.0)),))
    (row,) = [line for line in verdict_lines(made, width=56) if "100 %" in line]
    assert row.endswith("%")
    assert len(row) <= 56


def test_figures_that_are_not_of_a_real_accelerator_say_so() -> None:
    emulated, stand_in = verdict(source=EMULATED), verdict(source=LOADER_WAIT, util_frac=None)
    assert verdict_lines(emulated, width=200)[0].startswith("EMULATED: 60 %")
    assert STAND_IN in verdict_lines(stand_in, width=200)[0]
    assert "EMULATED" not in "".join(verdict_lines(verdict(), width=200))
    assert "EMULATED util 40 %" in window_line(window(verdicts=(emulated,)))
    assert "no accelerator read, 60 % lost" in window_line(window(verdicts=(stand_in,)))
    assert "EMULATED" in stall_line(stall(), 0.0, source=EMULATED)


def test_a_job_that_has_not_begun_claims_no_figures() -> None:
    idle = verdict(
        source=LOADER_WAIT, cause=causes.NOT_STARTED, util_frac=None, lost_frac=None, lost_ci95=None, shares=(),
        sentence="no training seen yet", advice=None, evidence=(), missing=(),
    )  # fmt: skip
    assert verdict_lines(idle, width=80) == ["no training seen yet"]
    assert window_line(window(verdicts=(idle,))) == "22:13:30 | no training seen yet"
    assert window_line(window(verdicts=())) == "22:13:30 | no training process"


def test_a_window_is_one_line_about_the_worst_rank() -> None:
    verdicts = (verdict(rank=3), verdict(rank=0, util_frac=0.9))
    line = window_line(window(verdicts=verdicts, stalls=(stall(), stall(t_end_ns=2_100_000_000))))
    assert line == (
        "22:13:30 | worst of 2: rank 3 | util 40 %, lost 60 %: decoding on the CPU 90 %, "
        "Python in the main process 10 % (high confidence) | 2 stalls, 3.1 s | "
        "suggestion: num_workers 2 -> 5: the workers are 97 % busy"
    )
    assert window_line(window()).count("\n") == 0
    assert "rank" not in window_line(window())


def test_advice_without_a_pause_is_cut_at_a_word() -> None:
    line = window_line(window(verdicts=(verdict(advice="word " * 40),)))
    assert line.endswith("word …")


def test_a_stall_is_reported_with_the_time_at_which_it_began() -> None:
    assert stall_line(stall(rank=1), 1_700_000_000.0) == "22:13:20 | rank 1 stalled 2.0 s: decoding on the CPU"
    assert "process 4000 stalled" in stall_line(stall(), 0.0)


def test_the_end_lists_ranks_stalls_by_cause_and_the_own_cost() -> None:
    stalls = [stall(rank=0), stall(rank=0), stall(rank=1, cause=causes.CHECKPOINT, t_end_ns=10 * 10**9)]
    verdicts = [verdict(rank=1), verdict(rank=0, util_frac=0.7, lost_frac=0.3)]
    lines = summary_lines(verdicts, stalls, width=300, own_core_frac=0.004, own_rss_bytes=2**26)
    assert lines[0] == "rank 1, the worst of 2:"
    assert any(line.startswith("rank 0: util 70 %, lost 30 %: decoding") for line in lines)
    assert lines[-2] == (
        "3 stalls, 13.0 s: checkpoint or evaluation 1 stall, 9.0 s; decoding on the CPU 2 stalls, 4.0 s; the longest: "
        "rank 1 stalled 9.0 s: checkpoint or evaluation"
    )
    assert lines[-1] == "pipetune itself used 0.40 % of a core and 64.0 MiB of memory"
    assert max(map(len, summary_lines(verdicts, stalls, width=60))) <= 60
    assert "no stalls" in summary_lines([verdict()], [], width=80)
    assert len(summary_lines([], [], width=80)) == 1


def test_no_escape_sequence_of_a_process_reaches_the_terminal() -> None:
    made = verdict(sentence=HOSTILE, evidence=(HOSTILE,), advice=HOSTILE, missing=(HOSTILE,))
    lines = [
        *verdict_lines(made, width=60, title=HOSTILE),
        *summary_lines([made, made], [stall()], width=60),
        window_line(window(verdicts=(made,))),
    ]
    assert all(line.isprintable() for line in lines)
    assert clean("caffè 東京") == "caffè 東京"
    assert clean("a\udcffb ±3 → 4 東", ascii=True) == "a?b +-3 -> 4 ?"


def test_a_timeline_has_a_column_per_reading_as_long_as_they_fit() -> None:
    row, marks = timeline_of(busy_points(rank_readings([0.0, 0.3, 0.5, 1.0, None])), 10)
    assert (row, marks) == ("▁▃▅█·", "^    ")
    assert timeline_of(busy_points(rank_readings([0.0, 0.3, 0.5, 1.0, None])), 10, ascii=True) == (" -+@?", "^    ")
    assert timeline_of(busy_points([]), 10) == ("", "")


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (9, 8), (1200, 60), (512, 40), (77, 13)])
def test_more_readings_than_columns_share_them_and_no_stall_is_averaged_away(count: int, columns: int) -> None:
    readings = rank_readings([1.0] * count)
    for at in {0, count // 2, count - 1}:
        row, marks = timeline_of([0.05 if number == at else 1.0 for number in range(count)], columns)
        assert len(row) == len(marks) <= columns
        assert marks.count("^") == 1
    row, marks = timeline_of(busy_points(readings), columns)
    assert set(row) == {"█"}
    assert set(marks) == {" "}
    assert 2 * len(row) > columns or count <= columns


def test_a_longer_row_keeps_its_columns() -> None:
    points = [(number * 37 % 100) / 100 for number in range(64)]
    before, _ = timeline_of(points[:50], 32)
    after, _ = timeline_of(points[:52], 32)
    assert after[:25] == before[:25]


def test_without_an_accelerator_the_row_is_what_the_loader_leaves() -> None:
    waits, runs = main_reading(), main_reading(wait="running", state="R", wchan=None, cpu_frac=1.0, write_chars=0)
    readings = rank_readings([None], source=LOADER_WAIT, main=waits) + rank_readings(
        [None], source=LOADER_WAIT, main=runs
    )
    assert timeline_of(busy_points(readings), 8) == ("▁█", "^ ")


@pytest.mark.parametrize("frac", [-1.0, 0.0, 0.01, 0.5, 0.99, 1.0, 2.0])
@pytest.mark.parametrize("ascii", [False, True])
def test_bars_have_their_width(frac: float, ascii: bool) -> None:
    assert len(bar(frac, 10, ascii=ascii)) == 10


def test_bars_grow() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.5, 4, ascii=True) == "##  "
    assert bar(1.0, 4) == "████"
    assert bar(0.55, 10) == "█████▌    "


def test_which_outputs_can_show_blocks() -> None:
    assert draws("utf-8")
    assert not any(draws(encoding) for encoding in ("ascii", "latin-1", "nonsense", None))
