"""Text to a corpus: nothing lost, nothing added, the same bytes however it is done."""

import bz2
import gzip
import hashlib
import json
import lzma
import random
from itertools import pairwise

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.corpus import blocks, journal, merge
from elmore.corpus.options import PrepareOptions
from elmore.corpus.prepare import prepare
from elmore.errors import ConfigError, DataError
from elmore.text import sentences, tokenizers
from elmore.text.vocabulary import Vocabulary

zstandard = pytest.importorskip("zstandard")  # not on every machine with a GPU

RAW = """\
Dr. Smith isn't here. He left for the U.S. yesterday!

A title without a full stop
The text of it, "with quotes." And more: 3.5 % of it…
naïve 日本 😀

<S> is a word here. So is </S>, and <UNK>.
"""


def words_of(corpus, split="train") -> list[list[str]]:
    """The sentences of a corpus, from its stream back to strings."""
    tokens = corpus.split(split)
    stream = tokens.take(np.arange(tokens.num_tokens))
    types = list(corpus.types)
    cuts = [*tokens.starts.tolist(), tokens.num_tokens]
    return [[types[i] for i in stream[a + 1 : b]] for a, b in pairwise(cuts)]


def made(tmp_path, text: str | bytes, name="text.txt", out="out", workers=1, **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return prepare([str(path)], tmp_path / out, PrepareOptions(**options), num_workers=workers)


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def long_text(seed=0, documents=60) -> str:
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(200)] + ["日本", "naïve", "<S>", "</S>", "<UNK>"]
    lines = []
    for _ in range(documents):
        for _ in range(chance.randrange(1, 8)):
            lines.append(" ".join(chance.choices(words, k=chance.randrange(1, 20))) + " .")
        lines.append("")
    return "\n".join(lines)


def test_the_words_of_a_raw_text_come_back(tmp_path):
    expected = [
        tokenizers.penn(line[a:b]).words
        for line in RAW.split("\n")
        for a, b in sentences.split_sentences(line)
    ]
    assert expected[0][:3] == ["Dr.", "Smith", "is"]
    assert words_of(made(tmp_path, RAW)) == expected


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5))
)
def test_the_words_of_any_tokenized_text_come_back(tmp_path_factory, lines):
    text = "\n".join(" ".join(words) for words in lines)
    # As a file is read: only a line feed ends a line, a carriage return before it belongs to it
    expected = [words for line in text.split("\n") if (words := line.split())]
    if expected and text.startswith("\ufeff"):
        expected = [words for line in text[1:].split("\n") if (words := line.split())]
    path = tmp_path_factory.mktemp("any")
    if not expected:
        with pytest.raises(DataError, match="contains no word"):
            made(path, text, tokenized=True)
        return
    assert words_of(made(path, text, tokenized=True)) == expected


def test_words_written_like_marks_are_words_and_unknown_as_targets(tmp_path):
    corpus = made(tmp_path, "a <S> b </S> <S>\n<UNK> <S> a\n", tokenized=True)
    assert words_of(corpus) == [["a", "<S>", "b", "</S>", "<S>"], ["<UNK>", "<S>", "a"]]
    assert corpus.split("train").num_sentences == 2
    types = list(corpus.types)
    assert types == ["<S>", "</S>", "<S>", "a", "</S>", "<UNK>", "b"]
    assert corpus.vocabulary.words == ("<S>", "</S>", "<UNK>", "a", "b")
    assert corpus.word_ids().tolist() == [0, 1, 2, 3, 2, 2, 4]
    assert corpus.index["splits"]["train"]["num_unknown"] == 5


def test_wrapped_lines_are_joined_up_to_a_blank_line(tmp_path):
    text = "It goes on\nin the next line. Then\nit ends\n\nA new one\n"
    ends = ["on in the next line .", "Then it ends", "A new one"]
    assert [" ".join(words) for words in words_of(made(tmp_path, text, hard_wrapped=True))] == [
        f"It goes {ends[0]}",
        *ends[1:],
    ]
    plain = words_of(made(tmp_path, text, out="plain"))
    assert [words[0] for words in plain] == ["It", "in", "Then", "it", "A"]


def test_the_language_decides_which_abbreviations_are_known(tmp_path):
    text = "Das ist z. B. gut. Das auch."
    german = words_of(made(tmp_path, text, language="de"))
    assert len(german) == len(sentences.split_sentences(text, "de")) == 2


