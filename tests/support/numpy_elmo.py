"""ELMo's forward pass in plain numpy, written from its definition: the reference of the tests.

Slow on purpose: every character column, one sentence at a time, one step at a time, nothing shared
or skipped. It imports neither torch nor elmore. Weights keep the names and the layout of the file
they come from: (in, out) matrices for bilm-tf, (out, in) for ELMoForManyLangs.

One LSTM step, with clips that may be absent:

    c = clip(sigmoid(f) * c_before + sigmoid(i) * tanh(j))
    m = clip((sigmoid(o) * tanh(c)) @ projection)

Shapes: L LSTM layers, B sentences, T tokens, C characters, F filters, H cell, D projection.
A state is {(direction, layer): (c (rows, H), m (rows, D))}, direction 0 forward and 1 backward.

Used by contracts/test_numpy_parity, embed/test_elmo, integrations/test_allennlp, model/test_mix and
text/test_characters.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

State = dict[tuple[int, int], tuple[NDArray, NDArray]]

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260


def byte_ids(word: str, width: int = 50) -> list[int]:
    """The `width` raw ids of a word: not yet shifted by one for the mask."""
    if word == "<S>":
        payload = [BEGIN_SENTENCE]
    elif word == "</S>":
        payload = [END_SENTENCE]
    else:
        payload = list(word.encode("utf-8", "ignore")[: width - 2])
    ids = [BEGIN_WORD, *payload, END_WORD]
    return ids + [PAD] * (width - len(ids))


def sigmoid(x: NDArray) -> NDArray:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def relu(x: NDArray) -> NDArray:
    return np.maximum(x, 0)


ACTIVATIONS = {"relu": relu, "tanh": np.tanh}


def clip(x: NDArray, limit: float | None) -> NDArray:
    return np.clip(x, -limit, limit) if limit else x


def max_over_time(characters: NDArray, kernel: NDArray, bias: NDArray) -> NDArray:
    """Characters (C, E), kernel (width, E, n): the largest response of each filter, (n,)."""
    width = len(kernel)
    responses = [
        np.einsum("we,wen->n", characters[start : start + width], kernel)
        for start in range(len(characters) - width + 1)
    ]
    return np.max(responses, axis=0) + bias


@dataclass
class Cell(ABC):
    """One LSTM layer of one direction; the kinds differ in how their files store the gates."""

    cell_clip: float | None
    projection_clip: float | None

    @abstractmethod
    def gates(self, x: NDArray, m: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Input, candidate, forget (its bias of 1 included) and output, before the squashing."""

    @abstractmethod
    def project(self, hidden: NDArray) -> NDArray:
        """From H to D."""

    def step(self, x: NDArray, c: NDArray, m: NDArray) -> tuple[NDArray, NDArray]:
        i, j, f, o = self.gates(x, m)
        c = clip(sigmoid(f) * c + sigmoid(i) * np.tanh(j), self.cell_clip)
        return c, self.project(sigmoid(o) * np.tanh(c))


