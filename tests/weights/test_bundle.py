import pytest
import torch

from elmore.errors import WeightsError
from elmore.weights.modules import check_weights


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.bool])
def test_weights_of_another_type_are_refused(dtype):
    with pytest.raises(WeightsError, match=f"the bias has {dtype}, expected dense float16, "):
        check_weights(torch.ones(3).to(dtype), "the bias")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_each_type_that_can_be_read_pass(dtype):
    check_weights(torch.ones(3, dtype=dtype), "the bias")
