"""An exported site in a real browser: the same numbers as Python, and nothing is sent anywhere."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.browser.site import write_site
from elmore.embed.embedder import Embedder
from elmore.lm import scoring, substitutes
from elmore.weights import folder, pretrained
from tests.support import toy_corpus
from tests.support.real_browser import Visit, open_without_model
from tests.support.static_server import serve_folder
from tests.support.waiting import wait_until

GUIDE = Path(__file__).parents[2] / "docs/guides/browser.md"
TEXTS = [
    "the old bridge lies by the sea .",
    "the bridge sleeps , doesn't it?",
    "two ships",
    "naïve 日本語 <S> zzzqqq " + "x" * 80,
    *(f"ship number {n} waits at noon ." for n in range(20)),  # more than one batch
]
ASK = "([route, body]) => import('./backend.js').then(backend => backend.ask(route, body))"
EMBED = """async ([route, body]) => {
    const {sentences} = await (await import('./backend.js')).ask(route, body);
    const plain = each => each instanceof Float32Array ? [...each] : each.map(plain);
    return sentences.map(({tokens, vectors}) => ({tokens, vectors: plain(vectors)}));
}"""
REFUSED = """body => import('./backend.js').then(backend => backend.ask("embed", body))
    .catch(error => error.message)"""


@pytest.fixture(scope="module")
def visit(browser, site):
    with serve_folder(site) as url:
        result = Visit(browser, url)
        yield result
        assert result.complaints == []
        assert all(asked.startswith((url, f"blob:{url}", "data:")) for asked in result.asked)
        result.page.close()


@pytest.mark.parametrize("layers", ["all", "cloze", "whitened"])
def test_vectors_are_those_of_python(visit, embedder, layers):
    found = visit.page.evaluate(EMBED, ["embed", {"texts": TEXTS, "layers": layers}])
    for sentence, expected in zip(found, embedder.embed(TEXTS, layers=layers), strict=True):
        assert sentence["tokens"] == expected.tokens
        np.testing.assert_allclose(sentence["vectors"], expected.vectors, atol=1e-3, rtol=1e-3)


def test_layers_that_a_page_does_not_have_are_refused(visit):
    refused = visit.page.evaluate(REFUSED, {"texts": ["a"], "layers": "top"})
    assert refused == "layers: expected all, cloze or whitened, found top"


def check_scores(visit, bundle) -> None:
    tokens = [each.tokens for each in Embedder(bundle).embed(TEXTS)]
    found = visit.page.evaluate(ASK, ["score", {"texts": TEXTS}])["sentences"]
    for sentence, expected in zip(found, scoring.score(bundle, tokens), strict=True):
        np.testing.assert_allclose(sentence["forward"], expected.forward, atol=1e-3)
        np.testing.assert_allclose(sentence["backward"], expected.backward, atol=1e-3)
        assert sentence["known"] == expected.known


def test_scores_are_those_of_python(visit, embedder):
    check_scores(visit, embedder.bundle)


@pytest.mark.parametrize("bits", [2, 4])
def test_words_that_are_packed_into_bytes_have_the_scores_of_python(
    browser, corpus, tmp_path, bits
):
    tails = ["softmax.cutoffs=[5, 9]", "softmax.tail_widths=[4, 4]", f"softmax.tail_bits={bits}"]
    recipe = toy_corpus.recipe("softmax.kind=adaptive", *tails)
    folder.save(toy_corpus.training(corpus, recipe).bundle({}), tmp_path / "model", storage="int8")
    write_site(tmp_path / "site", tmp_path / "model")
    with serve_folder(tmp_path / "site") as url:
        visit = Visit(browser, url)
        check_scores(visit, pretrained.load(tmp_path / "model"))
        visit.page.close()


@pytest.mark.parametrize("position", [0, 2])
def test_substitutes_are_those_of_python(visit, embedder, position):
    tokens = TEXTS[0].split()
    (expected,) = substitutes.predict_substitutes(embedder.bundle, tokens, [position], count=5)
    body = {"tokens": tokens, "position": position, "count": 5}
    found = visit.page.evaluate(ASK, ["substitutes", body])
    for name in ("forward", "backward", "both"):
        words = tuple(each["word"] for each in found[name])
        values = [each["log_prob"] for each in found[name]]
        expected_words, expected_values = zip(*getattr(expected, name), strict=True)
        assert words == expected_words
        np.testing.assert_allclose(values, expected_values, atol=1e-3)


def test_the_page_opens_with_its_example_and_reads_what_is_typed(visit):
    visit.page.reload()
    visit.page.get_by_text("words embedded").wait_for()
    visit.read("the old bridge lies by the sea .\nthe bridge sleeps .")
    assert visit.page.get_by_role("heading", name="Uses of “bridge”").is_visible()
    assert visit.page.locator(".chip .surprise").count() == 12
    wait_until(lambda: visit.page.locator("#substitutes li").count() == 24)
    assert "runs in this tab" in visit.page.locator("footer").inner_text()


def test_words_are_compared_by_the_chosen_vectors(visit, embedder):
    texts = ["the old bridge lies by the sea .", "the bridge sleeps ."]
    visit.page.reload()  # with the weights of the first example: the top layer
    visit.read("\n".join(texts))
    shown = {}
    for kind, layers in (("cloze", "cloze"), ("Whitened", "whitened"), ("mix", "top")):
        visit.choose(kind)
        vectors = [each.vectors for each in embedder.embed(texts, layers=layers)]
        mean = np.concatenate(vectors).mean(axis=0) * (layers != "whitened")
        a, b = vectors[0][2] - mean, vectors[1][1] - mean
        shown[layers] = float(visit.table()[2])
        assert shown[layers] == pytest.approx(a @ b / (a @ a * (b @ b)) ** 0.5, abs=0.01)
    assert len(set(shown.values())) == 3


def test_a_site_without_a_whitening_does_not_offer_it(browser, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "whitening.npz").unlink()
    write_site(tmp_path / "site", tmp_path / "model")
    with serve_folder(tmp_path / "site") as url:
        result = Visit(browser, url)
        result.page.get_by_text("words embedded").wait_for()
        assert result.kinds() == ["mix*", "cloze"]
        refused = result.page.evaluate(REFUSED, {"texts": ["a"], "layers": "whitened"})
        assert refused == "this model has no whitening: choose other vectors"
        result.page.close()


def test_a_whitening_is_fetched_when_it_is_chosen(browser, site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "whitening.safetensors").unlink()
    with serve_folder(tmp_path / "site") as url:
        result = Visit(browser, url)
        result.page.get_by_text("words embedded").wait_for()
        result.page.get_by_role("radio", name="Whitened").click()
        result.page.get_by_text("whitening.safetensors is missing").wait_for()
        assert result.kinds() == ["mix*", "cloze", "whitened"]
        shutil.copy(site / "whitening.safetensors", tmp_path / "site")
        result.choose("Whitened")
        result.page.close()


def test_a_damaged_whitening_is_refused(browser, site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    path = tmp_path / "site" / "whitening.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with serve_folder(tmp_path / "site") as url:
        result = Visit(browser, f"{url}#text=two%20ships&vectors=whitened")
        sentence = "whitening.safetensors is damaged: copy the exported folder again"
        result.page.get_by_text(sentence).wait_for()
        assert result.page.locator("#status.bad").count() == 1
        result.page.close()


def test_the_code_of_the_guide_runs(visit):
    (block,) = re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = block.replace("import { ask } from", "const { ask } = await import(").replace(
        '"./backend.js";', '"./backend.js");'
    )
    result = visit.page.evaluate(
        f"async () => {{ {code} return [tokens.length, vectors.length, both.length]; }}"
    )
    assert result == [9, 3, 10]


def test_an_example_sets_text_word_and_layer(visit):
    visit.page.get_by_role("button", name="Misspellings").click()
    wait_until(lambda: "recieve" in visit.chips())
    assert visit.page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["recieve"]
    assert visit.page.locator("#sliders output").all_inner_texts() == ["100 %", "0 %", "0 %"]
    assert "reads letters" in visit.page.locator("#note").inner_text()
    visit.page.get_by_label("Sentences, one a line").fill("mine")
    assert visit.page.locator("#note").inner_text() == ""


def test_a_text_that_is_too_long_is_refused(visit):
    visit.page.get_by_label("Sentences, one a line").fill("a " * 3000)
    visit.page.get_by_role("button", name="Embed").click()
    visit.page.get_by_text("a text may have 2048 tokens, this one has 3000: split it").wait_for()


def test_the_table_has_some_of_many_uses_and_the_picked_one(visit):
    visit.read("sea " * 50)
    visit.page.locator(".chip").last.click()
    assert visit.page.locator("#uses tbody tr").count() == 20
    assert visit.page.locator("#uses tr.picked").count() == 1
    assert "20 of 50 uses" in visit.page.locator("#uses-about").inner_text()


def test_more_text_than_a_server_takes_is_refused(visit):
    visit.page.get_by_label("Sentences, one a line").fill(("a " * 2000 + "\n") * 5)
    visit.page.get_by_role("button", name="Embed").click()
    sentence = "the texts together may have 8192 tokens, these have 10000: read them in parts"
    visit.page.get_by_text(sentence).wait_for()


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("model.safetensors", None, "model.safetensors is missing: copy the exported folder again"),
        ("model.safetensors", lambda data: data[:-9], "bytes instead of"),
        (
            "model.safetensors",
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            "model.safetensors is damaged: copy the exported folder again",
        ),
        ("elmore.wasm", lambda data: b"\0" * len(data), "elmore.wasm is damaged"),
        ("model.json", None, "model.json is missing"),
        ("model.json", lambda data: data[:-9], "model.json is damaged"),
        (
            "model.json",
            lambda data: data.replace(b'"format": 2', b'"format": 1'),
            "model.json has format 1, this page reads 2: export the folder again",
        ),
        ("bilm.js", None, "a script of the page is missing or damaged"),
        (
            "worker.js",
            lambda data: b"WebAssembly.validate = () => false;\n" + data,
            "this browser is too old for the page, which needs WebAssembly SIMD",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(browser, site, tmp_path, name, change, sentence):
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    path = copy / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with serve_folder(copy) as url:
        result = Visit(browser, url)
        wait_until(lambda: sentence in result.page.locator("#status").inner_text())
        assert result.page.locator("#status.bad").count() == 1
        result.page.close()


def test_a_connection_that_breaks_during_the_download_is_reported_in_one_sentence(browser, site):
    with serve_folder(site, broken="model.safetensors") as url:
        result = Visit(browser, url)
        sentence = (
            "model.safetensors could not be fetched: check the connection and reload the page"
        )
        result.page.locator("#status.bad", has_text=sentence).wait_for()
        result.page.close()


SPY = """addEventListener("securitypolicyviolation", () => tell());
    fetch("http://127.0.0.1:9/").catch(() => {});"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("worker.js", f'const tell = () => postMessage({{ progress: "refused" }}); {SPY}'),
        (
            "stack_worker.js",
            "onmessage = ({ ports: [port] }) => {"
            f'const tell = () => port.postMessage({{ error: "refused" }}); {SPY} }}',
        ),
    ],
)
def test_the_workers_cannot_send_anything_elsewhere(browser, site, tmp_path, name, code):
    copy = tmp_path / "site"
    shutil.copytree(site, copy)
    (copy / name).write_text(code, encoding="utf-8")
    with serve_folder(copy) as url:
        result = Visit(browser, url)
        wait_until(lambda: result.page.locator("#status").inner_text() == "refused")
        result.page.close()


