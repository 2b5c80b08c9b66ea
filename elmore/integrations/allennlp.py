"""A drop-in replacement for AllenNLP's ELMo: change the import, keep the code.

    from elmore.integrations.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids

Arguments, results and state are those of AllenNLP 2 (`ElmoEmbedder`: 0.9, the last version with
it). Unlike `elmore.Elmo`, the LSTMs are stateful: row b of a batch starts from the final state of
row b of the batch before, so a sentence gets another vector the second time. To reset the state:
`elmo._elmo_lstm._elmo_lstm.reset_states()`.

Files may be paths or AllenNLP's own URLs. If both are None, the bundled English model is used.

Shapes: L layers (the token layer is one of them), B sentences, T tokens, D width of one direction.
"""

import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from elmore.errors import ConfigError, DataError
from elmore.integrations.allennlp_bilm import _ElmoBiLm
from elmore.model import mix
from elmore.model.layer_stack import LayerStack
from elmore.model.padding import as_bool
from elmore.text.characters import ByteAlphabet, check_tokens, number_words

__all__ = ["Elmo", "ElmoEmbedder", "ScalarMix", "batch_to_ids"]

_log = logging.getLogger(__name__)

_FORMATS = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(axis=0),
}


def batch_to_ids(batch: list[list[str]]) -> Int[Tensor, "B T 50"]:
    """Convert tokenized sentences to character ids, shifted by one; 0 is padding.

    Args:
        batch: The tokens of each sentence.

    Returns:
        Ids for `Elmo`, of shape (sentences, tokens, 50).

    Raises:
        DataError: A sentence is not a list of strings.
    """
    alphabet = ByteAlphabet()
    for sentence in batch:
        check_tokens(sentence)
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    words, numbers = number_words(list(itertools.chain.from_iterable(batch)))
    characters, _ = alphabet.encode(words)
    shifted = np.full((len(words), alphabet.max_characters), alphabet.padding + 1)
    shifted[:, : characters.shape[1]] = characters + 1
    ids = np.zeros((len(batch), lengths.max(initial=0), alphabet.max_characters), dtype=np.int64)
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = shifted[numbers]
    return torch.from_numpy(ids)