@pytest.mark.parametrize("language", ["english", "EN", "e", "1"])
def test_a_language_that_is_no_code_is_refused(language):
    with pytest.raises(
        ConfigError, match=f"a code of ISO 639 such as en or de, found '{language}'"
    ):
        PrepareOptions(language=language)


PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("ending", PACKED)
def test_packed_text_is_the_same_text(tmp_path, ending):
    packed = PACKED[ending](RAW.encode())
    assert words_of(made(tmp_path, packed, f"text.txt{ending}")) == words_of(
        made(tmp_path, RAW, out="plain")
    )


def test_a_row_of_a_table_is_a_document_and_a_list_of_tokens_a_sentence(tmp_path):
    rows = [{"text": "One. Two.\n\nThree."}, {"text": ["New York", "is.", "big", ""]}, {"text": ""}]
    lines = "\n".join(map(json.dumps, rows))
    expected = [["One", "."], ["Two", "."], ["Three", "."], ["New", "York", "is.", "big"]]
    assert words_of(made(tmp_path, lines, "a.jsonl")) == expected
    assert words_of(made(tmp_path, gzip.compress(lines.encode()), "a.jsonl.gz", "gz")) == expected
    table = pyarrow.table({"body": ["One. Two.\n\nThree.", None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    options = PrepareOptions(column="body")
    corpus = prepare([str(tmp_path / "a.parquet")], tmp_path / "parquet", options, num_workers=1)
    assert words_of(corpus) == expected[:3]
    assert words_of(made(tmp_path, lines, "a.jsonl", "tok", tokenized=True))[:3] == [
        ["One.", "Two."],
        ["Three."],
        expected[3],
    ]


def test_half_a_character_in_json_is_refused_or_replaced(tmp_path):
    line = '{"text": "a \\ud83d b"}\n'
    with pytest.raises(DataError, match="line 1 is not valid Unicode: lone surrogate"):
        made(tmp_path, line, "a.jsonl")
    assert words_of(made(tmp_path, line, "a.jsonl", errors="replace")) == [["a", "\ufffd", "b"]]


def test_several_files_follow_each_other_and_end_a_document(tmp_path):
    for name, text in (("a.txt", "It\n"), ("b.txt", "is.\n")):
        (tmp_path / name).write_text(text)
    corpus = prepare([str(tmp_path / "*.txt")], tmp_path / "out", PrepareOptions(hard_wrapped=True))
    assert words_of(corpus) == [["It"], ["is", "."]]
    assert corpus.index["provenance"]["inputs"] == [["a.txt", 3], ["b.txt", 4]]


@pytest.mark.parametrize("tokenized", [False, True])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path, monkeypatch, tokenized):
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 500)
    monkeypatch.setattr(merge, "SHARD_TOKENS", 1000)
    options = {"tokenized": tokenized, "valid_fraction": 0.2}
    one = made(tmp_path, long_text(), **options)
    two = made(tmp_path, long_text(), out="two", workers=3, **options)
    assert len(one.index["splits"]["train"]["shards"]) > 1
    assert contents(one.path) == contents(two.path)


def test_the_size_of_blocks_changes_no_token(tmp_path, monkeypatch):
    one = made(tmp_path, long_text(), tokenized=True)
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 100)
    assert contents(one.path) == contents(made(tmp_path, long_text(), out="b", tokenized=True).path)


def documents(num: int) -> str:
    """Each word says which document it is of; some documents are long."""
    return "\n\n".join(
        "\n".join(f"d{i} d{i}" for _ in range(200 if i % 10 == 0 else 2)) for i in range(num)
    )


def test_validation_text_is_whole_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 300)  # the long ones lie in several blocks
    corpus = made(tmp_path, documents(300), tokenized=True, valid_fraction=0.25)
    train, valid = (
        {word for words in words_of(corpus, split) for word in words}
        for split in ("train", "valid")
    )
    assert not train & valid
    assert train | valid == {f"d{i}" for i in range(300)}
    assert 45 < len(valid) < 105  # 75, give or take four standard deviations
    assert {f"d{i}" for i in range(0, 300, 10)} & valid
    again = made(tmp_path, documents(300), out="more", tokenized=True, valid_fraction=0.5)
    assert valid < {word for words in words_of(again, "valid") for word in words}


def test_documents_that_begin_alike_are_drawn_one_by_one(tmp_path):
    text = "\n\n".join(f"Chapter\nd{i}" for i in range(40))
    corpus = made(tmp_path, text, tokenized=True, valid_fraction=0.5)
    assert 5 < corpus.split("valid").num_sentences / 2 < 35


