"""Pages in Chromium: what clicks, keys, the search and the printer do. Elsewhere than in CI they need it installed."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.pages import chain

from tilewright.report.model import ModelPage

PROGRAMS = [shutil.which("chromium"), shutil.which("chromedriver")]
pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and not all(PROGRAMS), reason="chromium or chromedriver is not installed"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1300,900",
)  # fmt: skip
KERNELS = 5000


def make_page(path: Path, kernels: int = KERNELS) -> Path:
    page = ModelPage("a <b>model</b>")
    page.add_graph(chain(kernels))
    page.data["kernels"] = [
        {"name": n, "kernel": n, "operators": n, "shape": "", "calls": 1, "flops": f, "bytes": 8, "implementation": "",
         "schedule": ""} for n, f in (("f1", 10), ("f2", 30), ("f3", 20))
    ]  # fmt: skip
    page.data["passes"] = [
        {"name": "Twice", "seconds": 0.001, "added": 1, "removed": 1, "depth": 0, "hunks": [["-a", "+b", " c"]],
         "dropped": 0, "unread": False}
    ]  # fmt: skip
    tir = ["for (i, 0, 8) {", "  out[i] = 1", "}"]
    code = {"schedule": ["out:", "  for i"], "scheduleOf": [[1], [0]], "tir": tir, "left": 0}
    page.data["code"] = {"f1": {**code, "asm": ["f1:", "  vmovups", "  ret"], "asmOf": [-1, 1, -1]}}
    page.write(path)
    return path


class Browser:
    """Chromium with a page open."""

    def __init__(self, page: Path) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = PROGRAMS[0] or "chromium"
        for flag in FLAGS:
            options.add_argument(flag)
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(PROGRAMS[1] or "chromedriver"))
        self.driver.set_script_timeout(30)
        self.open(page)

    def open(self, page: Path) -> None:
        """Open a page and wait until it is drawn."""
        self.driver.get(page.as_uri())
        done = (
            "const end = arguments[0], look = () => document.body.dataset.ready ? end(document.body.dataset.ready) : "
        )
        assert self.driver.execute_async_script(f"{done}setTimeout(look, 20); look();") == "yes"

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def rows(self) -> list[str]:
        found: list[str] = self.driver.execute_script(
            "return [...document.querySelectorAll('.tree .what')].map((e) => e.textContent)"
        )
        return found

    def selected(self) -> str:
        return str(self.all(".row.sel .what")[0].text)

    def press(self, *keys: str) -> None:
        self.all("#tree")[0].send_keys(*keys)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(make_page(tmp_path_factory.mktemp("page") / "page.html"))
    yield opened
    assert opened.driver.get_log("browser") == []
    opened.driver.quit()


def test_clicks_search_and_keys_move_through_five_thousand_kernels(browser: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    assert browser.driver.title == "a <b>model</b>"
    assert browser.rows()[:2] == ["kernels 1 to 100  (100 kernels)", "kernels 101 to 200  (100 kernels)"]
    browser.all(".row")[0].click()
    assert len(browser.rows()) == KERNELS // 100 + 100 and browser.rows()[1] == "kernel_1"
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.selected() == "kernel_2"
    assert [e.text for e in browser.all(".row.from .what")] == ["kernel_1"]
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert len(browser.rows()) == KERNELS // 100
    browser.all("#find")[0].send_keys("node_4321")
    assert browser.selected() == "kernel_4321"


@pytest.mark.full
def test_a_click_on_a_heading_sorts(browser: Browser) -> None:
    first = lambda: browser.all("#kernel-table tbody td")[0].text  # noqa: E731
    browser.all("#find")[0].clear()
    browser.driver.execute_script("document.getElementById('find').dispatchEvent(new Event('input'))")
    heading = next(e for e in browser.all("#kernel-table th") if "multiply" in e.text)
    heading.click()
    assert first() == "f2"
    heading.click()
    assert first() == "f1"


@pytest.mark.full
def test_a_click_on_an_instruction_marks_its_lines(browser: Browser) -> None:
    browser.all(".asm span")[1].click()
    assert [e.get_attribute("textContent") for e in browser.all(".tir .hit, .schedule .hit")] == [
        "out:",
        "  out[i] = 1",
    ]


@pytest.mark.full
def test_a_pass_opens_and_shows_its_difference(browser: Browser) -> None:
    browser.all("details.pass summary")[0].click()
    browser.driver.implicitly_wait(2)
    assert [browser.all(f"details.pass .{kind}")[0].text for kind in ("del", "add", "same")] == ["-a", "+b", " c"]


@pytest.mark.full
def test_the_page_prints(browser: Browser, tmp_path: Path) -> None:
    browser.open(make_page(tmp_path / "small.html", 50))
    assert base64.b64decode(browser.driver.print_page()).startswith(b"%PDF")
    assert browser.all("details.pass")[0].get_attribute("open") == "true"
