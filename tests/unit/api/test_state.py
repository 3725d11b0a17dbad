from __future__ import annotations

import html.parser

import pytest

from pipetune.api.state import as_html, as_line, loop_facts, verdict_facts
from pipetune.diagnosis import causes
from pipetune.records.sweep import StepTime
from tests.watch_fakes import verdict

S = 10**9
HOSTILE = {"job": "<script>alert('1')</script>\x1b[31m\n&amp; \udcff", 'a"b': "'><b>"}


class Texts(html.parser.HTMLParser):
    """Tags and texts of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(text: str) -> Texts:
    texts = Texts()
    texts.feed(text)
    return texts


def step(number: int, *, wait_s: float = 0.1, gap_s: float = 0.0) -> StepTime:
    """A step of a second, of which the accelerator waits for data; ``gap_s`` is the time before it."""
    start_ns = round((number + gap_s) * S)
    return StepTime(
        t_start_ns=start_ns, data_wait_s=wait_s, h2d_s=None, compute_s=1 - wait_s, idle_s=wait_s,
        t_end_ns=start_ns + S, samples=8,
    )  # fmt: skip


def test_a_line_has_all_facts() -> None:
    assert (
        as_line("watch", {"job": "train.py", "state": "watching"}) == "<pipetune.watch: job train.py; state watching>"
    )


def test_a_hostile_name_cannot_control_the_terminal() -> None:
    line = as_line("watch", HOSTILE)

    assert line.isprintable()
    assert line.isascii()
    assert "<script>" in line


def test_a_hostile_name_is_text_in_a_table() -> None:
    table = parsed(as_html("watch", HOSTILE))

    assert table.tags == {"table", "caption", "tbody", "tr", "th", "td"}
    assert "<script>alert('1')</script>?[31m?&amp; ?" in table.texts
    assert "'><b>" in table.texts
    assert 'a"b' in table.texts


def test_without_a_window_nothing_is_claimed() -> None:
    assert verdict_facts(()) == {"lost": "unknown before the first window closes"}


def test_the_verdict_of_one_rank() -> None:
    facts = verdict_facts((verdict(lost_frac=0.6, cause=causes.CPU_DECODE, confidence="high"),))

    assert facts == {"lost": "60 % of the accelerator's time", "cause": "decoding on the CPU (high confidence)"}


def test_of_several_ranks_the_worst_is_named() -> None:
    facts = verdict_facts((verdict(rank=3, lost_frac=0.6), verdict(rank=1, lost_frac=0.1)))

    assert facts["lost"] == "60 % of the accelerator's time in rank 3, the worst of 2 ranks"


def test_a_loss_that_is_not_known_is_shown_as_unknown() -> None:
    assert verdict_facts((verdict(lost_frac=None, cause=causes.NOT_STARTED),))["lost"] == "unknown"


def test_steps_of_the_warm_up_count_in_no_figure() -> None:
    assert loop_facts([], 3) == {"steps": "0, all of them warm-up"}
    assert loop_facts([step(0), step(1), step(2)], 3) == {"steps": "3, all of them warm-up"}


@pytest.mark.parametrize("warmup", [0, 2])
def test_a_loop_has_its_rate_and_its_idle_time(warmup: int) -> None:
    facts = loop_facts([step(number, wait_s=0.25) for number in range(warmup + 4)], warmup)

    assert facts == {
        "steps": f"4 after {warmup} of warm-up", "rate": "8.0 samples/s", "accelerator idle": "25 % of 4.0 s",
        "loop waits for data": "25 % of the time",
    }  # fmt: skip


@pytest.mark.parametrize("warmup", [0, 2])
def test_time_between_two_epochs_is_left_out(warmup: int) -> None:
    steps = [step(number, gap_s=0.0 if number < warmup + 2 else 100.0) for number in range(warmup + 4)]

    assert loop_facts(steps, warmup)["accelerator idle"] == "10 % of 4.0 s"


def test_a_busy_accelerator_does_not_wait() -> None:
    assert "loop waits for data" not in loop_facts([step(number, wait_s=0.01) for number in range(9)], 3)
