import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.model.unique_words import index_unique_words

MARKS = torch.tensor([[90, 0], [91, 0]])


@given(st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=4))
def test_the_index_finds_every_word_between_its_marks(sentences):
    longest = max(map(len, sentences))
    ids = torch.zeros(len(sentences), longest, 2, dtype=torch.long)
    mask = torch.zeros(len(sentences), longest, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        for position, word in enumerate(sentence):
            ids[row, position] = torch.tensor([word, word % 2])
            mask[row, position] = True
    index, words = index_unique_words(ids, mask, MARKS)
    assert len(words) == 2 + len({word for sentence in sentences for word in sentence})
    for row, sentence in enumerate(sentences):
        count = len(sentence)
        spelled = words[index[row, : count + 2]]
        assert torch.equal(spelled[0], MARKS[0])
        assert torch.equal(spelled[1:-1], ids[row, :count])
        assert torch.equal(spelled[-1], MARKS[1])
        assert (index[row, count + 2 :] == -1).all()
