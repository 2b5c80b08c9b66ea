"""Knowledge distillation: the LSTM layers of a larger biLM as extra targets of a smaller one.

    loss = sum over positions of |W s + b - t|^2 / |t|^2      mean over the directions and layers

s is the output of a layer of the student at a position and t that of the teacher, whose layers are
wider; W and b are learned for each layer of each direction. It is 0 if the layers of the student
determine those of the teacher, and 1 if W s + b is always 0. The sum has a term for each position,
so how rows are divided into batches and processes makes no difference.

Shapes: B rows, T tokens, X width of one direction of the student, D that of the teacher.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.errors import ConfigError, WeightsError
from elmore.lm.batches import Batch
from elmore.lm.bilm_runner import BiLMRunner
from elmore.lm.language_model import LanguageModel
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.model.lstm.call import is_autocast
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.text.characters import Alphabet, ByteAlphabet
from elmore.train.loop import State, StepOutput
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

_MIN_MEAN_SQUARE = 1e-4  # of a target: a smaller one counts as this, so as not to dominate
_PREFIX = "teacher_"  # of the teacher's part of the recurrent state


class DistilledLanguageModel(LanguageModel):
    """A language model that also learns the layers of a frozen teacher.

    The teacher is not a submodule: its weights are neither trained nor saved, and processes do not
    exchange them. It follows the student to a device and a dtype, it has no dropout, and it carries
    its recurrent state from batch to batch as the student does, in the same `State`.

    Args:
        bilm: The network of the student.
        softmax: The softmax of the student.
        teacher: A network that reads the same words and has as many LSTM layers.
        weight: Factor of the auxiliary loss.
    """

    def __init__(
        self, bilm: BiLM, softmax: Softmax | AdaptiveSoftmax, teacher: BiLM, weight: float
    ) -> None:
        super().__init__(bilm, softmax)
        width, teacher_width = bilm.config.lstm.output_dim, teacher.config.lstm.output_dim
        num_maps = 2 * bilm.config.lstm.num_layers
        self.layer_maps = nn.ModuleList(nn.Linear(width, teacher_width) for _ in range(num_maps))
        for weights in self.layer_maps.parameters():  # so that it begins at 1 for every teacher
            nn.init.zeros_(weights)
        self._weight = weight
        self._runner = BiLMRunner(bilm, lowest_layer=0)
        self._teacher = BiLMRunner(teacher.eval().requires_grad_(False), lowest_layer=0)

    def forward(self, batch: Batch, state: State | None) -> StepOutput:
        """Return the training loss, and as the auxiliary loss that of the distillation."""
        own_state, teacher_state = _split_state(state)
        layers, own_state = self._runner.run(batch, own_state)
        targets, teacher_state = self._run_teacher(batch, teacher_state)
        state = own_state | {f"{_PREFIX}{name}": part for name, part in teacher_state.items()}
        output = self.prediction_loss([outputs[-1] for outputs in layers], batch, state)
        return output._replace(auxiliary_loss=self._weight * self._distill(layers, targets))

    def capture_cuda_graph(self, batch: Batch) -> None:
        """Capture student and teacher, each as a CUDA graph, for batches of this shape.

        The teacher is not captured where it runs by the definition, which reads masks on the CPU.
        """
        super().capture_cuda_graph(batch)
        self._set_teacher_precision()
        teacher = self._teacher.bilm
        if teacher.is_fast or not is_autocast(next(teacher.parameters()).device):
            with torch.no_grad():
                self._teacher.capture_cuda_graph(batch)

    @torch.no_grad()
    def _run_teacher(
        self, batch: Batch, state: State | None
    ) -> tuple[list[list[Float[Tensor, "B T D"]]], State]:
        self._set_teacher_precision()
        return self._teacher.run(batch, state)

    def _set_teacher_precision(self) -> None:
        """Let the teacher multiply in bf16 on a GPU where the student does.

        Under autocast and in "exact" precision only the definition runs, which is slow.
        """
        device = next(self._teacher.bilm.parameters()).device
        for layer in self._teacher.bilm.lstm_layers:
            layer.precision = "fast" if device.type == "cuda" and is_autocast(device) else "exact"

    def _distill(
        self,
        layers: Sequence[Sequence[Float[Tensor, "B T X"]]],
        targets: Sequence[Sequence[Float[Tensor, "B T D"]]],
    ) -> Float[Tensor, ""]:
        """Return the sum over positions of the mean error over the layers of both directions."""
        pairs = zip(self.layer_maps, chain(*layers), chain(*targets), strict=True)
        errors = [relative_errors(map_(layer), target).sum() for map_, layer, target in pairs]
        return torch.stack(errors).mean()

    def _apply(self, fn: Callable, recurse: bool = True) -> "DistilledLanguageModel":
        self._teacher.bilm._apply(fn)
        return super()._apply(fn, recurse)


def relative_errors(
    predicted: Float[Tensor, "B T D"], target: Float[Tensor, "B T D"]
) -> Float[Tensor, "B T"]:
    """Return the squared error of each position, relative to the squared norm of its target."""
    dtype = torch.promote_types(predicted.dtype, torch.float32)
    predicted, target = predicted.to(dtype), target.to(dtype)
    mean_square = target.square().mean(dim=2).clamp(min=_MIN_MEAN_SQUARE)
    return (predicted - target).square().mean(dim=2) / mean_square


def load_teacher(source: str, config: BiLMConfig, alphabet: Alphabet) -> Bundle:
    """Load the teacher of a student with this config and alphabet.

    Args:
        source: A name or a path, as for `elmore.load`.
        config: The network of the student.
        alphabet: The alphabet of the student.

    Raises:
        ConfigError: There is no such model, or it cannot teach such a student.
    """
    try:
        bundle = pretrained.load(source)
    except WeightsError as error:
        raise ConfigError(f"distillation.teacher: {error}") from error
    reads, expected = (_describe(each) for each in (bundle.alphabet, alphabet))
    if not isinstance(alphabet, ByteAlphabet) or bundle.alphabet != alphabet:
        raise ConfigError(
            f"distillation.teacher: {source} reads {reads}, the model of the recipe {expected}; "
            "both must read bytes, up to the same number (model.characters.max_characters)"
        )
    layers, needed = bundle.config.lstm.num_layers, config.lstm.num_layers
    if layers != needed:
        raise ConfigError(
            f"distillation.teacher: lstm.num_layers is {layers} in {source} and {needed} in the "
            "recipe; they must be equal: change the recipe, or choose another teacher"
        )
    return replace(bundle, softmax=None)  # it is large, and a teacher predicts no words


def _describe(alphabet: Alphabet) -> str:
    if isinstance(alphabet, ByteAlphabet):
        return f"up to {alphabet.max_characters} bytes a word"
    return "words" if getattr(alphabet, "characters", None) is None else "other characters"


def _split_state(state: State | None) -> tuple[State | None, State | None]:
    """Return the part of the student and that of the teacher."""
    if state is None:
        return None, None
    names = [name for name in state if name.startswith(_PREFIX)]
    teacher = {name.removeprefix(_PREFIX): state[name] for name in names}
    return {name: part for name, part in state.items() if name not in names}, teacher
