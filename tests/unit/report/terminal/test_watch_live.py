from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal, SignalValue
from pipetune.records.observation import DISK, EMULATED, LOADER_WAIT, PIPE
from pipetune.records.watch import Verdict
from pipetune.report.terminal import watch_sections
from pipetune.report.terminal.screen import Section
from pipetune.report.terminal.watch_live import LiveView
from tests.watch_fakes import (
    BEGAN_NS,
    PID,
    FakeWatcher,
    machine_reading,
    rank_readings,
    stall,
    verdict,
    worker_summary,
    workers,
)

SIZES = [(60, 20), (80, 24), (120, 40), (40, 10), (200, 50)]
#: What rich itself sends: colours, moves of the cursor, erased lines.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A view on a terminal that is a string."""

    def __init__(self, width: int, height: int, *, encoding: str = "utf-8", **options: Any) -> None:
        self.bytes = io.BytesIO()
        stream = io.TextIOWrapper(self.bytes, encoding=encoding, write_through=True)
        self.console = Console(
            file=stream, width=width, height=height, force_terminal=True, color_system="standard", **options
        )
        self.view = LiveView(self.console)

    def update(
        self, watcher: FakeWatcher, verdicts: Sequence[Verdict], title: str = "train.py", note: str | None = None
    ):
        before = len(self.bytes.getvalue())
        self.view.compose(watcher, verdicts, title, note)  # type: ignore[arg-type]
        self.view.draw()
        self.raw = self.bytes.getvalue()[before:].decode()
        return CONTROL.sub("", self.raw).strip("\n").split("\n")


def shown(
    watcher: FakeWatcher, verdicts: Sequence[Verdict], size: tuple[int, int] = (120, 40), title: str = "train.py",
    note: str | None = None, **options: Any,
) -> list[str]:  # fmt: skip
    terminal = Terminal(*size, **options)
    with terminal.view:
        return terminal.update(watcher, verdicts, title, note)


def busy_job(count: int = 16, ranks: int = 1, **changes: Any) -> tuple[FakeWatcher, tuple[Verdict, ...]]:
    """A job with so many workers that sleep in a pipe, and its verdicts."""
    readings = [
        rank_readings(
            [0.05, 0.9] * 40,
            pid=PID + 1000 * rank,
            workers=workers(count, state="S", wait=PIPE, wchan="anon_pipe_read", cpu_frac=0.45),
        )
        for rank in range(ranks)
    ]
    verdicts = tuple(
        verdict(
            pid=PID + 1000 * rank,
            rank=rank if ranks > 1 else None,
            workers=tuple(worker_summary(pid=PID + 1 + number, cpu_frac=0.45) for number in range(count)),
            **changes,
        )
        for rank in range(ranks)
    )
    return FakeWatcher(readings, stalls=[stall(), stall()]), verdicts


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(("count", "ranks"), [(0, 1), (2, 1), (16, 1), (200, 1), (16, 8)])
def test_the_view_fits_the_terminal(size: tuple[int, int], encoding: str, count: int, ranks: int) -> None:
    watcher, verdicts = busy_job(
        count,
        ranks,
        source=EMULATED,
        sentence="a long sentence " * 20,
        advice="東京" * 200,
        evidence=("fact " * 60,) * 9,
    )
    lines = shown(watcher, verdicts, size, title="train-" * 50, note="note " * 60, encoding=encoding)
    assert max(map(cell_len, lines)) <= size[0]
    assert len(lines) < size[1]


def test_a_small_terminal_keeps_what_matters_most() -> None:
    watcher, verdicts = busy_job()
    lines = shown(watcher, verdicts, (60, 20))
    text = "\n".join(lines)
    for part in ("train.py", "GPU  ", "^", "60 % of the accelerator's", "(high confidence)", "decoding on the CPU",
                 "suggestion: num_workers 2 -> 5", "CPU busy 96 %", "pressure (machine): cpu 12 %",
                 "main thread: waits", "16 worker processes", "2 stalls, the last: 2.0 s", "missing signals: stacks",
                 "Ctrl-C ends it"):  # fmt: skip
        assert part in text
    assert text.index("suggestion:") < text.index("Ctrl-C")
    assert lines[-1].endswith("Ctrl-C ends it")


def test_a_large_terminal_shows_every_worker_and_the_evidence() -> None:
    watcher, verdicts = busy_job()
    lines = shown(watcher, verdicts, (120, 44))
    own = [line for line in lines if "anon_pipe_read" in line]
    assert len(own) == 16
    assert re.fullmatch(r"  4001 +████▌ +45 % CPU  S  pipe 3 % in anon_pipe_read *", own[0])
    assert any("evidence: 2 loader worker processes" in line for line in lines)
    assert not any("evidence: CPU busy" in line for line in lines), "a section of its own shows that"


