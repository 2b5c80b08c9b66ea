"""elmore embed: every format in and out, and every way to go wrong."""

import gzip
import io
import json
import lzma
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from unittest import mock

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import elmore
from elmore.embed.jobs import journal
from elmore.weights import folder
from tests.support import cli_processes, full_disk
from tests.support.cli_processes import KillCall
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.toy_pooling import make_pooling

zstandard = pytest.importorskip("zstandard")  # not on every machine with a GPU

TEXT = ["The bank closed.", "", "It's a fine day, isn't it?", "naïve 日本 😀", "The bank closed."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    settings = bilm_options(dim=12, projection_dim=4)
    weights = bilm_weights(settings, np.random.default_rng(0))
    bundle = elmore.load(*write_bilm(path, settings, weights)).bundle
    folder.save(bundle, path / "ours")
    return str(path / "ours")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return str(path)


def expected(model, **kwargs):
    return list(elmore.load(model).stream(TEXT, **kwargs))


def embed(*arguments, model):
    return run_elmore("embed", *map(str, arguments), "--model", model)


@pytest.mark.parametrize("layers", ["average", "all", "top", "0"])
@pytest.mark.parametrize("ending", ["hdf5", "npz"])
def test_arrays_are_named_by_line_number_as_their_readers_expect(
    tmp_path, text, model, layers, ending
):
    out = tmp_path / f"out.{ending}"
    assert embed(text, "-o", out, "--layers", layers, model=model).code == 0
    wanted = expected(model, layers=int(layers) if layers == "0" else layers)
    with h5py.File(out) if ending == "hdf5" else np.load(out) as file:
        assert set(file) == {*map(str, range(5)), "sentence_to_index"}
        for number, sentence in enumerate(wanted):
            np.testing.assert_array_equal(file[str(number)][()], sentence.vectors)
        index = file["sentence_to_index"]
        assert index.shape == (1,)
        kept = json.loads(index[0] if ending == "npz" else index.asstr()[0])
    assert kept == {"The bank closed.": "4", "": "1", TEXT[2]: "2", TEXT[3]: "3"}


@pytest.mark.parametrize("more", [[], ["--layers", "all"], ["--pool", "mean"]])
@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_one_direction_gives_its_half_of_the_vectors(tmp_path, text, model, more, ending):
    for direction in ("both", "forward", "backward"):
        out = tmp_path / f"{direction}.{ending}"
        assert embed(text, "-o", out, "--direction", direction, *more, model=model).code == 0
    if ending == "parquet":
        return
    both, forward, backward = (
        np.load(tmp_path / f"{direction}.npz") for direction in ("both", "forward", "backward")
    )
    for number in map(str, range(5)):
        halves = np.concatenate([forward[number], backward[number]], axis=-1)
        np.testing.assert_array_equal(halves, both[number])


def test_a_job_of_one_direction_is_not_resumed_in_both(tmp_path, text, model):
    half_done(tmp_path, text, model)
    again = (text, "-o", tmp_path / "out.npz", "--resume", "--direction", "forward")
    assert "direction was 'both' and is 'forward'" in refused(*again, model=model)


def test_a_journal_from_before_directions_is_resumed(tmp_path, text, model):
    half_done(tmp_path, text, model)
    path = tmp_path / "out.npz.parts" / "job.json"
    saved = json.loads(path.read_text())
    del saved["direction"]
    path.write_text(json.dumps(saved))
    assert embed(text, "-o", tmp_path / "out.npz", "--resume", model=model).code == 0


def test_the_sentence_index_may_be_left_out(tmp_path, text, model):
    out = tmp_path / "out.hdf5"
    assert embed(text, "-o", out, "--no-sentence-index", model=model).code == 0
    with h5py.File(out) as file:
        assert set(file) == set(map(str, range(5)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_table_has_a_row_per_line(tmp_path, text, model, dtype):
    out = tmp_path / "out.parquet"
    assert embed(text, "-o", out, "--dtype", dtype, model=model).code == 0
    table = pyarrow.parquet.read_table(out)
    number = pyarrow.float16() if dtype == "float16" else pyarrow.float32()
    assert table.schema.field("line").type == pyarrow.int64()
    assert table.schema.field("tokens").type == pyarrow.list_(pyarrow.string())
    assert table.schema.field("vectors").type == pyarrow.list_(pyarrow.list_(number, 8))
    assert table["line"].to_pylist() == [0, 1, 2, 3, 4]
    for row, sentence in zip(table.to_pylist(), expected(model), strict=True):
        assert row["tokens"] == sentence.tokens
        result = np.array(row["vectors"], dtype).reshape(-1, 8)
        np.testing.assert_array_equal(result, sentence.vectors.astype(dtype))


def test_a_table_of_all_layers_has_a_column_for_each(tmp_path, text, model):
    out = tmp_path / "out.parquet"
    assert embed(text, "-o", out, "--layers", "all", model=model).code == 0
    table = pyarrow.parquet.read_table(out)
    assert table.column_names == ["line", "tokens", "layer_0", "layer_1", "layer_2"]
    wanted = expected(model, layers="all")[2].vectors
    for i in range(3):
        result = np.array(table[f"layer_{i}"][2].as_py(), np.float32)
        np.testing.assert_array_equal(result, wanted[i])


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooled_there_is_one_vector_per_line(tmp_path, text, model, pool):
    assert embed(text, "-o", tmp_path / "out.parquet", "--pool", pool, model=model).code == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.schema.field("vectors").type == pyarrow.list_(pyarrow.float32(), 8)
    assert embed(text, "-o", tmp_path / "out.npz", "--pool", pool, model=model).code == 0
    arrays = np.load(tmp_path / "out.npz")
    wanted = elmore.load(model).encode(TEXT, pool=pool)
    for i in range(5):
        np.testing.assert_allclose(np.array(table["vectors"][i].as_py()), wanted[i], atol=1e-6)
        np.testing.assert_allclose(arrays[str(i)], wanted[i], atol=1e-6)


def test_a_pooling_of_the_model_is_chosen_by_name(tmp_path, text, model):
    shutil.copytree(model, tmp_path / "model")
    elmo = elmore.load(tmp_path / "model")
    folder.add_pooling(tmp_path / "model", "toy", make_pooling(elmo))
    wanted = elmore.load(tmp_path / "model").encode(TEXT)
    out = tmp_path / "out.parquet"
    assert embed(text, "-o", out, "--pool", "toy", model=str(tmp_path / "model")).code == 0
    table = pyarrow.parquet.read_table(out)
    np.testing.assert_allclose(np.array(table["vectors"].to_pylist()), wanted, rtol=1e-5)


def test_lines_of_json(tmp_path, text, model):
    assert embed(text, "-o", tmp_path / "out.jsonl", model=model).code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for number, (row, sentence) in enumerate(zip(rows, expected(model), strict=True)):
        assert (row["line"], row["tokens"]) == (number, sentence.tokens)
        np.testing.assert_array_equal(
            np.array(row["vectors"], np.float32).reshape(-1, 8), sentence.vectors
        )


def test_without_a_file_words_and_numbers_go_to_stdout(text, model):
    result = embed(text, "--layers", "top", model=model)
    blocks = result.out.split("\n\n")
    first = [line.split() for line in blocks[0].splitlines()]
    wanted = expected(model, layers="top")[0]
    assert [line[0] for line in first] == wanted.tokens
    np.testing.assert_allclose(
        np.array([line[1:] for line in first], float), wanted.vectors, rtol=1e-4
    )
    pooled = embed(text, "--pool", "mean", model=model).out.splitlines()
    assert [len(line.split()) for line in pooled] == [8] * 5


def test_a_zst_of_several_frames_is_read_to_its_end(tmp_path, model):
    path = tmp_path / "text.txt.zst"
    path.write_bytes(b"".join(zstandard.compress(f"{line}\n".encode()) for line in TEXT))
    check_out(tmp_path, path, model)


def packed(data: bytes, ending: str) -> bytes:
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    return packers[ending](data) if ending else data


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_packed_input_is_the_same_input(tmp_path, model, ending, kind):
    lines = TEXT if kind == "txt" else [json.dumps({"text": line}) for line in TEXT]
    path = tmp_path / f"text.{kind}{ending}"
    path.write_bytes(packed(("\n".join(lines) + "\n").encode(), ending))
    check_out(tmp_path, path, model)


def check_out(tmp_path, *arguments, model=None):
    *arguments, model = (*arguments, model) if model else arguments
    out = tmp_path / "out.npz"
    assert embed(*arguments, "-o", out, model=model).code == 0
    arrays = np.load(out)
    for number, sentence in enumerate(expected(model)):
        np.testing.assert_array_equal(arrays[str(number)], sentence.vectors)


def test_a_column_of_a_table_is_input(tmp_path, model):
    path = tmp_path / "text.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": range(5), "body": TEXT}), path)
    check_out(tmp_path, path, "--column", "body", model)


