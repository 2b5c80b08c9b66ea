import socket

import pytest

from elmore.serve import server


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "http://127.0.0.1:{}"),
        (socket.AF_INET6, "::1", "http://[::1]:{}"),
    ],
)
def test_an_address_is_written_as_a_browser_takes_it(family, host, shown):
    with socket.socket(family) as result:
        try:
            result.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        assert server.base_url(result) == shown.format(result.getsockname()[1])
