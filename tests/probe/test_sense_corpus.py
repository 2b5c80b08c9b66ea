import bz2
import gzip
import lzma

import pytest

from elmore.errors import DataError
from elmore.probe.sense_corpus import Instance, SenseCorpus
from tests.support.sense_corpus import write_corpus

ART = ("art", "art", "NOUN", "art%1:09:00::")
GOOD = ("good", "Good", "ADJ", "good%3:00:01:: good%3:00:02::")


def test_words_uses_documents_and_keys_are_read(tmp_path):
    path = write_corpus(tmp_path, "x", [[["The", ART, "."]], [["``", "A", GOOD, "''"]]])
    first, second = SenseCorpus(path)
    assert first.words == ["The", "art", "."]
    assert first.instances == [Instance("d0.s0.t1", "art", "NOUN", 1, 2, ("art%1:09:00::",))]
    assert (first.document, second.document) == ("d0", "d1")
    assert second.words == ['"', "A", "good", '"']
    assert second.instances[0].lemma == "good"
    assert second.instances[0].keys == ("good%3:00:01::", "good%3:00:02::")


def test_units_of_several_words_become_those_words(tmp_path):
    took = ("took place", "take_place", "VERB", "take_place%2:30:00::")
    fact = ("in_fact", "in_fact", "ADV", "in_fact%4:02:00::")
    path = write_corpus(tmp_path, "x", [[["New York", took, fact, "_"]]])
    (sentence,) = SenseCorpus(path)
    assert sentence.words == ["New", "York", "took", "place", "in", "fact", "_"]
    assert [(use.start, use.end) for use in sentence.instances] == [(2, 4), (4, 6)]


def test_treebank_quotes_and_brackets_are_read_as_plain_ones(tmp_path):
    words = ["``", "-LRB-", ART, "-RRB-", "''", "rock_``_roll", "'s"]
    (sentence,) = SenseCorpus(write_corpus(tmp_path, "x", [[words]]))
    assert sentence.words == ['"', "(", "art", ")", '"', "rock", '"', "roll", "'s"]
    assert (sentence.instances[0].start, sentence.instances[0].end) == (2, 3)


def test_sentences_without_an_occurrence_are_left_out(tmp_path):
    path = write_corpus(tmp_path, "x", [[["No", "use"], ["Some", ART]]])
    assert [sentence.words for sentence in SenseCorpus(path)] == [["Some", "art"]]


def test_escaped_characters_are_what_they_stand_for(tmp_path):
    path = write_corpus(tmp_path, "x", [[["R", "&amp;", "D", ART]]])
    assert next(iter(SenseCorpus(path))).words == ["R", "&", "D", "art"]


@pytest.mark.parametrize(("ending", "module"), [(".xz", lzma), (".gz", gzip), (".bz2", bz2)])
def test_compressed_files_a_name_without_the_ending_and_a_folder_read_the_same(
    tmp_path, ending, module
):
    path = write_corpus(tmp_path, "x", [[["The", ART]]])
    plain = list(SenseCorpus(path))
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in ("x.data.xml", "x.gold.key.txt"):
        (packed / (name + ending)).write_bytes(module.compress((tmp_path / name).read_bytes()))
    for given in (packed / f"x.data.xml{ending}", packed / "x.data.xml", packed):
        corpus = SenseCorpus(given)
        assert (list(corpus), corpus.name) == (plain, "x")


def test_a_corpus_can_be_read_again(tmp_path):
    corpus = SenseCorpus(write_corpus(tmp_path, "x", [[["The", ART]]]))
    assert list(corpus) == list(corpus)


def refused(path, match):
    with pytest.raises(DataError, match=match):
        list(SenseCorpus(path))


def test_missing_files_and_foreign_names_are_named(tmp_path):
    path = write_corpus(tmp_path, "x", [[["The", ART]]])
    refused(tmp_path / "y.data.xml", r"there is no y\.data\.xml")
    refused(tmp_path / "y.xml", r"expected a file named X\.data\.xml")
    (tmp_path / "x.gold.key.txt").unlink()
    refused(path, r"there is no x\.gold\.key\.txt")
    path.unlink()
    refused(tmp_path, "found 0")


def test_keys_and_instances_that_do_not_meet_are_named(tmp_path):
    path = write_corpus(tmp_path, "x", [[["The", ART]]])
    keys = tmp_path / "x.gold.key.txt"
    right = keys.read_text()
    keys.write_text(f"{right}d9.s9.t9 art%1:09:00::\n")
    refused(path, r"holds no instance 'd9\.s9\.t9'")
    keys.write_text(right.replace("t1", "t2"))
    refused(path, r"instance 'd0\.s0\.t1' has no gold key")
    keys.write_text("d0.s0.t1\n")
    refused(path, ":1: expected an id and its keys")
    keys.write_text(right * 2)
    refused(path, ":2: 'd0.s0.t1' has keys already")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("<senses/>", "expected <corpus> as its root, found <senses>"),
        ("<corpus><text>", "line 1: an element lacks its 'id'"),
        ("<corpus><wf>a</wf></corpus>", "<wf> is outside a sentence"),
        ("<corpus><sentence><sentence>", "a sentence begins inside a sentence"),
        ("<corpus><sentence><wf>a</sentence>", "not well-formed XML"),
        ("<corpus><sentence>", "not well-formed XML"),
        ("", "not well-formed XML"),
        ('<corpus><sentence><instance id="i"/></sentence>', "instance 'i' has no text"),
        (
            '<corpus><sentence><instance id="i" lemma="a" pos="X">a</instance></sentence>',
            "has pos 'X', expected one of NOUN, VERB, ADJ, ADV",
        ),
        (
            "<corpus><sentence>"
            + 2 * '<instance id="i" lemma="a" pos="ADV">a</instance>'
            + "</sentence>",
            "instance 'i' appears twice",
        ),
    ],
)
def test_xml_that_is_not_of_the_format_is_one_sentence(tmp_path, text, match):
    (tmp_path / "x.data.xml").write_text(text)
    (tmp_path / "x.gold.key.txt").write_text("i a%4:02:00::\n")
    refused(tmp_path / "x.data.xml", match)


def test_entities_are_refused_before_they_can_grow(tmp_path):
    path = write_corpus(tmp_path, "x", [[["&lol;", ART]]])
    path.write_text('<!DOCTYPE corpus [<!ENTITY lol "lol">]>\n' + path.read_text())
    refused(path, "holds a DOCTYPE")