ROWS = [
    {"id": 7, "text": "The bank closed.", "line": "a", "score": 0.5, "tags": ["x"]},
    {"id": 8, "text": "A fine day", "line": None, "score": 1, "tags": []},
]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_the_other_columns_of_a_table_come_with_the_vectors(tmp_path, model, ending):
    source = tmp_path / f"in.{ending}"
    if ending == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), source)
    outs = [tmp_path / f"out.{name}" for name in ("parquet", "jsonl", "hdf5")]
    for out in outs:
        assert embed(source, "-o", out, model=model).err == ""
    table = pyarrow.parquet.read_table(outs[0])
    assert table["id"].to_pylist() == [7, 8]
    assert table["score"].type == pyarrow.float64()
    assert table["input_line"].to_pylist() == ["a", None]  # `line` is the number of the line
    assert table["tags"].to_pylist() == ['["x"]', "[]"]
    first, second = map(json.loads, outs[1].read_text().splitlines())
    assert (first["id"], second["id"], first["input_line"]) == (7, 8, "a")
    with h5py.File(outs[2]) as file:
        assert [file[str(n)].attrs["id"] for n in range(2)] == [7, 8]
        assert file["1"].attrs["tokens"].tolist() == ["A", "fine", "day"]
        assert "input_line" not in file["1"].attrs


