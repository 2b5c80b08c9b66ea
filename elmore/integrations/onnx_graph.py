"""A biLM as an ONNX graph of standard operators (opset 18), node by node.

    index (B, T)        the word at each position, -1 for padding
    characters (N, C)   characters of each distinct word    } one or both of them,
    words (N)           id of each distinct word            } as the model needs
    layers (L+1, B, T, 2D)

Boundary tokens are not in the graph: the state after the first one is the initial state, and the
vector of the last one is not returned. The LSTMs also run over padding; its output is set to zero.

Shapes: N distinct words, C characters, E character width, F filters, B sentences, T tokens,
D width of one direction, H cell width, L LSTM layers. Inside, time comes before sentences.
"""

import numpy as np
import onnx
import torch
from jaxtyping import Shaped
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from elmore.model.bilm import BACKWARD, FORWARD, BiLMState
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.model.lstm.call import bias_with_forget
from elmore.weights.tensor_file import SCALE

OPSET = 18
_IR_VERSION = 8  # the version of the opset, so that old runtimes accept the file


class _Nodes:
    """The operators of a graph in topological order; values are identified by name."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._prefix = prefix

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Add an operator with one output and return the name of the output."""
        output = name or f"{self._prefix}{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def split(self, value: str, count: int) -> list[str]:
        """Split the last axis into equal parts."""
        name = f"{self._prefix}Split_{len(self.nodes)}"
        outputs = [f"{name}.{number}" for number in range(count)]
        attributes = {"axis": -1, "num_outputs": count}
        self.nodes.append(helper.make_node("Split", [value], outputs, name, **attributes))
        return outputs


