"""A fixed initial state for published weights, which never saw a zero state in training.

It is the state after a few fixed sentences, run one after another with a carried state, as in
training. Every sentence starts from this one state, on any machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from elmore.model.bilm_arrays import BiLMArrays
from elmore.weights.bundle import Bundle

TEXT = """
The committee will meet again on Thursday to discuss the report .
" It was a difficult year for all of us , " she said .
He moved to the city in 1998 and has worked there ever since .
Prices rose by 2.5 percent in the first half of the year .
Why did nobody tell them about it ?
The river runs through the old town and into the lake .
They won the game , but lost two of their best players .
For more information , see the notes at the end of this page .
"""


def add_warm_state(bundle: Bundle) -> Bundle:
    """Return the model with its warm state, which is computed if it has none."""
    if bundle.warm_state is not None:
        return bundle
    state = None
    with _inference(bundle):
        for line in TEXT.strip().splitlines():
            _, state = bundle.run([line.split()], state)
    return replace(bundle, warm_state=state)


@contextmanager
def _inference(bundle: Bundle) -> Iterator[None]:
    """Switch gradients and autocast off, where torch runs the model."""
    if isinstance(bundle.model, BiLMArrays):
        yield
        return
    import torch

    from elmore.model.lstm.call import disable_autocast

    with torch.no_grad(), disable_autocast(next(bundle.model.parameters()).device):
        yield