@pytest.mark.parametrize("ending", ["hdf5", "jsonl"])
def test_columns_without_a_name_or_with_a_taken_one_are_kept(tmp_path, model, ending):
    source, out = tmp_path / "in.csv", tmp_path / f"out.{ending}"
    source.write_text(",text,line,input_line\n7,A fine day,8,9\n")  # pandas' index has no name
    assert embed(source, "-o", out, model=model).err == ""
    if ending == "hdf5":
        with h5py.File(out) as file:
            found = dict(file["0"].attrs)
    else:
        found = json.loads(out.read_text())
    names = ("input_unnamed", "input_input_line", "input_line")
    assert [found[name] for name in names] == ["7", "8", "9"]


@pytest.mark.parametrize("ending", ["hdf5", "jsonl", "parquet"])
def test_columns_and_cells_that_no_file_can_encode_are_escaped(tmp_path, model, ending):
    source, out = tmp_path / "in.jsonl", tmp_path / f"out.{ending}"
    row = {"text": "a \ud800 b", "\udc00": 1, "a\0": 2, "a\\x00": 3, "cell": "c \ud800"}
    source.write_text(json.dumps(row) + "\n" + json.dumps({**row, "text": ["\ud800"]}) + "\n")
    assert embed(source, "-o", out, model=model).err == ""
    if ending == "hdf5":
        with h5py.File(out) as file:
            found = [dict(file[str(number)].attrs) for number in range(2)]
    elif ending == "parquet":
        found = pyarrow.parquet.read_table(out).to_pylist()
    else:
        found = [json.loads(line) for line in out.read_text().splitlines()]
    for one in found:
        names = ("\\udc00", "input_a\\x00", "a\\x00")
        assert [one[name] for name in names] == [1, 2, 3]
        assert one["cell"].startswith("c ")
    assert [len(one["tokens"]) for one in found] == [3, 1]


@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz", "in.tsv", "IN.CSV", "IN.CSV.GZ"])
def test_a_table_of_separated_values_is_read_by_its_header(tmp_path, model, name):
    tab = name == "in.tsv"
    rows = ["id\ttext", '1\t"so it goes', "", "2\ttwo words"] if tab else [
        "id,text", '1,"one, two', 'three"', "", "2,two words"
    ]  # fmt: skip
    write = gzip.compress if name.lower().endswith("gz") else bytes
    (tmp_path / name).write_bytes(write("\n".join(rows).encode() + b"\n"))
    out = tmp_path / "out.jsonl"
    assert embed(tmp_path / name, "-o", out, model=model).err == ""
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in results] == ["1", "2"]
    assert results[0]["tokens"] == (
        ['"', "so", "it", "goes"] if tab else ["one", ",", "two", "three"]
    )
    refused = embed(tmp_path / name, "-o", tmp_path / "b.jsonl", "--column", "body", model=model)
    assert refused.code == 1
    assert f"{name}: no column 'body'; pass --column, one of id, text" in refused.err