# The backward LSTM of the model in a worker, asked twice before it has answered.
TWO_QUESTIONS = """async () => {
    const [files, { readTensors }, { RemoteStack }] = await Promise.all(
        ["model_files", "safetensors", "stack"].map(name => import(`./${name}.js`)));
    const { model: { lstm }, files: { "elmore.wasm": wasm, "model.safetensors": weights } } =
        await files.fetchSettings();
    const module = await WebAssembly.compile(await files.fetchBytes("elmore.wasm", wasm));
    const tensors = readTensors(await files.fetchBytes("model.safetensors", weights), "weights");
    const stack = new RemoteStack(module, lstm, tensors, 1);
    await stack.ready;
    const ask = length => stack.run(new Float32Array(length * lstm.output_dim), [length]);
    ask(1);
    return (await ask(3))[0].length / lstm.output_dim;
}"""


def test_an_answer_that_nobody_waits_for_is_not_that_of_the_next_question(browser, site):
    with serve_folder(site) as url, open_without_model(browser, url) as page:
        assert page.evaluate(TWO_QUESTIONS) == 3


def test_a_page_from_the_disk_says_what_it_needs(browser, site):
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    assert "open it from a web server" in page.locator("#status").inner_text()
    page.close()


def test_the_bundled_model_has_the_vectors_of_python_in_the_browser(browser, tmp_path):
    texts = ["She sat on the bank of the river .", "He opened an account at the bank yesterday ."]
    write_site(tmp_path / "site")
    with serve_folder(tmp_path / "site") as url:
        result = Visit(browser, url)
        result.page.get_by_text("words embedded").wait_for()
        cosines = [float(text) for text in result.table() if text.strip("·")]
        found = {
            layers: result.page.evaluate(EMBED, ["embed", {"texts": texts, "layers": layers}])
            for layers in ("all", "cloze", "whitened")
        }
        result.page.close()
    embedder = elmore.load()
    for layers, sentences in found.items():
        for sentence, expected in zip(sentences, embedder.embed(texts, layers=layers), strict=True):
            np.testing.assert_allclose(sentence["vectors"], expected.vectors, atol=1e-3)
    # The page opens with four banks: the first is nearest to the other one by the water.
    assert cosines[0] > 0.2 + max(cosines[1:3])
