"""The report in a real browser: what is drawn, what is asked for, how it fits."""

import json
from contextlib import ExitStack

import pytest

from tests.support.real_browser import PATIENCE


@pytest.fixture
def opened(browser, reported):
    """Open the report as asked; what it said and asked for is kept beside it."""
    with ExitStack() as stack:

        def open_page(**how):
            context = browser.new_context(**how)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            page.said, page.asked = [], []
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            page.on("request", lambda request: page.asked.append(request.url))
            page.goto(reported.page.as_uri())
            return page

        yield open_page


def test_the_page_opens_without_errors_or_requests(opened, reported):
    page = opened()
    assert page.said == []
    assert page.asked == [reported.page.as_uri()]
    assert page.title() == "What was learned"


def test_the_numbers_on_it_are_those_of_the_run(opened, reported):
    page = opened()
    records = map(json.loads, (reported.language / "metrics.jsonl").read_text().splitlines())
    scored = [record for record in records if "valid_perplexity" in record]
    table = page.locator("table", has_text="language: evaluations on held-out text")
    rows = table.locator("tbody tr")
    assert rows.count() == len(scored) == 3
    for number, record in enumerate(scored):
        cells = rows.nth(number).locator("td")
        assert cells.first.inner_text() == f"{record['step']:,}"
        shown = rows.nth(number).locator("data")
        values = [float(shown.nth(i).get_attribute("value")) for i in range(shown.count())]
        for name in ("forward", "backward", "perplexity", "bits_per_character", "oov"):
            assert record[f"valid_{name}"] in values
        assert f"{record['valid_perplexity']:.2f}" in shown.nth(2).inner_text()


def test_curves_are_drawn_with_a_point_for_each_evaluation(opened):
    page = opened()
    figure = page.locator('svg[aria-label^="Perplexity of held-out text"]')
    points = figure.locator('.dot[data-series="language"]')
    assert points.count() == 3
    box = figure.bounding_box()
    for number in range(3):
        place = points.nth(number).bounding_box()
        assert box["x"] < place["x"] < box["x"] + box["width"]
        assert box["y"] < place["y"] < box["y"] + box["height"]
    runs = page.locator('svg[aria-label^="ner: f1 on held-out"] .dot[data-series]')
    assert runs.count() == 4 * 2


WIDE = "document.documentElement.scrollWidth <= window.innerWidth"
CLIPPED = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1;
  }).map(text => svg.getAttribute('aria-label') + ': ' + text.textContent);
})"""
CROSSING = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([t, a], i) => boxes.slice(i + 1).forEach(([u, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 3) found.push(t.textContent + ' / ' + u.textContent);
  }));
  return found;
})"""


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_and_no_label_is_cut_or_covered(opened, width):
    page = opened(viewport={"width": width, "height": 844})
    assert page.evaluate(WIDE)
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(CROSSING) == []
    label = page.locator("figure svg text").first.bounding_box()
    assert label["height"] >= 9  # pixels: still to be read


def test_dark_pages_have_other_colours_and_enough_contrast(opened):
    looks = {}
    for scheme in ("light", "dark"):
        page = opened(color_scheme=scheme)
        looks[scheme] = page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor,
                getComputedStyle(document.body).color,
                getComputedStyle(document.querySelector('svg .dot')).fill,
                getComputedStyle(document.querySelector('svg text')).fill]"""
        )
        background, *others = map(brightness, looks[scheme])
        assert abs(background - others[0]) > 0.6
        assert all(abs(background - other) > 0.2 for other in others)
    assert all(a != b for a, b in zip(*looks.values(), strict=True))


def brightness(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.strip("rgba()").split(",")[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_it_prints_on_light_paper(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert brightness(ground) > 0.9
    assert len(page.pdf()) > 10_000
