import lzma
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.coref import data
from elmore.tasks.coref.document import Document, Mention, sort_clusters
from tests.support.sweeps import pick

FORMATS = ("conllu", "conll2012")


def conllu(*sentences: str, head: str = "# newdoc id = d\n") -> str:
    """Write sentences of words, some with `/` and their entities."""
    blocks = []
    for sentence in sentences:
        rows = []
        for place, item in enumerate(sentence.split(), start=1):
            word, _, entity = item.partition("/")
            note = f"A=b|Entity={entity}|C=d" if entity else "_"
            rows.append("\t".join([str(place), word, *"_______", note]))
        blocks.append("\n".join(rows) + "\n")
    return head + "\n".join(blocks)


def conll2012(*sentences: str, head: str = "#begin document (nw/d); part 003\n") -> str:
    blocks = []
    for sentence in sentences:
        rows = []
        for place, item in enumerate(sentence.split()):
            word, _, entity = item.partition("/")
            before = ["nw/d", "3", str(place), word, "NN", "*", "-", "-", "-", "Ann_Lee", "*"]
            rows.append("   ".join([*before, entity or "-"]))
        blocks.append("\n".join(rows) + "\n")
    return head + "\n".join(blocks) + "#end document\n"


def read_documents(tmp_path, text: str, **options) -> list[Document]:
    path = tmp_path / "some.txt"
    path.write_text(text)
    return data.read_documents(path, **options)


