import math

import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PackedTokens, PaddedTokens, Widths
from elmore.tasks.squad.model import SquadHead, SquadModelConfig, span_losses
from elmore.tasks.squad.spans import best_spans
from tests.support.largest_tensor import Largest


def model(**settings) -> SquadHead:
    torch.manual_seed(1)
    chosen = {"hidden_dim": 4, "dropout": 0.3, "max_span": 2, "window": 6} | settings
    built = SquadHead(SquadModelConfig(**chosen), Widths(3, 2)).eval()
    with torch.no_grad():
        for weight in built.parameters():
            weight.mul_(3)  # so that scores differ
    return built


def tokens(*lengths: int, seed: int = 0) -> PackedTokens:
    """Passages and questions in turn, each with vectors of its own."""
    rows = []
    for row, length in enumerate(lengths):
        draw = torch.Generator().manual_seed(100 * seed + row)
        rows.append(torch.randn(length, 5, generator=draw))
    both = torch.cat(rows)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return PackedTokens(both[:, :3], mask, both[:, 3:], mask.flatten().nonzero().flatten())


def pair(texts: PackedTokens, row: int) -> PackedTokens:
    """Give the passage and the question of one row alone."""
    mask = texts.mask[2 * row : 2 * row + 2]
    width = int(mask.sum(dim=1).max())
    here = slice(int(texts.mask[: 2 * row].sum()), int(texts.mask[: 2 * row + 2].sum()))
    mask = mask[:, :width]
    places = mask.flatten().nonzero().flatten()
    return PackedTokens(texts.vectors[here], mask, texts.output_elmo[here], places)


def pairs(number: int) -> dict[str, torch.Tensor]:
    """Features of examples of two sentences each: passage and question."""
    return {"rows": torch.full((number,), 2)}


def embedded(*lengths: int, seed: int = 0) -> PaddedTokens:
    return tokens(*lengths, seed=seed).to_padded()


def some(texts: PaddedTokens, *rows: int, width: int | None = None) -> PaddedTokens:
    return PaddedTokens(*(part[list(rows), :width] for part in texts))