def test_words_of_the_same_count_are_ordered_as_strings(tmp_path):
    words = [f"w{i * 37 % 1000}" for i in range(1000)]
    corpus = made(tmp_path, " ".join(words) + " w5\n", tokenized=True)
    assert list(corpus.types)[2:] == ["w5", *sorted(set(words) - {"w5"})]


def test_counts_and_vocabulary_are_of_the_training_text(tmp_path):
    (tmp_path / "valid.txt").write_text("a x x x x\n")
    (tmp_path / "text.txt").write_text("a b a\n")
    corpus = prepare(
        [str(tmp_path / "text.txt")],
        tmp_path / "out",
        PrepareOptions(tokenized=True),
        valid=[str(tmp_path / "valid.txt")],
    )
    assert list(corpus.types) == ["<S>", "</S>", "a", "b", "x"]
    assert corpus.counts.tolist() == [1, 1, 2, 1, 0]
    assert corpus.vocabulary.words[3:] == ("a", "b")
    assert words_of(corpus, "valid") == [["a", "x", "x", "x", "x"]]


def test_the_vocabulary_is_cut_by_size_and_by_count(tmp_path):
    text = "a a a a b b b c c d\n"
    sized = made(tmp_path, text, tokenized=True, vocabulary_size=2)
    assert sized.vocabulary.words[3:] == ("a", "b")
    assert sized.index["splits"]["train"]["num_unknown"] == 3
    counted = made(tmp_path, text, out="counted", tokenized=True, min_count=2)
    assert counted.vocabulary.words[3:] == ("a", "b", "c")
    assert list(counted.types)[2:] == ["a", "b", "c", "d"], "unknown words keep their characters"
    with pytest.raises(DataError, match=r"no word occurs 5 times .*the most frequent one 4 times"):
        made(tmp_path, text, out="none", tokenized=True, min_count=5)


def test_a_given_vocabulary_is_kept_as_it_is(tmp_path):
    Vocabulary(("c", "<UNK>", "<S>", "zebra", "</S>")).write(tmp_path / "vocabulary.txt")
    (tmp_path / "text.txt").write_text("a b c\n")
    for number, given_ in enumerate((tmp_path, tmp_path / "vocabulary.txt")):
        out = tmp_path / f"out{number}"
        corpus = prepare([str(tmp_path / "text.txt")], out, PrepareOptions(), vocabulary=given_)
        assert corpus.vocabulary.words == ("c", "<UNK>", "<S>", "zebra", "</S>")
        assert corpus.word_ids().tolist() == [2, 4, 1, 1, 0]
    with pytest.raises(DataError, match="not a readable vocabulary"):
        prepare(
            [str(tmp_path / "text.txt")],
            tmp_path / "o",
            PrepareOptions(),
            vocabulary=tmp_path / "x",
        )


def test_the_index_says_where_it_is_from_and_not_when(tmp_path):
    corpus = made(tmp_path, "a b\n", tokenized=True)
    said = corpus.index["provenance"]
    assert said["inputs"] == [["text.txt", 4]]
    assert said["tokenized"] is True
    for name, file in corpus.index["files"].items():
        data = (corpus.path / name).read_bytes()
        assert file == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        ("", {}, r"text\.txt: contains no word"),
        ("\n \n\t\n", {"tokenized": True}, "contains no word"),
        ("a b\nc\n", {"valid_fraction": 0.001}, "selected none of the documents; a blank "),
        ("a b\nc\n", {"valid_fraction": 0.999}, "selected all of the documents"),
    ],
)
def test_nothing_to_prepare_is_refused_and_leaves_nothing(tmp_path, text, options, found):
    with pytest.raises(DataError, match=found):
        made(tmp_path, text, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_an_empty_validation_file_is_named(tmp_path):
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "valid.txt").write_text("\n")
    names = [str(tmp_path / "text.txt")]
    with pytest.raises(DataError, match=r"valid\.txt: contains no word; expected validation text"):
        prepare(names, tmp_path / "out", PrepareOptions(), valid=[str(tmp_path / "valid.txt")])
    with pytest.raises(DataError, match="is both training text and --valid"):
        prepare(names, tmp_path / "out", PrepareOptions(), valid=names)
    with pytest.raises(ConfigError, match="not both"):
        prepare(names, tmp_path / "out", PrepareOptions(valid_fraction=0.1), valid=["x"])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"valid_fraction": 1.0}, "valid_fraction must be at least 0 and below 1"),
        ({"valid_fraction": float("nan")}, "valid_fraction"),
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1, found 0"),
        ({"min_count": 0}, "min_count must be at least 1, found 0"),
        ({"tokenized": True, "hard_wrapped": True}, "cannot be hard-wrapped"),
    ],
)
def test_invalid_options_are_refused(options, found):
    with pytest.raises(ConfigError, match=found):
        PrepareOptions(**options)


