"""`elmore export`: what onnxruntime makes of a file is what the Embedder says."""

import json
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmore
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError, WeightsError
from elmore.weights import folder, pretrained
from elmore.weights.bundle import Bundle, Card
from tests.support import doc_blocks, shell_commands
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm
from tests.support.sweeps import pick

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: make test-integrations")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from elmore.integrations import onnx as exporting  # noqa: E402 -- it needs what may be absent
from elmore.integrations import onnx_graph  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
PAGE = doc_blocks.INTEGRATIONS / "onnx.md"
SENTENCES = [
    ["The", "bank", "of", "the", "river"],
    [],
    ["x" * 70],
    ["naïve", "日本語", "</S>", "The", "<S>", "half \ud800 a character", "", " "],
    ["once", "more", "once", "."],
]


def session(path: Path) -> "onnxruntime.InferenceSession":
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def vectors(path: Path, bundle: Bundle, sentences: list[list[str]]) -> list[np.ndarray]:
    layers = session(path).run(["layers"], exporting.feed(bundle.alphabet, sentences))[0]
    assert all(not layers[:, row, len(words) :].any() for row, words in enumerate(sentences))
    return [layers[:, row, : len(words)] for row, words in enumerate(sentences)]


def assert_equal_to_the_embedder(path: Path, elmo: Embedder, sentences=SENTENCES) -> None:
    expected = elmo.embed(sentences, layers="all")
    for result, sentence in zip(vectors(path, elmo.bundle, sentences), expected, strict=True):
        np.testing.assert_allclose(result, sentence.vectors, rtol=1e-5, atol=1e-5)


def tiny(directory: Path, rng: np.random.Generator, scale: float = 1.0, **changes) -> Bundle:
    options = bilm_options(**changes)
    return pretrained.load(*write_bilm(directory, options, bilm_weights(options, rng, scale)))


@pytest.fixture
def bundle(tmp_path, rng) -> Bundle:
    return tiny(tmp_path / "model", rng)


@pytest.mark.parametrize(
    "changes",
    [
        {"cell_clip": 0.2, "proj_clip": 0.1},  # which most cells and outputs reach
        {"cell_clip": None, "proj_clip": None},
        {"use_skip_connections": False},
        {"n_layers": 1},
        {"n_layers": 3},
        {"activation": "tanh"},
        {"n_highway": 0},
        {"max_characters_per_token": 9},
    ],
    ids=str,
)
def test_every_kind_of_model_gives_the_embedders_layers(tmp_path, rng, changes):
    bundle = tiny(tmp_path / "model", rng, **changes)
    exporting.export(bundle, tmp_path / "model.onnx")
    assert_equal_to_the_embedder(tmp_path / "model.onnx", Embedder(bundle, device="cpu"))


@pytest.mark.parametrize("dims", [(5, 4), (0, 4), (5, 0)], ids=["both", "characters", "words"])
def test_a_lexicon_of_characters_and_words_is_read(tmp_path, rng, dims):
    many_langs(tmp_path / "model", rng, word_dim=dims[0], char_dim=dims[1])
    bundle = pretrained.load(tmp_path / "model")
    exporting.export(bundle, tmp_path / "model.onnx")
    assert_equal_to_the_embedder(tmp_path / "model.onnx", Embedder(bundle, device="cpu"))
    facts = metadata(tmp_path / "model.onnx")["alphabet"]
    assert facts["kind"] == "lexicon"
    assert ("words" in facts, "characters" in facts) == (dims[0] > 0, dims[1] > 0)


def test_published_models_give_the_embedders_layers(tmp_path, fixtures):
    pair = [str(fixtures / "allennlp" / name) for name in ("options.json", "lm_weights.hdf5")]
    for number, source in enumerate([pair, [str(fixtures / "many-langs")]]):
        bundle = pretrained.load(*source)
        exporting.export(bundle, tmp_path / f"{number}.onnx")
        assert_equal_to_the_embedder(tmp_path / f"{number}.onnx", Embedder(bundle, device="cpu"))


