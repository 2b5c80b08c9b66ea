import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.srl.data import Frame, SRLExample, read_srl, write_srl
from tests.support.sweeps import pick

FORMS = ["propbank", "conll2012", "conll2005"]

ANN = SRLExample(
    ["Ann", "Lee", "left", "to", "rest", "."],
    [
        Frame(2, "leave.01", ["B-ARG0", "I-ARG0", "B-V", "B-ARGM-PRP", "I-ARGM-PRP", "O"]),
        Frame(4, "rest.01", ["B-ARG0", "I-ARG0", "O", "O", "B-V", "O"]),
    ],
)

PROPBANK = """\
# sent_id = a-1
a.xml\t0\t0\tAnn\tNNP\t(TOP(S(NP*\t-\t-\t(ARG0*\t(ARG0*
a.xml\t0\t1\tLee\tNNP\t*)\t-\t-\t*)\t*)
a.xml\t0\t2\tleft\tVBD\t(VP*\tleave\tleave.01\t(V*)\t*
a.xml\t0\t3\tto\tTO\t(S(VP*\t-\t-\t(ARGM-PRP*\t*
a.xml\t0\t4\trest\tNN\t(VP*))))\trest\trest.01\t*)\t(V*)
a.xml\t0\t5\t.\t.\t*))\t-\t-\t*\t*

# sent_id = a-2
a.xml\t1\t0\t#\t#\t(TOP*)\t-\t-
"""

CONLL2012 = """\
#begin document (a/b/c); part 000
a/b/c   0   0   Ann   NNP  (TOP(S(NP*      -    -   -   Ann   (PERSON*   (ARG0*   (ARG0*   (1
a/b/c   0   1   Lee   NNP           *)     -    -   -   Ann          *)       *)       *)   1)
a/b/c   0   2   left  VBD        (VP*   leave  01   2   Ann          *      (V*)       *    -
a/b/c   0   3   to    TO       (S(VP*      -    -   -   Ann          *  (ARGM-PRP*     *    -
a/b/c   0   4   rest  NN      (VP*))))   rest  01   -   Ann          *        *)     (V*)   -
a/b/c   0   5   .     .            *))     -    -   -   Ann          *        *        *    -

a/b/c   0   0   Memory NN     (TOP(NP*))  memory -   1   Ann          *    -

#end document
"""

CONLL2005 = """\
Ann    NNP  (S(NP*    -      (ARG0*      (ARG0*
Lee    NNP       *)   -          *)          *)
left   VBD    (VP*    leave     (V*)         *
to     TO    (S(VP*   -      (ARGM-PRP*      *
rest   NN      *)))   rest       *)        (V*)
.      .         *)   -          *           *

#      #      (X*)    -
"""


def file(tmp_path: Path, text: str, name: str = "props.conll") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def bare(sentence: SRLExample) -> SRLExample:
    """Without senses, of which CoNLL-2005 has but lemmas."""
    return SRLExample(sentence.tokens, [Frame(f.predicate, "", f.tags) for f in sentence.frames])


@pytest.mark.parametrize("form", ["auto", "propbank"])
def test_the_columns_of_propbank_are_read_and_sentences_without_a_predicate_kept(tmp_path, form):
    assert read_srl(file(tmp_path, PROPBANK), form=form) == [ANN, SRLExample(["#"], [])]


@pytest.mark.parametrize("form", ["auto", "conll2012"])
def test_conll_2012_is_read_and_a_word_with_a_sense_alone_is_no_predicate(tmp_path, form):
    assert read_srl(file(tmp_path, CONLL2012), form=form) == [ANN, SRLExample(["Memory"], [])]


