import itertools
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from elmore.errors import ConfigError
from elmore.model import sampling
from elmore.model.rounding import round_rows
from elmore.model.softmax import AdaptiveSoftmax, Candidates, Softmax, SoftmaxConfig, build

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def softmax(num_words: int = 12, dim: int = 4, scale: float = 1.0, **config):
    """Give one whose words are not equally likely, the more so the larger the scale."""
    module = build(SoftmaxConfig(**config), num_words, dim).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(std=scale)
    return module


def batch(num_words: int = 12, dim: int = 4, size: int = 7):
    states = torch.randn(size, dim, dtype=torch.float64, requires_grad=True)
    return states, torch.randint(num_words, (size,))


def gradients(loss: torch.Tensor, states: torch.Tensor, module) -> list[torch.Tensor]:
    """Of a weighted sum, so that every position is told apart."""
    upstream = torch.linspace(-1, 2, len(loss), dtype=loss.dtype, device=loss.device)
    return list(torch.autograd.grad(loss, [states, *module.parameters()], upstream))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The sampled softmax


def estimated_normalizer(loss, states, targets, module) -> torch.Tensor:
    logits = states @ module.weight.T + module.bias
    return (loss + logits.gather(1, targets[:, None]).squeeze(1)).exp()


def full_normalizer(states, module) -> torch.Tensor:
    return (states @ module.weight.T + module.bias).exp().sum(dim=1)


def every_draw(num_words: int, num_samples: int):
    """All sequences of draws with their corrections, and how likely each is."""
    law = sampling.log_uniform(torch.arange(num_words), num_words)
    for drawn in itertools.product(range(num_words), repeat=num_samples):
        words = torch.tensor(drawn)
        yield words, -(num_samples * law[words]).log(), law[words].prod()


@pytest.mark.parametrize("num_samples", [1, 2, 3])
def test_the_estimated_normalizer_has_the_full_one_as_its_mean(num_samples):
    module = softmax(5)
    states = batch(5, size=5)[0].detach()
    targets = torch.arange(5)
    mean = sum(
        chance
        * estimated_normalizer(
            module.loss_against(states, targets, Candidates(words, corrections)),
            states,
            targets,
            module,
        )
        for words, corrections, chance in every_draw(5, num_samples)
    )
    assert_close(mean, full_normalizer(states, module), **EXACT)


@torch.no_grad()
def test_the_normalizer_of_the_training_loss_is_right_on_average():
    module, (states, targets) = softmax(50, num_samples=16), batch(50)
    samples = torch.stack(
        [
            estimated_normalizer(module.loss(states, targets, seed), states, targets, module)
            for seed in range(600)
        ]
    )
    error = samples.mean(dim=0) - full_normalizer(states, module)
    assert (error.abs() < 4 * samples.std(dim=0) / math.sqrt(len(samples))).all()


def test_the_bias_of_the_gradient_shrinks_with_every_draw():
    module, (states, targets) = softmax(5, scale=0.3), batch(5)
    exact = gradients(module.nll(states, targets), states, module)
    biases = []
    for num_samples in (1, 2, 3):
        mean = [torch.zeros_like(part) for part in exact]
        for words, corrections, chance in every_draw(5, num_samples):
            loss = module.loss_against(states, targets, Candidates(words, corrections))
            for total, part in zip(mean, gradients(loss, states, module), strict=True):
                total += chance * part
        biases.append(distance(mean, exact))
    assert biases == sorted(biases, reverse=True)
    assert biases[-1] < 0.6 * biases[0]


def test_the_bias_of_the_gradient_vanishes_with_many_samples():
    states, targets = batch(30)
    weights = softmax(30, scale=0.3).state_dict()
    biases = []
    for num_samples in (4, 32, 256):
        module = softmax(30, num_samples=num_samples)
        module.load_state_dict(weights)
        exact = gradients(module.nll(states, targets), states, module)
        runs = [gradients(module.loss(states, targets, s), states, module) for s in range(200)]
        mean = [torch.stack(parts).mean(dim=0) for parts in zip(*runs, strict=True)]
        biases.append(distance(mean, exact) / distance(exact, [torch.zeros_like(x) for x in exact]))
    assert biases[0] > 2 * biases[1] > 4 * biases[2]
    assert biases[2] < 0.02


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    pairs = zip(found, expected, strict=True)
    return math.sqrt(sum(((a - b) ** 2).sum().item() for a, b in pairs))


