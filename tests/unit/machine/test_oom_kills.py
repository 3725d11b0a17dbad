from __future__ import annotations

import pytest

from pipetune.machine import oom_kills
from pipetune.machine.oom_kills import OomKills, parse_oom_kills


def test_the_count_is_read_where_the_kernel_keeps_one() -> None:
    assert parse_oom_kills("nr_free_pages 1204\noom_kill 6\n") == 6
    assert parse_oom_kills("nr_free_pages 1204\n") is None


@pytest.mark.parametrize(("counts", "new"), [((6, 8), 2), ((6, 6), 0), ((None, 3), None), ((3, None), None)])
def test_what_was_counted_before_does_not_count(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int | None, int | None], new: int | None
) -> None:
    read = iter(counts)
    monkeypatch.setattr(oom_kills, "count_oom_kills", lambda: next(read))
    assert OomKills().count_new() == new