@pytest.mark.parametrize("form", ["auto", "conll2005"])
def test_conll_2005_is_read_with_or_without_more_columns(tmp_path, form):
    result = read_srl(file(tmp_path, CONLL2005), form=form)
    assert list(map(bare, result)) == [bare(ANN), SRLExample(["#"], [])]
    assert [frame.sense for frame in result[0].frames] == ["leave", "rest"]
    rows = (line.split() for line in CONLL2005.splitlines())
    pasted = "".join(f"{w[0]}\t{'   '.join(w[3:])}  \n" if w else "\n" for w in rows)
    assert read_srl(file(tmp_path, pasted), form=form) == result


def test_verbs_are_the_predicates_that_are_tagged_so(tmp_path):
    for text in (PROPBANK, CONLL2012):
        (first, _) = read_srl(file(tmp_path, text), predicates="verbs")
        assert first == SRLExample(ANN.tokens, ANN.frames[:1])
    assert len(read_srl(file(tmp_path, CONLL2005), predicates="verbs")[0].frames) == 2


words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=6)
labels = st.sampled_from(["ARG0", "ARGM-TMP", "C-ARG0", "R-ARG1", "ARG1"])


@st.composite
def drawn(draw) -> tuple[list[str], list[tuple[int, str, list[str]]]]:
    """The words of a sentence and its frames."""
    tokens = draw(st.lists(words, min_size=1, max_size=6))
    frames = []
    for index in sorted(draw(st.sets(st.integers(0, len(tokens) - 1), max_size=3))):
        tags = ["O"] * len(tokens)
        for i in range(len(tokens)):
            label = draw(st.none() | labels)
            if i == index:
                tags[i] = "B-V"
            elif label and i and tags[i - 1][1:] == f"-{label}" and draw(st.booleans()):
                tags[i] = f"I-{label}"
            elif label:
                tags[i] = f"B-{label}"
        frames.append((index, draw(st.sampled_from(["go.01", "be.03", "a-b.12"])), tags))
    return tokens, frames


@pytest.mark.parametrize("form", FORMS)
@given(several=st.lists(drawn(), min_size=1, max_size=3))
def test_written_files_are_read_back(tmp_path_factory, form, several):
    sentences = [
        SRLExample(tokens, [Frame(*frame) for frame in frames]) for tokens, frames in several
    ]
    path = tmp_path_factory.getbasetemp() / f"{form}.conll"
    write_srl(path, sentences, form)
    assert read_srl(path, form=form) == sentences
    assert read_srl(path) == sentences