def test_a_row_of_other_fields_than_the_header_is_refused(tmp_path, model):
    (tmp_path / "in.csv").write_text("id,text\n1,one,two\n")
    result = embed(tmp_path / "in.csv", "-o", tmp_path / "out.jsonl", model=model)
    assert result.code == 1
    assert "in.csv: line 2 has 3 fields, the header has 2" in result.err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("table", "sentence"),
    [("text,id,id\none,1,2\n", "names 'id' twice"), ("", "in.csv: no header")],
)
def test_a_table_without_a_plain_header_is_refused(tmp_path, model, table, sentence):
    (tmp_path / "in.csv").write_text(table)
    result = embed(tmp_path / "in.csv", "-o", tmp_path / "out.jsonl", model=model)
    assert result.code == 1
    assert sentence in result.err


def test_a_long_line_has_all_its_tokens_in_hdf5(tmp_path, model):
    (tmp_path / "in.txt").write_text("word " * 9000)
    out = tmp_path / "out.hdf5"
    embed(tmp_path / "in.txt", "-o", out, "--tokenized", "--pool", "mean", model=model)
    with h5py.File(out) as file:
        assert len(file["0"].attrs["tokens"]) == 9000


def test_several_files_and_patterns_follow_each_other(tmp_path, model):
    for number, line in enumerate(TEXT):
        (tmp_path / f"part{number}.txt").write_text(line + "\n")
    check_out(
        tmp_path, tmp_path / "part[01].txt", *(tmp_path / f"part{i}.txt" for i in (2, 3, 4)), model
    )


def test_stdin_is_input(tmp_path, model):
    data = io.TextIOWrapper(io.BytesIO("\n".join(TEXT).encode()))
    with mock.patch.object(sys, "stdin", data):
        check_out(tmp_path, "-", model)


def test_tokenized_input_is_split_on_spaces_alone(tmp_path, text, model):
    assert embed(text, "-o", tmp_path / "out.parquet", "--tokenized", model=model).code == 0
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table["tokens"].to_pylist() == [line.split() for line in TEXT]


def test_sentences_may_run_on_their_own(tmp_path, model):
    (tmp_path / "text.txt").write_text("It rained. We went home.\n")
    out = tmp_path / "out.npz"
    assert embed(tmp_path / "text.txt", "-o", out, "--split", model=model).code == 0
    parts_ = elmore.load(model).embed(["It rained.", "We went home."])
    whole = np.concatenate([part.vectors for part in parts_])
    np.testing.assert_allclose(np.load(out)["0"], whole, atol=1e-5)


# What goes wrong


def refused(*arguments, model) -> str:
    result = embed(*arguments, model=model)
    assert result.code == 1, result
    # On a slow machine it has told its progress before.
    said = [line for line in result.err.splitlines() if not line.startswith("embedding: ")]
    assert len(said) == 1, result.err
    assert said[0].startswith("elmore: ")
    return said[0]


def test_a_missing_file_among_many_is_named_before_anything_is_done(tmp_path, text, model):
    sentence = refused(text, tmp_path / "absent.txt", "-o", tmp_path / "o.npz", model=model)
    assert "absent.txt: cannot be read (No such file or directory)" in sentence
    assert "expected a text file, found a folder" in refused(text, tmp_path, model=model)
    assert not list(tmp_path.glob("o.npz*"))


def test_invalid_utf8_is_named_by_line_and_byte_and_may_be_replaced(tmp_path, model):
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\nna\xefve\n")
    sentence = refused(path, "-o", tmp_path / "o.npz", model=model)
    assert "text.txt: line 2 is not UTF-8 at its byte 3" in sentence
    done = embed(path, "-o", tmp_path / "p.npz", "--errors", "replace", model=model)
    assert done.code == 0
    assert np.load(tmp_path / "p.npz")["1"].shape[1] == 8


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.txt.gz", b"\x1f\x8b\x08\x00 cut", "damaged or truncated"),
        ("a.txt.xz", lzma.compress(b"line\n" * 99)[:-9], "damaged or truncated"),
        ("a.txt.gz", b"plain", "damaged or truncated"),
        ("a.txt.bz2", b"BZh9 nonsense", "damaged or truncated"),
        ("a.txt.zst", zstandard.compress(b"line\n" * 9999)[:-9], "damaged or truncated"),
        ("a.txt.zst", b"nonsense", "damaged or truncated"),
        ("a.jsonl", b'{"body": "x"}\n', "line 1: no column 'text'; pass --column, one of body"),
        ("a.jsonl", b"nonsense\n", "line 1 is not JSON"),
        ("a.jsonl", b'{"text": 7}\n', "line 1: expected a text or a list of tokens, found '7'"),
        ("a.parquet", b"PAR1 nonsense", "not a readable parquet file"),
    ],
)
def test_a_damaged_input_file_is_reported_in_one_sentence(tmp_path, model, name, data, found):
    (tmp_path / name).write_bytes(data)
    assert found in refused(tmp_path / name, "-o", tmp_path / "o.npz", model=model)


