from __future__ import annotations

from typing import Any

from pipetune.report.html.watch_page import watch_page
from tests.unit.report.html.reader import EVIL, Page
from tests.watch_fakes import verdict, window


def page(**changes: Any) -> Page:
    values: dict[str, Any] = {
        "run_name": "run", "about": {}, "end": {}, "verdicts": (), "windows": (), "figures": [], "problems": [],
    }  # fmt: skip
    return Page(watch_page(**values | changes))


def test_a_watch_page_has_a_part_per_rank() -> None:
    found = verdict(rank=1, sentence=f"60 % lost {EVIL}", advice="more workers", missing=("no stacks",))
    shown = page(
        about={"title": EVIL, "pid": 7, "interval_s": 0.5, "job_command": ["python", EVIL]},
        verdicts=(found, verdict(rank=0)), end={"own_core_frac": 0.004},
    )  # fmt: skip

    assert len([tag for tag, _ in shown.tags if tag == "script"]) == 2
    assert len([tag for tag, _ in shown.tags if tag == "h2"]) == 5  # two ranks, figures, facts, the command
    for part in ("rank 1", "rank 0", "more workers", "80 to 96 %", "no stacks", "alert(1)", "0.4 % of a core"):
        assert part in shown.text
    assert EVIL in shown.embedded()["about"]["title"]


def test_each_window_and_rank_is_a_row() -> None:
    unknown = verdict(rank=None, lost_frac=None)
    shown = page(windows=(window(number=1, verdicts=(verdict(rank=0), verdict(rank=1))), window(verdicts=(unknown,))))

    values = [attributes["data-value"] for tag, attributes in shown.tags if tag == "td"]
    assert [values[at] for at in range(1, 18, 6)] == ["0", "1", ""]
    assert [values[at] for at in range(3, 18, 6)] == ["0.6", "0.6", ""]


def test_only_the_newest_windows_are_listed() -> None:
    shown = page(windows=tuple(window(number=number) for number in range(300)))

    values = [attributes["data-value"] for tag, attributes in shown.tags if tag == "td"]
    assert values[::6] == [str(number) for number in range(100, 300)]
    assert "the newest 200 of 300 windows" in shown.text


def test_an_observed_loop_has_a_page_of_its_own() -> None:
    shown = page(kind="observe", headline="100 samples/s", about={"command": "python t.py"})

    for part in ("pipetune observe", "100 samples/s", "python t.py"):
        assert part in shown.text


def test_a_watch_in_which_nothing_was_read_has_a_page() -> None:
    shown = page(problems=["the log is empty"])

    assert "h1" in [tag for tag, _ in shown.tags]
    assert "the log is empty" in shown.text


def test_secrets_in_what_an_earlier_version_has_stored_are_not_shown() -> None:
    for about in ({"job_command": ["python", "t.py", "--token", "abc"]}, {"command": "python t.py --token abc"}):
        shown = page(about=about)
        assert "t.py --token" in shown.text
        assert "abc" not in shown.text
        assert "abc" not in str(shown.embedded())
