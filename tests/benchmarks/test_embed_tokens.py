"""benchmarks/embed_tokens.py: what it counts as busy; its speeds are measured, not tested."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripts import ROOT

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12)


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("embed_tokens")


@given(spans=SPANS)
def test_what_two_streams_do_at_the_same_time_is_counted_once(script, spans):
    spans = [(begin, begin + length) for begin, length in spans]
    moments = {moment for begin, end in spans for moment in range(begin, end)}
    assert script.covered(spans) == len(moments)
