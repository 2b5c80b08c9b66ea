import pytest

from elmore.errors import ConfigError
from elmore.serve.limits import Limits


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_is_a_number_above_0(value):
    with pytest.raises(ConfigError, match=r"limits.body_seconds: found .* above 0"):
        Limits(body_seconds=value)
