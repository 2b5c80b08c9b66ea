"""A file that is damaged, or no such file at all, is one sentence and exit 1, whoever reads it."""

import hashlib
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmore.corpus import shards
from elmore.embed.jobs import job as embedding
from elmore.errors import DataError, ElmoreError
from elmore.probe.neighbors.index import OccurrenceIndex
from tests.formats import make
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm

FORMATS = Path(__file__).parents[1] / "formats"
NO_LITERAL = b"\x93NUMPY\x01\x00\x76\x00{'descr': '''" + b" " * 105


def refused(*command: object) -> str:
    """Give the one sentence of a refusal."""
    result = run_elmore(*map(str, command))
    assert result.code == 1, result
    assert result.err.startswith("elmore: ")
    assert result.err.count("\n") == 1
    return result.err


@pytest.fixture
def run(tmp_path) -> Path:
    return Path(shutil.copytree(FORMATS / "run-1", tmp_path / "run"))


@pytest.mark.parametrize("text", ["[1]", '{"step": []}', '{"step": null}', "{}", '"one"', "\\"])
def test_a_damaged_line_of_metrics_is_named(run, text):
    (run / "metrics.jsonl").write_text(f'{text}\n{{"step": 2, "loss": 1.0}}\n')
    message = refused("report", run, "-o", run.parent / "page.html")
    assert "metrics.jsonl: line 1: " in message


@pytest.mark.parametrize("value", [[1.0], "high", None, {"mean": 1}])
def test_a_score_that_is_no_number_is_named(run, value):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    scored = json.loads(lines[3]) | {"valid_perplexity": value}
    (run / "metrics.jsonl").write_text("\n".join([*lines[:3], json.dumps(scored)]) + "\n")
    assert "metrics.jsonl: line 4: valid_perplexity" in refused(
        "report", run, "-o", run.parent / "page.html"
    )


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
@pytest.mark.parametrize("text", ["[]", "3", '"notes"', '{"format": [], "model": 1}', "null", "{"])
def test_a_journal_whose_job_is_other_json_is_named_and_left_alone(tmp_path, how, text):
    parts = shutil.copytree(FORMATS / "journal-1", tmp_path / "job") / "vectors.jsonl.parts"
    (parts / "job.json").write_text(text)
    before = {path.name: path.read_bytes() for path in parts.iterdir()}
    lines = tmp_path / "in.txt"
    lines.write_text("a line\n")
    out = tmp_path / "job" / "vectors.jsonl"
    message = refused("embed", lines, "--model", FORMATS / "model-1", "-o", out, how)
    assert "vectors.jsonl.parts: job.json is missing, damaged or not ours" in message
    assert {path.name: path.read_bytes() for path in parts.iterdir()} == before


@pytest.mark.parametrize("name", ["types.offsets.npy", "train-00000.tokens.npy"])
def test_an_array_of_a_corpus_with_a_header_that_is_no_literal_is_named(tmp_path, name):
    corpus = Path(shutil.copytree(FORMATS / "corpus-1", tmp_path / "corpus"))
    array = corpus / name
    data = NO_LITERAL + array.read_bytes()[len(NO_LITERAL) :]
    array.write_bytes(data)
    index = json.loads((corpus / "index.json").read_text())
    index["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
    index["sha256"] = shards.index_sha256(index)
    (corpus / "index.json").write_text(json.dumps(index))
    message = refused("evaluate", FORMATS / "run-1", corpus, "--split", "all", "--device", "cpu")
    assert f"{name}: not a readable array" in message


def test_vectors_of_words_with_a_header_that_is_no_literal_are_named(tmp_path):
    (tmp_path / "v.npy").write_bytes(NO_LITERAL)
    (tmp_path / "v.words.txt").write_text("a\n")
    data = toy_tasks.write("ner", tmp_path / "data.txt")
    embedder = f"glove:{tmp_path / 'v.npy'}"
    message = refused(
        "task",
        "train",
        "ner",
        "--train",
        data,
        "--dev",
        data,
        "-o",
        tmp_path / "r",
        "--embedder",
        embedder,
    )
    assert "v.npy: not a readable array" in message


def test_text_in_a_table_that_is_not_utf8_is_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lengths = np.array([0, 2], np.int32)
    buffers = [None, pyarrow.py_buffer(lengths), pyarrow.py_buffer(b"\xff\xfe")]
    column = pyarrow.Array.from_buffers(pyarrow.string(), 1, buffers)
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "in.parquet")
    out = tmp_path / "v.jsonl"
    message = refused("embed", tmp_path / "in.parquet", "--model", FORMATS / "model-1", "-o", out)
    assert "in.parquet: row 1 is not UTF-8" in message


def test_a_dictionary_with_a_number_of_5000_digits_is_named(tmp_path, rng):
    folder = tmp_path / "many"
    many_langs(folder, rng)
    (folder / "char.dic").write_text(f"a\t{'9' * 5000}\n", encoding="utf-8")
    message = refused("convert", folder, tmp_path / "out")
    assert "char.dic: line 1 is " in message
    assert len(message) < 500


def test_an_empty_dataset_is_named(tmp_path, rng):
    settings = bilm_options()
    options, weights = write_bilm(tmp_path, settings, bilm_weights(settings, rng))
    with h5py.File(weights, "a") as file:
        del file["CNN_proj/b_proj"]
        file["CNN_proj/b_proj"] = h5py.Empty("f4")
    message = refused("convert", options, weights, tmp_path / "out")
    assert "CNN_proj/b_proj is empty" in message


