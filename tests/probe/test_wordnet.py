import lzma

import pytest

from elmore.errors import DataError
from elmore.probe import wordnet
from tests.support.sense_corpus import write_wordnet


@pytest.fixture
def small(tmp_path):
    return write_wordnet(
        tmp_path,
        ("good%3:00:01::", 1),
        ("good%3:00:02::", 3),
        ("good%5:00:00:ample:00", 2),
        ("good%1:07:00::", 1),
        ("well%4:02:00::", 1),
        ("run%2:38:00::", 1),
    )


def test_senses_stand_in_the_order_of_their_numbers_and_satellites_are_adjectives(small):
    result = wordnet.read_wordnet(small).senses("good", "ADJ")
    assert result == ("good%3:00:01::", "good%5:00:00:ample:00", "good%3:00:02::")


def test_the_first_sense_is_that_of_the_part_of_speech(small):
    result = wordnet.read_wordnet(small)
    assert result.first_sense("good", "NOUN") == "good%1:07:00::"
    assert result.first_sense("good", "ADJ") == "good%3:00:01::"
    assert result.first_sense("well", "ADV") == "well%4:02:00::"
    assert result.first_sense("run", "VERB") == "run%2:38:00::"


def test_a_lemma_that_is_not_there_has_no_sense(small):
    result = wordnet.read_wordnet(small)
    assert result.first_sense("run", "NOUN") is None
    assert result.senses("xyzzy", "NOUN") == ()


def test_a_packed_index_reads_the_same(small, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "index.sense.xz").write_bytes(lzma.compress((small / "index.sense").read_bytes()))
    assert wordnet.read_wordnet(packed).senses("good", "ADJ") == wordnet.read_wordnet(small).senses(
        "good", "ADJ"
    )


def test_a_folder_without_an_index_is_named(tmp_path):
    with pytest.raises(DataError, match=r"holds no index\.sense; pass the folder of WordNet"):
        wordnet.read_wordnet(tmp_path)


@pytest.mark.parametrize(
    "line", ["good 0 1 0", "good%9:00:00:: 0 1 0", "good%3:00:01:: 0 one 0", "good%3:00:01::"]
)
def test_a_line_that_is_not_a_sense_is_named(tmp_path, line):
    (tmp_path / "index.sense").write_text(f"well%4:02:00:: 0 1 0\n{line}\n")
    with pytest.raises(DataError, match=r"index\.sense:2: expected a sense key"):
        wordnet.read_wordnet(tmp_path)


def test_an_empty_index_is_refused(tmp_path):
    (tmp_path / "index.sense").write_text("")
    with pytest.raises(DataError, match="holds no senses"):
        wordnet.read_wordnet(tmp_path)