def test_a_table_without_the_column_names_those_it_has(tmp_path, model):
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "body": ["x"]}), tmp_path / "a.parquet")
    assert "no column 'text'; pass --column, one of id, body" in refused(
        tmp_path / "a.parquet", model=model
    )


def test_a_token_of_ten_megabytes_and_control_characters_are_ordinary_words(tmp_path, model):
    path = tmp_path / "text.txt"
    path.write_text("x" * 10_000_000 + " \x00\x07 end\n")
    assert embed(path, "-o", tmp_path / "o.npz", "--tokenized", model=model).code == 0
    assert np.load(tmp_path / "o.npz")["0"].shape == (3, 8)


def test_a_missing_package_is_named_before_the_text_is_read(tmp_path, text, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    begin = mock.Mock(side_effect=AssertionError("it began to embed"))
    monkeypatch.setattr("elmore.embed.jobs.job.embed_lines", begin)
    sentence = refused(text, "-o", tmp_path / "out.parquet", model=model)
    assert "parquet needs pyarrow: pip install 'elmore[embed]'" in sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.txt"]


def test_an_existing_output_is_replaced_only_with_overwrite(tmp_path, text, model):
    out = tmp_path / "out.npz"
    out.write_text("dear to somebody")
    assert "out.npz exists already" in refused(text, "-o", out, model=model)
    assert out.read_text() == "dear to somebody"
    assert embed(text, "-o", out, "--overwrite", model=model).code == 0
    assert "0" in np.load(out)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--layers", "7"], "this model has layers 0 to 2"),
        (["--resume"], "need an output file; pass -o"),
        (["--overwrite"], "need an output file; pass -o"),
        (["--layers", "first"], "expected average, all, top, cloze, whitened or a number"),
        (["--layers", "all", "--pool", "mean"], "one vector per text"),
        (["--direction", "forward", "--layers", "cloze"], "needs both directions"),
        (["--pool", "median"], "this model has 'mean', 'max'; pass one"),
        (["--device", "cuda:9"], "cannot be used here"),
        (["--device", "meta:0"], "cannot be used here; use auto, cpu or cuda"),
        (["-o", "out.txt"], "the suffix must be one of .hdf5"),
    ],
)
def test_invalid_options_are_refused(text, model, arguments, found):
    assert found in refused(text, *arguments, model=model)


def half_done(tmp_path, text, model, *arguments):
    """A job that stopped after its first part."""
    with mock.patch.object(journal, "MAX_LINES", 2):
        count = [0]
        close = journal.PartWriter.close

        def stopping(self):
            close(self)
            count[0] += 1
            if count[0] == 1:
                raise KeyboardInterrupt

        with mock.patch.object(journal.PartWriter, "close", stopping):
            result = embed(text, "-o", tmp_path / "out.npz", *arguments, model=model)
    assert result.code == 130
    assert result.err == "elmore: stopped; run the same command with --resume to continue\n"
    assert (tmp_path / "out.npz.parts" / "part-00000.json").exists()
    assert not (tmp_path / "out.npz").exists()


def test_ctrl_c_prints_one_line_and_the_job_can_be_resumed(tmp_path, text, model):
    half_done(tmp_path, text, model)
    assert "an unfinished job; pass --resume" in refused(
        text, "-o", tmp_path / "out.npz", model=model
    )
    assert embed(text, "-o", tmp_path / "out.npz", "--resume", model=model).code == 0
    arrays = np.load(tmp_path / "out.npz")
    for number, sentence in enumerate(expected(model)):
        np.testing.assert_array_equal(arrays[str(number)], sentence.vectors)
    assert not list(tmp_path.glob("out.npz.*"))


def test_resume_starts_a_new_job_and_refuses_a_finished_one(tmp_path, text, model):
    out = tmp_path / "out.npz"
    assert embed(text, "-o", out, "--resume", model=model).code == 0
    before = out.read_bytes()
    sentence = refused(text, "-o", out, "--resume", model=model)
    assert "exists already, and there is no unfinished job beside it" in sentence
    assert out.read_bytes() == before


