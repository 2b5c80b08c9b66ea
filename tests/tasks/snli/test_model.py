import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.snli.model import ESIM, ESIMConfig
from tests.support.toy_embeddings import WIDTHS, embedded, rows

LABELS = ["no", "yes", "perhaps"]


def esim(widths: Widths = WIDTHS) -> ESIM:
    torch.manual_seed(0)
    return ESIM(ESIMConfig(hidden_dim=5), widths, LABELS)


def by_definition(model: ESIM, first: PaddedTokens, second: PaddedTokens) -> torch.Tensor:
    """The scores of one pair without padding, token by token."""
    sides = [
        torch.cat([model.encoder.layers[0](side.vectors)[0][0], side.output_elmo[0]], dim=-1)
        for side in (first, second)
    ]
    pooled = []
    for mine, other in (sides, sides[::-1]):
        compared = []
        for token in mine:
            weights = torch.stack([token @ word for word in other]).softmax(dim=0)
            aligned = sum(share * word for share, word in zip(weights, other, strict=True))
            compared.append(torch.cat([token, aligned, token - aligned, token * aligned]))
        dense = model.projection[1]
        projected = (torch.stack(compared) @ dense.weight.T + dense.bias).clamp(min=0)
        z = model.composition.layers[0](projected[None])[0][0]
        pooled += [z.max(dim=0).values, z.mean(dim=0)]
    hidden, last = model.output[1], model.output[4]
    result = (hidden.weight @ torch.cat(pooled) + hidden.bias).clamp(min=0)
    return last.weight @ result + last.bias


@pytest.mark.parametrize("widths", [WIDTHS, Widths(6)])
def test_the_scores_are_those_of_the_definition(widths):
    model, some = esim(widths).eval(), embedded([4, 3], widths)
    expected = by_definition(model, rows(some, 0, 1), rows(some, 1, 2))
    assert_close(model.logits(some)[0], expected)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_neither_padding_nor_other_texts_change_a_score(lengths, padding):
    model = esim().eval()
    some = embedded([length for pair in lengths for length in pair], padding=padding)
    result = model.logits(some)
    assert result.shape == (len(lengths), 3)
    for n in range(len(lengths)):
        assert_close(result[n : n + 1], model.logits(rows(some, 2 * n, 2 * n + 2)))


@pytest.mark.parametrize("lengths", [[0, 3], [3, 0], [0, 0]])
def test_empty_sentences_have_scores_too(lengths):
    model = esim().eval()
    result = model.logits(embedded([*lengths, 2, 2]))
    assert result.isfinite().all()
    assert_close(result[:1], model.logits(embedded(lengths)))


def test_premise_and_hypothesis_are_not_the_same():
    model, some = esim().eval(), embedded([4, 3])
    swapped = PaddedTokens(*(part.flip(0) for part in some))
    assert not torch.allclose(model.logits(some), model.logits(swapped))


def test_every_weight_learns():
    model = esim()
    loss = model(embedded([3, 5, 1, 2, 4, 4]), {"labels": torch.tensor([0, 1, 2])})
    assert loss.count == 3  # examples, not sentences
    loss.total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


def test_products_in_bf16_score_about_the_same():
    model, some = esim().eval(), embedded([3, 5, 2, 2])
    expected = model.logits(some)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(model.logits(some).float(), expected, atol=0.05, rtol=0.05)


def test_all_in_bf16_stays_there():
    some = embedded([3, 5, 0, 2])
    halved = PaddedTokens(some.vectors.bfloat16(), some.mask, some.output_elmo.bfloat16())
    result = esim().eval().bfloat16().logits(halved)
    assert result.dtype == torch.bfloat16
    assert result.isfinite().all()


@pytest.mark.parametrize(
    "wrong", [{"hidden_dim": 0}, {"dropout": 1.0}, {"attention_dropout": -0.1}]
)
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"model\.hidden_dim must be at least 1"):
        ESIMConfig(**wrong)
