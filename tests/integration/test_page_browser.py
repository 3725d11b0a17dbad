"""The page in a real browser: Debian's Chromium, driven by its own driver. ``.ci/run`` installs both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetune.report.columns import Surface, columns_of
from pipetune.report.html.build import html_page
from pipetune.runs.load import load
from pipetune.sweeping.result_json import to_json
from pipetune.sweeping.stored import sweep_result
from tests.fakes import outcome
from tests.run_folders import CEILING, DEFAULT, TUNED, sweep_folder, watch_folder
from tests.watch_fakes import stall, window

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver")
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,1600",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser: Any, path: Path) -> list[dict[str, Any]]:
    """Open the page; the requests that it made."""
    browser.get_log("performance")
    browser.get(path.as_uri())
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    others = [outcome("torchvision", 1, rate=700.0), outcome("dali", 2, rate=1100.0)]
    dataset = {"name": EVIL, "root": f"/data/{EVIL}", "images": 4, "classes": 2, "found_images": 4, "skipped": 0}
    path = sweep_folder(folder / "run", [CEILING, DEFAULT, TUNED, *others], dataset=dataset)
    (folder / "page.html").write_text(html_page(load(path)))
    return folder


def test_the_page_renders_without_an_error_or_a_request(browser: Any, sweep: Path) -> None:
    requests = opened(browser, sweep / "page.html")

    assert [r["url"] for r in requests if not r["url"].startswith("data:")] == [(sweep / "page.html").as_uri()]
    assert browser.get_log("browser") == []
    assert browser.title.startswith(EVIL)
    assert EVIL in browser.find_element("tag name", "pre").text
    figures = browser.find_elements("css selector", "figure svg")
    assert len(figures) == 4
    assert all(figure.size["height"] > 100 for figure in figures)


def column(browser: Any, number: int) -> list[str]:
    cells = browser.find_elements("css selector", f"#ranking tbody td:nth-child({number})")
    return [cell.get_attribute("data-value") for cell in cells]


def test_the_ranking_sorts_by_number_and_by_name(browser: Any, sweep: Path) -> None:
    opened(browser, sweep / "page.html")
    rates = ["1240.0", "1100.0", "700.0", "640.0"]
    assert column(browser, 2) == rates
    buttons = browser.find_elements("css selector", "#ranking th button")

    buttons[1].click()
    assert column(browser, 2) == rates[::-1]
    buttons[1].click()
    assert column(browser, 2) == rates
    buttons[0].click()
    assert column(browser, 1) == sorted(column(browser, 1))
    heads = browser.find_elements("css selector", "#ranking th")
    assert [head.get_attribute("aria-sort") for head in heads[:2]] == ["ascending", "none"]
    names = column(browser, 1)
    buttons[0].click()
    assert column(browser, 1) == names[::-1]
    buttons[0].click()
    assert column(browser, 1) == names


#: Column of the page -> field of the JSON.
FIELDS = {
    "rate": "samples_per_s", "goodput": "goodput", "util": "gpu_util_pct", "data_wait": "data_wait_frac",
    "cores": "cores_used", "cpu_idle": "cpu_idle_pct", "memory": "pss_bytes",
}  # fmt: skip


def test_the_numbers_are_those_of_the_json(browser: Any, sweep: Path) -> None:
    opened(browser, sweep / "page.html")
    result = to_json(sweep_result(load(sweep / "run")))

    shown = browser.execute_script("return JSON.parse(document.getElementById('data').textContent)")
    assert shown == json.loads(json.dumps(result))
    rows = browser.find_elements("css selector", "#ranking tbody tr")
    by_key = {row["key"]: row for row in result["outcomes"]}
    columns = columns_of(Surface.PAGE, sweep_result(load(sweep / "run")))
    for row in rows:
        values = [cell.get_attribute("data-value") for cell in row.find_elements("tag name", "td")]
        found = by_key[row.get_attribute("data-key")]
        shown_as = {column.name: value for column, value in zip(columns, values, strict=True)}
        for name, field in FIELDS.items():
            assert float(shown_as[name] or "nan") == found[field]


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_is_wider_than_the_window(browser: Any, sweep: Path, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        opened(browser, sweep / "page.html")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_light_and_dark_differ_and_the_figures_go_along(browser: Any, sweep: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        opened(browser, sweep / "page.html")
        seen[scheme] = browser.execute_script(
            "const text = [...document.querySelectorAll('figure svg text')][0];"
            "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(text).fill]"
        )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]


def test_the_code_is_copied_or_selected(browser: Any, sweep: Path) -> None:
    opened(browser, sweep / "page.html")
    button = browser.find_element("css selector", "button.copy[data-from=code]")
    button.click()
    # A file has no clipboard of its own in every browser: then the code is selected.
    assert browser.execute_async_script(
        "const done = arguments[0]; setTimeout(() => done(document.querySelector('button.copy').textContent), 200)"
    ) in ("copied", "selected: press Ctrl-C")


def test_the_page_of_a_watch(browser: Any, tmp_path: Path) -> None:
    windows = [window(number=number, started_unix_s=1.7e9 + 10 * number) for number in range(3)]
    path = watch_folder(tmp_path / "run", windows, [stall(t_start_ns=7 * 10**9, t_end_ns=9 * 10**9)])
    (tmp_path / "page.html").write_text(html_page(load(path)))

    opened(browser, tmp_path / "page.html")

    assert browser.get_log("browser") == []
    assert "train.py <i>" in browser.title
    assert len(browser.find_elements("css selector", "figure svg")) == 2
    browser.find_elements("css selector", "#windows th button")[0].click()
    first = browser.find_element("css selector", "#windows tbody td")
    assert first.get_attribute("data-value") == "2"
