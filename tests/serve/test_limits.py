import pytest

from elmore.errors import ConfigError
from elmore.serve.limits import Limits


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_a_number_above_0(value):
    with pytest.raises(ConfigError, match=r"found .* expected a finite number above 0"):
        Limits(body_seconds=value)


def test_a_budget_that_no_answer_fits_into_is_refused():
    with pytest.raises(ConfigError, match=r"limits.unsent_bytes: found 1, expected 65536 or more"):
        Limits(unsent_bytes=1)
