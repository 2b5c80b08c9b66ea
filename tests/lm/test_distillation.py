"""Distillation by its definition: the loss, its gradient, and what it teaches."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.errors import DataError
from elmore.lm import distillation
from elmore.lm.bilm_runner import BiLMRunner
from elmore.lm.config import PretrainConfig
from elmore.lm.distillation import DistilledLanguageModel
from elmore.lm.pretrain import build_alphabet, build_model
from elmore.lm.trainable import LMTrainable
from elmore.model.bilm import BiLM
from elmore.text.characters import ByteAlphabet
from elmore.train import optimizers
from elmore.train.distributed import SINGLE_PROCESS, DistEnv
from elmore.train.loop import Step, run_steps
from elmore.weights.bundle import Bundle
from tests.lm.test_bilm_runner import layers_by_token
from tests.support import toy_corpus, toy_teacher

WEIGHT = 0.7


def recipe(*overrides: str) -> PretrainConfig:
    return toy_corpus.recipe("model.dropout=0", f"distillation.weight={WEIGHT}", *overrides)


def training(
    corpus, settings: PretrainConfig, dist_env: DistEnv = SINGLE_PROCESS, *, distilled: bool = True
) -> LMTrainable:
    """A student of the toy teacher, or a model of the same weights without one."""
    bundle = Bundle(toy_teacher.bilm(), ByteAlphabet()) if distilled else None
    return LMTrainable(
        build_model(settings, corpus.vocabulary, None, bundle),
        corpus,
        corpus.vocabulary,
        build_alphabet(settings, corpus.vocabulary),
        settings.stream,
        settings.train.seed,
        dist_env,
    )


def small(corpus, *overrides: str) -> tuple[DistilledLanguageModel, list]:
    """A student and two batches in float64, the weights large enough for every part to matter."""
    trainable = training(corpus, recipe("softmax.kind=full", *overrides))
    module = trainable.module.double()
    assert isinstance(module, DistilledLanguageModel)
    rng = np.random.RandomState(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.from_numpy(0.4 * rng.standard_normal(tuple(weight.shape))))
    return module, [trainable.make_batch(number) for number in (0, 1)]


def test_the_loss_is_the_relative_error_of_each_token_by_its_definition(corpus):
    module, (batch, _) = small(corpus)
    assert batch.resets.any()
    teacher = toy_teacher.bilm().double()
    expected = 0.0
    for direction in (0, 1):
        for row in range(4):
            own = layers_by_token(module.bilm, batch, direction, row)
            theirs = layers_by_token(teacher, batch, direction, row)
            for layer in (0, 1):
                linear = module.layer_maps[2 * direction + layer]
                weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
                for step in range(5):
                    target = theirs[layer, step]
                    error = weight @ own[layer, step] + bias - target
                    expected += (error @ error) / (target @ target) / 4  # layers and directions
    result = module(batch, None)
    assert result.auxiliary_loss.item() == pytest.approx(WEIGHT * expected, rel=1e-9)
    assert result.count.item() == 4 * 5


def test_it_begins_at_the_weight_for_each_token_whatever_the_teacher(corpus):
    trainable = training(corpus, recipe())
    result = trainable.module(trainable.make_batch(0), None)
    assert result.auxiliary_loss.item() == pytest.approx(WEIGHT * 4 * 5, rel=1e-6)


def test_a_token_at_which_the_teacher_is_silent_does_not_dominate():
    target = torch.tensor([[[0.0, 0.0], [0.003, 0.004], [3.0, 4.0]]])
    errors = distillation.relative_errors(torch.ones(1, 3, 2), target)
    floor = 1e-4  # of the mean square
    expected = [1 / floor, (0.997**2 + 0.996**2) / 2 / floor, (4 + 9) / 25]
    assert_close(errors, torch.tensor([expected]))


def test_the_loss_of_the_words_is_that_of_a_model_without_a_teacher(corpus):
    settings = recipe()
    with_teacher, alone = (training(corpus, settings, distilled=each) for each in (True, False))
    first, second = (one.module(one.make_batch(0), None) for one in (with_teacher, alone))
    assert first.loss == second.loss
    assert second.auxiliary_loss is None
    assert first.objective == first.loss + first.auxiliary_loss


def test_the_state_of_the_teacher_is_carried_to_the_next_batch(corpus):
    """Where nothing is reset, two batches of 5 are one of 10."""
    module, short = small(corpus, "stream.reset_probability=0")
    _, (long, _) = small(corpus, "stream.reset_probability=0", "stream.unroll_steps=10")
    first = module(short[0], None)
    second = module(short[1], first.state)
    whole = module(long, None)
    assert_close(first.auxiliary_loss + second.auxiliary_loss, whole.auxiliary_loss)
    assert_close(second.state, whole.state)
    assert {name: tuple(part.shape) for name, part in whole.state.items()} == {
        "output": (4, 2, 2, 6),
        "cell": (4, 2, 2, 12),
        "teacher_output": (4, 2, 2, 8),
        "teacher_cell": (4, 2, 2, 16),
    }


def test_a_reset_forgets_what_the_teacher_carried(corpus):
    module, (batch, _) = small(corpus, "stream.reset_probability=1")
    batch.resets[:, :, 0] = True
    carried = module(batch, None).state
    noise = {name: part + name.startswith("teacher") for name, part in carried.items()}
    calm, loud = (module(batch, state).auxiliary_loss for state in (carried, noise))
    assert_close(calm, loud, rtol=0, atol=0)


@pytest.mark.parametrize("lost", ["teacher_output", "cell"])
def test_a_carried_state_of_another_training_is_refused(corpus, lost):
    module, (first, second) = small(corpus)
    state = module(first, None).state
    del state[lost]
    with pytest.raises(DataError, match="the recurrent state in the checkpoint does not fit this"):
        module(second, state)


def test_two_processes_sum_to_one_whatever_their_rows(corpus):
    parts = []
    for env in (SINGLE_PROCESS, DistEnv(0, 2), DistEnv(1, 2)):
        one = training(corpus, recipe(), env)
        for weight in one.module.double().layer_maps.parameters():
            torch.nn.init.constant_(weight, 0.3)
        parts.append(one.module(one.make_batch(2), None).auxiliary_loss)
    whole, first, second = parts
    assert_close(first + second, whole)
    assert (first / whole).item() != pytest.approx(0.5)


def test_the_gradient_of_every_weight_is_that_of_finite_differences(corpus):
    module, batches = small(corpus, "stream.batch_size=3", "stream.unroll_steps=4")

    def objective() -> torch.Tensor:
        first = module(batches[0], None)
        return first.objective + module(batches[1], first.state).objective

    objective().backward()
    rng = np.random.RandomState(1)
    for name, weight in module.named_parameters():
        direction = torch.from_numpy(rng.standard_normal(tuple(weight.shape)))
        ways = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight += step * direction
                ways.append(objective().item())
                weight -= step * direction
        assert weight.grad is not None, name
        found = (weight.grad * direction).sum().item()
        assert found == pytest.approx((ways[0] - ways[1]) / 2e-6, rel=2e-5, abs=2e-6), name


def soft(corpus, share: float) -> tuple[DistilledLanguageModel, list]:
    """Such a student whose teacher has a softmax, and two batches."""
    named = ("distillation.teacher=Miss", f"distillation.soft_targets={share}")
    settings = recipe("softmax.kind=full", *named)
    teacher = toy_teacher.bilm()
    softmax = toy_teacher.softmax(corpus.vocabulary, teacher.config.lstm.output_dim)
    bundle = Bundle(teacher, ByteAlphabet(), corpus.vocabulary, softmax=softmax)
    plain, batches = small(corpus)
    model = build_model(settings, corpus.vocabulary, None, bundle).double()
    assert isinstance(model, DistilledLanguageModel)
    model.load_state_dict(plain.state_dict())
    return model, batches


def test_soft_targets_replace_a_share_of_the_loss_of_words(corpus):
    """By the definition: the cross-entropy of two full softmaxes."""
    plain, (batch, _) = small(corpus)
    alone = plain(batch, None)
    module, _ = soft(corpus, 0.25)
    result = module(batch, None)
    with torch.no_grad():
        own, _ = module._runner.run(batch, None)
        theirs, _ = module._teacher.run(batch, None)
        crosses = []
        for direction in (0, 1):
            log_probs = module.softmax.log_probs(own[direction][-1].flatten(0, 1))
            q = module._teacher_softmax[0].log_probs(theirs[direction][-1].flatten(0, 1)).exp()
            crosses.append(-(q * log_probs).sum() / 2)
    assert_close(result.loss, alone.loss)  # what is shown stays that of the words
    assert_close(result.objective - alone.auxiliary_loss, 0.75 * alone.loss + 0.25 * sum(crosses))


def test_the_gradient_of_soft_targets_is_that_of_finite_differences(corpus):
    module, (batch, _) = soft(corpus, 0.6)
    module(batch, None).objective.backward()
    rng = np.random.RandomState(1)
    for name, weight in module.named_parameters():
        direction = torch.from_numpy(rng.standard_normal(tuple(weight.shape)))
        ways = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight += step * direction
                ways.append(module(batch, None).objective.item())
                weight -= step * direction
        assert weight.grad is not None, name
        found = (weight.grad * direction).sum().item()
        assert found == pytest.approx((ways[0] - ways[1]) / 2e-6, rel=2e-5, abs=2e-6), name


def test_the_softmax_of_a_teacher_is_no_part_of_the_module_but_moves_with_it(corpus):
    module, _ = soft(corpus, 0.5)
    (frozen,) = module._teacher_softmax
    assert {part.split(".")[0] for part in module.state_dict()} == {"bilm", "softmax", "layer_maps"}
    assert not any(weight.requires_grad for weight in frozen.parameters())
    assert {weight.dtype for weight in frozen.parameters()} == {torch.float64}
    module.float()
    assert {weight.dtype for weight in frozen.parameters()} == {torch.float32}


def test_every_layer_of_the_student_and_every_map_has_a_gradient_and_the_teacher_none(corpus):
    module, (batch, _) = small(corpus)
    module(batch, None).auxiliary_loss.backward()
    teacher = module._teacher.bilm
    for name, weight in module.named_parameters():
        assert (weight.grad is not None) == (not name.startswith("softmax.")), name
        assert weight.grad is None or weight.grad.abs().sum() > 0, name
    assert len(module.layer_maps) == 4
    assert not any(weight.requires_grad for weight in teacher.parameters())
    assert all(weight.grad is None for weight in teacher.parameters())


def test_the_teacher_is_no_part_of_the_module_but_moves_with_it(corpus):
    module, _ = small(corpus)
    teacher = module._teacher.bilm
    assert {part.split(".")[0] for part in module.state_dict()} == {"bilm", "softmax", "layer_maps"}
    inside = {id(weight) for weight in module.parameters()}
    assert not any(id(weight) in inside for weight in teacher.parameters())
    assert {weight.dtype for weight in teacher.parameters()} == {torch.float64}
    module.float()
    assert {weight.dtype for weight in teacher.parameters()} == {torch.float32}


def test_the_teacher_never_has_dropout_and_the_student_does_in_training(corpus):
    module, (batch, _) = small(corpus)
    assert module._teacher.bilm.dropout.p == 0.5
    module.train()
    same = [module(batch, None).auxiliary_loss for _ in range(2)]
    assert same[0] == same[1]
    module.bilm.dropout.p = 0.5
    differing = [module(batch, None).auxiliary_loss for _ in range(2)]
    assert differing[0] != differing[1]


@pytest.mark.parametrize(("autocast", "captured"), [(False, 2), (True, 1)])
def test_a_teacher_that_only_the_definition_can_run_is_not_captured(
    corpus, monkeypatch, autocast, captured
):
    """As on a GPU without bf16 units under autocast; the graphs themselves need a GPU."""
    seen = []

    def record(runner, batch):
        seen.append((runner.bilm, torch.is_grad_enabled()))

    monkeypatch.setattr(BiLMRunner, "_capture", record)
    module, (batch, _) = small(corpus)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        module.capture_cuda_graph(batch)
    assert seen == [(module.bilm, True), (module._teacher.bilm, False)][:captured]


def layers_of(bilm: BiLM, batches: list) -> list[np.ndarray]:
    """Each layer of each direction, all tokens of the batches one below the other."""
    with torch.no_grad():
        runs = [BiLMRunner(bilm.eval(), lowest_layer=0).run(batch, None)[0] for batch in batches]
    return [
        np.concatenate([run[direction][layer].flatten(0, 1).numpy() for run in runs])
        for direction in (0, 1)
        for layer in (0, 1)
    ]


def unexplained(bilm: BiLM, batches: list) -> float:
    """The part of the variance of the teacher's layers that no linear map of the model's has."""
    parts = []
    teacher = layers_of(toy_teacher.bilm(), batches)
    for own, theirs in zip(layers_of(bilm, batches), teacher, strict=True):
        inputs = np.hstack([own, np.ones((len(own), 1))])
        rest = theirs - inputs @ np.linalg.lstsq(inputs, theirs, rcond=None)[0]
        parts.append((rest**2).sum() / ((theirs - theirs.mean(axis=0)) ** 2).sum())
    return float(np.mean(parts))


def trained(corpus, settings: PretrainConfig, *, distilled: bool) -> tuple[LMTrainable, list[Step]]:
    trainable = training(corpus, settings, distilled=distilled)
    updates = run_steps(
        trainable,
        optimizers.build_optimizer(trainable.module, settings.train),
        settings.train,
        num_steps=60,
        device=torch.device("cpu"),
        dist_env=SINGLE_PROCESS,
    )
    return trainable, list(updates)


def test_a_student_comes_nearer_to_its_teacher_than_a_model_without_one(tmp_path):
    text = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(12))
    settings = recipe(
        "train.lr=0.05", "distillation.weight=50", "stream.reset_probability=1",
        "model.lstm.cell_dim=24", "model.lstm.output_dim=12",
    )  # fmt: skip
    student, updates = trained(text, settings, distilled=True)
    alone, _ = trained(text, settings, distilled=False)
    first, last = (step.auxiliary_loss.item() / 50 for step in (updates[0], updates[-1]))
    assert last < 0.1 * first
    batches = [student.make_batch(number) for number in range(8)]
    near, far = (unexplained(one.module.bilm, batches) for one in (student, alone))
    assert near < 0.6 * far, (near, far)
