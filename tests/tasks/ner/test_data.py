import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.metrics.bio import extract_spans, to_bio
from elmore.tasks.ner.data import read_conll


def file(tmp_path: Path, text: str, name: str = "names.conll") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_two_columns_with_tabs_are_read(tmp_path):
    path = file(tmp_path, "Ann\tB-person\nran\tO\n\nRun\tO\n\n")
    assert read_conll(path) == [
        TaggedSentence(["Ann", "ran"], ["B-person", "O"]),
        TaggedSentence(["Run"], ["O"]),
    ]


def test_four_columns_with_blanks_are_read_and_documents_left_out(tmp_path):
    lines = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP I-ORG\nrejects VBZ B-VP O\n\n-DOCSTART- -X- O O\n"
    assert read_conll(file(tmp_path, lines)) == [TaggedSentence(["EU", "rejects"], ["B-ORG", "O"])]


def test_another_column_may_hold_the_tags(tmp_path):
    path = file(tmp_path, "EU NNP B-NP I-ORG\nrejects VBZ B-VP O\n")
    assert read_conll(path, column=2)[0].tags == ["B-NP", "B-VP"]
    assert read_conll(path, column=-2) == read_conll(path, column=2)


def test_chunks_are_read_as_names_are(tmp_path):
    """As in CoNLL-2000."""
    text = "Confidence NN B-NP\nin IN B-PP\nthe DT B-NP\npound NN I-NP\n. . O\n"
    (result,) = read_conll(file(tmp_path, text))
    assert result.tags == ["B-NP", "B-PP", "B-NP", "I-NP", "O"]
    assert extract_spans(result.tags) == [(0, 1, "NP"), (1, 2, "PP"), (2, 4, "NP")]


def test_latin_1_is_read_where_it_is_declared(tmp_path):
    """As in CoNLL-2002, whose Dutch part has documents, too."""
    path = tmp_path / "ned.train"
    text = "-DOCSTART- -DOCSTART- O\nZoë N B-PER\nzag V O\n\nSão N B-LOC\nPaulo N I-LOC\n"
    path.write_bytes(text.encode("latin-1"))
    assert [result.tokens for result in read_conll(path, encoding="latin-1")] == [
        ["Zoë", "zag"],
        ["São", "Paulo"],
    ]
    with pytest.raises(DataError, match=r"line 2 is not UTF-8 .* data.encoding=latin-1"):
        read_conll(path)


def test_utf_8_that_is_declared_as_another_encoding_is_warned_of(tmp_path, caplog):
    path = file(tmp_path, "a O\nZoë B-PER\nSão B-LOC\n")
    read_conll(path, encoding="latin-1")
    (message,) = caplog.messages
    assert message == (
        f"{path}: line 2 is read as latin-1, but could be UTF-8: 'Zoë B-PER'; if it is, leave out "
        "data.encoding"
    )
    caplog.clear()
    read_conll(path, encoding="UTF8")
    path.write_bytes("Zoë B-PER\nSÃ£o B-LOC\n".encode("latin-1"))
    read_conll(path, encoding="latin-1")  # its second line alone could be UTF-8
    assert not caplog.messages


def test_documents_and_comments_need_not_have_as_many_columns(tmp_path):
    path = file(tmp_path, "-DOCSTART- O\n\n# about a\na b c O\n")
    assert read_conll(path) == [TaggedSentence(["a"], ["O"])]


def test_the_last_sentence_needs_no_blank_line(tmp_path):
    assert len(read_conll(file(tmp_path, "a\tO\n\nb\tO"))) == 2


@pytest.mark.parametrize("between", ["\n", "\t\n", "  \n", "\n\n\n", "\r\n", "\t\t\n \n"])
def test_a_line_of_blanks_ends_a_sentence(tmp_path, between):
    assert len(read_conll(file(tmp_path, f"a\tO\n{between}b\tO\n"))) == 2


def test_trailing_tabs_are_no_column(tmp_path):
    assert read_conll(file(tmp_path, "Ann\tB-person\t\n"))[0].tags == ["B-person"]


def test_a_no_break_space_belongs_to_its_token(tmp_path):
    assert read_conll(file(tmp_path, "a\xa0b O\n\x85\tO\n"))[0].tokens == ["a\xa0b", "\x85"]