def test_the_loss_is_of_all_acceptable_spans_together():
    starts = torch.tensor([[1.0, 2.0, 0.5], [3.0, 1.0, 99.0]])
    ends = torch.tensor([[0.0, 1.0, -1.0], [0.2, 0.1, 99.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    spans = torch.tensor([[[0, 1], [1, 2]], [[0, 1], [-1, -1]]])

    def chance(scores: list[float], index: int) -> float:
        return math.exp(scores[index]) / sum(map(math.exp, scores))

    first = chance([1, 2, 0.5], 0) * chance([0, 1, -1], 1)
    first += chance([1, 2, 0.5], 1) * chance([0, 1, -1], 2)
    second = chance([3, 1], 0) * chance([0.2, 0.1], 1)
    expected = torch.tensor([-math.log(first), -math.log(second)])
    assert_close(span_losses(starts, ends, mask, spans), expected)


def test_the_loss_of_bfloat16_and_its_gradient_are_finite():
    starts = torch.randn(2, 4).to(torch.bfloat16).requires_grad_()
    mask = torch.arange(4) < torch.tensor([[4], [1]])
    spans = torch.tensor([[[0, 1], [1, 2]], [[0, 0], [-1, -1]]])
    losses = span_losses(starts, starts, mask, spans)
    assert losses.dtype == torch.float32
    losses.sum().backward()
    assert starts.grad is not None
    assert starts.grad.isfinite().all()
    assert losses[1].item() == 0  # of one token there is one span


def test_other_texts_and_padding_change_no_score():
    network, texts = model(), embedded(5, 3, 2, 6, 6, 1)
    passages, questions = some(texts, 0, 2, 4), some(texts, 1, 3, 5)
    together = network.scores(passages, questions)
    for row, (length, asked) in enumerate([(5, 3), (2, 6), (6, 1)]):
        alone = network.scores(some(passages, row, width=length), some(questions, row, width=asked))
        for a, b in zip(together, alone, strict=True):
            assert_close(a[row, :length], b[0], rtol=1e-4, atol=1e-5)


def test_other_examples_change_no_prediction_and_no_loss():
    network, texts = model(), tokens(5, 3, 2, 6, 14, 1)
    features = {
        **pairs(3),
        "windows": torch.tensor([0, 0, 6]),
        "spans": torch.tensor([[[0, 1]], [[1, 1]], [[2, 3]]]),
    }
    result = network.predict(texts, pairs(3))
    total = torch.zeros(())
    for row in range(3):
        alone = pair(texts, row)
        assert network.predict(alone, pairs(1)) == [result[row]]
        loss = network(alone, {name: part[[row]] for name, part in features.items()})
        assert loss.count == 1
        total = total + loss.total
    together = network(texts, features)
    assert_close(together.total, total, rtol=1e-4, atol=1e-5)
    assert together.count == 3


def test_a_long_passage_is_answered_from_the_best_window():
    """Plainly: each window by itself, and the best span of all."""
    network = model()
    for seed in range(5):
        given = tokens(17, 3, seed=seed)
        texts = given.to_padded()
        candidates = []
        for start in (0, 3, 6, 9, 12):
            passage = PaddedTokens(*(part[:1, start : start + 6] for part in texts))
            scores = network.scores(passage, some(texts, 1, width=3))
            best = best_spans(*scores, passage.mask, 2)
            candidates.append(
                (best.score.item(), start + best.first.item(), start + best.last.item())
            )
        _, first, last = max(candidates)
        assert network.predict(given, pairs(1)) == [[first, last]]


@pytest.mark.parametrize("window", [6, 20])
def test_the_sentences_of_a_passage_are_read_as_one_text(window):
    """Only the embedding knows where they end."""
    network, whole = model(window=window), tokens(9, 3, 4, 2)
    lengths = torch.tensor([4, 3, 2, 3, 4, 2])
    mask = torch.arange(4) < lengths[:, None]
    split = whole._replace(mask=mask, flat_index=mask.flatten().nonzero().flatten())
    rows = {"rows": torch.tensor([4, 2])}
    assert network.predict(split, rows) == network.predict(whole, pairs(2))
    gold = {"windows": torch.tensor([3, 0]), "spans": torch.tensor([[[1, 2]], [[0, 1]]])}
    expected = network(whole, {**pairs(2), **gold}).total
    assert_close(network(split, {**rows, **gold}).total, expected, rtol=0, atol=0)


def test_in_training_only_the_window_is_used():
    network, texts = model(), tokens(17, 3)
    features = {
        **pairs(1),
        "windows": torch.tensor([9]),
        "spans": torch.tensor([[[1, 2]]]),
    }
    vectors = texts.vectors.clone()
    vectors[:9], vectors[15:17] = 5.0, -5.0
    other = texts._replace(vectors=vectors)
    assert_close(network(texts, features).total, network(other, features).total)
    vectors[9] = 5.0
    assert (
        network(texts, features).total != network(texts._replace(vectors=vectors), features).total
    )


def test_no_attention_is_wider_than_a_window():
    """20,000 tokens against each other would be 1.6 GB."""
    network = model(window=50)
    widest = []

    def look(module, inputs, output):
        widest.append(output.shape)

    network.self_attention.scores.register_forward_hook(look)
    with torch.no_grad():
        ((first, last),) = network.predict(tokens(20_000, 5), pairs(1))
    assert 0 <= first <= last < 20_000
    assert max(shape.numel() for shape in widest) <= 32 * 50 * 50
    assert sum(shape[0] for shape in widest) == 799


def test_one_long_passage_does_not_pad_short_ones():
    """44 passages of 30 tokens, padded to one of 5,000: 225,000 tokens of 3 numbers or more."""
    network, texts = model(), tokens(*[30, 9] * 44, 5000, 9)
    features = {
        **pairs(45),
        "windows": torch.tensor([0] * 44 + [2200]),
        "spans": torch.zeros(45, 1, 2, dtype=torch.long),
    }
    with Largest() as largest:
        network(texts, features).total.backward()
        with torch.no_grad():
            assert len(network.predict(texts, pairs(45))) == 45
    assert largest.numel < 450_000


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [
        (torch.float32, "lstm"),
        (torch.float32, "gru"),
        (torch.float64, "lstm"),
        (torch.bfloat16, "lstm"),
    ],
)
def test_it_runs_in_any_numbers_and_learns(dtype, cell):
    network = model(cell=cell).to(dtype).train()
    texts = tokens(7, 3, 2, 6)
    texts = texts._replace(vectors=texts.vectors.to(dtype), output_elmo=texts.output_elmo.to(dtype))
    features = {
        **pairs(2),
        "windows": torch.tensor([1, 0]),
        "spans": torch.tensor([[[0, 1]], [[1, 1]]]),
    }
    network(texts, features).total.backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
    with torch.no_grad():
        assert len(network.eval().predict(texts, pairs(2))) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_span": 0}, "model.max_span must be at least 1"),
        ({"dropout": 1.0}, "model.dropout from 0 to below 1"),
        ({"window": 33}, r"model.window \(33\) must be at least twice model.max_span \(17\)"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SquadModelConfig(**settings)
