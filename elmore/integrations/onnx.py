"""Export models as ONNX files, for any runtime without torch or elmore.

    export(elmore.load().bundle, Path("english.onnx"))

The file is written only after onnxruntime and torch agree on sentences of several shapes.
`onnx_graph` describes inputs and outputs. The metadata "elmore" of the file is JSON that describes
how words become ids.

Shapes: N distinct words, L layers (the token layer is one of them), B sentences, T tokens, D width
of one direction.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from elmore import __version__, atomic
from elmore.embed.runtime import run_boundary_tokens
from elmore.embed.torch_device import torch_network
from elmore.errors import ConfigError, MissingPackageError, WeightsError
from elmore.model.bilm import BiLM, BiLMState
from elmore.text.characters import (
    NO_TOKEN,
    Alphabet,
    ByteAlphabet,
    Lexicon,
    WordAlphabet,
    encode_batch,
)
from elmore.text.vocabulary import Vocabulary
from elmore.weights import warm
from elmore.weights.bundle import Bundle
from elmore.weights.modules import meta_model
from elmore.weights.storage import Storage, dequantize_state, quantize_state

try:
    import onnxruntime
    from onnx import helper

    from elmore.integrations.onnx_graph import Network
except ImportError as error:
    raise MissingPackageError(
        f"elmore.integrations.onnx needs {error.name}: pip install 'elmore[onnx]'"
    ) from error

__all__ = ["Report", "export", "feed"]

FORMAT = 1  # of the metadata, the inputs and the outputs
TOLERANCE = 1e-5  # absolute, and relative for values above 1

_MAX_BYTES = 2**31 - 2**20  # a file is one protocol buffer, which is limited to 2 GiB
_WORDS = ("The bank of the river naïve 日本語 " + "x" * 80 + " <S> can n't .").split()
_SHAPES = ((1,), (4, 0, 9, 1), (0,), (23, 17, 2, 23, 11))  # sentence lengths of the test batches

Layers = Float[np.ndarray, "L B T 2*D"]


class Report(NamedTuple):
    """Size of the file, and the measured differences."""

    num_bytes: int
    difference: float
    """Largest difference between onnxruntime and torch, both with the stored weights."""
    rounding: float
    """Largest difference between vectors of stored and original weights; 0 in float32."""
    cosine: float
    """Smallest cosine between these vectors; 1 in float32."""


def export(
    bundle: Bundle,
    path: Path,
    *,
    storage: Storage = "float32",
    initial_state: Literal["zero", "warm"] = "zero",
    overwrite: bool = False,
) -> Report:
    """Write a model as an ONNX file that returns all its layers.

    Args:
        bundle: The model, such as `elmore.load().bundle`.
        path: The file to write, ending in .onnx.
        storage: Number format of the weights in the file.
        initial_state: LSTM state before the first token: zeros, or the stored warm-up state.
        overwrite: Replace an existing file.

    Returns:
        The size of the file and the measured differences.

    Raises:
        ConfigError: The path cannot be written, or there is no such storage or initial state.
        WeightsError: The model is too large, or onnxruntime and torch differ.
    """
    path = Path(path)
    _check_path(path, overwrite=overwrite)
    if initial_state not in ("zero", "warm"):
        raise ConfigError(f"initial_state must be one of zero, warm, found {initial_state!r}")
    bundle = replace(bundle, model=_copy_model(bundle, bundle.model.state_dict()))
    weights = quantize_state(bundle.model.state_dict(), storage)
    num_bytes = sum(weight.nbytes for weight in weights.values())
    if num_bytes > _MAX_BYTES:
        raise WeightsError(
            f"{path}: the weights take {num_bytes / 1e9:.1f} GB, and an ONNX file is limited to "
            "2.1 GB; pass storage float16 or int8"
        )
    stored_bundle = replace(bundle, model=_copy_model(bundle, dequantize_state(weights)))
    state = _initial_state(stored_bundle, initial_state)
    data = _build_file(
        stored_bundle, weights, state, name=bundle.card.name or path.stem, storage=storage
    )
    expected = list(_run_torch(stored_bundle, state))
    difference = _check_difference(list(_run_onnxruntime(data, bundle.alphabet)), expected, path)
    original = list(_run_torch(bundle, _initial_state(bundle, initial_state)))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, data)
    return Report(
        len(data), difference, _max_difference(expected, original), _min_cosine(expected, original)
    )


def feed(
    alphabet: Alphabet, sentences: Sequence[Sequence[str]]
) -> dict[str, Int[np.ndarray, "..."]]:
    """Return the inputs of an onnxruntime session.

    Args:
        alphabet: That of the model, such as `elmore.load().bundle.alphabet`.
        sentences: The tokens of each sentence.

    Returns:
        One array per input of the graph, by its name.
    """
    ids = encode_batch(alphabet, sentences)
    index = ids.index[:, 1:-1].copy()  # the graph has the boundaries built in
    for row, sentence in zip(index, sentences, strict=True):
        row[len(sentence) :] = NO_TOKEN
    parts = ids._replace(index=index)._asdict()
    return {name: part for name, part in parts.items() if part is not None}


def _check_path(path: Path, *, overwrite: bool) -> None:
    if path.suffix != ".onnx":
        raise ConfigError(f"{path}: expected a name that ends in .onnx")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; pass the name of a file")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} exists already; pass another name, or --overwrite")


def _copy_model(bundle: Bundle, weights: dict[str, torch.Tensor]) -> BiLM:
    """Return the network with these weights in float32, for inference only."""
    model = meta_model(bundle.config)
    plain = {name: weight.detach().cpu().float() for name, weight in weights.items()}
    model.load_state_dict(plain, assign=True)
    return model.requires_grad_(False).eval()


def _initial_state(bundle: Bundle, initial_state: Literal["zero", "warm"]) -> BiLMState:
    """Return the LSTM state of one sentence before its boundary token."""
    if initial_state == "zero":
        return bundle.model.zero_state(1, torch.zeros(()))
    state = warm.add_warm_state(bundle).warm_state
    assert state is not None
    return BiLMState(*(part.detach().cpu().float() for part in state))


def _build_file(
    bundle: Bundle, weights: dict[str, torch.Tensor], start: BiLMState, *, name: str, storage: str
) -> bytes:
    """Build the graph and its metadata."""
    alphabet, model = bundle.alphabet, bundle.model
    parts = alphabet.encode([alphabet.begin, alphabet.end])
    begin, end = model.tokens(*(None if ids is None else torch.from_numpy(ids) for ids in parts))
    proto = Network(
        bundle.config, weights, run_boundary_tokens(torch_network(model), begin, end, start)[0]
    ).proto(name.encode("utf-8", "replace").decode())  # a name may have lone surrogates
    facts = {
        "format": FORMAT,
        "elmore": __version__,
        "name": name,
        "language": bundle.card.language,
        "licence": bundle.card.licence,
        "storage": storage,
        "layers": bundle.config.num_layers,
        "width": bundle.config.width,
        "alphabet": _describe_alphabet(alphabet),
        "mixes": [mix._asdict() for mix in bundle.mixes],
    }
    helper.set_model_props(proto, {"elmore": json.dumps(facts)})
    return proto.SerializeToString()


def _describe_alphabet(alphabet: Alphabet) -> dict[str, Any]:
    """Describe how words become ids; `elmore.text.characters` explains the ids."""
    if isinstance(alphabet, ByteAlphabet):
        return {
            "kind": "bytes",
            "max_characters": alphabet.max_characters,
            "begin_word": alphabet.begin_word,
            "end_word": alphabet.end_word,
            "padding": alphabet.padding,
            "marks": {
                alphabet.begin: alphabet.begin_sentence,
                alphabet.end: alphabet.end_sentence,
            },
        }
    if isinstance(alphabet, WordAlphabet):
        return {"kind": "words", **_describe_vocabulary(alphabet.vocabulary)}
    assert isinstance(alphabet, Lexicon)
    facts: dict[str, Any] = {"kind": "lexicon", "max_characters": alphabet.max_characters}
    if alphabet.characters is not None:
        number = {character: i for i, character in enumerate(alphabet.characters)}
        facts |= {
            "begin_word": number["<eow>"],  # in the order of its authors
            "end_word": number["<bow>"],
            "padding": number["<pad>"],
            "unknown_character": number["<oov>"],
            "characters": list(alphabet.characters),
            "marks": {mark: number[mark] for mark in (alphabet.begin, alphabet.end)},
        }
    return facts | _describe_vocabulary(alphabet.vocabulary)


def _describe_vocabulary(vocabulary: Vocabulary | None) -> dict[str, Any]:
    if vocabulary is None:
        return {}
    unknown = vocabulary.words.index(vocabulary.marks.unknown)
    return {"unknown_word": unknown, "words": list(vocabulary.words)}


def _samples() -> Iterator[list[list[str]]]:
    """Yield test batches of several shapes, with long words, other scripts and empty rows."""
    for lengths in _SHAPES:
        yield [
            [_WORDS[(3 * row + 5 * position) % len(_WORDS)] for position in range(length)]
            for row, length in enumerate(lengths)
        ]


def _run_torch(bundle: Bundle, start: BiLMState) -> Iterator[Layers]:
    for sentences in _samples():
        state = BiLMState(*(part.expand(-1, -1, len(sentences), -1) for part in start))
        with torch.no_grad():
            stack, _ = bundle.run(sentences, state)
        yield stack.without_boundaries().states.numpy()


def _run_onnxruntime(data: bytes, alphabet: Alphabet) -> Iterator[Layers]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for sentences in _samples():
        yield session.run(["layers"], feed(alphabet, sentences))[0]


def _check_difference(outputs: list[Layers], expected: list[Layers], path: Path) -> float:
    """Return the largest difference; raise an error if it exceeds the tolerance."""
    for ours, theirs in zip(outputs, expected, strict=True):
        close = ours.shape == theirs.shape and np.allclose(ours, theirs, TOLERANCE, TOLERANCE)
        if not close:
            difference = (
                f"{_max_difference([ours], [theirs]):.1e}"
                if ours.shape == theirs.shape
                else "shapes"
            )
            raise WeightsError(
                f"{path}: not written, since onnxruntime {onnxruntime.__version__} and torch "
                f"{torch.__version__} differ by {difference}, more than {TOLERANCE:.0e}; try other "
                "versions of them"
            )
    return _max_difference(outputs, expected)


def _max_difference(first: list[Layers], second: list[Layers]) -> float:
    pairs = zip(first, second, strict=True)
    return max(float(np.abs(a - b).max(initial=0)) for a, b in pairs)


def _min_cosine(first: list[Layers], second: list[Layers]) -> float:
    """Return the smallest cosine of two vectors of a word, over all layers."""
    smallest = 1.0
    for pair in zip(first, second, strict=True):
        a, b = (layers.astype(np.float64) for layers in pair)
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        is_token = lengths > 0  # padding has no vector
        smallest = min(
            smallest, ((a * b).sum(axis=-1)[is_token] / lengths[is_token]).min(initial=1.0)
        )
    return float(smallest)
