"""The state_dict of AllenNLP's `Elmo` module, alone or inside a larger model.

AllenNLP has already transformed these weights: the forget bias is included in the bias, the gates
are in torch's order, the highway gate is negated, and the characters begin with a zero row.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from elmore.config import read_json
from elmore.errors import WeightsError
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.saved_mix import SavedMix
from elmore.text.characters import ByteAlphabet
from elmore.weights.bundle import Bundle, Card
from elmore.weights.convert import options, pickles, table
from elmore.weights.convert.table import Rule, Tensors, Transform
from elmore.weights.modules import check_weights

_log = logging.getLogger(__name__)

_CHARACTERS = "_elmo_lstm._token_embedder._char_embedding_weights"

_without_zero_row = Transform(
    lambda x: (x[1:],),
    lambda x: torch.cat([x.new_zeros(1, x.shape[1]), x]),
    lambda shape: (shape[0] + 1, *shape[1:]),
)


def rules(config: BiLMConfig) -> list[Rule]:
    """Return the conversion table of a model."""
    assert config.characters
    encoder = "_elmo_lstm._token_embedder"
    rules = [Rule(_CHARACTERS, ("tokens.characters.embedding.weight",), _without_zero_row)]
    for i in range(len(config.characters.filters)):
        for part in ("weight", "bias"):
            ours = f"tokens.characters.convolutions.{i}.{part}"
            rules.append(Rule(f"{encoder}.char_conv_{i}.{part}", (ours,), table.same))
    rules += highway_rules(f"{encoder}._highways._layers", config.characters.num_highways)
    for part in ("weight", "bias"):
        ours = f"tokens.projection.{part}"
        rules.append(Rule(f"{encoder}._projection.{part}", (ours,), table.same))
    return rules + lstm_rules("_elmo_lstm._elmo_lstm.", config.lstm.num_layers)


def highway_rules(theirs: str, num_highways: int) -> list[Rule]:
    """Return the rules for highways in AllenNLP's form."""
    ours = "tokens.characters.highways"
    return [
        Rule(
            f"{theirs}.{i}.{part}",
            (f"{ours}.{i}.transform.{part}", f"{ours}.{i}.gate.{part}"),
            table.highway,
        )
        for i in range(num_highways)
        for part in ("weight", "bias")
    ]


def lstm_rules(prefix: str, num_layers: int) -> list[Rule]:
    """Return the rules for both LSTM stacks in AllenNLP's form."""
    parts = {
        "input_linearity.weight": "input",
        "state_linearity.weight": "recurrent",
        "state_linearity.bias": "bias",
        "state_projection.weight": "projection",
    }
    return [
        Rule(
            f"{prefix}{direction}_layer_{i}.{theirs}",
            (f"{direction}_layers.{i}.{ours}",),
            table.same,
        )
        for direction in ("forward", "backward")
        for i in range(num_layers)
        for theirs, ours in parts.items()
    ]


def read_allennlp(weights_path: Path, options_path: Path | None = None) -> Bundle:
    """Load a state_dict; without options.json, use the original ELMo's clips and activation."""
    tensors = pickles.read_state_dict(weights_path)
    prefix = _find_prefix(tensors, weights_path)
    tensors = Tensors(
        {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
    )
    if options_path:
        config = options.to_config(read_json(options_path), str(options_path))
        config = replace(
            config, projection=True, lstm=replace(config.lstm, projection=True, forget_bias=0.0)
        )
    else:
        with _explain_errors(weights_path):
            config = _config_from_shapes(tensors)
        _log.info(
            "%s: no options.json, so clips and activation are those of the original ELMo",
            weights_path,
        )
    for name, tensor in tensors.items():
        if name.startswith("scalar_mix_"):
            check_weights(tensor, f"{weights_path}: {name}")
    with _explain_errors(weights_path):
        mixes = _read_mixes(tensors)
    weights = Tensors({name: x for name, x in tensors.items() if _is_weight(name)})
    model = table.build_model(config, rules(config), weights, str(weights_path))
    assert config.characters
    card = Card(source=f"AllenNLP state_dict: {weights_path.name}")
    return Bundle(model, ByteAlphabet(config.characters.max_characters), card=card, mixes=mixes)


def _find_prefix(tensors: Tensors, path: Path) -> str:
    prefixes = [name.removesuffix(_CHARACTERS) for name in tensors if name.endswith(_CHARACTERS)]
    if len(prefixes) != 1:
        raise WeightsError(
            f"{path}: expected one tensor named …{_CHARACTERS}, found {len(prefixes)}; is it the "
            "state_dict of an AllenNLP Elmo module?"
        )
    return prefixes[0]


def _is_weight(name: str) -> bool:
    """Return whether a tensor is of the network; some versions also save caches and inputs."""
    cached = name.startswith("_elmo_lstm._word_embedding.")
    return name.startswith("_elmo_lstm.") and not cached and not name.endswith("_characters")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"{path}: not the tensors of an AllenNLP Elmo module ({error}); pass its options.json "
            "too if they are"
        ) from error


def _config_from_shapes(tensors: Tensors) -> BiLMConfig:
    encoder, stack = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm.forward_layer_"
    num_filters = sum(name.startswith(f"{encoder}char_conv_") for name in tensors) // 2
    convolutions = [tensors[f"{encoder}char_conv_{i}.weight"] for i in range(num_filters)]
    highways = sum(name.startswith(f"{encoder}_highways._layers.") for name in tensors) // 2
    projection = tensors[f"{stack}0.state_projection.weight"]
    characters = CharCNNConfig(
        embedding_dim=tensors[_CHARACTERS].shape[1],
        filters=tuple((kernel.shape[2], kernel.shape[0]) for kernel in convolutions),
        num_highways=highways,
    )
    lstm = LSTMConfig(
        num_layers=sum(name.startswith(stack) for name in tensors) // 4,
        cell_dim=projection.shape[1],
        output_dim=projection.shape[0],
        forget_bias=0.0,
    )
    return BiLMConfig(characters=characters, lstm=lstm)


def _read_mixes(tensors: Tensors) -> tuple[SavedMix, ...]:
    mixes = []
    while f"scalar_mix_{len(mixes)}.gamma" in tensors:
        name = f"scalar_mix_{len(mixes)}"
        count = sum(key.startswith(f"{name}.scalar_parameters.") for key in tensors)
        weights = [float(tensors[f"{name}.scalar_parameters.{i}"]) for i in range(count)]
        mixes.append(SavedMix(tuple(weights), float(tensors[f"{name}.gamma"])))
    return tuple(mixes)
