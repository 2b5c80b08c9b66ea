"""The choice of vectors on the page, in a real browser: a mix of layers, cloze or whitened."""

import json
import re

import numpy as np
import pytest

from tests.support.live_server import SmallIndex
from tests.support.real_browser import Visit
from tests.support.waiting import wait_until

SENTENCES = "the old bridge lies by the sea .\nthe bridge sleeps .\ntwo ships wait at noon ."
BRIDGES = [(0, 2), (1, 1)]  # sentence and token


@pytest.fixture
def visit(browser, whitened):
    result = Visit(browser, whitened.url)
    result.bodies = []
    result.page.on("request", lambda request: result.bodies.append(request.post_data))
    yield result
    result.page.close()
    forgiven = result.forgiven
    assert [text for text in result.complaints if not (forgiven and forgiven in text)] == []


def asked_layers(visit: Visit) -> list[str]:
    """Return the layers of every request for vectors."""
    bodies = [json.loads(body) for body in visit.bodies if body]
    return [body["layers"] for body in bodies if "layers" in body]


def vectors_of(embedder, layers: str, *, centred: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the vectors of the sentences, and the mean of their words if the page subtracts it."""
    found = [each.vectors for each in embedder.embed(SENTENCES.splitlines(), layers=layers)]
    return found, np.concatenate(found).mean(axis=0) * centred


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return a @ b / (a @ a * (b @ b)) ** 0.5


@pytest.mark.parametrize(
    ("kind", "layers", "centred"),
    [
        ("cloze", "cloze", True),
        ("cloze", "cloze", False),
        ("Whitened", "whitened", False),  # the whitening has subtracted a mean of its own
        ("mix", "top", True),
    ],
)
def test_uses_are_compared_by_the_chosen_vectors(visit, whitened_embedder, kind, layers, centred):
    visit.read(SENTENCES)
    visit.choose("Whitened")  # another one than the first
    visit.choose(kind)
    if layers != "whitened":
        visit.page.get_by_label(re.compile("Subtract the mean")).set_checked(centred)
    vectors, mean = vectors_of(whitened_embedder, layers, centred=centred)
    a, b = (vectors[s][t] - mean for s, t in BRIDGES)
    expected = f"{cosine(a, b):.2f}"
    assert visit.table() == ["", "·", expected, expected, "·"]


def test_words_take_on_the_colours_of_the_chosen_vectors(visit, whitened_embedder):
    visit.read(SENTENCES)
    visit.choose("Whitened")
    vectors, _ = vectors_of(whitened_embedder, "whitened", centred=False)
    picked = vectors[0][2]
    near = [cosine(picked, row) for rows in vectors for row in rows]
    others = np.delete(near, 2)
    shown = visit.page.locator(".chip").evaluate_all(
        "chips => chips.map(chip => Number(chip.style.getPropertyValue('--s')))"
    )
    expected = (others - others.min()) / (others.max() - others.min())
    np.testing.assert_allclose(np.delete(shown, 2), expected, atol=2e-3)


def test_each_kind_is_fetched_once_and_only_if_it_is_chosen(visit):
    visit.read(SENTENCES)
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)
    assert asked_layers(visit) == ["all", "all"]  # of the sentences and of the nearest uses
    first = visit.heat(), visit.table()
    for kind in ("cloze", "Whitened", "mix", "cloze", "mix"):
        visit.choose(kind)
        assert ((visit.heat(), visit.table()) == first) == (kind == "mix")
    assert sorted(asked_layers(visit)) == ["all"] * 2 + ["cloze"] * 2 + ["whitened"] * 2


def test_a_text_is_read_with_the_chosen_vectors_alone(visit, whitened_embedder):
    visit.read("two ships")
    visit.choose("cloze")
    visit.bodies.clear()
    visit.read(SENTENCES)
    vectors, mean = vectors_of(whitened_embedder, "cloze", centred=True)
    a, b = (vectors[s][t] - mean for s, t in BRIDGES)
    assert visit.table()[2] == f"{cosine(a, b):.2f}"
    assert set(asked_layers(visit)) == {"cloze"}


@pytest.mark.parametrize(("kind", "layers"), [("cloze", "cloze"), ("Whitened", "whitened")])
def test_the_nearest_uses_are_ordered_by_the_chosen_vectors(visit, whitened_embedder, kind, layers):
    visit.read(SENTENCES)
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)
    visit.choose(kind)
    vectors, mean = vectors_of(whitened_embedder, layers, centred=layers == "cloze")
    uses = whitened_embedder.embed(SmallIndex.LINES, layers=layers)
    near = [cosine(vectors[0][2] - mean, row - mean) for each in uses for row in each.vectors]
    expected = [f"{value:.2f}" for value in sorted(near, reverse=True)]
    shown = visit.page.locator("#neighbors li .value")
    wait_until(lambda: shown.all_inner_texts() == expected)
    about = visit.page.locator("#neighbors-about").inner_text()
    name = {"cloze": "what is around the word", "whitened": "whitened vectors"}[layers]
    assert about.startswith("The index has found 8 uses near this “bridge” by its own vectors.")
    assert about.endswith(f"ordered by the cosine of {name}.")


def test_a_kind_shows_the_settings_that_it_has(visit):
    visit.read(SENTENCES)
    sliders, box = visit.page.locator("#sliders"), visit.page.get_by_label(re.compile("Subtract"))
    shown = {}
    for kind in ("Whitened", "cloze", "mix"):
        visit.choose(kind)
        shown[kind] = (sliders.is_visible(), box.is_visible())
    assert shown == {"mix": (True, True), "cloze": (False, True), "Whitened": (False, False)}


def test_a_kind_has_a_name_and_a_description(visit):
    visit.read(SENTENCES)
    group = visit.page.get_by_role("radiogroup", name="Choose the vectors")
    names = ("A mix of layers", "What is around the word (cloze)", "Whitened")
    for name in names:
        radio = group.get_by_role("radio", name=name, exact=True)
        about = visit.page.locator(f"#{radio.get_attribute('aria-describedby')}")
        assert about.inner_text().endswith(".")


def test_a_model_without_a_whitening_does_not_offer_it(browser, client, whitened):
    link = "/#text=two%20ships&vectors=whitened"
    offered = {}
    for server in (client, whitened):
        result = Visit(browser, server.url + link)
        result.page.get_by_text("words embedded").wait_for()
        offered[server] = result.kinds()
        assert result.complaints == []
        result.page.close()
    assert offered == {client: ["mix*", "cloze"], whitened: ["mix", "cloze", "whitened*"]}


@pytest.mark.parametrize("kind", ["cloze", "Whitened"])
def test_a_link_opens_with_its_vectors(visit, browser, whitened, kind):
    visit.read(SENTENCES)
    visit.choose(kind)
    visit.page.locator(".chip", has_text="ships").click()
    link = visit.page.get_by_role("link", name=re.compile("Link to these")).get_attribute("href")
    other = Visit(browser, whitened.url + link)
    other.page.get_by_text("words embedded").wait_for()
    assert other.kinds() == visit.kinds()
    assert f"{kind.lower()}*" in other.kinds()
    assert other.heat() == visit.heat()
    visit.choose("mix")
    other.choose("mix")
    assert other.heat() == visit.heat()  # the weights are in the link, too
    other.page.close()


def test_a_link_from_before_the_choice_opens_with_a_mix(visit, browser, whitened):
    visit.read(SENTENCES)
    link = visit.page.get_by_role("link", name=re.compile("Link to these")).get_attribute("href")
    assert "vectors" not in link
    other = Visit(browser, whitened.url + link)
    other.page.get_by_text("words embedded").wait_for()
    assert other.kinds() == ["mix*", "cloze", "whitened"]
    assert other.heat() == visit.heat()
    other.page.close()


def test_an_example_compares_the_layer_that_it_tells_of(visit):
    visit.read(SENTENCES)
    visit.choose("Whitened")
    visit.page.get_by_role("button", name="Senses").click()
    wait_until(lambda: "bank" in visit.chips())
    assert visit.kinds() == ["mix*", "cloze", "whitened"]
    assert visit.page.locator("#sliders output").all_inner_texts() == ["0 %", "0 %", "100 %"]


def test_vectors_that_do_not_come_leave_the_picture_and_the_choice(visit):
    visit.read(SENTENCES)
    before = visit.heat()
    visit.forgiven = "Failed to load resource"
    visit.page.route("**/embed", lambda route: route.abort())
    visit.page.get_by_role("radio", name="Whitened").click()
    # The card of the neighbors may say the same: it asks for vectors, too, in its own time.
    visit.page.locator("#status", has_text="The server does not answer.").wait_for()
    assert visit.kinds() == ["mix*", "cloze", "whitened"]
    assert visit.heat() == before
    assert visit.page.locator("#sliders").is_visible()
    visit.page.unroute("**/embed")
    visit.choose("Whitened")
    assert visit.heat() != before


def test_the_last_choice_is_shown_whatever_comes_last(visit):
    visit.read(SENTENCES)
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)  # no other request follows
    before, held = visit.heat(), []
    visit.page.route("**/embed", lambda route: held.append(route))
    visit.page.get_by_role("radio", name=re.compile("cloze")).check()
    visit.choose("mix")
    wait_until(lambda: visit.kinds() and held)  # a call of the page receives what it has asked
    with visit.page.expect_response("**/embed") as answer:
        held[0].continue_()
    answer.value.finished()
    visit.page.evaluate("new Promise(done => setTimeout(done, 50))")  # the page has read it
    assert visit.kinds() == ["mix*", "cloze", "whitened"]
    assert visit.heat() == before
