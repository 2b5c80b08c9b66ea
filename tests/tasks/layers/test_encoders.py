import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from elmore.tasks.layers.encoders import BiGRU, BiLSTM, CharEncoder, VariationalDropout
from elmore.text.characters import ByteAlphabet

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def mask_of(lengths: list[int], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def test_one_draw_holds_for_a_whole_sentence():
    dropped = VariationalDropout(0.5)(torch.ones(8, 6, 32))
    assert_close(dropped, dropped[:, :1].expand_as(dropped))
    assert dropped.unique().tolist() == [0.0, 2.0]
    assert len(dropped[:, 0].unique(dim=0)) == 8  # each sentence has its own


@pytest.mark.parametrize("dropout", [VariationalDropout(0.5).eval(), VariationalDropout(0.0)])
def test_without_training_or_rate_nothing_is_dropped(dropout):
    x = torch.randn(2, 3, 4)
    assert_close(dropout(x), x, rtol=0, atol=0)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match="must be from 0 to below 1"):
        VariationalDropout(rate)


@pytest.mark.parametrize("kind", [BiLSTM, BiGRU])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_padding_changes_no_vector_and_is_zero(num_layers, kind):
    lstm, lengths = kind(5, 3, num_layers).eval(), [2, 6, 0, 1]
    x, mask = torch.randn(4, 9, 5), mask_of(lengths, 9)
    together = lstm(x, mask)
    assert together.shape == (4, 9, lstm.output_dim) == (4, 9, 6)
    for b, length in enumerate(lengths):
        alone = lstm(x[b : b + 1, :length], mask[b : b + 1, :length])
        assert_close(together[b : b + 1, :length], alone)
        assert not together[b, length:].any()
    assert_close(lstm(x.masked_fill(~mask[:, :, None], 7.0), mask), together)


@pytest.mark.parametrize(("kind", "num_layers"), [(BiLSTM, 1), (BiLSTM, 2), (BiGRU, 1)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_reading_twice_gives_the_same_vectors_and_gradients(kind, num_layers, device):
    lstm, lengths = kind(5, 3, num_layers).eval(), [2, 6, 0, 1]
    x, mask = torch.randn(4, 9, 5, requires_grad=True), mask_of(lengths, 9)
    once = lstm(x, mask)
    drawn = torch.randn_like(once)
    (expected,) = torch.autograd.grad((once * drawn).sum(), x)
    lstm = lstm.to(device).train()  # a GPU gives no gradients else; there is no dropout
    there = x.detach().to(device).requires_grad_()
    with torch.backends.cudnn.flags(allow_tf32=False):
        twice = lstm._forward_padded(there, mask.to(device))
        (result,) = torch.autograd.grad((twice * drawn.to(device)).sum(), there)
    assert_close(twice.cpu(), once)
    assert_close(result.cpu(), expected)


@pytest.mark.parametrize("kind", [BiLSTM, BiGRU])
def test_a_padded_layer_is_one_call_of_torch_for_both_directions(kind):
    encoder, calls = kind(5, 3, 2), []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda *_: calls.append(None))
    encoder._forward_padded(torch.randn(4, 9, 5), mask_of([2, 6, 0, 1], 9))
    assert len(calls) == 2


def test_every_output_depends_on_both_ends():
    lstm, mask = BiLSTM(2, 3, 1), mask_of([5], 5)
    x = torch.randn(1, 5, 2, requires_grad=True)
    lstm(x, mask)[0, 2].sum().backward()
    assert x.grad is not None
    assert (x.grad[0].abs().sum(dim=1) > 0).all()


def test_dropout_acts_between_layers_in_training_alone():
    x, mask = torch.randn(2, 4, 5), mask_of([4, 3], 4)
    deep, flat = BiLSTM(5, 3, 2, dropout=0.5), BiLSTM(5, 3, 1, dropout=0.5)
    assert not torch.equal(deep(x, mask), deep(x, mask))
    assert torch.equal(flat(x, mask), flat(x, mask))
    deep.eval()
    assert torch.equal(deep(x, mask), deep(x, mask))


@pytest.mark.parametrize(("num_sentences", "width"), [(0, 4), (2, 0), (2, 3)])
def test_an_all_zero_mask_gives_zeros(num_sentences, width):
    mask = torch.zeros(num_sentences, width, dtype=torch.bool)
    out = BiLSTM(5, 3, 2)(torch.randn(num_sentences, width, 5), mask)
    assert out.shape == (num_sentences, width, 6)
    assert not out.any()


def test_filters_of_several_widths_are_side_by_side():
    characters = torch.from_numpy(ByteAlphabet().encode(["cat", "Zürich"])[0])
    several = CharEncoder(4, 6, (3, 5)).eval()
    assert several.output_dim == 12
    for number, width in enumerate((3, 5)):
        one = CharEncoder(4, 6, (width,)).eval()
        one.embedding.load_state_dict(several.embedding.state_dict())
        one.convolutions[0].load_state_dict(several.convolutions[number].state_dict())
        columns = slice(6 * number, 6 * (number + 1))
        assert_close(several(characters)[:, columns], one(characters))


def test_words_become_vectors_each_on_its_own():
    encoder = CharEncoder()
    both, _ = ByteAlphabet().encode(["cat", "Zürich"])
    alone, _ = ByteAlphabet().encode(["cat"])
    vectors = encoder(torch.from_numpy(both))
    assert vectors.shape == (2, encoder.output_dim) == (2, 128)
    assert_close(vectors[:1], encoder(torch.from_numpy(alone)))


def test_a_feature_is_the_best_match_of_its_filter():
    encoder = CharEncoder(embedding_dim=4, num_filters=2, widths=(3,))
    characters, _ = ByteAlphabet().encode(["word"])
    padded = torch.nn.functional.pad(torch.from_numpy(characters), (0, 44), value=260)  # 50 wide
    (convolution,) = encoder.convolutions
    expected = convolution(encoder.embedding(padded).transpose(1, 2)).amax(dim=2).relu()
    assert_close(encoder(torch.from_numpy(characters)), expected)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_tokens_one_after_another_get_the_same_vectors(num_layers):
    lstm, lengths = BiLSTM(5, 3, num_layers).eval(), torch.tensor([2, 6, 0, 1, 6])
    x = torch.randn(15, 5, requires_grad=True)
    alone = []
    for sentence in x.split(lengths.tolist()):
        for layer in lstm.layers if len(sentence) else ():
            sentence, _ = layer(sentence)
        alone.append(sentence.reshape(-1, 6))
    apart, together = torch.cat(alone), lstm.forward_packed(x, lengths)
    assert_close(together, apart)
    drawn = torch.randn_like(apart)
    gradients = [torch.autograd.grad((result * drawn).sum(), x)[0] for result in (together, apart)]
    assert_close(*gradients)
    assert lstm.forward_packed(x[:0], torch.tensor([0, 0])).shape == (0, 6)


def test_packed_dropout_drops_an_element_for_a_whole_sentence():
    lengths = torch.tensor([3, 0, 4])
    dropped = VariationalDropout(0.5).forward_packed(torch.ones(7, 32), lengths)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    first, _, last = dropped.split(lengths.tolist())
    assert (first == first[0]).all()
    assert (last == last[0]).all()
    assert not torch.equal(first[0], last[0])
    assert VariationalDropout(0.5).eval().forward_packed(dropped, lengths) is dropped
