"""The model card: what others wrote cannot break its tables."""

from elmore.model.bilm import BiLM
from elmore.text.characters import ByteAlphabet
from elmore.weights.bundle import Bundle, Card
from elmore.weights.card import render_card
from tests.support import toy_corpus


def test_a_licence_of_several_lines_or_with_a_bar_stays_in_its_cell():
    card = Card(
        name="toy\n# not a title",
        licence="MIT | GPL\n\n| free | of charge |",
        training={"scores": {"a|b\nc": 1.5}},
    )
    bundle = Bundle(BiLM(toy_corpus.recipe().model), ByteAlphabet(), card=card)
    lines = render_card(bundle, "model").splitlines()
    assert lines[0] == "# toy # not a title"
    assert r"| licence | MIT \| GPL \| free \| of charge \| |" in lines
    assert r"| a\|b c | 1.5 |" in lines
    assert not any("# not a title" in line for line in lines[1:])