def test_parts_without_their_job_are_not_adopted(tmp_path, text, model):
    half_done(tmp_path, text, model)
    (tmp_path / "out.npz.parts" / "job.json").unlink()
    arguments = (text, "-o", tmp_path / "out.npz", "--resume", "--layers", "top")
    assert "job.json is missing, damaged or not ours" in refused(*arguments, model=model)
    assert (tmp_path / "out.npz.parts" / "part-00000.json").exists()


def test_overwriting_starts_over(tmp_path, text, model):
    half_done(tmp_path, text, model)
    out = tmp_path / "out.npz"
    assert embed(text, "-o", out, "--overwrite", "--layers", "top", model=model).code == 0
    np.testing.assert_array_equal(np.load(out)["0"], expected(model, layers="top")[0].vectors)


def test_a_failure_before_the_first_part_leaves_no_journal(tmp_path, model):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    out = tmp_path / "o.npz"
    assert "pass --column" in refused(tmp_path / "a.jsonl", "-o", out, model=model)
    assert embed(tmp_path / "a.jsonl", "-o", out, "--column", "body", model=model).code == 0


def test_the_input_is_never_the_output(tmp_path, model):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "dear to somebody"}\n')
    sentence = refused(path, "-o", path, "--overwrite", model=model)
    assert "is an input file" in sentence
    assert "dear" in path.read_text()


def test_an_output_that_is_a_folder_is_refused_at_once(tmp_path, text, model):
    (tmp_path / "out.npz").mkdir()
    assert "is a folder" in refused(text, "-o", tmp_path / "out.npz", model=model)


def test_a_byte_order_mark_is_not_a_word(tmp_path, model):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfThe bank\r\nof\n")
    assert embed(path, "-o", tmp_path / "o.parquet", model=model).code == 0
    table = pyarrow.parquet.read_table(tmp_path / "o.parquet")
    assert table["tokens"].to_pylist() == [["The", "bank"], ["of"]]


def test_resuming_with_other_options_is_refused_and_names_them(tmp_path, text, model):
    half_done(tmp_path, text, model)
    again = (text, "-o", tmp_path / "out.npz", "--resume")
    assert "layers was 'average' and is 'top'" in refused(*again, "--layers", "top", model=model)
    assert "dtype was 'float32' and is 'float16'" in refused(
        *again, "--dtype", "float16", model=model
    )
    (tmp_path / "other").mkdir()
    settings = bilm_options(dim=12, projection_dim=4)
    write_bilm(tmp_path / "other", settings, bilm_weights(settings, np.random.default_rng(5)))
    assert "model was" in refused(*again, model=str(tmp_path / "other"))
    with open(text, "r+") as file:  # noqa: PTH123
        file.write("Something else.\n")
    assert "the input changed: lines 1 to 2" in refused(*again, model=model)


def test_a_damaged_part_is_computed_again(tmp_path, text, model):
    half_done(tmp_path, text, model)
    with (tmp_path / "out.npz.parts" / "part-00000.bin").open("r+b") as file:
        file.write(b"\xff\xff")
    assert embed(text, "-o", tmp_path / "out.npz", "--resume", model=model).code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["0"], expected(model)[0].vectors)


def photos(folder):
    """A folder of somebody else."""
    (folder / "2019").mkdir(parents=True)
    (folder / "2019" / "a.jpg").write_text("dear to somebody")
    (folder / "part-00000.bin").write_text("dear to somebody")
    return contents(folder)


def contents(folder):
    return {path.name: path.is_dir() or path.read_text() for path in folder.rglob("*")}


