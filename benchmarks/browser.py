"""Measure an exported site in headless Chromium: opening, and a sentence of 20 words.

    python benchmarks/browser.py RESULTS.json [--rounds 7]

The bundled model is exported and served on loopback. Each round opens the page in a new browser
context, without a cache, and measures the seconds from opening to the vectors of its example; then
sentences of 20 words that the page has not seen, from the request to the answer of the worker, as
vectors of all layers and as surprise of each word. The results are medians over the rounds, because
other programs may use the machine; the load average is stored beside them, and the CPU time of the
page's processes per sentence, from /proc, which other programs change less. The two directions run
in two threads, so on two idle cores a sentence takes a little more than half of its CPU time.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from elmore.browser.site import write_site

NUM_WORDS, NUM_SENTENCES = 20, 10
WORDS = "the a she he they river bank money old small house went came saw of in on by and but"
TIME = """async ([route, texts]) => {
  const { ask } = await import("./backend.js"), times = [];
  for (const text of texts) {
    const begin = performance.now();
    await ask(route, { texts: [text], layers: "all" });
    times.push(performance.now() - begin);
  }
  return times;
}"""


class Quiet(SimpleHTTPRequestHandler):
    """A file server that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def measure(browser: Browser, url: str, draw: random.Random) -> dict[str, float]:
    """Open the page once, and time sentences in it."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(120_000)
    begin = time.perf_counter()
    page.goto(url)
    page.get_by_text("words embedded").wait_for()
    opened = time.perf_counter() - begin
    texts = [" ".join(draw.choices(WORDS.split(), k=NUM_WORDS)) for _ in range(2 * NUM_SENTENCES)]
    page.evaluate(TIME, ["embed", [WORDS]])  # compiles what the example has not run
    before = renderer_seconds()
    vectors = page.evaluate(TIME, ["embed", texts[:NUM_SENTENCES]])
    cpu = renderer_seconds() - before
    scores = page.evaluate(TIME, ["score", texts[NUM_SENTENCES:]])
    context.close()
    return {
        "open_s": opened,
        "vectors_ms": statistics.median(vectors),
        "vectors_cpu_ms": 1000 * cpu / NUM_SENTENCES,
        "surprise_ms": statistics.median(scores),
    }


def renderer_seconds() -> float:
    """Return the CPU seconds of all processes that run pages."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])  # user and system
        except OSError:
            continue  # it has ended
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as tmp, sync_playwright() as driver:
        report = write_site(Path(tmp) / "site")
        handler = partial(Quiet, directory=str(Path(tmp) / "site"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        url = f"http://127.0.0.1:{server.server_port}/"
        rounds = []
        for _ in range(args.rounds):
            rounds.append(measure(browser, url, draw) | {"load": os.getloadavg()[0]})
            print(rounds[-1])
        version = browser.version
        browser.close()
        server.shutdown()
    result = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "chromium": version,
        "site_bytes": report.num_bytes,
        "medians": {key: statistics.median(each[key] for each in rounds) for key in rounds[0]},
        "rounds": rounds,
    }
    args.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
