"""Soft targets by their definition: values, gradients, tiles, and repeated or hit candidates."""

import pytest
import torch
from torch.testing import assert_close

from elmore.model.soft_targets import soft_target_excess
from elmore.model.softmax import Candidates, Softmax, SoftmaxConfig

EXACT = {"rtol": 1e-11, "atol": 1e-12}
NUM_WORDS, WIDTH, TEACHER_WIDTH, POSITIONS = 12, 4, 6, 7


def softmax(width: int, **config) -> Softmax:
    module = Softmax(SoftmaxConfig(**config), NUM_WORDS, width).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    return module


def setting(**config):
    """Student, teacher, the states of both, and targets."""
    torch.manual_seed(3)
    student, teacher = softmax(WIDTH, **config), softmax(TEACHER_WIDTH)
    states = torch.randn(POSITIONS, WIDTH, dtype=torch.float64, requires_grad=True)
    teacher_states = torch.randn(POSITIONS, TEACHER_WIDTH, dtype=torch.float64)
    return student, teacher, states, teacher_states, torch.randint(NUM_WORDS, (POSITIONS,))


def excess(student, teacher, states, teacher_states, targets, candidates, chunk=2**20):
    parts = student.logit_parts(states, targets, candidates)
    theirs = teacher.logit_parts(teacher_states, targets, candidates)
    return soft_target_excess(parts, theirs, chunk=chunk)


def by_definition(student, teacher, states, teacher_states, targets, candidates):
    """The cross-entropy over the target and the candidates that are not, minus the nll."""
    words, corrections, _ = candidates
    own = states @ student.weight.T + student.bias
    theirs = teacher_states @ teacher.weight.T + teacher.bias
    results = []
    for position, target in enumerate(targets):
        others = words[words != target]
        added = corrections[words != target]
        logits, wanted = (
            torch.cat([row[position, target][None], row[position, others] + added])
            for row in (own, theirs)
        )
        log_probs, q = logits.log_softmax(dim=0), wanted.softmax(dim=0).detach()
        results.append(-(q * log_probs).sum() + log_probs[0])
    return torch.stack(results)


def gradients(loss, states, student):
    upstream = torch.linspace(-1, 2, len(loss), dtype=loss.dtype)
    return torch.autograd.grad(loss, [states, *student.parameters()], upstream)


@pytest.mark.parametrize("chunk", [1, 10, 2**20])
@pytest.mark.parametrize("drawn", ["all", "repeated"])
def test_values_and_gradients_are_those_of_the_definition_whatever_the_tiles(drawn, chunk):
    parts = setting()
    words = torch.arange(NUM_WORDS) if drawn == "all" else torch.tensor([0, 3, 3, 5, 11])
    candidates = Candidates(words, torch.linspace(-1, 1, len(words), dtype=torch.float64))
    expected, result = by_definition(*parts, candidates), excess(*parts, candidates, chunk)
    assert_close(result, expected, **EXACT)
    for one, other in zip(
        gradients(result, parts[2], parts[0]), gradients(expected, parts[2], parts[0]), strict=True
    ):
        assert_close(one, other, **EXACT)


def test_over_all_words_it_is_the_cross_entropy_of_two_softmaxes():
    student, teacher, states, teacher_states, targets = parts = setting(kind="full")
    candidates = student.candidates(targets, seed=0)
    q = (teacher_states @ teacher.weight.T + teacher.bias).softmax(dim=1)
    log_probs = student.log_probs(states)
    total = excess(*parts, candidates) + student.nll(states, targets)
    assert_close(total, -(q * log_probs).sum(dim=1), **EXACT)


def test_a_teacher_that_is_sure_of_the_target_adds_nothing():
    student, teacher, states, _, targets = setting(num_samples=8)
    candidates = student.candidates(targets, seed=1)
    with torch.no_grad():
        teacher.weight.zero_()
        teacher.bias.zero_()
        teacher.bias[5] = 200.0
    targets = torch.full_like(targets, 5)
    zero = excess(student, teacher, states, torch.zeros(POSITIONS, 6).double(), targets, candidates)
    assert_close(zero, torch.zeros_like(zero), rtol=0, atol=1e-12)


def test_candidates_that_are_all_the_target_add_nothing():
    parts = setting()
    targets = torch.full((POSITIONS,), 3)
    candidates = Candidates(torch.tensor([3, 3]), torch.zeros(2, dtype=torch.float64))
    result = excess(*parts[:4], targets, candidates)
    assert_close(result, torch.zeros_like(result), rtol=0, atol=0)
    assert all(grad.abs().sum() == 0 for grad in gradients(result, parts[2], parts[0]))


def test_the_teacher_gets_no_gradient():
    student, teacher, states, teacher_states, targets = setting()
    teacher_states.requires_grad_()
    candidates = student.candidates(targets, seed=1)
    excess(student, teacher, states, teacher_states, targets, candidates).sum().backward()
    assert teacher_states.grad is None
    assert teacher.weight.grad is None
    assert states.grad is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: pytest -m gpu")
@pytest.mark.parametrize("num_candidates", [64, 100])
def test_a_gpu_gives_the_values_and_gradients_of_a_cpu(num_candidates):
    """Candidates are padded there to a multiple of 64."""
    torch.manual_seed(0)
    words = torch.randint(NUM_WORDS, (num_candidates,))
    candidates = Candidates(words, torch.linspace(-1, 1, num_candidates))
    student, teacher, states, teacher_states, targets = setting()
    for each in (student, teacher):
        each.float()
    states = states.detach().float().requires_grad_()
    expected = excess(student, teacher, states, teacher_states.float(), targets, candidates)
    expected_grads = gradients(expected, states, student)
    on_gpu = states.detach().cuda().requires_grad_()
    moved = Candidates(words.cuda(), candidates.corrections.cuda())
    result = excess(
        student.cuda(), teacher.cuda(), on_gpu, teacher_states.float().cuda(), targets.cuda(), moved
    )
    upstream = torch.linspace(-1, 2, POSITIONS, device="cuda")
    grads = torch.autograd.grad(result, [on_gpu, *student.parameters()], upstream)
    assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(grads, expected_grads, strict=True):
        assert_close(one.cpu(), other, rtol=1e-3, atol=1e-3)