class StoppedError(Exception):
    pass


def stop_after(monkeypatch, num_parts: int) -> None:
    """Let only so many parts be finished."""
    make, count = journal.write_part, [0]

    def counted(*arguments):
        if count[0] == num_parts:
            raise StoppedError
        count[0] += 1
        return make(*arguments)

    monkeypatch.setattr("elmore.corpus.prepare.write_part", counted)


def begun(tmp_path, monkeypatch, num_parts=3, **options):
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 500)
    with monkeypatch.context() as patch:
        stop_after(patch, num_parts)
        with pytest.raises(StoppedError):
            made(tmp_path, long_text(), tokenized=True, **options)
    return [str(tmp_path / "text.txt")], tmp_path / "out"


def test_a_run_with_earlier_option_names_is_resumed(tmp_path, monkeypatch):
    names, out = begun(tmp_path, monkeypatch)
    path = tmp_path / "out.parts" / "job.json"
    job = json.loads(path.read_text())
    job["wrapped"], job["valid_share"] = job.pop("hard_wrapped"), job.pop("valid_fraction")
    path.write_text(json.dumps(job | {"format": 1}))
    corpus = prepare(names, out, PrepareOptions(tokenized=True), resume=True, num_workers=1)
    corpus.verify()


def test_a_stopped_job_is_resumed_from_its_finished_parts(tmp_path, monkeypatch):
    names, out = begun(tmp_path, monkeypatch)
    assert len(list(tmp_path.glob("out.parts/part-*.npz"))) == 3
    made_now = []
    make = journal.write_part
    with monkeypatch.context() as patch:
        patch.setattr(
            "elmore.corpus.prepare.write_part",
            lambda *args: made_now.append(args[2].number) or make(*args),
        )
        corpus = prepare(names, out, PrepareOptions(tokenized=True), resume=True, num_workers=1)
    assert made_now == list(range(3, 3 + len(made_now)))
    assert contents(out) == contents(made(tmp_path, long_text(), out="x", tokenized=True).path)
    corpus.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt", "x"]


def test_an_unfinished_job_is_not_restarted_by_mistake(tmp_path, monkeypatch):
    names, out = begun(tmp_path, monkeypatch)
    with pytest.raises(DataError, match=r"out\.parts: an unfinished job; pass --resume"):
        prepare(names, out, PrepareOptions(tokenized=True))
    corpus = prepare(names, out, PrepareOptions(), overwrite=True)
    assert corpus.index["provenance"]["tokenized"] is False


def test_resuming_with_other_options_is_refused_and_names_them(tmp_path, monkeypatch):
    names, out = begun(tmp_path, monkeypatch)
    with pytest.raises(
        DataError, match="tokenized was True and is False, min_count was 1 and is 2"
    ):
        prepare(names, out, PrepareOptions(min_count=2), resume=True)
    path = tmp_path / "text.txt"
    text = path.read_text()
    path.write_text(text + "more\n")
    with pytest.raises(DataError, match=r"inputs was \[\['text.txt', \d+\]\] and is"):
        prepare(names, out, PrepareOptions(tokenized=True), resume=True)
    path.write_text(text.replace("w1", "v1", 1))  # of the same size
    with pytest.raises(DataError, match=r"the input has changed from .*text\.txt line \d+ on"):
        prepare(names, out, PrepareOptions(tokenized=True), resume=True)


def test_invalid_utf_8_found_late_does_not_cost_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 500)
    text = long_text().encode() + b"\n\na \xff b\n"
    with pytest.raises(DataError, match=r"is not UTF-8 at its byte 3 \(b'\\xff'\)"):
        made(tmp_path, text, tokenized=True)
    done = len(list(tmp_path.glob("out.parts/part-*.npz")))
    assert done > 5
    options = PrepareOptions(tokenized=True, errors="replace")
    corpus = prepare([str(tmp_path / "text.txt")], tmp_path / "out", options, resume=True)
    assert words_of(corpus)[-1] == ["a", "\ufffd", "b"]