class Network(_Nodes):
    """The graph of one model: its operators and its stored weights.

    Args:
        config: Shape of the network.
        weights: Its weights in storage format.
        start: LSTM state of one sentence before its first token.
    """

    def __init__(self, config: BiLMConfig, weights: dict[str, Tensor], start: BiLMState) -> None:
        super().__init__()
        self.config = config
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._packed = weights
        self._start = start
        self._build()

    def proto(self, name: str) -> onnx.ModelProto:
        """Return the ONNX model."""
        config, integer, real = self.config, TensorProto.INT64, TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info("index", integer, ["batch", "time"])]
        if config.characters is not None:
            shape = ["words", "letters"]
            inputs.append(helper.make_tensor_value_info("characters", integer, shape))
        if config.words is not None:
            inputs.append(helper.make_tensor_value_info("words", integer, ["words"]))
        shape = [config.num_layers, "batch", "time", config.width]
        output = helper.make_tensor_value_info("layers", real, shape)
        graph = helper.make_graph(
            self.nodes, name, inputs, [output], list(self.initializers.values())
        )
        return helper.make_model(
            graph,
            producer_name="elmore",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
        )

    def _constant(self, value: Shaped[np.ndarray, "..."], name: str = "") -> str:
        name = name or f"constant_{len(self.initializers)}"
        self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _integers(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _weight(self, name: str) -> str:
        """Add a stored weight and its conversion to float32, which runtimes do once at loading."""
        stored = self._packed[name]
        value = self._constant(stored.numpy(), name)
        if stored.dtype == torch.float32:
            return value
        value = self.op("Cast", value, to=TensorProto.FLOAT)
        if stored.dtype != torch.int8:
            return value
        scales = self._packed[name + SCALE].float()
        column = scales.view(-1, *[1] * (stored.dim() - 1)).numpy()
        return self.op("Mul", value, self._constant(column, name + SCALE))

    def _linear(self, inputs: str, name: str) -> str:
        weight, bias = (self._weight(f"{name}.{part}") for part in ("weight", "bias"))
        return self.op("Gemm", inputs, weight, bias, transB=1)

    def _build(self) -> None:
        index, time = self._pad_to_one_step()
        exists = self.op("GreaterOrEqual", index, self._integers(0))
        lengths = self.op(
            "ReduceSum",
            self.op("Cast", exists, to=TensorProto.INT64),
            self._integers(1),
            keepdims=0,
        )
        forward_index = self.op("Transpose", index, perm=[1, 0])  # (T, B)
        backward_index = self.op(
            "ReverseSequence", forward_index, lengths
        )  # each row within its own length
        # -1 is the last row, whose vector is zero
        zero = self._constant(np.zeros((1, self.config.lstm.output_dim), np.float32))
        words = self.op("Concat", self._tokens(), zero, axis=0)  # (N+1, D)
        tokens = self.op("Gather", words, forward_index)  # (T, B, D)
        pairs = zip(
            self._direction("forward", words, forward_index),
            (
                self.op("ReverseSequence", hidden, lengths)
                for hidden in self._direction("backward", words, backward_index)
            ),
            strict=True,
        )
        layers = [
            self.op("Unsqueeze", self.op("Concat", *pair, axis=2), self._integers(0))
            for pair in ((tokens, tokens), *pairs)
        ]
        stack = self.op("Concat", *layers, axis=0)  # (L+1, T, B, 2D)
        stack = self.op("Transpose", stack, perm=[0, 2, 1, 3])
        mask = self.op("Cast", exists, to=TensorProto.FLOAT)
        stack = self.op("Mul", stack, self.op("Unsqueeze", mask, self._integers(2)))
        self.op("Slice", stack, self._integers(0), time, self._integers(2), name="layers")

    def _pad_to_one_step(self) -> tuple[str, str]:
        """Return the index, padded to at least one step, and its original number of steps."""
        batch, time = (self.op("Shape", "index", start=n, end=n + 1) for n in (0, 1))
        missing = self.op("Max", self.op("Sub", self._integers(1), time), self._integers(0))
        shape = self.op("Concat", batch, missing, axis=0)
        padding = self.op("Expand", self._integers(-1), shape)
        return self.op("Concat", "index", padding, axis=1), time

    def _tokens(self) -> str:
        """Return the context-independent vector of each distinct word, (N, D)."""
        parts = []
        if self.config.words is not None:
            parts.append(self.op("Gather", self._weight("tokens.words.weight"), "words"))
        if self.config.characters is not None:
            parts.append(self._characters(self.config.characters))
        joined = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)
        return self._linear(joined, "tokens.projection") if self.config.projection else joined

    def _characters(self, config: CharCNNConfig) -> str:
        """Return the character CNN vector of each distinct word, (N, F); padded as in `CharCNN`."""
        count = self.op("Shape", "characters", start=0, end=1)
        width = self._integers(config.widest_filter)
        shape = self.op("Concat", count, width, axis=0)
        padding = self.op("Expand", self._integers(config.padding_id), shape)
        padded = self.op("Concat", "characters", padding, axis=1)
        zero, one, maximum = (self._integers(n) for n in (0, 1, config.max_characters))
        full = self.op("Slice", padded, zero, maximum, one)
        embedded = self.op("Gather", self._weight("tokens.characters.embedding.weight"), full)
        embedded = self.op("Transpose", embedded, perm=[0, 2, 1])  # (N, E, C)
        pooled = []
        for number in range(len(config.filters)):
            name = f"tokens.characters.convolutions.{number}"
            filters = [self._weight(f"{name}.{part}") for part in ("weight", "bias")]
            windows = self.op("Conv", embedded, *filters)  # (N, filters, positions)
            pooled.append(self.op("ReduceMax", windows, self._integers(2), keepdims=0))
        words = self.op("Concat", *pooled, axis=1)
        words = self.op("Relu" if config.activation == "relu" else "Tanh", words)
        for number in range(config.num_highways):
            name = f"tokens.characters.highways.{number}"
            gate = self.op("Sigmoid", self._linear(words, f"{name}.gate"))
            changed = self.op("Relu", self._linear(words, f"{name}.transform"))
            words = self.op("Add", words, self.op("Mul", gate, self.op("Sub", changed, words)))
        return words

    def _direction(self, name: str, words: str, positions: str) -> list[str]:
        """Return the output of each LSTM layer of one direction, (T, B, D), in its own order."""
        batch = self.op("Shape", positions, start=1, end=2)
        outputs: list[str] = []
        for number in range(self.config.lstm.num_layers):
            layer = f"{name}_layers.{number}"
            weight = self._weight(f"{layer}.input")
            if not outputs:  # computed once per distinct word
                gate_inputs = self.op(
                    "Gemm", words, weight, self._bias(layer), transB=1
                )  # (N+1, 4H)
                hidden = self._lstm(layer, self.op("Gather", gate_inputs, positions), batch)
            else:
                columns = self.op("Transpose", weight, perm=[1, 0])
                gate_inputs = self.op(
                    "Add", self.op("MatMul", outputs[-1], columns), self._bias(layer)
                )
                hidden = self._lstm(layer, gate_inputs, batch)
                if self.config.lstm.skip_connections:
                    hidden = self.op("Add", hidden, outputs[-1])
            outputs.append(hidden)
        return outputs

    def _bias(self, layer: str) -> str:
        bias = self._packed[f"{layer}.bias"].float()
        total = bias_with_forget(bias, self.config.lstm.forget_bias)
        return self._constant(total.numpy(), f"{layer}.bias")

    def _lstm(self, layer: str, gate_inputs: str, batch: str) -> str:
        """Run from the first token to the last; `gate_inputs` is (T, B, 4H)."""
        direction, number = layer.split("_layers.")
        state = self._start.direction(BACKWARD if direction == "backward" else FORWARD)[int(number)]
        starts = []
        for part, value in state._asdict().items():
            row = self._constant(value.numpy(), f"{layer}.start.{part}")  # (1, width)
            shape = self.op("Concat", batch, self._integers(value.shape[1]), axis=0)
            starts.append(self.op("Expand", row, shape))
        body = _cell(
            layer,
            self.config.lstm,
            self._weight(f"{layer}.recurrent"),
            self._weight(f"{layer}.projection") if self.config.lstm.projection else None,
            self._clip(self.config.lstm.cell_clip),
            self._clip(self.config.lstm.output_clip),
        )
        outputs = [f"{layer}.end.output", f"{layer}.end.cell", layer]
        attributes = {"body": body, "num_scan_inputs": 1}
        self.nodes.append(
            helper.make_node("Scan", [*starts, gate_inputs], outputs, layer, **attributes)
        )
        return layer

    def _clip(self, limit: float | None) -> tuple[str, str] | None:
        if limit is None:
            return None
        low, high = (self._constant(np.array(end, np.float32)) for end in (-limit, limit))
        return low, high


