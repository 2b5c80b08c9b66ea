"""Check shapes and types of a function's first calls in each test, and then of every tenth.

jaxtyping's hook (`--jaxtyping-packages` in pyproject.toml) decorates every function of the model
and the tasks. A check takes longer than most of these functions with tiny inputs, and a training
makes thousands of calls that are alike. `make test-full` checks all.
Used by tests/conftest.
"""

import functools
import inspect
from collections import Counter

import jaxtyping

from tests.support.sweeps import pick

ALWAYS, THEN_EVERY = 10, pick(10, 1)
_check_always = jaxtyping.jaxtyped
_calls: Counter[object] = Counter()


def install() -> None:
    """Let modules that are imported from now on check a sample of calls."""
    jaxtyping.jaxtyped = _check_sample


def start_test() -> None:
    """Count the calls of a test from zero."""
    _calls.clear()


def _check_sample(*, typechecker):
    def decorate(function):
        if inspect.isclass(function):  # of which dataclasses have an __init__ to check
            plain = function.__init__
            _check_always(function, typechecker=typechecker)
            checked = function.__init__
            if checked is not plain:
                function.__init__ = _sampled(plain, lambda: checked)
            return function
        return _sampled(function, lambda: _check_always(function, typechecker=typechecker))

    return decorate


def _sampled(plain, make_checked):
    # at the first call, because most test files call few of the functions that they import
    checked = functools.cache(make_checked)

    @functools.wraps(plain)
    def call(*arguments, **named):
        __tracebackhide__ = True
        _calls[plain] += 1
        number = _calls[plain]
        due = number <= ALWAYS or number % THEN_EVERY == 0
        return (checked() if due else plain)(*arguments, **named)

    return call
