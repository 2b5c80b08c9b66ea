import torch
from torch.testing import assert_close

from elmore.tasks.layers.maxout import Maxout


def test_each_element_is_the_largest_of_its_linear_pieces():
    layer, x = Maxout(3, 2, pool_size=4), torch.randn(5, 3)
    weight = layer.pieces.weight.view(2, 4, 3)
    bias = layer.pieces.bias.view(2, 4)
    result = layer(x)
    assert result.shape == (5, 2)
    for row in range(5):
        for i in range(2):
            pieces = [(weight[i, p] @ x[row] + bias[i, p]).item() for p in range(4)]
            assert_close(result[row, i].item(), max(pieces), rtol=1e-5, atol=1e-6)


def test_one_piece_is_a_linear_layer_and_any_number_of_dimensions_goes():
    layer, x = Maxout(3, 2, pool_size=1), torch.randn(2, 5, 3)
    assert_close(layer(x), layer.pieces(x))