@pytest.mark.parametrize("how", ["--resume", "--overwrite", None])
def test_another_programs_folder_at_the_path_of_the_parts_is_left_alone(tmp_path, text, model, how):
    before = photos(tmp_path / "out.jsonl.parts")
    arguments = (text, "-o", tmp_path / "out.jsonl", *([how] if how else []))
    assert "contains '2019', which is not ours" in refused(*arguments, model=model)
    assert contents(tmp_path / "out.jsonl.parts") == before
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("part-00000.bin", "job.json is missing, damaged or not ours"),
        ("job.json", "job.json is missing, damaged or not ours"),
        ("lock", "contains 'lock', which is not ours"),
    ],
)
def test_other_files_with_names_like_ours_are_left_alone(
    tmp_path, text, model, how, name, sentence
):
    (tmp_path / "out.npz.parts").mkdir()
    (tmp_path / "out.npz.parts" / name).write_text('{"eggs": 3}')
    assert sentence in refused(text, "-o", tmp_path / "out.npz", how, model=model)
    assert contents(tmp_path / "out.npz.parts") == {name: '{"eggs": 3}'}


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
@pytest.mark.parametrize("name", ["part-one", "notes.txt", "part-00001.bin/"])
def test_a_stray_file_among_the_parts_is_reported_in_one_sentence(tmp_path, text, model, how, name):
    half_done(tmp_path, text, model)
    stray = tmp_path / "out.npz.parts" / name
    if name.endswith("/"):
        stray.mkdir()
    else:
        stray.write_text("dear to somebody")
    assert f"contains {stray.name!r}, which is not ours" in refused(
        text, "-o", tmp_path / "out.npz", how, model=model
    )
    assert stray.exists()
    assert (tmp_path / "out.npz.parts" / "part-00000.json").exists()