@pytest.mark.parametrize("words", ["CPU busy", "main thread:", "anything else"])
def test_other_words_do_not_change_what_evidence_is_shown(words: str) -> None:
    watcher, _ = busy_job(1)
    signals = (Signal.WORKERS, Signal.CPU, Signal.PRESSURE, Signal.DISK, Signal.MAIN_THREAD, Signal.CPU_QUOTA)
    found = verdict(
        evidence=tuple(f"{words} {number}" for number in range(len(signals))),
        signals=tuple(SignalValue(signal=signal, value=1.0) for signal in signals),
        missing=(words,), missing_signals=(Signal.PRESSURE,),
    )  # fmt: skip
    text = "\n".join(shown(watcher, (found,), (120, 44)))
    assert [number for number in range(len(signals)) if f"{words} {number}" in text] == [0, 3]
    assert "missing signals: pressure (PSI)" in text


def test_without_workers_their_number_is_not_shown_twice() -> None:
    parts = [
        watch_sections.verdict_parts(
            verdict(evidence=("x",), signals=(SignalValue(signal=Signal.WORKERS, value=count),)), 80, ascii=False
        )
        for count in (0, 2)
    ]
    assert [len(part[Section.EVIDENCE]) for part in parts] == [0, 1]


def test_workers_that_do_not_fit_share_a_line() -> None:
    watcher, verdicts = busy_job(200)
    lines = shown(watcher, verdicts, (80, 40))
    listed = sum("anon_pipe" in line for line in lines)
    assert listed > 5
    assert f"  +{200 - listed} more: mean 45 % CPU" in lines


def test_a_worker_says_what_it_lacks() -> None:
    readings = rank_readings([0.4], workers=workers(1, state="D", wait=DISK, wchan="folio_wait_bit"))
    newest = verdict(workers=(worker_summary(waits={DISK: 0.8}, run_delay_frac=0.2),))
    text = "\n".join(shown(FakeWatcher([readings]), (newest,)))
    assert "D  disk 80 % in folio_wait_bit, waits for a core 20 %" in text


def test_the_newest_reading_is_at_the_right_and_stalls_are_marked_without_colour() -> None:
    watcher = FakeWatcher([rank_readings([1.0, 1.0, 0.0, 0.5])], stalled_since={PID: machine_end() - 3 * 10**9})
    lines = shown(watcher, (verdict(),), no_color=True)
    at = next(number for number, line in enumerate(lines) if line.startswith("GPU"))
    assert re.fullmatch(r"GPU +██▁▅ +40 % busy", lines[at])
    assert lines[at + 1].index("^") == lines[at].index("▁")
    assert lines[at + 1].startswith("2 s ")
    assert lines[at + 1].endswith("stall 3 s")


def machine_end() -> int:
    return FakeWatcher().machine[-1].t_ns


def test_stalls_are_red_where_there_are_colours_and_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = FakeWatcher([rank_readings([1.0, 0.0])])
    terminal = Terminal(80, 24)
    with terminal.view:
        terminal.update(watcher, (verdict(),))
    assert "\x1b[32m█\x1b[0m\x1b[31m▁\x1b[0m" in terminal.raw
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal(80, 24)
    with plain.view:
        plain.update(watcher, (verdict(),))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.raw)


def test_the_worst_ranks_come_first_and_the_rest_are_counted() -> None:
    watcher, verdicts = busy_job(2, ranks=8)
    lines = shown(watcher, verdicts[::-1], (80, 24))
    ranks = [line.split()[1] for line in lines if line.startswith("rank ")]
    assert ranks == ["7", "6"]
    assert "+6 ranks, busy 40..40 %" in lines
    assert len([line for line in shown(watcher, verdicts, (80, 60)) if line.startswith("rank ")]) == 8


def test_a_quota_that_stops_the_job_is_reported() -> None:
    watcher, verdicts = busy_job()
    watcher.machine.extend([machine_reading(t_ns=10**12, quota_cores=2.0, throttled_frac=0.3)] * 4)
    assert "stopped by the quota 30 %" in "\n".join(shown(watcher, verdicts))


def test_pressure_that_the_kernel_does_not_show_is_no_zero() -> None:
    watcher, verdicts = busy_job()
    watcher.machine.append(machine_reading(t_ns=10**12, psi_scope=None, cpu_iowait_pct=None))
    text = "\n".join(shown(watcher, verdicts))
    assert "pressure (PSI): unavailable" in text


def test_the_source_of_the_figures_is_shown() -> None:
    readings = rank_readings([0.4])
    emulated = "\n".join(shown(FakeWatcher([readings]), (verdict(source=EMULATED),)))
    assert "EMULATED accelerator" in emulated
    assert "EMULATED: 60 %" in emulated
    waits = verdict(source=LOADER_WAIT, util_frac=None)
    text = "\n".join(shown(FakeWatcher([rank_readings([None], source=LOADER_WAIT)]), (waits,)))
    assert "no accelerator read" in text
    assert re.search(r"^loop .* 40 % busy", text, re.MULTILINE)


