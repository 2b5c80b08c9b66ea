"""Open pages in a real browser, headless Chromium, and see what they draw and ask for.

Used by tests/serve, tests/browser and tests/probe.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--no-first-run"]
PATIENCE = 120_000  # milliseconds: a busy machine takes its time, what is broken never comes


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    with playwright.sync_playwright() as driver:
        result = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield result
        result.close()


@contextmanager
def open_without_model(browser, site_url: str) -> Iterator:
    """Yield a page that can import the modules of an exported site and does not run its model."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(site_url + "README.md")
    yield page
    page.close()


class Visit:
    """A page that was opened, and all it complained of or asked for."""

    def __init__(self, browser, url: str, **options) -> None:
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.forgiven: str | None = None  # a browser complains of it in its own time
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)

    def read(self, text: str) -> None:
        self.page.get_by_label("Sentences, one a line").fill(text)
        self.page.get_by_role("button", name="Embed").click()
        self.page.get_by_text(re.compile("words embedded")).wait_for()

    def choose(self, kind: str) -> None:
        """Compare the words by another kind of vectors."""
        self.page.get_by_role("radio", name=re.compile(kind)).check()
        self.page.get_by_text("Words are compared by").wait_for()

    def kinds(self) -> list[str]:
        """The kinds of vectors that are offered; the chosen one has a star."""
        return self.page.get_by_role("radio").evaluate_all(
            "radios => radios.map(radio => radio.value + (radio.checked ? '*' : ''))"
        )

    def chips(self) -> list[str]:
        return self.page.locator(".chip").all_inner_texts()

    def heat(self) -> list[str]:
        """The colours of the chips, once they have faded."""
        self.page.evaluate("document.getAnimations().forEach(fade => fade.finish())")
        return self.page.locator(".chip").evaluate_all(
            "chips => chips.map(chip => getComputedStyle(chip).backgroundColor)"
        )

    def table(self) -> list[str]:
        return self.page.locator("#uses td").all_inner_texts()

    @property
    def overflows(self) -> bool:
        return self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