@pytest.fixture(scope="module")
def english(tmp_path_factory) -> tuple[Embedder, Path]:
    """The bundled model, which `elmore pretrain` made."""
    path = tmp_path_factory.mktemp("english") / "english.onnx"
    elmo = elmore.load(device="cpu")
    exporting.export(elmo.bundle, path)
    return elmo, path


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_the_page_states_sizes_and_rounding(english, tmp_path, storage):
    report = exporting.export(english[0].bundle, tmp_path / "english.onnx", storage=storage)
    page = PAGE.read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{storage}`"))
    size, rounding, cosine = map(float, row.split("|")[2:-1])
    assert report.num_bytes / 1e6 == pytest.approx(size, abs=0.1)
    assert report.rounding == pytest.approx(rounding, rel=0.1)
    assert report.cosine == pytest.approx(cosine, abs=1e-6)


def test_the_bundled_model_gives_the_embedders_layers(english):
    elmo, path = english
    assert_equal_to_the_embedder(path, elmo)


@pytest.fixture(scope="module")
def small_session(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    bundle = tiny(path / "model", np.random.default_rng(0), scale=2.0)
    exporting.export(bundle, path / "small.onnx")
    return Embedder(bundle, device="cpu"), session(path / "small.onnx")


@settings(max_examples=pick(6, 25))
@given(st.lists(st.lists(st.text(max_size=12), max_size=7), max_size=5))
def test_any_batch_gives_what_each_sentence_gives_alone(small_session, sentences):
    elmo, runtime = small_session
    (layers,) = runtime.run(["layers"], exporting.feed(elmo.bundle.alphabet, sentences))
    longest = max(map(len, sentences), default=0)
    assert layers.shape == (elmo.num_layers, len(sentences), longest, elmo.width)
    for row, sentence in enumerate(sentences):
        alone = elmo.embed([sentence], layers="all")[0].vectors
        np.testing.assert_allclose(layers[:, row, : len(sentence)], alone, rtol=1e-5, atol=1e-5)


def test_a_batch_may_hold_no_word_at_all(small_session):
    elmo, runtime = small_session
    for shape in ((0, 0), (2, 0), (2, 3)):
        index, characters = np.full(shape, -1), np.zeros((0, 0), np.int64)
        (layers,) = runtime.run(["layers"], {"index": index, "characters": characters})
        assert layers.shape == (elmo.num_layers, *shape, elmo.width)
        assert not layers.any()


def test_a_string_is_not_taken_for_its_letters(bundle):
    with pytest.raises(DataError, match="expected a list of tokens, found 'The bank'"):
        exporting.feed(bundle.alphabet, ["The bank"])


def test_the_warm_start_is_the_embedders(tmp_path, bundle):
    exporting.export(bundle, tmp_path / "warm.onnx", initial_state="warm")
    warm = Embedder(bundle, device="cpu", initial_state="warm")
    assert_equal_to_the_embedder(tmp_path / "warm.onnx", warm)


def metadata(path: Path) -> dict:
    return json.loads(session(path).get_modelmeta().custom_metadata_map["elmore"])


def test_the_file_says_what_a_runtime_has_to_know(tmp_path, bundle):
    exporting.export(bundle, tmp_path / "tiny.onnx")
    facts = metadata(tmp_path / "tiny.onnx")
    assert (facts["format"], facts["name"], facts["layers"], facts["width"]) == (1, "tiny", 3, 12)
    assert facts["alphabet"] == {
        "kind": "bytes",
        "max_characters": 50,
        "begin_word": 258,
        "end_word": 259,
        "padding": 260,
        "marks": {"<S>": 256, "</S>": 257},
    }
    ports = {port.name: port.shape for port in session(tmp_path / "tiny.onnx").get_inputs()}
    assert ports == {"index": ["batch", "time"], "characters": ["words", "letters"]}


def test_the_graph_is_of_standard_operators_and_well_formed(tmp_path, bundle):
    exporting.export(bundle, tmp_path / "tiny.onnx")
    proto = onnx.load(tmp_path / "tiny.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [(one.domain, one.version) for one in proto.opset_import] == [("", 18)]


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_a_smaller_file_equals_a_model_folder_of_that_storage(tmp_path, rng, storage):
    bundle = tiny(tmp_path / "model", rng, dim=300, projection_dim=64)
    whole = exporting.export(bundle, tmp_path / "whole.onnx")
    small = exporting.export(bundle, tmp_path / "small.onnx", storage=storage)
    assert (whole.rounding, whole.cosine > 1 - 1e-6) == (0, True)
    assert small.num_bytes < whole.num_bytes * (0.6 if storage == "float16" else 0.45)
    assert 1e-5 < small.rounding < 0.05
    assert 0.99 < small.cosine < 1
    folder.save(bundle, tmp_path / "folder", storage=storage)
    rounded = elmore.load(tmp_path / "folder", device="cpu")
    assert_equal_to_the_embedder(tmp_path / "small.onnx", rounded)
    assert metadata(tmp_path / "small.onnx")["storage"] == storage


def test_a_graph_that_differs_from_torch_is_not_written(tmp_path, bundle, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"as it was")
    monkeypatch.setattr(onnx_graph, "bias_with_forget", lambda bias, forget: bias)
    with pytest.raises(WeightsError, match=r"not written, since onnxruntime .* differ by"):
        exporting.export(bundle, path, overwrite=True)
    assert path.read_bytes() == b"as it was"
    assert [item.name for item in tmp_path.glob("*onnx*")] == ["model.onnx"]


def test_unusable_names_are_refused_before_any_work(tmp_path, bundle):
    (tmp_path / "taken.onnx").write_bytes(b"")
    (tmp_path / "folder.onnx").mkdir()
    for name, sentence in (
        ("model.pt", "ends in .onnx"),
        ("taken.onnx", "exists already; pass another name, or --overwrite"),
        ("folder.onnx", "is a folder"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            exporting.export(replace(bundle, model=None), tmp_path / name)  # pyrefly: ignore


@pytest.mark.parametrize("wrong", [{"storage": "float64"}, {"initial_state": "warmed"}])
def test_an_unknown_storage_or_state_is_not_taken_for_another(tmp_path, bundle, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigError, match=f"{name} must be one of .*, found '{value}'"):
        exporting.export(bundle, tmp_path / "model.onnx", **wrong)
    assert not (tmp_path / "model.onnx").exists()


def test_a_model_too_large_for_a_file_is_refused(tmp_path, bundle, monkeypatch):
    monkeypatch.setattr(exporting, "_MAX_BYTES", 1000)
    with pytest.raises(WeightsError, match="pass storage float16 or int8"):
        exporting.export(bundle, tmp_path / "model.onnx")


def test_the_command_exports_a_run(tmp_path, bundle):
    folder.save(bundle, tmp_path / "run" / "best")
    out = tmp_path / "new" / "model.onnx"
    done = run_elmore("export", str(tmp_path / "run"), str(out), "--storage", "float16")
    assert (done.code, done.out) == (0, f"{out}\n")
    assert "largest difference from torch" in done.err
    assert "float16 changed numbers by at most" in done.err
    assert "layers" in [port.name for port in session(out).get_outputs()]
    again = run_elmore("export", str(tmp_path / "run"), str(out))
    assert again.code == 1
    assert "exists already" in again.err


def test_the_example_needs_neither_torch_nor_elmore(english, tmp_path):
    elmo, path = english
    (tmp_path / "sentences.json").write_text(json.dumps(SENTENCES))
    code = (
        "import json, runpy, sys\n"
        "sys.modules['torch'] = sys.modules['elmore'] = None\n"
        f"example = runpy.run_path({str(ROOT / 'examples/onnx_without_torch.py')!r})\n"
        "session = example['onnxruntime'].InferenceSession(sys.argv[1])\n"
        "layers = example['embed'](session, json.load(open(sys.argv[2])))\n"
        "example['np'].save(sys.argv[3], layers)\n"
    )
    files = [str(path), str(tmp_path / "sentences.json"), str(tmp_path / "layers.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True)
    layers = np.load(files[2])
    for row, sentence in enumerate(elmo.embed(SENTENCES, layers="all")):
        result = layers[:, row, : len(sentence.tokens)]
        np.testing.assert_allclose(result, sentence.vectors, rtol=1e-5, atol=1e-5)


def test_the_example_prints_a_line_a_word(english, capsys, monkeypatch):
    arguments = ["example", str(english[1]), "I left it .", "", "So it goes ."]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(ROOT / "examples/onnx_without_torch.py"), run_name="__main__")
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["I", "left", "it", ".", "So", "it", "goes", "."]


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("onnx.md"))
def test_the_page_runs(block):
    doc_blocks.run_block(block)


def test_the_commands_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = [shell_commands.run(line).arguments[2] for line in doc_blocks.commands(PAGE)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(written)
    assert len(written) == 2


def test_the_commands_on_the_first_page_run(tmp_path, monkeypatch):
    export, example = map(shlex.split, doc_blocks.commands(doc_blocks.INTEGRATIONS / "index.md"))
    monkeypatch.chdir(tmp_path)
    assert run_elmore(*export[1:]).code == 0
    script = ROOT / example[1]
    done = subprocess.run([sys.executable, script, *example[2:]], capture_output=True, text=True)
    assert done.stdout.startswith("I "), done.stderr


def test_a_name_with_a_lone_surrogate_is_replaced(tmp_path, bundle):
    path = tmp_path / "half.onnx"
    exporting.export(replace(bundle, card=Card(name="half \ud800")), path)
    assert onnx.load(path).graph.name == "half ?"
