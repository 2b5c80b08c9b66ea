"""Files that earlier versions wrote are read for ever; `make.py` says where they come from."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose

from elmore import config
from elmore.corpus.shards import open_corpus
from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import job, layer_cache
from elmore.errors import ConfigError, DataError
from elmore.lm.config import read_pretrain_recipe
from elmore.lm.evaluate import evaluate
from elmore.lm.pretrain import pretrain
from elmore.probe import report
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.probe.reporting import load_results
from elmore.tasks import registry
from elmore.tasks.checkpoint import load_task
from elmore.tasks.train import train as train_task
from elmore.weights import pretrained
from elmore.weights.digest import model_digest
from elmore.weights.forward_state import ForwardState
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening
from tests.formats import make
from tests.support import toy_corpus, toy_tasks

HERE = Path(__file__).parent
SENTENCES = [" ".join(words) for words in make.TOKENS]


def close(found, expected):
    assert_allclose(np.asarray(found), np.asarray(expected).reshape(np.shape(found)), atol=1e-5)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def of(kind: str) -> list:
    """Give the folders of a kind, the oldest first."""
    paths = [HERE / f"{kind}-{number}" for number in range(1, make.FORMATS[kind] + 1)]
    return [pytest.param(path, id=path.name) for path in paths]


QUICK = ("recipe", "summary", "journal", "pooling", "whitening", "layers", "state")


@pytest.mark.parametrize("kind", QUICK)
def test_what_make_writes_now_has_the_files_of_the_newest_format(kind, tmp_path):
    make.MAKERS[kind](tmp_path / "made")
    newest = HERE / f"{kind}-{make.FORMATS[kind]}"
    made, stored = (
        sorted(one.name for one in path.rglob("*")) for path in (tmp_path / "made", newest)
    )
    assert made == stored


def corpus_of(run: Path) -> Path:
    """Give the corpus that a run was trained on; each is the same text."""
    wanted = json.loads((run / "recipe.json").read_text())["corpus"]
    corpora = {open_corpus(path).index["sha256"]: path for path in HERE.glob("corpus-*")}
    return corpora[wanted]


@pytest.fixture(scope="module")
def elmo() -> Embedder:
    return make.embedder()


@pytest.fixture(scope="module")
def expected(elmo) -> list[np.ndarray]:
    """All layers of the sentences, as they were when the first model was written."""
    result = json.loads((HERE / "model-1" / "vectors.json").read_text())["zero"]
    shape = (elmo.num_layers, -1, elmo.width)
    return [np.asarray(one, np.float32).reshape(shape) for one in result]


def test_every_format_has_a_file_of_each_of_its_numbers():
    numbers = {f"{kind}-{n + 1}" for kind, newest in make.FORMATS.items() for n in range(newest)}
    assert {path.name for path in HERE.iterdir() if "-" in path.name} == numbers


@pytest.mark.parametrize("directory", of("model"))
def test_a_model_gives_the_vectors_it_gave(directory):
    said = json.loads((directory / "vectors.json").read_text())
    bundle = pretrained.load(directory)
    assert (bundle.softmax is not None) == (directory.name != "model-1")
    for state, vectors in said.items():
        result = Embedder(bundle, initial_state=state).embed(make.TOKENS, layers="all")
        for one, before in zip(result, vectors, strict=True):
            close(one.vectors, before)


@pytest.mark.parametrize("directory", of("corpus"))
def test_a_corpus_holds_the_text_it_was_made_of(directory):
    corpus = open_corpus(directory)
    corpus.verify()
    tokens = corpus.split("all")
    numbers = tokens.take(np.arange(tokens.num_tokens))
    words = ["\n" if number == 0 else corpus.types[number] for number in numbers.tolist()]
    result = [line.strip() for line in " ".join(words).split("\n")][1:]
    assert result == toy_corpus.sentences(40) + toy_corpus.sentences(6, seed=1)


@pytest.mark.parametrize("directory", of("recipe"))
def test_an_old_recipe_keeps_its_meaning(directory):
    assert read_pretrain_recipe(str(directory / "recipe.toml")) == toy_corpus.recipe()


@pytest.mark.parametrize("directory", of("run"))
@pytest.mark.parametrize("says_its_format", [True, False])
def test_a_stopped_run_is_resumed_to_its_end(directory, tmp_path, says_its_format):
    out = tmp_path / "run"
    shutil.copytree(directory, out)
    if not says_its_format:  # as the first recipes did not
        recipe = json.loads((out / "recipe.json").read_text())
        del recipe["format"]
        (out / "recipe.json").write_text(json.dumps(recipe))
    text = corpus_of(directory)
    list(pretrain(toy_corpus.recipe(*make.RECIPE), text, out, resume=True, device="cpu"))
    before, after = (read_lines(folder / "metrics.jsonl") for folder in (directory, out))
    assert [line["step"] for line in after] == list(range(1, 9))
    close([line["loss"] for line in after], [line["loss"] for line in before])


def test_runs_from_before_distillation_are_resumed_without_a_teacher():
    """By the test above, as their recipes lack the section."""
    sections = {
        number: json.loads((HERE / f"run-{number}" / "recipe.json").read_text()).get("distillation")
        for number in (6, 7)
    }
    assert sections == {6: None, 7: {"teacher": None, "weight": 1.0}}


@pytest.mark.parametrize("directory", of("distilled"))
def test_a_stopped_run_with_a_teacher_is_resumed_to_its_end(directory, tmp_path, monkeypatch):
    out = tmp_path / "run"
    shutil.copytree(directory, out)
    monkeypatch.chdir(HERE)
    recipe = toy_corpus.recipe(*make.TAUGHT)
    list(pretrain(recipe, corpus_of(directory), out, resume=True, device="cpu"))
    before, after = (read_lines(folder / "metrics.jsonl") for folder in (directory, out))
    for key in ("step", "loss", "auxiliary_loss"):
        close([line[key] for line in after], [line[key] for line in before])


@pytest.mark.parametrize("directory", of("initialized"))
def test_a_stopped_run_from_a_model_that_is_gone_is_resumed_to_its_end(directory, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(directory, out)
    recipe = toy_corpus.recipe(*make.RECIPE)
    list(pretrain(recipe, corpus_of(directory), out, init=["parent"], resume=True, device="cpu"))
    before, after = (read_lines(folder / "metrics.jsonl") for folder in (directory, out))
    for key in ("step", "loss"):
        close([line[key] for line in after], [line[key] for line in before])
    parent = pretrained.load(HERE / "run-1")
    said = pretrained.load(out).card.training["from"]
    assert (said["sha256"], said["training"]) == (model_digest(parent), parent.card.training)


@pytest.mark.parametrize("directory", of("run"))
def test_a_run_keeps_its_perplexity(directory):
    said = json.loads((HERE / "printed-1" / "evaluate.json").read_text())
    result = evaluate(str(directory), HERE / "corpus-1", device="cpu")
    assert result.forward == pytest.approx(said["forward"], rel=1e-4)


@pytest.mark.parametrize("directory", of("task"))
def test_a_task_scores_as_it_did(directory):
    said = json.loads((directory / "scores.json").read_text())
    assert load_task(directory / "run", device="cpu").evaluate(
        directory / "data.txt"
    ) == pytest.approx(said)


MOVED = HERE / "task-1" / "moved"


def test_a_task_of_the_first_format_is_read_with_its_vectors_where_they_were_or_are(tmp_path):
    data, out = HERE / "task-1" / "data.txt", tmp_path / "run"
    shutil.copytree(MOVED / "run", out)
    with pytest.raises(ConfigError, match=r"/before/vectors\.txt.*; name its new place with --emb"):
        load_task(out, device="cpu").evaluate(data)
    path, vectors = out / "best" / "config.json", MOVED / "vectors.txt"
    expected = json.loads(path.read_text())["scores"]
    result = load_task(out, device="cpu", embedder=f"glove:{vectors}").evaluate(data)
    assert result == pytest.approx(expected)
    path.write_text(path.read_text().replace("/before/vectors.txt", str(vectors)))
    assert load_task(out, device="cpu").evaluate(data) == result


def test_a_task_of_the_first_format_is_resumed_to_its_end(tmp_path):
    """Its recipe knows the examples by what was read, and the vectors by where they were."""
    data, out, ner = HERE / "task-1" / "data.txt", tmp_path / "run", registry.find_task("ner")
    shutil.copytree(MOVED / "run", out)
    settings = ["train.epochs=4", "train.keep_checkpoints=2", "train.save_every=6"]
    recipe = registry.load_recipe(ner, None, [*toy_tasks.small("ner"), *settings])
    how = {"embedder": f"glove:{MOVED / 'vectors.txt'}", "device": "cpu", "resume": True}
    reports = []
    train_task(ner, recipe, data, data, out, **how, on_report=reports.append)
    assert reports[-1].step == reports[-1].num_steps == 12
    other = tmp_path / "other.txt"
    other.write_text(data.read_text().replace("Ann", "Eve"))
    with pytest.raises(ConfigError, match=r"another recipe \(data\.dev .*data\.train"):
        train_task(ner, recipe, other, other, out, **how)


@pytest.mark.parametrize("directory", of("printed"))
def test_printed_results_and_runs_are_reported(directory):
    files = [path for path in directory.iterdir() if path.suffix == ".json"]
    places = [HERE / "run-1", HERE / "task-1" / "run", HERE / "summary-1" / "summary.json"]
    assert len(files) == (4 if directory.name in ("printed-1", "printed-2") else 5)
    assert "<html" in report.build([*places, *files]).html


def test_results_for_word_senses_say_their_punctuation_which_old_ones_do_not(tmp_path):
    path = HERE / "printed-3" / "wsd.json"
    old = tmp_path / "old.json"
    values = json.loads(path.read_text())
    assert values.pop("punctuation") == "plain"
    old.write_text(json.dumps(values))
    assert load_results.load_result(path).punctuation == "plain"
    assert load_results.load_result(old).punctuation == "treebank"
    sentence = "Quotes and brackets: treebank."
    assert sentence not in report.build([old]).html
    assert sentence in report.build([old, path]).html


@pytest.mark.parametrize("directory", of("embeddings"))
def test_files_of_vectors_say_their_format_and_hold_the_vectors(directory, expected):
    with (
        h5py.File(directory / "vectors.hdf5") as file,
        np.load(directory / "vectors.npz") as arrays,
    ):
        assert file.attrs["elmore_format"] == 1
        assert arrays.zip.comment == b"elmore_format 1"
        lines = read_lines(directory / "vectors.jsonl")
        for number, layers in enumerate(expected):
            for result in (file[str(number)], arrays[str(number)], lines[number]["vectors"]):
                close(np.asarray(result).reshape(layers[-1].shape), layers[-1])
        index = json.loads(file["sentence_to_index"][0])
        assert index == {text: str(number) for number, text in enumerate(make.TEXTS)}


@pytest.mark.parametrize("directory", of("embeddings"))
def test_a_table_of_vectors_says_its_format_and_holds_the_vectors(directory, expected):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = parquet.read_table(directory / "vectors.parquet")
    assert table.schema.metadata[b"elmore_format"] == b"1"
    assert [" ".join(tokens) for tokens in table["tokens"].to_pylist()] == SENTENCES
    for result, layers in zip(table["vectors"].to_pylist(), expected, strict=True):
        close(np.asarray(result).reshape(layers[-1].shape), layers[-1])


@pytest.mark.parametrize("directory", of("journal"))
def test_a_killed_job_can_be_resumed(directory, tmp_path, elmo):
    shutil.copytree(directory, tmp_path / "job")
    out = tmp_path / "job" / "vectors.jsonl"
    done = []
    job.run_job(
        elmo,
        make.TEXTS,
        out,
        make.described(elmo),
        resume=True,
        progress=lambda lines, tokens: done.append(lines),
    )
    assert done[0] == 2
    written, said = read_lines(out), read_lines(HERE / "embeddings-1" / "vectors.jsonl")
    assert [line["tokens"] for line in written] == [line["tokens"] for line in said]
    for line, before in zip(written, said, strict=True):
        close(line["vectors"], before["vectors"])


@pytest.mark.parametrize("directory", of("pooling"))
def test_a_pooling_gives_the_vectors_it_gave(directory, elmo):
    learned = TextPooling.load(directory / "pooling.npz")
    said = json.loads((directory / "vectors.json").read_text())
    for one, before in zip(elmo.embed(make.TOKENS), said, strict=True):
        close(pooling.pool(one.tokens, one.vectors, learned), before)


@pytest.mark.parametrize("directory", of("state"))
def test_a_text_goes_on_from_its_state(directory, elmo):
    state = ForwardState.load(directory / "state.npz")
    rest, _ = elmo.step(make.TOKENS[0][3:], state)
    close(rest.vectors, json.loads((directory / "vectors.json").read_text()))


@pytest.mark.parametrize("directory", of("whitening"))
def test_a_whitening_gives_the_vectors_it_gave(directory, elmo):
    learned = Whitening.load(directory / "whitening.npz")
    said = json.loads((directory / "vectors.json").read_text())
    for one, before in zip(elmo.embed(make.TOKENS, layers=learned), said, strict=True):
        close(one.vectors, np.reshape(before, (-1, elmo.width)))


@pytest.mark.parametrize("directory", of("layers"))
@pytest.mark.parametrize("has_number", [True, False])
def test_cached_layers_are_found(directory, tmp_path, elmo, expected, has_number):
    (path,) = directory.glob("*.npy")  # the first files had no number in their name
    shutil.copy(path, tmp_path / (path.name if has_number else path.name.replace(".1.npy", ".npy")))
    result = layer_cache.load(elmo, make.TOKENS, tmp_path)
    assert result is not None
    for tokens, layers in zip(make.TOKENS, expected, strict=True):
        assert_allclose(result.of([tokens]), layers, atol=1e-3)  # half precision


@pytest.mark.parametrize("directory", of("uses"))
def test_an_index_of_uses_is_opened_and_searched(directory, tmp_path, elmo):
    shutil.copytree(directory, tmp_path / "index")
    index = OccurrenceIndex.open(tmp_path / "index", elmo)
    (vectors,) = elmo.embed([make.TOKENS[1]], layers="top")
    ((row,), (similarity,)) = index.nearest_rows(vectors.vectors[2], 1)
    assert similarity == pytest.approx(1, abs=1e-3)
    assert index.occurrence(int(row)).word == "cat"
    assert index.occurrence(int(row)).tokens == list(make.TOKENS[1])


@pytest.mark.parametrize("directory", of("onnx"))
def test_an_onnx_file_gives_the_layers_it_gave(directory, elmo, expected):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    from elmore.integrations import onnx

    session = onnxruntime.InferenceSession(directory / "model.onnx")
    facts = json.loads(session.get_modelmeta().custom_metadata_map["elmore"])
    assert facts["format"] == onnx.FORMAT == make.FORMATS["onnx"]
    (layers, *_) = session.run(None, onnx.feed(elmo.bundle.alphabet, make.TOKENS))
    close(layers[:, 0, : len(make.TOKENS[0])], expected[0])


@pytest.mark.slow
@pytest.mark.parametrize("directory", of("spacy"))
def test_a_model_in_a_pipeline_of_spacy_gives_the_vectors_it_gave(directory, expected):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    from elmore.integrations import spacy_embedder

    assert make.FORMATS["spacy"] == spacy_embedder.FORMAT
    reader = spacy_embedder.DocEmbedder("a path that leads nowhere")
    reader.from_disk(directory)
    doc = spacy.tokens.Doc(spacy.blank("en").vocab, words=make.TOKENS[0])
    close(reader.embed([doc], "all")[0], expected[0])


@pytest.mark.slow
@pytest.mark.parametrize("directory", of("huggingface"))
def test_a_model_for_transformers_gives_the_vectors_it_gave(directory, expected):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from elmore.integrations import huggingface
    from elmore.integrations.huggingface import config as settings

    assert make.FORMATS["huggingface"] == settings.FORMAT
    model = huggingface.ElmoModel.from_pretrained(directory).eval()
    tokenizer = huggingface.ElmoTokenizer.from_pretrained(directory)
    words = tokenizer([list(make.TOKENS[0])], is_split_into_words=True, return_tensors="pt")
    result = model(**words, output_hidden_states=True).hidden_states
    for layer, before in zip(result, expected[0], strict=True):
        close(layer[0].detach().numpy(), before)


@pytest.mark.parametrize("family", [DataError, ConfigError])
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "here: format is None, expected a number from 1 to 2"),
        ({"format": "1"}, "here: format is '1', expected a number from 1 to 2"),
        ({"format": True}, "here: format is True, expected a number from 1 to 2"),
        ({"format": 0}, "here: format is 0, expected a number from 1 to 2"),
        ({"format": 3}, r"here: format 3 is newer than this elmore reads \(2\); upgrade elmore"),
    ],
)
def test_unknown_and_later_format_numbers_are_refused(table, said, family):
    with pytest.raises(family, match=f"^{said}$"):
        config.check_format(table, 2, "here", error=family)


def test_old_numbers_and_unsaid_ones_are_taken():
    for table in ({"format": 1}, {"format": 2}, {}):
        config.check_format(table, 2, "here", default=1)
