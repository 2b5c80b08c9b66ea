"""A fixed starting state for published weights, which never saw a zero state in training.

The model reads the same few sentences one after another, as it read its training text, and what it
then remembers is where every sentence starts: one state, the same for all, on any machine.
"""

import torch

from elmore.model.bilm import BiLM, BiLMState
from elmore.text.characters import Alphabet, encode_batch

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


@torch.no_grad()
def state(model: BiLM, alphabet: Alphabet) -> BiLMState:
    """Read the text in order, and give what is remembered at its end (one sentence's state)."""
    device = next(model.parameters()).device
    remembered = None
    for line in TEXT.strip().splitlines():
        ids = [
            part if part is None else torch.from_numpy(part).to(device)
            for part in encode_batch(alphabet, [line.split()])
        ]
        _, remembered = model(*ids, state=remembered)
    assert remembered is not None
    return remembered
