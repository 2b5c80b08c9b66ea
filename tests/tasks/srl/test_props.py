import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.srl.props import cells_to_tags, tags_to_cells

LABELS = ["V", "A0", "ARG1", "ARGM-TMP", "C-A0", "R-ARG1", "C-R-A1", "C-V"]


def tags_of(cells: list[str]) -> list[str]:
    return cells_to_tags(cells, [f"x:{i}" for i in range(1, len(cells) + 1)])


def test_brackets_are_bio_tags():
    cells = ["(A0*", "*", "*)", "*", "(V*)", "(A1*)", "(A1*)", "(C-A0*)", "*"]
    tags = ["B-A0", "I-A0", "I-A0", "O", "B-V", "B-A1", "B-A1", "B-C-A0", "O"]
    assert tags_of(cells) == tags
    assert tags_to_cells(tags) == cells


@st.composite
def columns(draw) -> list[str]:
    """Arguments one after another, with gaps between some of them."""
    cells = []
    for label, length, gap in draw(
        st.lists(st.tuples(st.sampled_from(LABELS), st.integers(1, 4), st.integers(0, 2)))
    ):
        cells += ["*"] * gap + [f"({label}*)"] * (length == 1)
        if length > 1:
            cells += [f"({label}*", *["*"] * (length - 2), "*)"]
    return cells


@given(columns())
def test_documents_survive_a_round_trip(cells):
    assert tags_to_cells(tags_of(cells)) == cells


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["(A0*", "*"],
            r"^x:1: \(A0\* is not closed by the end of its sentence; expected \*\) on a later ",
        ),
        (
            ["*", "*)"],
            r"^x:2: '\*\)' closes an argument, and none is open; expected \(LABEL\* before it in ",
        ),
        (["(A0*)", "*)"], r"^x:2: '\*\)' closes"),
        (["(A0*", "(A1*)", "*)"], r"^x:2: '\(A1\*\)' opens inside \(A0\*, which x:1 opened"),
        (["(A0*", "(A1*", "*)", "*)"], r"^x:2: '\(A1\*' opens inside"),
        (["(A0(A1*)", "*)"], r"^x:1: expected \*, .* found '\(A0\(A1\*\)'; .* inside one another"),
        (["*", "(A0*))"], r"^x:2: expected \*,"),
        (["(A0)"], r"^x:1: expected \*, .* found '\(A0\)'"),
        (["(*)"], r"^x:1: expected \*,"),
        (["A0*"], r"^x:1: expected \*,"),
        ([""], r"^x:1: expected \*,"),
    ],
)
def test_bad_brackets_are_named_by_their_line(cells, message):
    with pytest.raises(DataError, match=message):
        tags_of(cells)