def test_a_terminal_without_blocks_gets_ascii() -> None:
    watcher, verdicts = busy_job()
    lines = shown(watcher, verdicts, (80, 24), title="träin.py 東京", encoding="ascii")
    assert all(line.isascii() for line in lines)
    assert any("#" in line for line in lines)
    assert any("^" in line for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_no_escape_sequence_of_a_process_reaches_the_terminal(size: tuple[int, int]) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e"
    watcher, _ = busy_job(2)
    newest = verdict(
        sentence=hostile, advice=hostile, evidence=(hostile,), missing=(hostile,), activities={hostile: 1.0}
    )
    lines = shown(watcher, (newest,), size, title=hostile, note=hostile)
    assert all(line.isprintable() for line in lines)


def test_before_anything_is_known_it_says_so() -> None:
    assert "no training process seen yet" in "\n".join(shown(FakeWatcher(), ()))
    assert "no training process seen yet" in "\n".join(shown(FakeWatcher(machine=deque()), ()))
    waiting = verdict(
        cause=causes.NOT_STARTED, source=LOADER_WAIT, util_frac=None, lost_frac=None, shares=(),
        sentence="no training yet", advice=None, evidence=(), missing=(), activities={}, workers=(),
    )  # fmt: skip
    lines = shown(FakeWatcher([[]]), (waiting,))
    assert "no training yet" in lines
    assert "accelerator" not in lines[0]


def test_a_reading_that_hangs_is_reported_above_the_last_state() -> None:
    watcher, verdicts = busy_job(2)
    terminal = Terminal(80, 24)
    with terminal.view:
        before = terminal.update(watcher, verdicts)
        start = len(terminal.bytes.getvalue())
        for _ in range(30):
            terminal.view.hang("no reading for a while")
        lines = (
            CONTROL.sub("", terminal.bytes.getvalue()[start:].decode()).split("no reading for a while")[-1].split("\n")
        )
    assert lines[-2:] == before[-2:]
    assert len(lines) <= 23


def test_nothing_is_left_on_the_terminal() -> None:
    watcher, verdicts = busy_job()
    terminal = Terminal(80, 24)
    with terminal.view:
        lines = terminal.update(watcher, verdicts)
    after = terminal.bytes.getvalue().decode()
    erased = after[after.rindex("Ctrl-C ends it") :]
    assert erased.count("\x1b[2K") == erased.count("\x1b[1A") == len(lines)
    assert "\x1b[?25h" in erased, "the cursor is back"


def test_a_terminal_that_changed_its_size_is_cleared() -> None:
    watcher, verdicts = busy_job()
    terminal = Terminal(120, 40)
    with terminal.view:
        terminal.update(watcher, verdicts)
        terminal.update(watcher, verdicts)
        assert "\x1b[2J" not in terminal.raw
        terminal.console.size = (60, 20)  # type: ignore[assignment]
        lines = terminal.update(watcher, verdicts)
    assert "\x1b[2J" in terminal.raw
    assert max(map(len, lines)) <= 60


def test_a_verdict_and_a_reading_are_worked_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = watch_sections.verdict_parts
    monkeypatch.setattr(watch_sections, "verdict_parts", lambda *a, **k: made.append(a) or real(*a, **k))
    watcher, verdicts = busy_job()
    terminal = Terminal(120, 40)
    with terminal.view:
        for _ in range(5):
            terminal.update(watcher, verdicts)
        assert len(made) == 1
        terminal.update(watcher, (verdict(confidence="low"),))
    assert len(made) == 2
    (points,) = terminal.view._points.values()
    assert len(points.busy) == 80


def test_a_timeline_goes_back_only_so_far() -> None:
    terminal = Terminal(120, 40)
    readings = rank_readings([0.5] * 3000)
    with terminal.view:
        for end in range(100, 3001, 100):
            terminal.update(FakeWatcher([readings[max(0, end - 1200) : end]]), (verdict(),))
    (points,) = terminal.view._points.values()
    assert 512 <= len(points.busy) < 512 + 64
    assert points.last_ns == readings[-1].t_ns > BEGAN_NS


def test_where_a_live_view_is_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LiveView.usable(Console(file=io.StringIO(), force_terminal=True, width=60, height=20))
    assert not LiveView.usable(Console(file=io.StringIO(), force_terminal=True, width=30, height=20))
    assert not LiveView.usable(Console(file=io.StringIO(), force_terminal=True, width=60, height=6))
    assert not LiveView.usable(Console(file=io.StringIO(), width=60, height=20))
    monkeypatch.setenv("TERM", "dumb")
    assert not LiveView.usable(Console(file=io.StringIO(), force_terminal=True, width=60, height=20))
