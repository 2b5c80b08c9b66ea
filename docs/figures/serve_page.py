"""Draw docs/figures/serve_page.png: the page of `elmore serve` in a browser.

    python docs/figures/serve_page.py docs/figures/serve_page.png [--dark] [--phone] [--url URL]

Without --url it serves the bundled model itself. It needs playwright and chromium.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@contextmanager
def bundled() -> Iterator[str]:
    """Serve the bundled model for a while."""
    command = [sys.executable, "-m", "elmore", "serve", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    assert server.stderr is not None
    found = re.search(r"http://\S+", server.stderr.readline())
    assert found is not None
    yield found[0]
    server.terminate()
    server.communicate()


@contextmanager
def given(url: str) -> Iterator[str]:
    """Use a server that runs already."""
    yield url


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--phone", action="store_true")
    parser.add_argument("--url")
    args = parser.parse_args()
    with given(args.url) if args.url else bundled() as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(
            viewport={"width": 390, "height": 844}
            if args.phone
            else {"width": 1000, "height": 900},
            color_scheme="dark" if args.dark else "light",
        )
        page.goto(url)
        page.get_by_role("button", name="Embed").click()
        page.get_by_text(re.compile("words embedded")).wait_for(timeout=120_000)
        page.wait_for_timeout(500)
        page.screenshot(path=args.out, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
