from __future__ import annotations

import json
from typing import Any

import pytest

from pipetune.records.audit import MEMBERS, Audit
from pipetune.records.sweep import HostShare
from pipetune.report.html.page import Figure
from pipetune.report.html.sweep_page import sweep_page
from pipetune.sweeping.result_json import to_json
from tests.fakes import outcome
from tests.unit.report.html.reader import EVIL, Page
from tests.unit.sweeping.test_result import BROKEN, CEILING, DEFAULT, TUNED, sweep_result


def sweep(*outcomes: Any, about: dict[str, Any] | None = None, **changes: Any) -> str:
    result = sweep_result(*(outcomes or (CEILING, DEFAULT, TUNED, BROKEN)), **changes)
    return sweep_page(
        result, run_name="run", run_folder="/runs/run", about=about or {"command": "pipetune sweep"},
        problems=["something was lost"], figures=[Figure(title="A & B", svg="<svg></svg>", wide=True)],
    )  # fmt: skip


def test_the_page_says_what_the_screen_says() -> None:
    page = Page(sweep())

    assert "Recommended: opencv, 2 workers" in page.text
    assert "target met" in page.text
    assert "2.40x" in page.text
    assert "num_workers=2" in page.text
    assert "DataLoader(dataset" in page.text
    assert "dali, 2 threads, prefetch 2: failed in phase timed (killed): gone; less" in page.text
    assert "something was lost" in page.text
    assert "pipetune sweep" in page.text
    assert "A & B" in page.text


def test_a_default_that_is_recommended_is_stated_once() -> None:
    text = Page(sweep(CEILING, outcome("pillow", 0, rate=1200.0, ceiling=1250.0, role="baseline"))).text
    assert text.count("PyTorch's default, recommended") == 2, "a number, and the evidence"
    assert "speed-up" not in text


def test_every_number_of_the_ranking_is_that_of_the_json() -> None:
    result = sweep_result(CEILING, DEFAULT, TUNED, BROKEN)
    page = Page(sweep())

    assert page.embedded() == json.loads(json.dumps(to_json(result)))
    rows = [dict(attributes)["data-key"] for tag, attributes in page.tags if tag == "tr" and "data-key" in attributes]
    assert rows == [TUNED.candidate.key, DEFAULT.candidate.key, BROKEN.candidate.key]
    cells = [attributes.get("data-value") for tag, attributes in page.tags if tag == "td"]
    assert cells[1] == "1200.0"
    assert cells[2] == str(1200.0 / 1250.0)
    assert cells[-3:] == ["", "", "killed"]


@pytest.mark.parametrize("place", ["dataset", "command", "about", "host"])
def test_whatever_has_a_name_is_text(place: str) -> None:
    changes: dict[str, Any] = {}
    about: dict[str, Any] = {
        "command": EVIL if place == "command" else "x",
        "pipetune": EVIL if place == "about" else "1",
    }
    if place == "dataset":
        changes["dataset"] = {"name": EVIL, "root": f"/{EVIL}", "images": 3, "classes": 1}
    if place == "host":
        changes["host"] = {"hostname": EVIL, "versions": {EVIL: EVIL}}
    text = sweep(about=about, **changes)
    page = Page(text)

    assert EVIL not in text
    assert "<script>alert" not in text
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 2
    assert "alert(1)" in page.text
    if place == "dataset":
        assert page.embedded()["dataset"]["name"] == EVIL


def test_nothing_is_fetched_from_anywhere() -> None:
    page = Page(sweep())

    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attributes.get(name) or "data:,").startswith("data:"), (tag, attributes)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not [tag for tag, attributes in page.tags if any(name.startswith("on") for name in attributes)]


def test_where_nothing_was_found_there_is_no_configuration_to_copy() -> None:
    assert "The configuration" not in Page(sweep(CEILING, outcome("pillow", 0, rate=500.0, role="baseline"))).text
    assert "The configuration" in Page(sweep()).text


def test_an_interrupted_and_a_failed_sweep_have_a_page() -> None:
    assert "interrupted" in Page(sweep(CEILING, stopped="interrupted")).text
    assert "FAILED" in Page(sweep(CEILING, BROKEN)).text
    assert "no workers" in Page(sweep(CEILING, outcome("pillow", 0, rate=1240.0, role="baseline"))).text


def test_a_dataset_that_a_killed_run_knows_only_by_name() -> None:
    assert "just a name" in Page(sweep(dataset={"name": "just a name"})).text


def test_secrets_in_the_command_of_an_earlier_version_s_run_are_not_shown() -> None:
    shown = sweep(about={"command": "pipetune sweep -- python t.py --token abc"})
    assert "python t.py --token" in shown
    assert "abc" not in shown


def test_hosts_have_a_table_and_their_names_are_escaped() -> None:
    def share(host: int) -> HostShare:
        return HostShare(
            host=host, name=f"<n{host}>", samples_per_s=1200.0 + host, ci95=(1.0, 2.0), goodput=0.96,
            data_wait_frac=0.125, accelerator_idle_frac=0.04, cores_used=None, read_bytes_per_s=150e6,
            together_frac=0.98,
        )  # fmt: skip

    page = sweep(CEILING, DEFAULT, outcome("opencv", 2, rate=1200.0, hosts=(share(0), share(1))))
    assert "Hosts of this configuration" in page
    assert "&lt;n1&gt;" in page
    assert "<n1>" not in page
    assert "150 MB/s" in page
    assert "Hosts of this configuration" not in sweep()


def test_the_account_of_the_data_set_and_what_does_not_decode() -> None:
    audit = Audit(unit=MEMBERS, members=24, used=16, rejected=6, other={"json": 2}, labels=16, matched=16)
    text = Page(sweep(dataset={"name": "set", "images": 16, "audit": audit, "undecodable": ["/set/1.jpg"]})).text

    assert "24 members: 16 images used, 6 rejected, 2 other (2 json); 16 labels: 16 matched, 0 unmatched" in text
    assert "'/set/1.jpg'" in text
