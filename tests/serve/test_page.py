"""The page in a real browser: it clicks, reads what is drawn, and moves a slider."""

import re

import numpy as np
import pytest

from tests.support.live_server import engine_of, run_server
from tests.support.real_browser import Visit
from tests.support.waiting import wait_until

SENTENCES = "the old bridge lies by the sea .\nthe bridge sleeps .\ntwo ships wait at noon ."


@pytest.fixture
def visit(browser, client):
    result = Visit(browser, client.url)
    yield result
    result.page.close()
    forgiven = result.forgiven
    assert [text for text in result.complaints if not (forgiven and forgiven in text)] == []
    assert all(url.startswith((client.url, "data:")) for url in result.asked)


def test_tokens_are_chips_and_a_repeated_word_is_picked_first(visit, embedder):
    visit.read(SENTENCES)
    tokens = [each.tokens for each in embedder.embed(SENTENCES.splitlines())]
    assert visit.chips() == [word for words in tokens for word in words]
    picked = visit.page.locator(".chip[aria-pressed=true]")
    assert picked.all_inner_texts() == ["bridge"]
    assert visit.page.get_by_role("heading", name="Uses of “bridge”").is_visible()


@pytest.mark.parametrize("centred", [True, False])
def test_occurrences_are_compared_by_the_cosine_of_the_top_layer(visit, embedder, centred):
    visit.read(SENTENCES)
    visit.page.get_by_label(re.compile("Subtract the mean")).set_checked(centred)
    top = [each.vectors for each in embedder.embed(SENTENCES.splitlines(), layers="top")]
    mean = np.concatenate(top).mean(axis=0) * centred
    a, b = top[0][2] - mean, top[1][1] - mean
    cosine = a @ b / (a @ a * (b @ b)) ** 0.5
    assert visit.table() == ["", "·", f"{cosine:.2f}", f"{cosine:.2f}", "·"]


def test_a_slider_moves_the_picture_at_once_and_without_a_request(visit):
    visit.read(SENTENCES)
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)  # the last of its requests
    before, asked, table = visit.heat(), len(visit.asked), visit.table()
    visit.page.get_by_label(re.compile("Layer 0")).fill("100")
    visit.page.get_by_label(re.compile("Layer 2")).fill("0")
    wait_until(lambda: visit.heat() != before)
    assert visit.page.locator("#sliders output").all_inner_texts() == ["100 %", "0 %", "0 %"]
    assert visit.table() != table
    assert visit.table()[2] == "1.00"  # a word by itself is the same everywhere
    assert len(visit.asked) == asked


def test_a_click_picks_another_word_and_finds_its_neighbours(visit):
    visit.read(SENTENCES)
    before = visit.heat()
    visit.page.locator(".chip", has_text="ships").click()
    visit.page.get_by_role("heading", name="Uses of “ships”").wait_for()
    visit.page.get_by_text("The index has found 8 uses near this “ships”").wait_for()
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)
    assert "two ships wait ." in visit.page.locator("#neighbors li .words").first.inner_text()
    assert "stands here once" in visit.page.locator("#uses-about").inner_text()
    wait_until(lambda: visit.heat() != before)


def test_the_page_lists_what_else_could_stand_there(visit, client):
    visit.read(SENTENCES)
    visit.page.locator(".chip", has_text="ships").click()
    tokens = SENTENCES.splitlines()[2].split()
    found = client.post("/substitutes", {"tokens": tokens, "position": 1, "count": 8}).json
    words = [each["word"] for name in ("forward", "both", "backward") for each in found[name]]
    shown = visit.page.locator("#substitutes li")
    wait_until(lambda: [text.split()[-1] for text in shown.all_inner_texts()] == words)


