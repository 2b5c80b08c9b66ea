"""Tables that map foreign weights to ours: their name, our names, and an invertible transform.

The same table is used for reading and writing, so that a file can be written back bit for bit. The
expected shapes of a file also follow from the table.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from elmore.errors import WeightsError
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.weights.modules import check_weights, meta_model

Shape = tuple[int, ...]


class Transform(NamedTuple):
    """Converts one foreign tensor to one or more of ours, and back.

    `read` may return views whose first axes must still be flattened, which avoids a second copy of
    the weights in memory.
    """

    read: Callable[[Tensor], tuple[Tensor, ...]]
    write: Callable[..., Tensor]
    shape: Callable[..., Shape]
    """Returns the foreign shape, given ours."""


class Rule(NamedTuple):
    """Maps a foreign tensor to ours."""

    theirs: str
    ours: tuple[str, ...]
    transform: Transform


class Source(Protocol):
    """An open file of foreign tensors."""

    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> Tensor: ...
    def shape(self, name: str) -> Shape:
        """Return a shape without reading the tensor."""
        ...


class Tensors(dict[str, Tensor]):
    """Foreign tensors in memory."""

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor."""
        return tuple(self[name].shape)


same = Transform(lambda x: (x,), lambda x: x, lambda shape: shape)
transposed = Transform(lambda x: (x.T,), lambda x: x.T, lambda shape: shape[::-1])

# A 1-d kernel is (1, width, in, out) in TensorFlow, (out, in, width) in torch; it is not flipped.
kernel = Transform(
    lambda x: (x[0].permute(2, 1, 0),),
    lambda x: x.permute(2, 1, 0)[None],
    lambda shape: (1, *shape[::-1]),
)


def _swap_middle_gates(rows: Tensor) -> Tensor:
    """Convert the gate order between TensorFlow (input, candidate, forget, output) and ours.

    Returns a view (2, 2, H, ...): the four gates as two by two, transposed.
    """
    return rows.unflatten(0, (2, 2, -1)).transpose(0, 1)


gates = Transform(
    lambda x: (_swap_middle_gates(x),),
    lambda x: _swap_middle_gates(x).flatten(0, 2),
    lambda shape: shape,
)

# One matrix: the rows of the input above those of the recurrent state, gates as columns.
stacked_gates = Transform(
    lambda x: tuple(_swap_middle_gates(part.T) for part in x.chunk(2)),
    lambda *parts: torch.cat([_swap_middle_gates(part).flatten(0, 2).T for part in parts]),
    lambda inputs, recurrent: (inputs[1] + recurrent[1], inputs[0]),
)

# AllenNLP and ELMoForManyLangs store a highway as one layer: transform, then negated gate.
highway = Transform(
    lambda x: (x.chunk(2)[0], -x.chunk(2)[1]),
    lambda transform, gate: torch.cat([transform, -gate]),
    lambda transform, gate: (transform[0] + gate[0], *transform[1:]),
)


def build_model(config: BiLMConfig, rules: Sequence[Rule], source: Source, where: str) -> BiLM:
    """Build the network, and load its weights from an open file one by one."""
    _check_no_others(rules, source, where)
    model = meta_model(config)
    ours = model.state_dict()
    for rule in rules:
        _check_shape(rule, ours, source, where)
    parameters = {name: torch.empty(x.shape) for name, x in ours.items()}
    missing = set(parameters)
    # Largest first, to reduce the peak memory.
    for rule in sorted(rules, key=lambda rule: -math.prod(source.shape(rule.theirs))):
        foreign = source[rule.theirs]
        check_weights(foreign, f"{where}: {rule.theirs}")
        for name, part in zip(rule.ours, rule.transform.read(foreign), strict=True):
            parameters[name].view(part.shape).copy_(part)
            missing.remove(name)
    assert not missing, f"the table has no source for {', '.join(missing)}"
    model.load_state_dict(parameters, assign=True)
    return model.eval()


def _check_no_others(rules: Sequence[Rule], source: Source, where: str) -> None:
    """Raise WeightsError for weights that are not in the table."""
    known = {rule.theirs for rule in rules}
    unused = [name for name in source if name not in known]
    if unused and not any(name in source for name in known):
        raise WeightsError(f"{where}: has {unused[0]} and no weights of an ELMo model")
    if unused:
        raise WeightsError(
            f"{where}: {unused[0]} is not part of the configured network; are they of the same "
            "model?"
        )


def _check_shape(rule: Rule, ours: Mapping[str, Tensor], source: Source, where: str) -> None:
    if rule.theirs not in source:
        raise WeightsError(
            f"{where}: {rule.theirs} is missing; is the configuration from the same model?"
        )
    found = source.shape(rule.theirs)
    shape = rule.transform.shape(*(tuple(ours[name].shape) for name in rule.ours))
    if found != shape:
        raise WeightsError(
            f"{where}: {rule.theirs} has shape {found}, the configuration asks for {shape}; "
            "is it from the same model?"
        )


def foreign_tensors(model: BiLM, rules: Iterable[Rule]) -> Iterable[tuple[str, Tensor]]:
    """Yield the foreign tensors of a model, one by one."""
    ours = model.state_dict()
    for rule in rules:
        yield rule.theirs, rule.transform.write(*(ours[name] for name in rule.ours)).contiguous()
