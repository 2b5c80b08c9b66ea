"""Average the weights of two models of one shape, such as a model before and after more training.

    python benchmarks/average_models.py BEFORE AFTER OUT [--weight 0.8] [--storage int6]

A number of OUT is (1 - WEIGHT) of BEFORE and WEIGHT of AFTER; vocabulary and card are those of
AFTER. Choose the weight by `elmore evaluate` on a text that nothing else is measured on.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import get_args

from torch import nn

from elmore.weights import folder, pretrained, warm
from elmore.weights.bundle import Bundle
from elmore.weights.storage import Storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a model folder, or a name of `elmore models`")
    parser.add_argument("after", help="likewise, of the same shape")
    parser.add_argument("out", type=Path)
    parser.add_argument("--weight", type=float, default=0.8, help="of AFTER")
    parser.add_argument("--storage", default="float32", choices=get_args(Storage))
    args = parser.parse_args()
    before, after = pretrained.load(args.before), pretrained.load(args.after)
    folder.save(average(before, after, args.weight), args.out, storage=args.storage)


def average(before: Bundle, after: Bundle, weight: float) -> Bundle:
    """Return the second model with averaged weights.

    Its warm state is computed anew, and what was learned of its vectors is left out.
    """
    same = before.config == after.config and before.vocabulary == after.vocabulary
    if not same or (before.softmax is None) != (after.softmax is None):
        raise SystemExit("the models differ in shape or vocabulary; their average means nothing")
    average_into(after.model, before.model, weight)
    if after.softmax is not None:
        average_into(after.softmax, before.softmax, weight)
    return warm.add_warm_state(replace(after, warm_state=None, poolings={}, whitening=None))


def average_into(module: nn.Module, other: nn.Module, weight: float) -> None:
    """Average the weights of a module with those of another, and keep its part at `weight`."""
    mixed, others = module.state_dict(), other.state_dict()
    module.load_state_dict({k: weight * v + (1 - weight) * others[k] for k, v in mixed.items()})


if __name__ == "__main__":
    main()