def test_the_nearest_uses_follow_the_sliders(visit):
    visit.read(SENTENCES)
    visit.page.locator(".chip", has_text="ships").click()
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)
    shown = visit.page.locator("#neighbors li .value")
    before, asked = shown.all_inner_texts(), len(visit.asked)
    visit.page.get_by_label(re.compile("Layer 0")).fill("100")
    visit.page.get_by_label(re.compile("Layer 2")).fill("0")
    wait_until(lambda: shown.all_inner_texts() != before)
    assert shown.first.inner_text() == "1.00"  # the word by itself is the same everywhere
    assert len(visit.asked) == asked


def test_the_colours_of_the_table_do_not_depend_on_its_other_numbers(visit):
    visit.read(SENTENCES)
    for cell in visit.page.locator("#uses td:not(.self)").all():
        heat = float(cell.evaluate("cell => cell.style.getPropertyValue('--s')"))
        assert heat == pytest.approx(max(0.0, float(cell.inner_text())), abs=0.006)


def test_everything_is_reached_by_the_keyboard(visit):
    visit.page.get_by_label("Sentences, one a line").fill(SENTENCES)
    visit.page.keyboard.press("Control+Enter")
    visit.page.get_by_text(re.compile("words embedded")).wait_for()
    visit.page.get_by_role("button", name="Embed").focus()
    visit.page.keyboard.press("Tab")
    focused = visit.page.locator(":focus")
    assert focused.inner_text() == "bridge"
    assert focused.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    for key in ("ArrowLeft", "ArrowDown", "Home", "ArrowRight", "Enter"):
        visit.page.keyboard.press(key)
    assert visit.page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["bridge"]
    assert visit.page.locator("[role=status]").first.inner_text() == (
        "“bridge” in sentence 2 is picked."
    )
    visit.page.keyboard.press("Tab")
    before = visit.heat()
    visit.page.keyboard.press("ArrowDown")
    wait_until(lambda: visit.heat() != before)
    assert visit.kinds() == ["mix", "cloze*"]
    visit.page.keyboard.press("ArrowUp")
    wait_until(lambda: visit.heat() == before)
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("End")
    wait_until(lambda: visit.heat() != before)


def test_a_screen_reader_hears_similarity_and_surprise(visit, client):
    visit.read(SENTENCES)
    scores = client.post("/score", {"texts": SENTENCES.splitlines()}).json["sentences"][2]
    bits = -(scores["forward"][1] + scores["backward"][1]) / 2 / 0.6931471805599453
    name = visit.page.locator(".chip", has_text="ships").get_attribute("aria-label")
    assert re.fullmatch(rf"ships, similarity -?\d\.\d\d, surprise {bits:.1f} bits", name)
    assert visit.page.get_by_role("group", name="Sentence 3").get_by_role("button").count() == 6


def test_user_input_is_never_treated_as_markup(visit):
    visit.read("<img src=x onerror=alert(1)> [bank] \\ bank\nthe <b>bank</b>")
    assert visit.page.locator("#sentences img, #sentences b").count() == 0
    assert "bank" in visit.chips()


def test_a_refusal_is_shown_as_its_sentence(visit, client):
    visit.page.get_by_label("Sentences, one a line").fill("a " * 3000)
    visit.forgiven = "413"
    visit.page.get_by_role("button", name="Embed").click()
    visit.page.get_by_text(re.compile("a text may have 2048")).wait_for()


def test_an_answer_that_is_not_json_is_reported_by_its_status(visit):
    visit.forgiven = "502"
    visit.page.route("**/embed", lambda route: route.fulfill(status=502, body="<html>"))
    visit.page.get_by_role("button", name="Embed").click()
    sentence = "The server answered with status 502 and no JSON."
    visit.page.locator("#status", has_text=sentence).wait_for()


def test_an_error_of_an_earlier_word_does_not_replace_the_substitutes(visit):
    held = []

    def hold_first(route):
        route.continue_() if held else held.append(route)

    visit.page.route("**/substitutes", hold_first)
    visit.read(SENTENCES)
    wait_until(lambda: visit.kinds() and held)  # a call of the page receives what it has asked
    visit.page.locator(".chip", has_text="ships").click()
    shown = visit.page.locator("#substitutes li")
    wait_until(lambda: shown.count() == 24)
    visit.forgiven = "Failed to load resource"
    with visit.page.expect_event("requestfailed"):
        held[0].abort()
    visit.page.evaluate("new Promise(done => setTimeout(done, 50))")  # the page has heard of it
    assert shown.count() == 24


