import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.errors import ConfigError
from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.sst.model import BCN, BCNConfig
from tests.support.toy_embeddings import WIDTHS, embedded, rows

LABELS = ["bad", "so", "good"]
CONFIG = BCNConfig(hidden_dim=5, maxout_dims=(7, 6), pool_size=2)


def bcn(widths: Widths = WIDTHS, config: BCNConfig = CONFIG) -> BCN:
    torch.manual_seed(0)
    return BCN(config, widths, LABELS)


def by_definition(model: BCN, sentence: PaddedTokens) -> torch.Tensor:
    """The scores of one sentence without padding, token by token."""
    linear = model.dense[1]
    dense = (sentence.vectors[0] @ linear.weight.T + linear.bias).clamp(min=0)
    x = torch.cat([model.encoder.layers[0](dense[None])[0][0], sentence.output_elmo[0]], dim=-1)
    compared = []
    for token in x:
        weights = torch.stack([token @ other for other in x]).softmax(dim=0)
        attended = sum(share * other for share, other in zip(weights, x, strict=True))
        compared.append(torch.cat([token, token - attended, token * attended]))
    y = model.integrator.layers[0](torch.stack(compared)[None])[0][0]
    weights = (y @ model.attention.weight[0]).softmax(dim=0)
    pooled = [y.max(dim=0).values, y.mean(dim=0), y.min(dim=0).values]
    pooled.append(sum(share * token for share, token in zip(weights, y, strict=True)))
    result = torch.cat(pooled)
    for layer in (model.output[0], model.output[2], model.output[4]):
        pieces = layer.pieces.weight @ result + layer.pieces.bias
        result = torch.stack([pair.max() for pair in pieces.split(2)])
    return result


@pytest.mark.parametrize("widths", [WIDTHS, Widths(6)])
def test_the_scores_are_those_of_the_definition(widths):
    model, some = bcn(widths).eval(), embedded([4], widths)
    assert_close(model.logits(some)[0], by_definition(model, some))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 3))
def test_neither_padding_nor_other_texts_change_a_score(lengths, padding):
    model, some = bcn().eval(), embedded(lengths, padding=padding)
    result = model.logits(some)
    for row in range(len(lengths)):
        assert_close(result[row : row + 1], model.logits(rows(some, row, row + 1)))


def test_an_empty_sentence_has_scores_too():
    model = bcn().eval()
    result = model.logits(embedded([0, 3]))
    assert result.isfinite().all()
    assert_close(result[:1], model.logits(embedded([0])))


def test_every_weight_learns():
    model = bcn()
    labels = {"labels": torch.tensor([0, 1, 2, 1])}
    loss = model(embedded([3, 5, 1, 2]), labels)
    assert loss.count == 4
    loss.total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


def test_the_loss_is_the_surprise_at_the_labels_and_the_likeliest_is_predicted():
    model, some = bcn().eval(), embedded([3, 5, 1])
    weights = model.logits(some).softmax(dim=-1)
    total, count = model(some, {"labels": torch.tensor([2, 0, 1])})
    assert_close(total, -(weights[0, 2].log() + weights[1, 0].log() + weights[2, 1].log()))
    assert count == 3
    assert model.predict(some, {}) == [LABELS[i] for i in weights.argmax(dim=-1)]


def test_products_in_bf16_score_about_the_same():
    model, some = bcn().eval(), embedded([3, 5])
    expected = model.logits(some)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(model.logits(some).float(), expected, atol=0.05, rtol=0.05)


def test_all_in_bf16_stays_there():
    some = embedded([3, 5, 0])
    halved = PaddedTokens(some.vectors.bfloat16(), some.mask, some.output_elmo.bfloat16())
    result = bcn().eval().bfloat16().logits(halved)
    assert result.dtype == torch.bfloat16
    assert result.isfinite().all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_dim": 0}, "model.hidden_dim, model.pool_size and model.maxout_dims"),
        ({"maxout_dims": (1, 0)}, "model.maxout_dims must be at least 1"),
        ({"dropout": 1.0}, "each dropout must be from 0 to below 1"),
        ({"maxout_dims": (5,)}, "as many as model.maxout_dims, found 2 and 1"),
    ],
)
def test_impossible_sizes_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        BCNConfig(**wrong)


def test_without_layers_between_the_last_maxout_reads_the_pools():
    config = BCNConfig(hidden_dim=5, maxout_dims=(), maxout_dropouts=())
    assert bcn(config=config).logits(embedded([2])).shape == (1, 3)
