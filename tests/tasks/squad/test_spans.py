import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.squad.spans import best_spans, window_starts, window_with_answer

rows = st.integers(1, 9).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-5, 5), min_size=n, max_size=n)] * 2)
)


@given(st.lists(rows, min_size=1, max_size=3), st.integers(1, 6))
def test_the_best_span_is_that_of_trying_all(passages, max_span):
    width = max(len(starts) for starts, _ in passages)
    filled = [[[*row, *[9] * (width - len(row))] for row in pair] for pair in passages]
    starts, ends = torch.tensor(filled, dtype=torch.float32).unbind(dim=1)
    lengths = torch.tensor([len(row) for row, _ in passages])
    mask = torch.arange(width) < lengths[:, None]
    best = best_spans(starts, ends, mask, max_span)
    for row, (start, end) in enumerate(passages):
        allowed = [
            (first, last)
            for first in range(len(start))
            for last in range(first, len(start))
            if last - first + 1 <= max_span
        ]
        chosen = best.first[row].item(), best.last[row].item()
        assert chosen in allowed
        assert start[chosen[0]] + end[chosen[1]] == best.score[row].item()
        assert best.score[row].item() == max(start[a] + end[b] for a, b in allowed)


def test_scores_in_half_precision_are_added_in_full():
    starts = torch.tensor([[256.0, 0.0]], dtype=torch.bfloat16)
    ends = torch.tensor([[0.0, 1.0]], dtype=torch.bfloat16)  # 257 is 256 in bfloat16
    best = best_spans(starts, ends, torch.ones(1, 2, dtype=torch.bool), 2)
    assert (best.first.item(), best.last.item(), best.score.item()) == (0, 1, 257.0)


@given(st.integers(1, 60), st.integers(2, 12))
def test_each_span_of_half_a_window_is_whole_in_a_window(length, window):
    starts = window_starts(length, window)
    assert starts[0] == 0
    assert length <= window or all(start < length for start in starts)
    assert (len(starts) == 1) == (length <= window)
    for first in range(length):
        last = min(length, first + window // 2) - 1
        assert any(start <= first and last < start + window for start in starts)


def test_windows_overlap_by_half():
    assert window_starts(10, 4) == [0, 2, 4, 6]
    assert window_starts(9, 4) == [0, 2, 4, 6]
    assert window_starts(5, 5) == window_starts(0, 5) == [0]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(0, 1), (2, 2), (0, 1)], (0, [(0, 1), (2, 2)])),
        ([(7, 8), (5, 6)], (4, [(1, 2)])),  # 7 to 8 comes one window later
        ([(8, 8), (0, 9)], (6, [(2, 2)])),
        ([(3, 6), (0, 9)], (3, [(0, 3)])),  # whole in none: a window of its own
        ([(3, 8)], (3, [(0, 3)])),  # longer than a whole one: its front
    ],
)
def test_in_training_the_first_window_with_an_answer_is_read(answers, expected):
    assert window_with_answer(answers, 10, 4) == expected