def test_a_text_cannot_be_read_again_by_the_button_until_the_last_one_is_read(visit):
    visit.read(SENTENCES)
    wait_until(lambda: visit.page.locator("#neighbors li").count() == 8)  # no other request follows
    held = []
    visit.page.route("**/embed", lambda route: held.append(route))
    visit.page.get_by_label("Sentences, one a line").focus()
    for _ in range(2):
        visit.page.keyboard.press("Control+Enter")
    wait_until(lambda: visit.kinds() and len(held) == 2)
    with visit.page.expect_response("**/embed") as answer:
        held[0].continue_()
    answer.value.finished()
    visit.page.evaluate("new Promise(done => setTimeout(done, 50))")  # the page has read it
    button = visit.page.get_by_role("button", name="Embed")
    assert button.is_disabled()
    held[1].continue_()
    visit.page.unroute("**/embed")
    visit.page.get_by_text(re.compile("words embedded")).wait_for()
    assert button.is_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(browser, client, scheme):
    size = {"width": 390, "height": 844}
    result = Visit(browser, client.url, viewport=size, color_scheme=scheme)
    result.read(SENTENCES + "\n" + "x" * 300)
    assert not result.overflows
    ground = result.page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground))) > 384
    assert light == (scheme == "light")
    assert result.complaints == []
    result.page.close()


def test_a_server_that_asks_for_a_token_is_given_one(browser, embedder):
    with run_server(engine_of(embedder), token="correct-horse") as client:
        result = Visit(browser, client.url)
        result.page.get_by_role("button", name="Embed").click()
        result.page.get_by_label("Token").fill("correct-horse")
        result.read(SENTENCES)
        assert "bridge" in result.chips()
        result.page.close()


def test_a_link_opens_with_its_text_its_word_and_its_mix(visit, browser, client):
    visit.read(SENTENCES)
    visit.page.locator(".chip", has_text="ships").click()
    visit.page.get_by_label(re.compile("Layer 0")).fill("50")
    visit.page.get_by_label(re.compile("Subtract the mean")).uncheck()
    link = visit.page.get_by_role("link", name=re.compile("Link to these")).get_attribute("href")
    other = Visit(browser, client.url + link)
    other.page.get_by_text(re.compile("words embedded")).wait_for()
    assert other.page.get_by_label("Sentences, one a line").input_value() == SENTENCES
    assert other.page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["ships"]
    shown = other.page.locator("#sliders output").all_inner_texts()
    assert (
        shown == visit.page.locator("#sliders output").all_inner_texts() == ["33 %", "0 %", "67 %"]
    )
    assert other.kinds() == ["mix*", "cloze"]
    assert other.heat() == visit.heat()
    assert all("ships" not in url.partition("#")[0] for url in other.asked)
    other.page.close()


def test_a_link_has_the_text_that_is_shown_and_not_what_is_typed_since(visit):
    visit.read(SENTENCES)
    link = visit.page.get_by_role("link", name=re.compile("Link to these"))
    before = link.get_attribute("href")
    visit.page.get_by_label("Sentences, one a line").fill("not embedded yet")
    visit.page.get_by_label(re.compile("Subtract the mean")).uncheck()
    assert link.get_attribute("href") == before.replace("centre=1", "centre=0") != before


@pytest.mark.parametrize(
    "fragment", ["#", "#text=", "#text=a%20b&pick=9,9&mix=x,-5,1e9&vectors=x", "#pick=1"]
)
def test_a_damaged_link_opens_the_page(browser, client, fragment):
    result = Visit(browser, client.url + fragment)
    result.read(SENTENCES)
    assert "bridge" in result.chips()
    assert result.complaints == []
    result.page.close()


def test_the_policy_allows_this_server_alone(client):
    answer = client.get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