def test_sampling_every_other_word_once_is_the_full_softmax():
    module, (states, targets) = softmax(), batch()
    for target in range(12):
        others = torch.tensor([word for word in range(12) if word != target]).flip(0)
        wanted = torch.full_like(targets, target)
        logits = states @ module.weight.T + module.bias
        expected = functional.cross_entropy(logits, wanted, reduction="none")
        result = module.loss_against(states, wanted, Candidates(others, torch.zeros(11)))
        assert_close(result, expected, **EXACT)
        assert_close(
            gradients(result, states, module), gradients(expected, states, module), **EXACT
        )


def test_draws_that_hit_the_target_never_count():
    module, (states, _) = softmax(), batch()
    targets = torch.full((7,), 3)
    words, corrections = torch.tensor([1, 5, 5, 0]), torch.tensor([0.5, -1.0, -1.0, 2.0])
    expected = module.loss_against(states, targets, Candidates(words, corrections))
    hit = torch.tensor([1, 3, 5, 3, 5, 0, 3])
    more = torch.tensor([0.5, 9.0, -1.0, 0.0, -1.0, 2.0, 50.0])
    result = module.loss_against(states, targets, Candidates(hit, more))
    assert_close(result, expected, **EXACT)
    assert_close(gradients(result, states, module), gradients(expected, states, module), **EXACT)


def test_sampling_only_the_target_has_no_loss_and_no_gradient():
    module, (states, _) = softmax(), batch()
    targets = torch.full((7,), 3)
    result = module.loss_against(states, targets, Candidates(torch.tensor([3, 3]), torch.zeros(2)))
    assert_close(result, torch.zeros_like(result))
    for part in gradients(result, states, module):
        assert_close(part, torch.zeros_like(part))


def test_a_vocabulary_of_one_word_is_certain():
    module = softmax(1, num_samples=3)
    states, targets = batch(1)
    assert_close(module.loss(states, targets, 0), torch.zeros(7, dtype=torch.float64))


