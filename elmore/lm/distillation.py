"""Knowledge distillation: a larger biLM teaches a smaller one its LSTM layers and its predictions.

    loss of layers = sum over positions of |W s + b - t|^2 / |t|^2    mean over directions, layers

s is the output of a layer of the student at a position and t that of the teacher, whose layers are
wider; W and b are learned for each layer of each direction. It is 0 if the layers of the student
determine those of the teacher, and 1 if W s + b is always 0. The sum has a term for each position,
so how rows are divided into batches and processes makes no difference. With soft targets a share of
the loss of a word is the cross-entropy to the probabilities that the teacher gives to all words.

Shapes: B rows, T tokens, X width of one direction of the student, D that of the teacher.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.errors import ConfigError, DataError, WeightsError
from elmore.lm.batches import Batch
from elmore.lm.bilm_runner import BiLMRunner
from elmore.lm.config import DistillationConfig, PretrainConfig
from elmore.lm.language_model import LanguageModel
from elmore.lm.scoring import check_softmax_file
from elmore.model.bilm import BiLM
from elmore.model.soft_targets import soft_target_excess
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.text.characters import Alphabet, ByteAlphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.loop import State, StepOutput
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

_MIN_MEAN_SQUARE = 1e-4  # of a target: a smaller one counts as this, so as not to dominate
_PREFIX = "teacher_"  # of the teacher's part of the recurrent state


class DistilledLanguageModel(LanguageModel):
    """A language model that also learns the layers of a frozen teacher, and its predictions.

    The teacher is not a submodule: its weights are neither trained nor saved, and processes do not
    exchange them. It follows the student to a device and a dtype, it has no dropout, and it carries
    its recurrent state from batch to batch as the student does, in the same `State`.

    Args:
        bilm: The network of the student.
        softmax: The softmax of the student.
        teacher: A model that reads the same words and has as many LSTM layers. If it has a softmax,
            that is over the same words, and gives the soft targets.
        config: The settings.
    """

    def __init__(
        self,
        bilm: BiLM,
        softmax: Softmax | AdaptiveSoftmax,
        teacher: Bundle,
        config: DistillationConfig,
    ) -> None:
        super().__init__(bilm, softmax)
        width, teacher_width = bilm.config.lstm.output_dim, teacher.config.lstm.output_dim
        num_maps = 2 * bilm.config.lstm.num_layers
        self.layer_maps = nn.ModuleList(nn.Linear(width, teacher_width) for _ in range(num_maps))
        for weights in self.layer_maps.parameters():  # so that it begins at 1 for every teacher
            nn.init.zeros_(weights)
        self._config = config
        self._runner = BiLMRunner(bilm, lowest_layer=0)
        # modules in a tuple are not registered as submodules
        self._frozen = tuple(filter(None, (teacher.model, teacher.softmax)))
        for module in self._frozen:
            module.eval().requires_grad_(False)
        self._teacher = BiLMRunner(teacher.model, lowest_layer=0)
        self._teacher_softmax = self._frozen[1:]

    def forward(self, batch: Batch, state: State | None) -> StepOutput:
        """Return the training loss, and as the auxiliary loss that of the distillation."""
        own_state, teacher_state = _split_state(state)
        layers, own_state = self._runner.run(batch, own_state)
        targets, teacher_state = self._teacher.run(batch, teacher_state)
        state = own_state | {f"{_PREFIX}{name}": part for name, part in teacher_state.items()}
        top, teacher_top = ([outputs[-1] for outputs in both] for both in (layers, targets))
        auxiliary_loss = self._config.weight * self._distill(layers, targets)
        if not self._teacher_softmax:
            output = self.prediction_loss(top, batch, state)
            return output._replace(auxiliary_loss=auxiliary_loss)
        loss, excess = self._losses_of_words(top, teacher_top, batch)
        count = torch.full((), batch.targets[0].numel(), device=batch.targets.device)
        auxiliary_loss = auxiliary_loss + self._config.soft_targets * excess
        return StepOutput(loss, count, state, auxiliary_loss)

    def _losses_of_words(
        self,
        directions: Sequence[Float[Tensor, "B T X"]],
        teacher_directions: Sequence[Float[Tensor, "B T D"]],
        batch: Batch,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the loss of the words, and by how much that of soft targets exceeds it."""
        (teacher_softmax,) = self._teacher_softmax
        assert isinstance(self.softmax, Softmax)
        chunk, sums = self.softmax.config.chunk, []
        for states, teacher_states, targets, seed in zip(
            directions, teacher_directions, batch.targets, batch.seeds, strict=True
        ):
            flat_targets = targets.flatten()
            candidates = self.softmax.candidates(flat_targets, seed)
            own = self.softmax.logit_parts(
                self.bilm.dropout(states).flatten(0, 1), flat_targets, candidates
            )
            with torch.no_grad():
                flat = teacher_states.flatten(0, 1)
                theirs = teacher_softmax.logit_parts(flat, flat_targets, candidates)
            excess = soft_target_excess(own, theirs, chunk=chunk)
            sums.append(torch.stack([own.nll(chunk).sum(), excess.sum()]))
        loss, excess = torch.stack(sums).sum(dim=0) / 2
        return loss, excess

    def capture_cuda_graph(self, batch: Batch) -> None:
        """Capture student and teacher, each as a CUDA graph, for batches of this shape."""
        super().capture_cuda_graph(batch)
        self._teacher.capture_cuda_graph(batch)

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
        for module in self._frozen:
            module._apply(fn)
        return super()._apply(fn, recurse)


def relative_errors(
    predicted: Float[Tensor, "B T D"], target: Float[Tensor, "B T D"]
) -> Float[Tensor, "B T"]:
    """Return the squared error of each position, relative to the squared norm of its target."""
    dtype = torch.promote_types(predicted.dtype, torch.float32)
    predicted, target = predicted.to(dtype), target.to(dtype)
    mean_square = target.square().mean(dim=2).clamp(min=_MIN_MEAN_SQUARE)
    return (predicted - target).square().mean(dim=2) / mean_square


def load_teacher(recipe: PretrainConfig, alphabet: Alphabet, vocabulary: Vocabulary) -> Bundle:
    """Load the teacher of a recipe, with its softmax if that gives soft targets.

    Args:
        recipe: The recipe of the student.
        alphabet: The alphabet of the student.
        vocabulary: The words that the student predicts.

    Raises:
        ConfigError: There is no such model, or it cannot teach such a student.
    """
    source = recipe.distillation.teacher
    assert source is not None
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
    layers, needed = bundle.config.lstm.num_layers, recipe.model.lstm.num_layers
    if layers != needed:
        raise ConfigError(
            f"distillation.teacher: lstm.num_layers is {layers} in {source} and {needed} in the "
            "recipe; they must be equal: change the recipe, or choose another teacher"
        )
    if not recipe.distillation.soft_targets:
        return replace(bundle, softmax=None)  # it is large
    try:
        check_softmax_file(bundle)
    except DataError as error:
        raise ConfigError(f"distillation.teacher: {error}") from error
    if not isinstance(bundle.softmax, Softmax):
        what = "no softmax" if bundle.softmax is None else "an adaptive softmax"
        raise ConfigError(
            f"distillation.soft_targets: {source} has {what}; choose a teacher with a full one, or "
            "set it to 0"
        )
    if bundle.vocabulary != vocabulary:
        raise ConfigError(
            f"distillation.soft_targets: {source} predicts other words than those of the text; "
            f"prepare the text with its vocabulary (elmore prepare --vocabulary), or set it to 0"
        )
    return bundle


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