def test_a_stray_file_that_comes_during_the_job_stays(tmp_path, text, model):
    close = journal.PartWriter.close

    def closing(self):
        close(self)
        (tmp_path / "out.npz.parts" / "notes.txt").write_text("dear to somebody")

    with mock.patch.object(journal.PartWriter, "close", closing):
        assert embed(text, "-o", tmp_path / "out.npz", model=model).code == 0
    assert contents(tmp_path / "out.npz.parts") == {"notes.txt": "dear to somebody"}
    assert (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_a_file_at_the_path_of_the_parts_is_left_alone(tmp_path, text, model, kind):
    path = tmp_path / "out.npz.parts"
    (tmp_path / "mine").mkdir()
    if kind == "file":
        path.write_text("x")
    else:
        path.symlink_to(tmp_path / ("mine" if kind == "link" else "nowhere"))
    assert "exists and is not a journal of elmore" in refused(
        text, "-o", tmp_path / "out.npz", "--overwrite", model=model
    )
    assert os.path.lexists(path)


def test_a_folder_with_the_former_name_of_finished_parts_is_left_alone(tmp_path, text, model):
    before = photos(tmp_path / "out.npz.parts.done")
    assert embed(text, "-o", tmp_path / "out.npz", model=model).code == 0
    assert contents(tmp_path / "out.npz.parts.done") == before


def test_two_processes_do_not_share_a_job(tmp_path, text, model):
    half_done(tmp_path, text, model)
    import fcntl

    with (tmp_path / "out.npz.parts" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is working there" in refused(
            text, "-o", tmp_path / "out.npz", "--resume", model=model
        )


def test_an_output_that_a_pattern_of_input_matches_is_refused(tmp_path, model):
    for name in ("in.jsonl", "out.jsonl"):
        (tmp_path / name).write_text('{"text": "a"}\n')
    out = tmp_path / "out.jsonl"
    sentence = refused(tmp_path / "*.jsonl", "-o", out, "--overwrite", model=model)
    assert sentence == f"elmore: {out} is an input file; pass another name"
    assert out.read_text() == '{"text": "a"}\n'


def test_tokens_with_line_breaks_are_printed_on_one_line(tmp_path, model):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": ["a\tb", "c\nd", "e\u2028f"]}) + "\n")
    printed = embed(tmp_path / "in.jsonl", model=model).out.splitlines()
    assert [line.split(" ")[0] for line in printed] == ["a\\tb", "c\\nd", "e\\u2028f", ""]


def test_an_error_of_the_disk_is_one_sentence_and_the_job_can_be_resumed(
    tmp_path, text, model, monkeypatch
):
    monkeypatch.setattr(journal, "MAX_LINES", 2)
    out, part = tmp_path / "out.jsonl", "part-00001.bin"
    with monkeypatch.context() as patch:
        full_disk.limit_files(patch, part, 10)
        assert refused(text, "-o", out, model=model) == (
            f"elmore: {out}.parts/{part}: cannot be written (No space left on device); free some "
            "space and continue with --resume"
        )
    assert (tmp_path / "out.jsonl.parts" / "part-00000.json").exists()
    assert not out.exists()
    assert embed(text, "-o", out, "--resume", model=model).code == 0
    assert embed(text, "-o", tmp_path / "whole.jsonl", model=model).code == 0
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("ending", ["hdf5", "parquet", "npz", "jsonl"])
def test_a_full_disk_is_reported_in_one_sentence_and_the_job_can_be_resumed_elsewhere(
    tmp_path, model, ending
):
    path = tmp_path / "text.txt"
    path.write_text("some words to embed here , and more of them .\n" * 400)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=180k", "none", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets not even root mount a disk")
    try:
        sentence = refused(path, "-o", disk / f"out.{ending}", model=model)
        assert f"{disk}/" in sentence
        assert "o space left" in sentence
        assert sentence.endswith(" with --resume")
        assert not (disk / f"out.{ending}").exists()
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        assert embed(path, "-o", disk / f"out.{ending}", "--resume", model=model).code == 0
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("ending", ["hdf5", "parquet", "npz", "jsonl"])
def test_a_disk_that_is_full_while_the_result_is_assembled_is_one_sentence(
    tmp_path, model, monkeypatch, ending
):
    """No file may grow further: what a full disk does, for any user."""
    monkeypatch.setattr(journal, "MAX_LINES", 4)
    path, out = tmp_path / "text.txt", tmp_path / f"out.{ending}"
    path.write_text("some words to embed here , and more of them .\n" * 60)
    assert embed(path, "-o", out, model=model).code == 0
    whole = out.read_bytes()
    out.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in range(3000, len(whole), len(whole) // 7):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            sentence = refused(path, "-o", out, "--resume", model=model)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert sentence.startswith(f"elmore: {out}: cannot be written (")
        assert sentence.endswith("File too large); free some space and continue with --resume")
        assert not out.exists()
    assert embed(path, "-o", out, "--resume", model=model).code == 0
    assert out.read_bytes() == whole


def test_the_index_of_sentences_is_built_on_the_disk_of_the_output(
    tmp_path, text, model, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert embed(text, "-o", tmp_path / "out.npz", model=model).code == 0


@pytest.mark.slow
def test_ten_kills_lose_no_token_duplicate_none_and_change_no_result(tmp_path, model):
    """Real processes, killed with SIGKILL here and there in their work, and resumed."""
    path, out = tmp_path / "text.txt", tmp_path / "out.hdf5"
    words = ["the", "bank", "of", "a", "river", "and", "money", "日本"]
    chance = random.Random(0)
    lines = [" ".join(chance.choices(words, k=chance.randrange(25))) for _ in range(600)]
    path.write_text("\n".join(lines) + "\n")

    def run(out, *more, kill=None):
        command = ["embed", str(path), "--model", model, "-o", str(out), *more]
        small = {"elmore.embed.jobs.journal:MAX_LINES": 12}
        (result,) = cli_processes.run(*command, kill=kill, constants=small)
        assert result.code == (0 if kill is None else -signal.SIGKILL), result.err

    whole = tmp_path / "whole.hdf5"
    run(whole)
    for number in range(10):
        kill = KillCall("elmore.embed.jobs.journal:PartWriter.add", chance.randrange(1, 72))
        if number % 3 == 1:  # when a part is whole, but for the note that makes it count
            kill = KillCall("elmore.atomic:write", chance.randrange(1, 6))
        if number % 3 == 2:  # when the note is whole, but for its name
            kill = KillCall("pathlib:Path.replace", chance.randrange(1, 6))
        if number == 9:  # while the result is put together
            kill = KillCall("elmore.embed.jobs.writers:HDF5Writer.write", chance.randrange(1, 600))
        run(out, "--resume", kill=kill)
    run(out, "--resume")
    assert not list(tmp_path.glob("out.hdf5.*"))
    with h5py.File(whole) as one, h5py.File(out) as other:
        assert set(one) == set(other) == {*map(str, range(600)), "sentence_to_index"}
        for number in range(600):
            assert one[str(number)][()].tobytes() == other[str(number)][()].tobytes()
        assert one["sentence_to_index"][0] == other["sentence_to_index"][0]


@pytest.mark.parametrize("ending", ["hdf5", "parquet", "npz", "jsonl"])
def test_names_of_files_that_are_not_utf8(tmp_path, text, model, ending):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    path, out = folder / os.fsdecode(b"\xe9.txt"), folder / os.fsdecode(b"\xe9.") / f"a.{ending}"
    shutil.copy(text, path)
    assert embed(path, "-o", out, model=model).code == 0
    assert embed(text, "-o", tmp_path / f"a.{ending}", model=model).code == 0
    assert out.read_bytes() == (tmp_path / f"a.{ending}").read_bytes()