def test_the_unique_loss_is_that_of_tensorflow():
    num_words, num_samples, seed = 12, 6, 3
    module = softmax(num_words, num_samples=num_samples, unique=True)
    states, targets = batch(num_words)
    words, num_draws = sampling.draw_unique(num_samples, num_words, generator(seed))
    law = torch.tensor([math.log((k + 2) / (k + 1)) / math.log(13) for k in range(12)]).double()
    logits = states @ module.weight.T + module.bias - (1 - (1 - law) ** num_draws).log()
    own = logits.gather(1, targets[:, None])
    negatives = logits[:, words].masked_fill(words == targets[:, None], -math.inf)
    expected = torch.cat([own, negatives], dim=1).logsumexp(dim=1) - own.squeeze(1)
    assert_close(module.loss(states, targets, seed), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("unique", [False, True])
def test_the_seed_alone_decides_the_negatives(unique):
    module, (states, targets) = softmax(num_samples=5, unique=unique), batch()
    first = module.loss(states, targets, 1)
    torch.rand(3)
    assert torch.equal(module.loss(states, targets, 1), first)
    assert not torch.equal(module.loss(states, targets, 2), first)
    half = module.loss(states[:3], targets[:3], 1)  # as another rank would see it
    assert_close(half, first[:3], **EXACT)


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    for config in ({}, {"unique": True}):
        module = softmax(num_samples=5, **config)
        states, targets = batch()
        torch.set_rng_state(before)
        module.loss(states, targets, 1).sum().backward()
        assert torch.equal(torch.get_rng_state(), before)


# The sum in tiles


@pytest.mark.parametrize("kind", ["sampled", "full", "adaptive"])
@pytest.mark.parametrize("chunk", [1, 5, 17, 48, 10**6])
def test_the_chunk_changes_nothing(kind, chunk):
    states, targets = batch()
    whole = softmax(kind=kind, num_samples=10)
    cut = softmax(kind=kind, num_samples=10, chunk=chunk)
    cut.load_state_dict(whole.state_dict())
    expected, result = whole.loss(states, targets, 0), cut.loss(states, targets, 0)
    assert_close(result, expected, **EXACT)
    assert_close(gradients(result, states, cut), gradients(expected, states, whole), **EXACT)


class Largest(TorchDispatchMode):
    """Watches how large a tensor anything makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_the_logits_never_exist_at_once(kind):
    module = softmax(100, 2, kind=kind, num_samples=100, chunk=300)
    states, targets = batch(100, 2, size=50)  # 5,000 logits
    with Largest() as largest:
        module.loss(states, targets, 0).sum().backward()
    assert largest.numel == 300


def test_no_positions_have_no_loss_and_a_gradient_of_zeros():
    for kind in ("sampled", "full", "adaptive"):
        module = softmax(kind=kind, num_samples=3)
        states, targets = batch(size=0)
        loss = module.loss(states, targets, 0)
        loss.sum().backward()
        assert loss.shape == (0,)
        assert all(not weight.grad.any() for weight in module.parameters())


def test_the_same_bits_come_each_time():
    module, (states, targets) = softmax(num_samples=40), batch()
    runs = [gradients(module.loss(states, targets, 0), states, module) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0], strict=True))


# The full softmax


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 9))
def test_the_full_loss_is_the_cross_entropy(num_words, dim, size):
    module = softmax(num_words, dim, kind="full", chunk=16)
    states, targets = batch(num_words, dim, size)
    logits = states @ module.weight.T + module.bias
    expected = functional.cross_entropy(logits, targets, reduction="none")
    result = module.loss(states, targets, 0)
    assert_close(result, expected, **EXACT)
    assert_close(gradients(result, states, module), gradients(expected, states, module), **EXACT)
    assert_close(module.log_probs(states), logits.log_softmax(dim=1), **EXACT)


def test_large_logits_neither_overflow_nor_vanish():
    module, (states, targets) = softmax().float(), batch()
    states = 300 * states.detach().float()
    expected = -module.double().log_probs(states.double()).gather(1, targets[:, None]).squeeze(1)
    result = module.float().nll(states, targets)
    assert_close(result, expected.float(), rtol=1e-5, atol=1e-3)


def test_evaluation_is_exact_whatever_trained():
    module, (states, targets) = softmax(num_samples=2), batch()
    expected = -module.log_probs(states).gather(1, targets[:, None]).squeeze(1)
    assert_close(module.nll(states, targets), expected, **EXACT)


def test_new_weights_have_the_scale_of_the_original():
    module = Softmax(SoftmaxConfig(), 2000, 64)
    assert module.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert not module.bias.any()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bfloat16 says so, and goes on
@pytest.mark.parametrize("kind", ["sampled", "full", "adaptive"])
def test_autocast_on_a_cpu_is_close_to_float32(kind):
    module = build(SoftmaxConfig(kind=kind, num_samples=64, chunk=2000), 200, 32)
    states, targets = torch.randn(64, 32, requires_grad=True), torch.randint(200, (64,))
    expected = module.loss(states, targets, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = module.loss(states, targets, 0)
    assert result.dtype == torch.float32
    assert_close(result, expected, rtol=0.0, atol=0.03)
    pairs = zip(gradients(result, states, module), gradients(expected, states, module), strict=True)
    for a, b in pairs:
        assert a.dtype == torch.float32
        assert distance([a], [b]) < 0.02 * b.norm()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")
def test_states_in_bfloat16_are_taken_under_autocast():
    module = build(SoftmaxConfig(num_samples=64), 200, 32)
    states = torch.randn(8, 32).bfloat16().requires_grad_()
    targets = torch.randint(200, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module.loss(states, targets, 0)
    loss.sum().backward()
    assert loss.dtype == torch.float32
    assert states.grad.dtype == torch.bfloat16
    assert_close(loss, module.loss(states.float(), targets, 0), rtol=0.0, atol=0.03)


# The adaptive softmax


@pytest.mark.parametrize("cutoffs", [(), (4,), (1, 2, 11), (3, 6)])
def test_adaptive_probabilities_sum_to_one_and_are_what_is_scored(cutoffs):
    module, (states, targets) = softmax(kind="adaptive", cutoffs=cutoffs), batch()
    log_probs = module.log_probs(states)
    assert log_probs.shape == (7, 12)
    assert_close(log_probs.exp().sum(dim=1), torch.ones(7, dtype=torch.float64), **EXACT)
    expected = -log_probs.gather(1, targets[:, None]).squeeze(1)
    result = module.nll(states, targets)
    assert_close(result, expected, **EXACT)
    assert_close(gradients(result, states, module), gradients(expected, states, module), **EXACT)
    assert torch.equal(module.loss(states, targets, 5), result)


def test_nll_uses_the_given_rows_of_rare_words():
    module, (states, targets) = softmax(kind="adaptive", cutoffs=(4, 8)), batch()
    rare = module.rare(targets)
    assert [targets[here].min().item() >= 4 for here in rare] == [True, True]
    assert sum(map(len, rare)) == (targets >= 4).sum()
    assert_close(module.nll(states, targets, rare), module.nll(states, targets), rtol=0, atol=0)
    swapped = module.nll(states, targets, (rare[0][:0], rare[1][:0]))
    assert (swapped[targets >= 4] != module.nll(states, targets)[targets >= 4]).all()


def test_adaptive_words_are_those_of_the_equation():
    module, (states, _) = softmax(6, kind="adaptive", cutoffs=(2, 4)), batch(6)
    head = (states @ module.head.weight.T + module.head.bias).log_softmax(dim=1)
    expected = [head[:, :2]]
    for i, tail in enumerate(module.tails):
        narrow = states @ tail.projection.weight.T
        inside = (narrow @ tail.softmax.weight.T + tail.softmax.bias).log_softmax(dim=1)
        expected.append(head[:, 2 + i, None] + inside)
    assert_close(module.log_probs(states), torch.cat(expected, dim=1), **EXACT)
    assert [tail.projection.out_features for tail in module.tails] == [1, 1]


@given(st.integers(1, 100))
def test_adaptive_chooses_cutoffs_for_any_vocabulary(num_words):
    module = AdaptiveSoftmax(SoftmaxConfig(kind="adaptive"), num_words, 8)
    assert module.log_probs(torch.zeros(1, 8)).shape == (1, num_words)
    assert module.cutoffs == tuple(sorted({num_words // 20, num_words // 4} - {0}))


def test_a_tail_that_is_not_met_has_a_gradient_of_zeros():
    module, (states, _) = softmax(kind="adaptive", cutoffs=(4, 8)), batch()
    module.loss(states, torch.tensor([0, 1, 2, 3, 4, 5, 6]), 0).sum().backward()
    first, last = module.tails
    assert all(weight.grad.any() for weight in first.parameters())
    assert all(not weight.grad.any() for weight in last.parameters())


# What is refused


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_samples": 0}, "softmax.num_samples must be between 1 and"),
        ({"num_samples": 999_999_999}, "between 1 and 1048576, found 999999999"),
        ({"chunk": 0}, "softmax.chunk must be between 1 and"),
        ({"cutoffs": (5, 5)}, r"softmax.cutoffs must rise from at least 1, found \[5, 5\]"),
        ({"cutoffs": (9, 5)}, "softmax.cutoffs must rise"),
        ({"cutoffs": (0, 5)}, "softmax.cutoffs must rise from at least 1"),
    ],
)
def test_an_invalid_config_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        SoftmaxConfig(**config)


def test_more_distinct_negatives_than_words_are_refused():
    config = SoftmaxConfig(num_samples=11, unique=True)
    with pytest.raises(ConfigError, match=r"num_samples \(11\) must not exceed the 10 words"):
        build(config, 10, 4)
    build(config, 11, 4)
    build(SoftmaxConfig(num_samples=11), 10, 4)


def test_cutoffs_beyond_the_vocabulary_are_refused():
    config = SoftmaxConfig(kind="adaptive", cutoffs=(5, 10))
    with pytest.raises(ConfigError, match=r"must end below the 10 words .*, found \[5, 10\]"):
        build(config, 10, 4)
    build(config, 11, 4)


def test_tails_have_the_widths_they_are_given():
    config = SoftmaxConfig(kind="adaptive", cutoffs=(3, 6), tail_widths=(4, 1))
    tails = build(config, 12, 4).tails
    assert [tail.softmax.weight.shape for tail in tails] == [(3, 4), (6, 1)]
    quarter = build(SoftmaxConfig(kind="adaptive", cutoffs=(3, 6)), 12, 4).tails
    assert [tail.softmax.weight.shape for tail in quarter] == [(3, 1), (6, 1)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tail_widths": (4,)}, "a width for each of the 2 tails, found [4]"),
        ({"tail_widths": (5, 1)}, "from 1 to the width of a direction, 4, found 5"),
        ({"tail_widths": (4, 0)}, "from 1 to the width of a direction, 4, found 0"),
        ({"tail_widths": (4, 2), "tail_bits": 2}, "width 2 does not fill whole bytes with 2 bits"),
        ({"tail_bits": 4}, "width 1 does not fill whole bytes with 4 bits"),
        ({"tail_bits": 3}, "softmax.tail_bits must be 2, 4 or 8, found 3"),
    ],
)
def test_tails_that_cannot_be_made_or_stored_are_refused(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(SoftmaxConfig(kind="adaptive", cutoffs=(3, 6), **settings), 12, 4)


@pytest.mark.parametrize("bits", [2, 4])
def test_tails_of_few_bits_compute_with_rounded_words_and_train_those_that_are_not(bits):
    config = {"kind": "adaptive", "cutoffs": (3, 6), "tail_widths": (4, 4)}
    module, rounded = softmax(tail_bits=bits, **config), softmax(**config)
    with torch.no_grad():
        rounded.load_state_dict(module.state_dict())
        for tail in rounded.tails:
            numbers, scales = round_rows(tail.softmax.weight, bits)
            assert not torch.equal(numbers * scales, tail.softmax.weight)
            tail.softmax.weight.copy_(numbers * scales)
    states, targets = batch(size=40)
    ours, theirs = module.nll(states, targets), rounded.nll(states, targets)
    assert_close(ours, theirs, **EXACT)
    pairs = zip(gradients(ours, states, module), gradients(theirs, states, rounded), strict=True)
    for a, b in pairs:
        assert_close(a, b, **EXACT)
    with torch.no_grad():
        assert_close(module.nll(states, targets), ours, **EXACT)
        assert_close(module.log_probs(states), rounded.log_probs(states), **EXACT)


# On a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("chunk", [2**26, 10**7])
def test_autocast_on_a_gpu_is_close_to_float32(chunk):
    """The factors are rounded to 8 bits (0.4 %), the sums are not: losses are near 12."""
    module = build(SoftmaxConfig(num_samples=8192, chunk=chunk), 200_000, 512).cuda()
    states = torch.randn(4096, 512, device="cuda", requires_grad=True)
    targets = sampling.draw(4096, 200_000, torch.Generator("cuda").manual_seed(7)).words
    expected = module.loss(states, targets, 0)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = module.loss(states, targets, 0)
    assert result.dtype == torch.float32
    assert_close(result, expected, rtol=0.0, atol=0.02)
    pairs = zip(gradients(result, states, module), gradients(expected, states, module), strict=True)
    for a, b in pairs:
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.01 * b.norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize(
    ("kind", "bits"), [("sampled", 8), ("full", 8), ("adaptive", 8), ("adaptive", 2)]
)
def test_a_gpu_computes_what_a_cpu_computes(kind, bits):
    config = {"cutoffs": (3, 6), "tail_widths": (4, 4), "tail_bits": bits}
    module, (states, targets) = softmax(kind=kind, chunk=40, **config), batch()
    words = torch.tensor([0, 3, 3, 8, 1])
    pairs = []
    for device in ("cpu", "cuda"):
        module, x, y = (
            module.to(device),
            states.detach().to(device).requires_grad_(),
            targets.to(device),
        )
        loss = module.nll(x, y)
        if kind == "sampled":
            loss = module.loss_against(
                x, y, Candidates(words.to(device), torch.zeros(5, device=device))
            )
        pairs.append([loss, *gradients(loss, x, module)])
    for a, b in zip(*pairs, strict=True):
        assert_close(b.cpu(), a, **EXACT)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("unique", [False, True])
def test_the_seed_alone_decides_the_negatives_on_a_gpu(unique):
    module = softmax(1000, num_samples=100, unique=unique).cuda()
    states, targets = (x.cuda() for x in batch(1000))
    before = torch.cuda.get_rng_state()
    first = module.loss(states, targets, 1)
    assert torch.equal(module.loss(states, targets, 1), first)
    assert not torch.equal(module.loss(states, targets, 2), first)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["full", "sampled", "adaptive"])
@pytest.mark.parametrize("chunk", [1, 12, 13, 30, 10**6])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_without_gradients_the_nll_is_the_same(kind, chunk, size):
    module, (states, targets) = softmax(scale=3.0, kind=kind, chunk=chunk), batch(size=size)
    expected = module.nll(states, targets)
    assert expected.requires_grad
    with torch.no_grad():
        result = module.nll(states, targets)
        by_definition = -module.log_probs(states).gather(1, targets[:, None]).squeeze(1)
    assert_close(result, expected.detach(), **EXACT)
    assert_close(result, by_definition, **EXACT)


@torch.no_grad()
def test_without_gradients_the_logits_never_exist_at_once_either():
    module, (states, targets) = softmax(100, 2, chunk=350), batch(100, 2, size=50)
    with Largest() as largest:
        module.nll(states, targets)
    assert largest.numel == 300  # whole rows of 100, as many as fit