class ScalarMix(nn.Module):
    """The scalar mix with AllenNLP's parameters: each layer weight is a separate parameter.

    Args:
        mixture_size: Number of layers.
        do_layer_norm: Normalize each layer before mixing.
        initial_scalar_parameters: Initial weights before the softmax; default: zeros.
        trainable: Whether the weights and the scale are trained.

    Raises:
        ConfigError: There are more or fewer initial weights than layers.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: list[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        initial = initial_scalar_parameters
        if initial is None:
            initial = [0.0] * mixture_size
        if len(initial) != mixture_size:
            raise ConfigError(f"this mix has {mixture_size} weights and was given {len(initial)}")
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(weight)]), trainable) for weight in initial
        )
        self.gamma = nn.Parameter(torch.ones(1), trainable)

    def forward(
        self,
        tensors: Sequence[Float[Tensor, "*rest D"]],
        mask: Shaped[Tensor, "*rest"] | None = None,
    ) -> Float[Tensor, "*rest D"]:
        """Mix tensors of equal shape.

        Args:
            tensors: One tensor per layer.
            mask: True for a token; only the layer norm uses it.

        Returns:
            The weighted sum, of the shape of one tensor.
        """
        layers = torch.stack(list(tensors))
        flat = layers.reshape(len(layers), 1, -1, layers.shape[-1])  # (L, 1, positions, D)
        inside = None if mask is None else as_bool(mask).reshape(1, -1)
        plain = mix.ScalarMix(
            self.mixture_size, layer_norm="allennlp" if self.do_layer_norm else False
        )
        weights = torch.cat(list(self.scalar_parameters))
        mixed = functional_call(plain, {"weights": weights, "gamma": self.gamma[0]}, (flat, inside))
        return mixed.reshape(layers.shape[1:])


class Elmo(nn.Module):
    """Trained mixes of the layers of a biLM, from character ids.

    The state_dict has AllenNLP's names, so checkpoints can be exchanged in both directions.

    Args:
        options_file: The options.json, or None for the bundled model.
        weight_file: The weights.hdf5, or None for the bundled model.
        num_output_representations: Number of mixes.
        requires_grad: Whether the biLM is trained.
        do_layer_norm: Normalize each layer before mixing.
        dropout: Dropout on the mixed vectors.
        vocab_to_cache: Accepted without effect: equal words of a batch are computed once anyway.
        keep_sentence_boundaries: Return the vectors of `<S>` and `</S>` too.
        scalar_mix_parameters: Fixed layer weights; default: trained ones.
        module: A biLM to use instead of the files. It has `num_layers` and returns `activations`
            and `mask`, boundaries included.

    Raises:
        ConfigError: The arguments contradict each other.
    """

    def __init__(
        self,
        options_file: str | None,
        weight_file: str | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: list[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: list[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise ConfigError(
                f"num_output_representations must be at least 1, found {num_output_representations}"
            )
        if module is None:
            module = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        elif options_file is not None or weight_file is not None:
            raise ConfigError("module replaces the files; pass None for both of them")
        bilm: Any = module  # anything with these attributes
        self._elmo_lstm = bilm
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._num_mixes = num_output_representations
        for number in range(num_output_representations):
            scalar_mix = ScalarMix(
                bilm.num_layers,
                do_layer_norm,
                scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{number}", scalar_mix)

    def get_output_dim(self) -> int:
        """Return 2D, the width of a vector."""
        return self._elmo_lstm.get_output_dim()

    def forward(
        self, inputs: Int[Tensor, "*B T 50"], word_inputs: Tensor | None = None
    ) -> dict[str, Any]:
        """Return `elmo_representations`, one (*B, T, 2D) per mix, and their `mask` (*B, T).

        Args:
            inputs: Character ids from `batch_to_ids`.
            word_inputs: Accepted without effect, like `vocab_to_cache`.
        """
        if word_inputs is not None and not self._has_cached_vocab:
            _log.warning("word_inputs are ignored without vocab_to_cache")
        leading = inputs.shape[:-2]
        if inputs.dim() > 3:
            inputs = inputs.flatten(0, -3)
        output = self._elmo_lstm(inputs, word_inputs)
        outer = as_bool(output["mask"])  # boundaries included
        mask = outer if self._keep_sentence_boundaries else outer[:, 2:]
        representations = []
        for number in range(self._num_mixes):
            mixed = self.get_submodule(f"scalar_mix_{number}")(output["activations"], outer)
            if not self._keep_sentence_boundaries:
                mixed = mixed[:, 1:-1] * mask[:, :, None]
            mixed = self._dropout(mixed)
            representations.append(mixed.reshape(*leading, *mixed.shape[1:]))
        return {
            "elmo_representations": representations,
            "mask": mask.reshape(*leading, mask.shape[1]),
        }


class ElmoEmbedder:
    """Embed tokenized sentences as arrays of all layers; the state carries over between calls.

    Args:
        options_file: The options.json, or None for the bundled model.
        weight_file: The weights.hdf5, or None for the bundled model.
        cuda_device: Number of a GPU; -1 is the CPU.

    Raises:
        ConfigError: There is no such GPU.
    """

    def __init__(
        self,
        options_file: str | None = None,
        weight_file: str | None = None,
        cuda_device: int = -1,
    ) -> None:
        if cuda_device >= torch.cuda.device_count():
            raise ConfigError(
                f"cuda_device={cuda_device}: found {torch.cuda.device_count()} GPUs; -1 is the CPU"
            )
        self.cuda_device = cuda_device
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file)
        if cuda_device >= 0:
            self.elmo_bilm.cuda(cuda_device)

    @torch.no_grad()
    def batch_to_embeddings(
        self, batch: list[list[str]]
    ) -> tuple[Float[Tensor, "B L T 2*D"], Bool[Tensor, "B T"]]:
        """Embed one batch as padded tensors.

        Args:
            batch: The tokens of each sentence.

        Returns:
            The vectors, zero for padding, and the mask.
        """
        output = self.elmo_bilm(batch_to_ids(batch))
        stack = LayerStack(torch.stack(output["activations"]), output["mask"]).without_boundaries()
        return stack.states.transpose(0, 1), stack.mask

    def embed_sentence(self, sentence: list[str]) -> Float[np.ndarray, "L T 2*D"]:
        """Embed a batch of one sentence.

        Args:
            sentence: Its tokens.

        Returns:
            All layers of the sentence.
        """
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: list[list[str]]) -> list[Float[np.ndarray, "L T 2*D"]]:
        """Embed one batch; a single empty sentence does not change the state.

        Args:
            batch: The tokens of each sentence.

        Returns:
            All layers of each sentence.
        """
        if batch == [[]]:
            empty = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [np.zeros(empty, np.float32)]
        embeddings, _ = self.batch_to_embeddings(batch)
        rows = zip(embeddings.cpu().numpy(), batch, strict=True)
        return [row[:, : len(sentence)] for row, sentence in rows]

    def embed_sentences(
        self, sentences: Iterable[list[str]], batch_size: int = 64
    ) -> Iterator[Float[np.ndarray, "L T 2*D"]]:
        """Embed a stream of sentences.

        Args:
            sentences: The tokens of each sentence.
            batch_size: Sentences per batch.

        Returns:
            An iterator over all layers of each sentence.

        Raises:
            ConfigError: `batch_size` is not positive.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, found {batch_size}")
        waiting = iter(sentences)
        batches = iter(lambda: list(itertools.islice(waiting, batch_size)), [])
        return itertools.chain.from_iterable(map(self.embed_batch, batches))

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed lines of space-separated tokens into an HDF5 file.

        Args:
            input_file: The lines.
            output_file_path: The file to write.
            output_format: "all", "top" or "average" of the layers.
            batch_size: Lines per batch.
            forget_sentences: Omit `sentence_to_index`, a JSON object from line to dataset name.
            use_sentence_keys: Name datasets by their line instead of its number, from "0".

        Raises:
            ConfigError: `output_format` is unknown.
            DataError: A line is empty, or appears twice with `use_sentence_keys`.
        """
        if output_format not in _FORMATS:
            kinds = ", ".join(map(repr, _FORMATS))
            raise ConfigError(f"output_format must be one of {kinds}, found {output_format!r}")
        lines = [line.strip() for line in input_file]
        keys = lines if use_sentence_keys else [str(number) for number in range(len(lines))]
        _check_lines(lines, keys)
        embedded = self.embed_sentences((line.split() for line in lines), batch_size)
        with h5py.File(output_file_path, "w") as file:
            for key, layers in zip(keys, embedded, strict=True):
                file.create_dataset(key, data=_FORMATS[output_format](layers))
            if not forget_sentences and not use_sentence_keys:
                numbers = json.dumps(dict(zip(lines, keys, strict=True)))
                file.create_dataset("sentence_to_index", data=[numbers], dtype=h5py.string_dtype())


def _check_lines(lines: list[str], keys: list[str]) -> None:
    if "" in lines:
        raise DataError(f"line {lines.index('') + 1} is empty and has no vectors; remove it")
    if len(set(keys)) < len(keys):
        ((duplicate, _),) = Counter(keys).most_common(1)
        raise DataError(f"{duplicate!r} appears twice; do not pass use_sentence_keys")