@dataclass
class BilmCell(Cell):
    """As in bilm-tf's HDF5: [x; m] @ W_0 + B in the order i, j, f, o."""

    W_0: NDArray
    B: NDArray
    W_P_0: NDArray | None

    def gates(self, x: NDArray, m: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        i, j, f, o = np.split(np.concatenate([x, m]) @ self.W_0 + self.B, 4)
        return i, j, f + 1, o

    def project(self, hidden: NDArray) -> NDArray:
        if self.W_P_0 is None:
            return hidden  # TensorFlow clips only what it has projected
        return clip(hidden @ self.W_P_0, self.projection_clip)


@dataclass
class TorchCell(Cell):
    """As in ELMoForManyLangs' encoder.pkl: order i, f, j, o, the forget bias already in `bias`."""

    input_weight: NDArray
    state_weight: NDArray
    bias: NDArray
    projection: NDArray

    def gates(self, x: NDArray, m: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        i, f, j, o = np.split(self.input_weight @ x + self.state_weight @ m + self.bias, 4)
        return i, j, f, o

    def project(self, hidden: NDArray) -> NDArray:
        return clip(self.projection @ hidden, self.projection_clip)


@dataclass
class BiLSTM:
    """Two stacks that never see each other; `cells[direction][layer]`."""

    cells: list[list[Cell]]
    skip: bool
    cell_dim: int
    output_dim: int

    def grown(self, state: State | None, rows: int, dtype: DTypeLike) -> State:
        """A copy of the state with at least `rows` rows, the new ones zero."""
        grown = {}
        for direction, stack in enumerate(self.cells):
            for layer in range(len(stack)):
                kept = state[direction, layer] if state else (np.zeros((0, 0)), np.zeros((0, 0)))
                pair = []
                for before, dim in zip(kept, (self.cell_dim, self.output_dim), strict=True):
                    after = np.zeros((max(rows, len(before)), dim), dtype)
                    if len(before):
                        after[: len(before)] = before
                    pair.append(after)
                grown[direction, layer] = (pair[0], pair[1])
        return grown

    def run(self, tokens: NDArray, state: State, row: int) -> NDArray:
        """Token vectors (T, D) to layers (L, T, 2D); the state of that row is overwritten."""
        directions = []
        for direction, stack in enumerate(self.cells):
            inputs = tokens[::-1] if direction else tokens
            outputs = []
            for layer, cell in enumerate(stack):
                cells, projected = state[direction, layer]
                steps = []
                for x in inputs:
                    cells[row], projected[row] = cell.step(x, cells[row], projected[row])
                    steps.append(projected[row].copy())
                output = np.stack(steps)
                if self.skip and layer > 0:
                    output = output + inputs
                outputs.append(output[::-1] if direction else output)
                inputs = output
            directions.append(np.stack(outputs))
        return np.concatenate(directions, axis=-1)


class NumpyElmo:
    """A bilm-tf model: `options` is options.json, `weights` is {HDF5 dataset name: array}.

    Without `char_cnn` in the options it is a vocabulary model: row k of `embedding` belongs to
    `vocabulary[k]`, which must hold `<S>`, `</S>` and `<UNK>`.
    """

    def __init__(
        self,
        options: dict,
        weights: dict[str, NDArray],
        dtype: DTypeLike = np.float64,
        vocabulary: list[str] | None = None,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.weights = {name: np.asarray(value, self.dtype) for name, value in weights.items()}
        self.char_cnn = options.get("char_cnn")
        self.vocabulary = None
        if self.char_cnn is None:
            assert vocabulary is not None, "a model without char_cnn needs its vocabulary"
            assert len(vocabulary) == len(self.weights["embedding"])
            self.vocabulary = {word: row for row, word in enumerate(vocabulary)}
        lstm = options["lstm"]
        self.lstm = BiLSTM(
            [
                [self._cell(lstm, direction, layer) for layer in range(lstm.get("n_layers", 1))]
                for direction in range(2)
            ],
            skip=bool(lstm.get("use_skip_connections")),
            cell_dim=lstm["dim"],
            output_dim=lstm["projection_dim"],
        )

    def _cell(self, lstm: dict, direction: int, layer: int) -> Cell:
        name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
        projected = lstm["dim"] != lstm["projection_dim"]
        return BilmCell(
            cell_clip=lstm.get("cell_clip"),
            projection_clip=lstm.get("proj_clip"),
            W_0=self.weights[f"{name}/W_0"],
            B=self.weights[f"{name}/B"],
            W_P_0=self.weights[f"{name}/W_P_0"] if projected else None,
        )

    def _from_characters(self, word: str) -> NDArray:
        weights, cnn = self.weights, self.char_cnn
        no_character = np.zeros((1, cnn["embedding"]["dim"]), self.dtype)
        table = np.concatenate([no_character, weights["char_embed"]])
        ids = np.array(byte_ids(word, cnn["max_characters_per_token"])) + 1
        characters = table[ids]  # (C, E)
        activation = ACTIVATIONS[cnn["activation"]]
        x = np.concatenate(
            [
                activation(
                    max_over_time(
                        characters, weights[f"CNN/W_cnn_{i}"][0], weights[f"CNN/b_cnn_{i}"]
                    )
                )
                for i in range(len(cnn["filters"]))
            ]
        )  # (F,)
        for k in range(cnn.get("n_highway") or 0):
            high = f"CNN_high_{k}"
            # the file says carry, but it gates the transform
            gate = sigmoid(x @ weights[f"{high}/W_carry"] + weights[f"{high}/b_carry"])
            transform = relu(x @ weights[f"{high}/W_transform"] + weights[f"{high}/b_transform"])
            x = gate * transform + (1 - gate) * x
        if len(x) == self.lstm.output_dim:
            return x
        return x @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]

    def _from_vocabulary(self, word: str) -> NDArray:
        row = self.vocabulary.get(word)
        return self.weights["embedding"][self.vocabulary["<UNK>"] if row is None else row]

    def token_vectors(self, words: list[str]) -> NDArray:
        """The vectors without context, (N, D)."""
        vector = self._from_characters if self.vocabulary is None else self._from_vocabulary
        if not words:
            return np.zeros((0, self.lstm.output_dim), self.dtype)
        return np.stack([vector(word) for word in words])

    def layers_with_boundaries(
        self, batch: list[list[str]], state: State | None = None
    ) -> tuple[list[NDArray], State]:
        """Each sentence as (L+1, T+2, 2D), and the state after the batch; `state` is not changed.

        Sentence number r starts from row r of the state and leaves its own there.
        """
        state = self.lstm.grown(state, len(batch), self.dtype)
        sentences = []
        for row, words in enumerate(batch):
            tokens = self.token_vectors(["<S>", *words, "</S>"])
            contextual = self.lstm.run(tokens, state, row)
            sentences.append(np.concatenate([np.tile(tokens, 2)[None], contextual]))
        return sentences, state

    def layers(
        self, batch: list[list[str]], state: State | None = None
    ) -> tuple[list[NDArray], State]:
        """The same without `<S>` and `</S>`: (L+1, T, 2D)."""
        sentences, state = self.layers_with_boundaries(batch, state)
        return [sentence[:, 1:-1] for sentence in sentences], state


class NumpyManyLangs:
    """An ELMoForManyLangs model: the cnn_*.json, both lexicons and both state dicts as arrays.

    A lexicon is needed only where the configuration gives its kind of vector a width above 0.
    """

    def __init__(
        self,
        config: dict,
        char_lexicon: dict[str, int] | None,
        word_lexicon: dict[str, int] | None,
        token_embedder: dict[str, NDArray],
        encoder: dict[str, NDArray],
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.embedder = config["token_embedder"]
        self.char_lexicon, self.word_lexicon = char_lexicon, word_lexicon
        self.weights = {
            name: np.asarray(value, self.dtype) for name, value in token_embedder.items()
        }
        lstm = config["encoder"]
        encoder = {name: np.asarray(value, self.dtype) for name, value in encoder.items()}
        self.lstm = BiLSTM(
            [
                [
                    TorchCell(
                        cell_clip=lstm.get("cell_clip"),
                        projection_clip=lstm.get("proj_clip"),
                        input_weight=encoder[f"{name}_layer_{layer}.input_linearity.weight"],
                        state_weight=encoder[f"{name}_layer_{layer}.state_linearity.weight"],
                        bias=encoder[f"{name}_layer_{layer}.state_linearity.bias"],
                        projection=encoder[f"{name}_layer_{layer}.state_projection.weight"],
                    )
                    for layer in range(lstm["n_layers"])
                ]
                for name in ("forward", "backward")
            ],
            skip=True,
            cell_dim=lstm["dim"],
            output_dim=lstm["projection_dim"],
        )

    def char_ids(self, word: str) -> list[int]:
        """The ids of one word (already cut to fit), padded to the full width."""
        lexicon = self.char_lexicon
        if word in ("<bos>", "<eos>"):
            payload = [lexicon[word]]
        else:
            payload = [lexicon.get(character, lexicon["<oov>"]) for character in word]
        # that package opens a word with <eow> and closes it with <bow>
        ids = [lexicon["<eow>"], *payload, lexicon["<bow>"]]
        return ids + [lexicon["<pad>"]] * (self.embedder["max_characters_per_token"] - len(ids))

    def _from_characters(self, word: str) -> NDArray:
        weights = self.weights
        characters = weights["char_emb_layer.embedding.weight"][self.char_ids(word)]  # (C, E)
        activation = ACTIVATIONS[self.embedder["activation"]]
        pooled = []
        for i in range(len(self.embedder["filters"])):
            kernel = weights[f"convolutions.{i}.weight"].transpose(2, 1, 0)
            response = max_over_time(characters, kernel, weights[f"convolutions.{i}.bias"])
            pooled.append(activation(response))
        x = np.concatenate(pooled)  # (F,)
        for k in range(self.embedder["n_highway"]):
            both = (
                weights[f"highways._layers.{k}.weight"] @ x + weights[f"highways._layers.{k}.bias"]
            )
            transform, gate = np.split(both, 2)
            gate = sigmoid(gate)  # here it gates x
            x = gate * x + (1 - gate) * relu(transform)
        return x

    def token_vectors(self, words: list[str]) -> NDArray:
        """The vectors without context, (N, D)."""
        vectors = []
        for word in words:
            # cut before either look-up, so a longer word is never found in word.dic
            word = word[: self.embedder["max_characters_per_token"] - 2]
            parts = []
            if self.embedder["word_dim"] > 0:
                row = self.word_lexicon.get(word, self.word_lexicon["<oov>"])
                parts.append(self.weights["word_emb_layer.embedding.weight"][row])
            if self.embedder["char_dim"] > 0:
                parts.append(self._from_characters(word))
            vectors.append(
                self.weights["projection.weight"] @ np.concatenate(parts)
                + self.weights["projection.bias"]
            )
        return np.stack(vectors) if vectors else np.zeros((0, self.lstm.output_dim), self.dtype)

    def layers_with_boundaries(self, batch: list[list[str]]) -> list[NDArray]:
        """Each sentence on its own, from the zero state, as (L+1, T+2, 2D)."""
        sentences = []
        for words in batch:
            tokens = self.token_vectors(["<bos>", *words, "<eos>"])
            contextual = self.lstm.run(tokens, self.lstm.grown(None, 1, self.dtype), row=0)
            sentences.append(np.concatenate([np.tile(tokens, 2)[None], contextual]))
        return sentences

    def layers(self, batch: list[list[str]]) -> list[NDArray]:
        """The same without `<bos>` and `<eos>`: (L+1, T, 2D)."""
        return [sentence[:, 1:-1] for sentence in self.layers_with_boundaries(batch)]


def padded(sentences: list[NDArray]) -> tuple[NDArray, NDArray]:
    """Sentences (L+1, T, D) as (L+1, B, T, D) with zeros after each end, and its mask (B, T)."""
    longest = max(sentence.shape[1] for sentence in sentences)
    num_layers, _, dim = sentences[0].shape
    stack = np.zeros((num_layers, len(sentences), longest, dim), sentences[0].dtype)
    mask = np.zeros((len(sentences), longest), bool)
    for row, sentence in enumerate(sentences):
        stack[:, row, : sentence.shape[1]] = sentence
        mask[row, : sentence.shape[1]] = True
    return stack, mask


def scalar_mix(layers: NDArray, weights: NDArray, gamma: float) -> NDArray:
    """gamma * sum of softmax(weights)[l] * layers[l], for layers (L+1, ...)."""
    weights = np.asarray(weights, layers.dtype)
    shares = np.exp(weights - weights.max())
    shares = shares / shares.sum()
    return layers.dtype.type(gamma) * np.tensordot(shares, layers, axes=1)


def _layer_norm_batch(layers: NDArray, mask: NDArray, epsilon: float) -> NDArray:
    normalised = []
    for layer in layers:
        counted = layer[mask]  # (tokens, D)
        mean = counted.mean()
        variance = ((counted - mean) ** 2).mean()
        normalised.append((layer - mean) / np.sqrt(variance + layer.dtype.type(epsilon)))
    return np.stack(normalised)


def layer_norm_allennlp(layers: NDArray, mask: NDArray) -> NDArray:
    """AllenNLP 1.0 and later, on layers (L+1, B, T, D) and mask (B, T) that include boundaries.

    One mean and one variance per layer; the masked positions are not counted, but are changed.
    """
    return _layer_norm_batch(layers, mask, 1e-13)


def layer_norm_bilm(layers: NDArray, mask: NDArray) -> NDArray:
    """bilm-tf, the same on layers and mask without the boundaries, and with its own epsilon."""
    return _layer_norm_batch(layers, mask, 1e-12)


def layer_norm_token(layers: NDArray, epsilon: float = 1e-12) -> NDArray:
    """Each vector (the last axis) by its own mean and biased variance."""
    mean = layers.mean(axis=-1, keepdims=True)
    variance = ((layers - mean) ** 2).mean(axis=-1, keepdims=True)
    return (layers - mean) / np.sqrt(variance + layers.dtype.type(epsilon))
