import pytest
import torch
from torch.testing import assert_close

from elmore.train.weight_average import WeightAverage


def module_of(*values: float) -> torch.nn.Module:
    module = torch.nn.Linear(1, len(values), bias=False).double()
    set_weights(module, *values)
    return module


def set_weights(module: torch.nn.Module, *values: float) -> None:
    with torch.no_grad():
        module.weight.copy_(torch.tensor(values)[:, None])


def test_the_average_is_its_definition():
    module = module_of(1.0, -2.0)
    average = WeightAverage(module, decay=0.25)
    expected = module.weight.detach().clone()
    for step, decay in ((1, 2 / 11), (2, 0.25), (3, 0.25)):
        set_weights(module, step, step**2)
        average.update(step)
        expected = decay * expected + (1 - decay) * module.weight.detach()
        assert_close(average.averages["weight"], expected)


def test_applied_averages_are_taken_away_again_also_after_an_error():
    module = module_of(1.0)
    average = WeightAverage(module, decay=0.5)
    set_weights(module, 3.0)
    weight = module.weight

    def fail() -> None:
        with average.applied():
            assert module.weight is weight
            assert weight.item() == 1.0
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert weight.item() == 3.0
    assert average.averages["weight"].item() == 1.0


def test_a_frozen_weight_has_no_average():
    module = module_of(1.0).requires_grad_(False)
    assert WeightAverage(module, decay=0.5).averages == {}


@pytest.mark.parametrize(
    ("averages", "said"),
    [
        ({}, "^weight is not in both"),
        ({"weight": torch.zeros(2, 1).double(), "x": torch.zeros(1)}, "^x is not in both"),
        ({"weight": torch.zeros(1, 1).double()}, "^the average of weight has another shape"),
        ({"weight": torch.zeros(2, 1)}, "^the average of weight has another shape or type"),
    ],
)
def test_averages_of_other_weights_are_refused(averages, said):
    with pytest.raises(ValueError, match=said):
        WeightAverage(module_of(1.0, 2.0), decay=0.5).load(averages)