SUMMARY = json.loads((FORMATS / "summary-1" / "summary.json").read_text())


@pytest.mark.parametrize("key", ["mean", "deviation", "num_runs", "scores"])
@pytest.mark.parametrize("value", [[1], "high", {"a": 1}])
def test_a_summary_with_a_list_where_a_number_belongs_is_named(tmp_path, key, value):
    result = json.loads(json.dumps(SUMMARY))
    part = result["summary"][0]
    if key in part:
        part[key] = value
    else:
        part["scores"]["dev"]["f1"][key] = value
    (tmp_path / "summary.json").write_text(json.dumps(result))
    message = refused("report", tmp_path / "summary.json", "-o", tmp_path / "page.html")
    assert "summary.json" in message


@pytest.mark.parametrize("f1", [[1], "high", None])
def test_scores_of_senses_with_a_list_where_a_number_belongs_are_named(tmp_path, f1):
    scores = {"top": {"f1": f1, "f1_low": 0.1, "f1_high": 0.2}}
    result = {
        "chosen": "top", "held_out": scores, "tests": {}, "num_uses": 3, "num_senses": 2,
    }  # fmt: skip
    (tmp_path / "wsd.json").write_text(json.dumps(result))
    message = refused("report", tmp_path / "wsd.json", "-o", tmp_path / "page.html")
    assert "wsd.json" in message
    assert "f1" in message


NOTES = ["[]", "3", '{"content": []}', '{"first": 0, "texts": 1, "tokens": {}}', "null", "[" * 5000]


@pytest.mark.parametrize("text", NOTES, ids=range(len(NOTES)))
def test_a_part_whose_metadata_is_other_json_is_computed_again(tmp_path, text):
    job = Path(shutil.copytree(FORMATS / "journal-1", tmp_path / "job"))
    (job / "vectors.jsonl.parts" / "part-00000.json").write_text(text)
    elmo = make.embedder()
    out = job / "vectors.jsonl"
    done = []
    embedding.run_job(
        elmo, make.TEXTS, out, make.described(elmo), resume=True,
        progress=lambda lines, tokens: done.append(lines),
    )  # fmt: skip
    assert done[0] == 0
    assert len(out.read_text().splitlines()) == len(make.TEXTS)


@pytest.fixture
def index(tmp_path) -> Path:
    return Path(shutil.copytree(FORMATS / "uses-1", tmp_path / "index"))


def replace_column(index: Path, name: str, data: bytes) -> None:
    """Write another column, and its checksum too."""
    (index / name).write_bytes(data)
    manifest = json.loads((index / "index.json").read_text())
    (part,) = manifest["texts"][0]["parts"]
    for column in part["columns"]:
        if column["name"] == name:
            column |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (index / "index.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("words.i32", np.full(17, 99, "<i4").tobytes()),
        ("words.i32", np.full(17, -1, "<i4").tobytes()),
        ("words.i32", np.zeros(16, "<i4").tobytes()),
        ("sentences.i64", np.array([[9, 0], [8, 1], [17, 2]], "<i8").tobytes()),
        ("sentences.i64", np.array([[9, 0], [12, 1], [99, 2]], "<i8").tobytes()),
        ("sentences.i64", np.array([[17, 0]], "<i8").tobytes()),
        ("sentences.i64", b""),
        ("words.jsonl", b'"the"\n'),
        ("words.jsonl", b"3\n" * 20),
        ("words.jsonl", b"nonsense\n"),
        ("layer-2.f16", bytes(16)),
    ],
    ids=range(11),
)
def test_a_damaged_table_of_an_index_of_uses_is_named(index, name, data):
    replace_column(index, name, data)
    with pytest.raises(DataError, match=str(index)):
        OccurrenceIndex.open(index, make.embedder())


@pytest.mark.parametrize(
    "change", [{"layers": ["../../etc/passwd"]}, {"width": 0}, {"width": 2**70}, {"texts": [3]}]
)
def test_an_invalid_manifest_is_named(index, change):
    manifest = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps(manifest | change))
    with pytest.raises(ElmoreError, match=r"index\.json: "):
        OccurrenceIndex.open(index, make.embedder())


def test_a_sentence_that_quotes_a_long_line_is_cut_in_its_middle():
    error = DataError(f"file.txt:3: found {'x' * 5000}; expected a number")
    assert str(error).startswith("file.txt:3: found xxx")
    assert str(error).endswith("xxx; expected a number")
    assert len(str(error)) < 1500


@pytest.mark.parametrize("scores", [["f1"], {"f1": "high"}, {"f1": [1]}, {"f1": 10**400}, 3])
def test_a_card_with_scores_that_are_no_numbers_is_named(tmp_path, scores):
    model = Path(shutil.copytree(FORMATS / "model-3", tmp_path / "model"))
    table = json.loads((model / "config.json").read_text())
    table["card"]["training"]["scores"] = scores
    (model / "config.json").write_text(json.dumps(table))
    assert "training.scores must map names to numbers" in refused("info", model)


@pytest.mark.parametrize("change", [{"sha256": {"elmo": [1]}}, {"scores": {"f1": "high"}}])
def test_a_trained_task_with_something_else_in_its_config_is_named(tmp_path, change):
    run = Path(shutil.copytree(FORMATS / "task-2", tmp_path / "task")) / "run"
    path = run / "best" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert f"config.json: {next(iter(change))}: " in refused("task", "predict", run, "Ann left .")