def test_comments_are_left_out_and_hashes_that_are_tokens_kept(tmp_path):
    lines = "# id 7 domain=en\n# id 8\tdomain=en\n#\n#\tO\n# O\n#tag\tB-person\n"
    assert read_conll(file(tmp_path, lines))[0].tokens == ["#", "#", "#tag"]


def test_a_packed_file_is_read(tmp_path):
    path = tmp_path / "names.conll.gz"
    path.write_bytes(gzip.compress(b"Ann\tB-person\n"))
    assert read_conll(path)[0].tokens == ["Ann"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tO\n\nb\n", r"names.conll:3: .* found 1 column in 'b'"),
        ("a\tO\nb\tperson\n", "names.conll:2: expected O or a tag such as B-person .*'person'"),
        ("a X Y O\n\nb X O\n", "names.conll:3: expected 4 columns, .* found 3 in 'b X O'"),
        ("a\tO\nb\tX\tO\n", "names.conll:2: expected 2 columns, .* found 3"),
        ("a\tB-\n", "names.conll:1: expected O or a tag"),
        ("a\tX-person\n", "names.conll:1: expected O or a tag"),
        ("\tO\n", "names.conll:1: the tag 'O' has no token"),
        ("", "names.conll: no sentence found"),
        ("\n\n", "names.conll: no sentence found"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_conll(file(tmp_path, text))


def test_a_column_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r":1: .* in column 3 .* found 2 columns"):
        read_conll(file(tmp_path, "a O\n"), column=3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.conll: cannot be read"):
        read_conll(tmp_path / "none.conll")


@pytest.mark.parametrize(
    ("tags", "bio"),
    [
        ("I-A I-A O I-A", "B-A I-A O B-A"),  # IOB1
        ("I-A B-A I-A I-B", "B-A B-A I-A B-B"),  # IOB1, neighbours
        ("B-A I-A O B-A", "B-A I-A O B-A"),  # BIO already
        ("B-A I-A E-A S-A O", "B-A I-A I-A B-A O"),  # BIOES
        ("B-A L-A U-B U-B", "B-A I-A B-B B-B"),  # BILOU
        ("B-A E-A I-A E-A", "B-A I-A B-A I-A"),  # after an end, a new name
        ("O E-A I-B", "O B-A B-B"),
        ("B-a-b I-a-b I-a", "B-a-b I-a-b B-a"),
        ("", ""),
    ],
)
def test_every_notation_becomes_bio(tags, bio):
    assert to_bio(tags.split()) == bio.split()


def test_an_ill_formed_tag_is_refused():
    with pytest.raises(DataError, match="found 'B'"):
        to_bio(["O", "B"])


@given(st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIESLU" for k in "xy")])))
def test_bio_is_well_formed_stays_as_it_is_and_has_the_same_names(tags):
    bio = to_bio(tags)
    for before, tag in zip(["O", *bio], bio, strict=False):
        assert tag[0] in "BIO"
        assert tag[0] != "I" or before in (tag, "B" + tag[1:])
    assert to_bio(bio) == bio
    assert extract_spans(tags) == extract_spans(bio)
    assert [tag[2:] for tag in bio] == [tag[2:] for tag in tags]


def test_names_are_from_first_token_to_the_one_after_the_last():
    assert extract_spans(["B-A", "I-A", "O", "I-B", "B-B", "I-A"]) == [
        (0, 2, "A"),
        (3, 4, "B"),
        (4, 5, "B"),
        (5, 6, "A"),
    ]
    assert extract_spans([]) == []


@pytest.mark.parametrize(
    ("name", "num_sentences", "num_tokens", "num_names"),
    [  # lines without a tag, those with one and those with a B-, counted with grep
        ("wnut17train.conll", 3394, 62730, 1975),
        ("emerging.dev.conll", 1009, 15733, 836),
        ("emerging.test.annotated", 1287, 23394, 1079),
    ],
)
def test_wnut_17_is_read_whole(name, num_sentences, num_tokens, num_names):
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: WNUT-17 is not here")
    sentences = read_conll(Path(os.environ["ELMORE_DATA"]) / "tasks" / "ner" / name)
    assert len(sentences) == num_sentences
    assert sum(len(sentence.tokens) for sentence in sentences) == num_tokens
    assert sum(len(extract_spans(sentence.tags)) for sentence in sentences) == num_names