def _cell(
    layer: str,
    config: LSTMConfig,
    recurrent: str,
    projection: str | None,
    cell_clip: tuple[str, str] | None,
    output_clip: tuple[str, str] | None,
) -> onnx.GraphProto:
    """Return one step of `lstm.reference` as a subgraph; its weights are in the outer graph."""
    body = _Nodes(f"{layer}/")
    output, cell, gate_inputs = (f"{layer}/{name}" for name in ("output", "cell", "gate_inputs"))
    gates = body.op("Gemm", output, recurrent, gate_inputs, transB=1)
    i, f, g, o = body.split(gates, 4)
    remembered = body.op("Mul", body.op("Sigmoid", f), cell)
    new_cell = body.op("Add", remembered, body.op("Mul", body.op("Sigmoid", i), body.op("Tanh", g)))
    if cell_clip is not None:
        new_cell = body.op("Clip", new_cell, *cell_clip)
    new_output = body.op("Mul", body.op("Sigmoid", o), body.op("Tanh", new_cell))
    if projection is not None:
        new_output = body.op("Gemm", new_output, projection, transB=1)
        if output_clip is not None:
            new_output = body.op("Clip", new_output, *output_clip)
    scan_output = body.op("Identity", new_output)
    widths = {
        output: config.output_dim,
        cell: config.cell_dim,
        gate_inputs: 4 * config.cell_dim,
        new_output: config.output_dim,
        new_cell: config.cell_dim,
        scan_output: config.output_dim,
    }
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in widths.items()
    ]
    return helper.make_graph(body.nodes, f"{layer}.step", ports[:3], ports[3:])