@pytest.mark.parametrize("position", [0.1, 0.5, 0.9])
def test_a_damaged_part_is_computed_again(tmp_path, monkeypatch, position):
    names, out = begun(tmp_path, monkeypatch)
    path = next(tmp_path.glob("out.parts/part-*.npz"))
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 255
    path.write_bytes(data)
    prepare(names, out, PrepareOptions(tokenized=True), resume=True, num_workers=1)
    assert contents(out) == contents(made(tmp_path, long_text(), out="x", tokenized=True).path)


@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_a_job_whose_description_is_damaged_is_left_alone(tmp_path, monkeypatch, how):
    names, out = begun(tmp_path, monkeypatch)
    (tmp_path / "out.parts" / "job.json").write_text("[")
    before = sorted(path.name for path in (tmp_path / "out.parts").iterdir())
    with pytest.raises(DataError, match=r"parts: job\.json is missing, damaged or not ours"):
        prepare(names, out, PrepareOptions(tokenized=True), **{how: True})
    assert sorted(path.name for path in (tmp_path / "out.parts").iterdir()) == before


def test_an_existing_corpus_is_replaced_only_with_overwrite(tmp_path):
    corpus = made(tmp_path, "a b\n\nc\n", tokenized=True, vocabulary_size=1)
    before = contents(corpus.path)
    with pytest.raises(DataError, match="out exists already; pass another name, or --overwrite"):
        made(tmp_path, "x\n")
    with pytest.raises(DataError, match="exists already, and there is no unfinished job beside it"):
        prepare([str(tmp_path / "text.txt")], corpus.path, PrepareOptions(), resume=True)
    assert contents(corpus.path) == before
    new = prepare([str(tmp_path / "text.txt")], corpus.path, PrepareOptions(), overwrite=True)
    assert words_of(new) == [["x"]]
    (corpus.path / "photo.jpg").write_text("dear to somebody")
    with pytest.raises(DataError, match=r"contains 'photo\.jpg', which elmore did not write"):
        prepare([str(tmp_path / "text.txt")], corpus.path, PrepareOptions(), overwrite=True)
    assert (corpus.path / "photo.jpg").exists()
    with pytest.raises(DataError, match="exists and is not a folder"):
        prepare(
            [str(tmp_path / "text.txt")], tmp_path / "text.txt", PrepareOptions(), overwrite=True
        )


@pytest.mark.parametrize("index", [None, "{}", '{"format": "x"}'])
def test_a_folder_with_names_like_ours_that_is_no_corpus_is_not_replaced(tmp_path, index):
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "vocabulary.txt").write_text("dear to somebody")
    if index is not None:
        (tmp_path / "out" / "index.json").write_text(index)
    with pytest.raises(DataError, match="is not a corpus of elmore, so it is not replaced"):
        prepare([str(tmp_path / "text.txt")], tmp_path / "out", PrepareOptions(), overwrite=True)
    assert (tmp_path / "out" / "vocabulary.txt").read_text() == "dear to somebody"


def test_another_programs_folder_is_not_a_journal(tmp_path):
    (tmp_path / "out.parts").mkdir()
    (tmp_path / "out.parts" / "photo.jpg").write_text("dear to somebody")
    (tmp_path / "text.txt").write_text("a\n")
    for how in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(DataError, match=r"contains 'photo\.jpg', which is not ours"):
            prepare([str(tmp_path / "text.txt")], tmp_path / "out", PrepareOptions(), **how)
    assert (tmp_path / "out.parts" / "photo.jpg").exists()


def test_a_failed_replacement_leaves_the_old_corpus(tmp_path, monkeypatch):
    corpus = made(tmp_path, "a b\n", tokenized=True)
    before = contents(corpus.path)
    with monkeypatch.context() as patch:
        patch.setattr(merge, "merge_parts", lambda *_: (_ for _ in ()).throw(StoppedError))
        with pytest.raises(StoppedError):
            prepare([str(tmp_path / "text.txt")], corpus.path, PrepareOptions(), overwrite=True)
    assert contents(corpus.path) == before
    prepare([str(tmp_path / "text.txt")], corpus.path, PrepareOptions(), resume=True).verify()


def test_progress_ends_with_everything_done(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_CHARACTERS", 500)
    (tmp_path / "text.txt").write_text(long_text())
    seen = []
    corpus = prepare(
        [str(tmp_path / "text.txt")],
        tmp_path / "out",
        PrepareOptions(tokenized=True),
        num_workers=1,
        progress=lambda *args: seen.append(args),
    )
    fractions = [fraction for fraction, _, _ in seen]
    assert fractions == sorted(fractions)
    assert 0.9 < fractions[-1] <= 1
    assert seen[-1][2] == corpus.split("train").num_tokens
