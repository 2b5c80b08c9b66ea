"""Record the largest tensor that torch allocates inside a `with` block.

Used by tests/tasks, to show that memory does not grow with the square of a document.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """Look at all that torch makes meanwhile."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numel = max(self.numel, *made, 0)
        return result
