"""The cost explorer in a real browser: sliders by keyboard, and nothing is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from ragassay.report.decision import page, table
from ragassay.stats.decision import Costs

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs chromium and chromedriver (Debian: apt install chromium chromium-driver)",
)
DATA: dict[str, Any] = {
    "rho": 9.0, "c_a": 0.3,
    "cells": [
        {"defense": "learned", "rung": rung, "queries": 40,
         "bins": [[0.0, 200, 0], [0.02, 30, 4], [0.1, 20, 6], [0.5, 9, 40], [0.97, 1, 149]]}
        for rung in ("template", "both")
    ],
}  # fmt: skip


@pytest.fixture
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


def rows(browser: Any) -> list[tuple[str, ...]]:
    return [
        tuple(cell.text for cell in row.find_elements(By.TAG_NAME, "td"))
        for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    ]


def test_sliders_recompute_the_table_by_keyboard(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(DATA), encoding="utf-8")
    browser.get(path.as_uri())
    assert rows(browser) == table(DATA, Costs(9, 0.3))
    c_a = browser.find_element(By.NAME, "c_a")
    assert c_a.is_displayed()
    c_a.send_keys(*[Keys.ARROW_RIGHT] * 20)
    assert rows(browser) == table(DATA, Costs(9, 0.5))  # rho stays what the data say
    browser.find_element(By.NAME, "rho").send_keys(Keys.HOME)
    assert rows(browser) == table(DATA, Costs(0.1, 0.5))
    browser.find_element(By.NAME, "three").send_keys(Keys.SPACE)
    assert rows(browser) == table(DATA, Costs(0.1))
    assert not c_a.is_enabled()
    assert "no ESCALATE" in browser.find_element(By.CSS_SELECTOR, "[role=status]").text
    assert browser.find_element(By.NAME, "rho").get_attribute("aria-valuetext") == "0.10"
    assert [entry for entry in browser.get_log("browser") if "page.html" in entry["message"]] == []
    requests = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert requests == 0