def refused(tmp_path, text: str, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_documents(tmp_path, text, **options)
    return str(caught.value).removeprefix(str(tmp_path / "some.txt"))


def test_brackets_are_mentions_by_entity(tmp_path):
    text = conllu("Ann/(7 and/ her/(7)(9 dog/9)7) left/ .", "She/(7) saw/ it/(9) .")
    (document,) = read_documents(tmp_path, text)
    assert document.name == "d"
    assert document.sentences[1] == ["She", "saw", "it", "."]
    assert document.clusters == [
        [Mention(0, 0, 4), Mention(0, 2, 3), Mention(1, 0, 1)],
        [Mention(0, 2, 4), Mention(1, 2, 3)],
    ]


def test_conll2012_and_conllu_have_the_same_documents(tmp_path):
    text = conll2012("Ann/(7 and her/(7)|(9 dog/9)|7) left .", "She/(7) saw it/(9) .")
    (document,) = read_documents(tmp_path, text)
    assert (document.name, document.part) == ("nw/d", 3)
    assert document.speakers == ["Ann_Lee"] * 2
    assert document.clusters == [
        [Mention(0, 0, 4), Mention(0, 2, 3), Mention(1, 0, 1)],
        [Mention(0, 2, 4), Mention(1, 2, 3)],
    ]


def test_a_document_whose_part_has_too_many_digits_is_named(tmp_path):
    head = f"#begin document (nw/d); part {'9' * 5000}\n"
    message = refused(tmp_path, conll2012("a/(1) b/(1)", head=head))
    assert message.startswith(":1: expected '#begin document (name); part 000', found '#begin")


@pytest.mark.parametrize("written", [conllu, conll2012])
def test_mentions_of_different_entities_may_cross_and_there_is_a_warning(tmp_path, caplog, written):
    (document,) = read_documents(tmp_path, written("a/(1 b/(2 c/1) d/2)"))
    assert document.clusters == [[Mention(0, 0, 3)], [Mention(0, 1, 4)]]
    (message,) = caplog.messages
    path = tmp_path / "some.txt"
    assert message.startswith(f"{path}:3: 'b c d' crosses 'a b c', which {path}:2 opens; expected ")
    caplog.clear()
    read_documents(tmp_path, written("a/(1 b/(2) c/1) d/(2)"))  # inside one another and apart
    assert not caplog.messages


def test_mentions_of_one_entity_that_cross_are_refused(tmp_path):
    # plain brackets would say the same of two that nest; those of pieces tell
    for text in ("a/(1[1/2]) b/(1 c/(1[2/2]) d/1)", "a/(1 b/(1[1/2]) c/1) d/(1[2/2])"):
        message = refused(tmp_path, conllu(text))
        assert message.startswith(":3: 'b c d' crosses 'a b c', which ")
        assert message.endswith(
            "some.txt:2 opens, and both are one entity; expected its mentions inside one another "
            "or apart"
        )


def test_a_mention_that_lacks_a_piece_is_named(tmp_path):
    assert refused(tmp_path, conllu("a/(1[1/2]) b/(1)")) == (
        ":2: '(1[1/2]' is still open at the end of the sentence; expected '1[2/2])' on a later line"
    )
    assert refused(tmp_path, conllu("a/(1) b/(1[2/2])")) == (
        ":3: '1[2/2])' closes a mention that is not open; expected '(1[1/2]' before it in the "
        "sentence"
    )


def test_additional_fields_of_a_bracket_are_ignored(tmp_path):
    text = conllu("Ann/(person-3-giv:act(new-4) Lee/person-3) she/(person-3-acc)")
    described = text.replace("\n", "\n# global.Entity = etype-GRP-infstat\n", 1)
    (document,) = read_documents(tmp_path, described)
    assert document.clusters == [[Mention(0, 0, 1)], [Mention(0, 0, 2), Mention(0, 2, 3)]]
    text = conllu("Ann/(e3-person-1 Lee/e3) she/(e3-person-1)")
    assert read_documents(tmp_path, text)[0].clusters == [[Mention(0, 0, 2), Mention(0, 2, 3)]]


def test_a_discontinuous_mention_is_the_span_of_all_its_pieces(tmp_path):
    text = conllu("in/(e1[1/2]) or out/(e1[2/2]-x of/ it/e1[2/2]) it/(e1)")
    (document,) = read_documents(tmp_path, text)
    assert document.clusters == [[Mention(0, 0, 5), Mention(0, 5, 6)]]


def test_words_are_those_with_lines_and_comments_are_read(tmp_path):
    row = "{}\t{}\t_\t_\t_\t_\t_\t_\t_\t{}\n"
    text = (
        "# newdoc id = d\n# global.Entity = GRP\n# speaker = Ann\n# text = don't he\n"
        + row.format("1-2", "don't", "_")
        + row.format("1", "do", "_")
        + row.format("2", "n't", "_")
        + row.format("2.1", "zero", "Entity=(5)(6")  # nobody wrote it
        + row.format("3", "he", "Entity=6)(5)")
        + "\n"
        + row.format("1", "Yes", "_")
    )
    (document,) = read_documents(tmp_path, text)
    assert document.sentences == [["do", "n't", "he"], ["Yes"]]
    assert document.speakers == ["Ann", ""]
    assert document.clusters == [[Mention(0, 2, 3)]]  # 6 opens first; 5 is the same stretch


def test_documents_end_where_the_next_begins(tmp_path):
    text = conllu("a/(1) b/(1)") + "\n" + conllu("c/(1) d/(1)", head="# newdoc id = e\n")
    assert [(d.name, d.clusters) for d in read_documents(tmp_path, text)] == [
        ("d", [[Mention(0, 0, 1), Mention(0, 1, 2)]]),
        ("e", [[Mention(0, 0, 1), Mention(0, 1, 2)]]),
    ]
    text = conll2012("a/(1) b/(1)") + conll2012("c d/(1)")
    assert [d.sentences for d in read_documents(tmp_path, text)] == [[["a", "b"]], [["c", "d"]]]


def test_a_span_in_two_entities_belongs_to_the_first_with_a_warning(tmp_path, caplog):
    (document,) = read_documents(tmp_path, conllu("a/(1(2 b/2)1) c/(2) d/(1)"))
    assert document.clusters == [[Mention(0, 0, 2), Mention(0, 3, 4)], [Mention(0, 2, 3)]]
    (message,) = caplog.messages
    assert "some.txt:2: 'a b' is marked as 1 and as 2; the first counts" in message
    (document,) = read_documents(tmp_path, conllu("a/(1(1 b/1)1) c/(1)"))
    assert document.clusters == [[Mention(0, 0, 2), Mention(0, 2, 3)]]


@pytest.mark.parametrize("written", [conllu, conll2012])
def test_unbalanced_brackets_are_named_with_their_line(tmp_path, written):
    assert refused(tmp_path, written("a b/3)")) == (
        ":3: '3)' closes a mention that is not open; expected '(3' before it in the sentence"
    )
    assert refused(tmp_path, written("a/(3 b", "c/3)")) == (
        ":2: '(3' is still open at the end of the sentence; expected '3)' on a later line"
    )


@pytest.mark.parametrize("written", [conllu, conll2012])
def test_unbalanced_brackets_can_be_dropped(tmp_path, caplog, written):
    text = written("a/(1) b/3)", "c/(3 d/(1)")
    (document,) = read_documents(tmp_path, text, unbalanced="skip")
    assert document.clusters == [[Mention(0, 0, 1), Mention(1, 1, 2)]]
    assert [message.split(": ")[1][:4] for message in caplog.messages] == ["'3)'", "'(3'"]


@pytest.mark.parametrize("entity", ["3", "()", "(3))", "((3)", ")3(", "(-x)"])
def test_invalid_brackets_are_named(tmp_path, entity):
    message = refused(tmp_path, conllu(f"a b/{entity}"))
    assert message == (
        f":3: expected brackets such as '(3', '3)' or '(3)' after 'Entity=', found {entity!r}"
    )
    message = refused(tmp_path, conll2012(f"a b/{entity}"))
    assert message.startswith(":3: expected '-' or brackets such as '(12|(3)|4)'")


def test_ragged_columns_are_named(tmp_path):
    assert refused(tmp_path, conllu("a b") + "3\tc\n") == (
        ":4: expected 10 columns of CoNLL-U, separated by tabs, found 2 in '3\\tc'"
    )
    assert ":2: expected an ID" in refused(tmp_path, conllu("a").replace("1\t", "x\t"))
    assert refused(tmp_path, "#begin document (d); part 000\nd 0 0 a\n") == (
        ":2: a line of CoNLL-2012 has 12 columns or more, found 4 in 'd 0 0 a'"
    )
    ragged = conll2012("a b").replace("Ann_Lee   *   -\n#end", "Ann_Lee   *   *   -\n#end")
    assert refused(tmp_path, ragged) == (":3: found 13 columns where the sentence has 12 above")


def test_a_file_without_documents_is_refused(tmp_path):
    assert "no document found; expected CoNLL-U" in refused(tmp_path, "")
    assert refused(tmp_path, conllu("a b", head="")).startswith(
        ":1: a sentence before the first document; expected a line such as '# newdoc id = name'"
    )
    assert refused(tmp_path, conll2012("a") + "\nnw/d 0 0 b - * - - - - * -\n").startswith(
        ":5: a sentence outside of any document"
    )
    assert ":1: expected '#begin document (name)" in refused(tmp_path, "#begin document x\n")


def test_an_empty_document_is_refused(tmp_path):
    text = "# newdoc id = none\n\n" + conllu("a b")
    assert refused(tmp_path, text) == ":1: document 'none' is empty; expected sentences"
    text = "#begin document (none); part 000\n#end document\n"
    assert refused(tmp_path, text) == ":1: document 'none' is empty; expected sentences"


def cross(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    (row, a, b), (other_row, c, d) = sorted([one, other])
    return row == other_row and a < c < b < d


Spans = list[tuple[int, int, int]]


@st.composite
def parts(draw) -> tuple[list[list[str]], list[str], list[Spans]]:
    """Make sentences, speakers, and clusters that cross one another, but not themselves."""
    words = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=3)
    sentences = draw(st.lists(st.lists(words, min_size=1, max_size=5), min_size=1, max_size=3))
    spans = st.sampled_from(
        [
            (row, start, end)
            for row, tokens in enumerate(sentences)
            for start in range(len(tokens))
            for end in range(start + 1, len(tokens) + 1)
        ]
    )
    chosen = draw(st.lists(st.tuples(spans, st.integers(0, 3)), max_size=12))
    entities: dict[int, Spans] = {}
    seen = set()
    for span, entity in chosen:
        result = entities.setdefault(entity, [])
        if span not in seen and not any(cross(span, other) for other in result):
            result.append(span)
            seen.add(span)
    speakers = [draw(st.sampled_from(["", "Ann"])) for _ in sentences]
    return sentences, speakers, [cluster for cluster in entities.values() if cluster]


@pytest.mark.parametrize("form", FORMATS)
@given(made=st.lists(parts(), min_size=1, max_size=3))
def test_written_files_are_read_again(tmp_path_factory, form, made):
    written = [
        Document(tokens, message, sort_clusters(result), "some") for tokens, message, result in made
    ]
    path = tmp_path_factory.getbasetemp() / f"written.{form}"
    data.write_documents(path, written, form)
    assert data.read_documents(path) == written


@pytest.mark.parametrize("form", FORMATS)
def test_a_failed_write_is_named_and_leaves_no_files(tmp_path, form):
    path = tmp_path / "file.txt"
    crossing = Document([list("abcd")], [""], [[Mention(0, 0, 3), Mention(0, 1, 4)]], "d")
    with pytest.raises(DataError, match=r"'a b c' and 'b c d' in sentence 0 .* are one entity"):
        data.write_documents(path, [crossing], form)
    with pytest.raises(DataError, match=r"cannot be a word of"):
        data.write_documents(path, [Document([["a\tb"]], [""], [], "d")], form)
    assert not path.exists()


def test_a_word_with_a_blank_needs_conllu(tmp_path):
    path = tmp_path / "file.txt"
    document = Document([["1 000", "x"]], ["Ann Lee"], [], "d")
    data.write_documents(path, [document])
    assert data.read_documents(path) == [document]
    with pytest.raises(DataError, match=r"'1 000' cannot be a word of CoNLL-2012.*write CoNLL-U"):
        data.write_documents(path, [document], "conll2012")
    data.write_documents(path, [Document([["x"]], ["Ann Lee"], [], "d e")], "conll2012")
    assert data.read_documents(path) == [Document([["x"]], ["Ann_Lee"], [], "d e")]


@pytest.fixture(scope="module")
def ontogum() -> Path:
    folder = os.environ.get("ELMORE_DATA")
    if not folder:
        pytest.skip("ELMORE_DATA is not set: OntoGUM is not here")
    return Path(folder) / "tasks" / "coref"


@pytest.mark.parametrize(
    ("part", "number", "num_tokens", "num_crossing"),
    pick(
        [("dev", 30, 28_119, 1)],
        [("train", 177, 177_410, 3), ("dev", 30, 28_119, 1), ("test", 30, 28_397, 0)],
    ),
)
def test_ontogum_is_read_whole_and_a_few_mentions_cross(
    ontogum, caplog, part, number, num_tokens, num_crossing
):
    documents = data.read_documents(ontogum / f"ontogum-{part}.conllu.xz")
    assert len(documents) == number
    assert sum(len(tokens) for d in documents for tokens in d.sentences) == num_tokens
    assert any(any(document.speakers) for document in documents)
    assert all(document.clusters for document in documents)
    assert sum(" crosses " in message for message in caplog.messages) == num_crossing


@pytest.fixture(scope="module")
def part_of_ontogum(ontogum, tmp_path_factory) -> Path:
    """Two documents of the dev file, or all of them in a full run."""
    with lzma.open(ontogum / "ontogum-dev.conllu.xz", "rt", encoding="utf-8") as file:
        documents = file.read().split("# newdoc id")[1:]
    path = tmp_path_factory.mktemp("ontogum") / "dev.conllu"
    chosen = documents[: pick(2, len(documents))]
    path.write_text("".join(f"# newdoc id{text}" for text in chosen), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_ontogum_survives_writing(part_of_ontogum, tmp_path, form):
    documents = data.read_documents(part_of_ontogum)
    assert {document.genre for document in documents} >= {"academic"}
    if form == "conll2012":  # which has the genre in the name alone
        documents = [replace(document, genre="") for document in documents]
    data.write_documents(tmp_path / "again", documents, form)
    assert data.read_documents(tmp_path / "again") == documents


def test_the_genre_is_read_from_a_comment_or_from_the_name(tmp_path):
    (first,) = read_documents(tmp_path, conllu("a", head="# newdoc id = x\n# meta::genre = vlog\n"))
    (second,) = read_documents(tmp_path, conll2012("a"))
    (third,) = read_documents(tmp_path, conll2012("a", head="#begin document (d); part 003\n"))
    assert [document.genre for document in (first, second, third)] == ["vlog", "nw", ""]


def test_an_error_in_the_released_file_is_found_and_can_be_skipped(ontogum, tmp_path, caplog):
    with lzma.open(ontogum / "ontogum-gentle-ood.conllu.xz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    first = pick(max(n for n in range(16_700) if lines[n].startswith("# newdoc")), 0)
    last = pick(next(n for n in range(16_712, 99_999) if lines[n].startswith("# newdoc")), None)
    path = tmp_path / "gentle.conllu"
    path.write_text("\n".join(lines[first:last]), encoding="utf-8")
    closing, opening = 16_712 - first, 16_702 - first
    with pytest.raises(DataError, match=rf"gentle\.conllu:{closing}: '3\)' closes a mention"):
        data.read_documents(path)
    assert len(data.read_documents(path, unbalanced="skip")) == pick(1, 26)
    assert any(f":{opening}: '(2' is still open" in message for message in caplog.messages)


def test_a_file_may_end_before_its_last_document_does(tmp_path):
    text = conll2012("a/(1) b/(1)").removesuffix("#end document\n")
    (result,) = read_documents(tmp_path, text)
    assert result.sentences == [["a", "b"]]
    assert len(result.clusters) == 1


def test_a_word_that_is_empty_is_refused(tmp_path):
    text = conllu("a b").replace("\tb\t", "\t\t")
    assert ":3: the second column, the word, is empty" in refused(tmp_path, text)