@pytest.mark.parametrize("form", FORMS)
def test_a_word_that_columns_cannot_hold_is_not_written(tmp_path, form):
    with pytest.raises(DataError, match="a word with blanks in it, found 'a b'"):
        write_srl(tmp_path / "x", [SRLExample(["a b"], [])], form)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROPBANK.replace("-\t*\t*\n", "-\t*\n"), r"conll:7: 9 columns, where .* begins with 10"),
        (
            PROPBANK.replace("leave.01", "-"),
            r"conll:2: the .* these predicates: rest; argument columns: 2; exp",
        ),
        (
            PROPBANK.replace("NNP\t*)\t-\t-", "NNP\t*)\tlee\tlee.01"),
            r"conll:2: the .* these predicates: Lee, left, rest; argument columns: 2; expected one",
        ),
        (
            PROPBANK.replace("leave.01", "-").replace("rest.01", "-"),
            r"conll:2: the .* these predicates: none; argument columns: 2; expected one for each",
        ),
        (
            PROPBANK.replace("leave.01\t(V*)", "leave.01\t*"),
            r"conll:4: column 9, of leave.01, has arguments and no predicate; expected a \(V\*\)",
        ),
        (PROPBANK.replace("(ARGM-PRP*", "(ARGM-PRP"), r"conll:5: expected \*, \(LABEL\*,"),
        (PROPBANK.replace("(V*)\t*", "(V*\t*"), r"conll:5: '\(ARGM-PRP\*' opens inside \(V\*, wh"),
        (PROPBANK.replace("*)\t(V*)", "*\t(V*)"), r"conll:5: \(ARGM-PRP\* is not closed"),
        (CONLL2012.replace("Ann          *        *        *    -", "*"), r"conll:7: 10 columns"),
        (
            CONLL2012.replace("rest  01", "rest  -"),
            r"conll:2: the .* these predicates: left; argument columns: 2",
        ),
        (
            CONLL2005.replace("leave ", "-     "),
            r"conll:1: the .* these predicates: rest; argument columns: 2",
        ),
        (
            CONLL2005.replace("(X*)    -", "(X*)"),
            r"conll:8: column 3, of #, has arguments and no pred",
        ),
        ("-\t(A0*)\nleft\t(V*)\n", r"conll:1: expected a word, its target .*`paste`"),
        ("Ann\nleft\n", r"conll:1: expected a word, its target"),
        ("\n\n", r"conll: no sentence found"),
        ("#begin document (a); part 000\n#end document\n", r"conll: no sentence found"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_srl(file(tmp_path, text))


@pytest.mark.parametrize("form", FORMS)
def test_a_column_whose_verb_is_not_its_predicate_is_refused_in_every_form(tmp_path, form):
    path, (leave, rest) = tmp_path / "props.conll", ANN.frames
    swapped = [Frame(2, "leave.01", rest.tags), Frame(4, "rest.01", leave.tags)]
    write_srl(path, [SRLExample(ANN.tokens, swapped)], form)
    first = 2 if form == "conll2012" else 1  # the line of the first word
    with pytest.raises(DataError) as refused:
        read_srl(path)
    column = {"propbank": 9, "conll2012": 12, "conll2005": 3}[form]
    assert str(refused.value) == (
        f"{path}:{first + 2}: column {column}, of leave.01, has its (V*) elsewhere, at "
        f"{path}:{first + 4}; expected it on the predicate here, and columns in the order of their "
        "predicates"
    )
    twice = Frame(2, "leave.01", [*leave.tags[:5], "B-V"])
    write_srl(path, [SRLExample(ANN.tokens, [twice])], form)
    with pytest.raises(
        DataError,
        match=rf"conll:{first + 5}: column {column}, of leave\.01, has a second \(V\*\), after "
        rf"that of .*conll:{first + 2}; expected one, and \(C-V\*\) for a further part",
    ):
        read_srl(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tag", ["I-V", "B-C-V"])
def test_a_predicate_may_be_marked_on_a_later_part_of_it(tmp_path, form, tag):
    flip = SRLExample(
        ["They", "flip", "flopped"], [Frame(2, "flipflop.01", ["B-ARG0", "B-V", tag])]
    )
    write_srl(tmp_path / "props.conll", [flip], form)
    assert read_srl(tmp_path / "props.conll") == [flip]


def test_another_form_than_the_file_has_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"conll:2: 10 columns, expected 12 .* is data\.format rig"):
        read_srl(file(tmp_path, PROPBANK), form="conll2012")
    with pytest.raises(DataError, match=r"conll:1: 6 columns, expected 8"):
        read_srl(file(tmp_path, CONLL2005), form="propbank")
    with pytest.raises(
        DataError, match=r"conll:2: the .* these predicates: left, rest; argument columns: 6"
    ):
        read_srl(file(tmp_path, CONLL2012), form="propbank")


@pytest.mark.parametrize(
    ("name", "num_sentences", "num_predicates"),
    pick(
        [("dev", 1966, 4952)], [("train", 12526, 40429), ("dev", 1966, 4952), ("test", 2058, 4795)]
    ),
)
def test_the_propbank_of_the_web_treebank_is_read_whole(name, num_sentences, num_predicates):
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: PropBank on the English Web Treebank is not here")
    folder = Path(os.environ["ELMORE_DATA"]) / "tasks" / "srl"
    sentences = read_srl(folder / f"ewt-propbank-{name}.gold_conll.xz")
    assert len(sentences) == num_sentences
    assert sum(len(sentence.frames) for sentence in sentences) == num_predicates
