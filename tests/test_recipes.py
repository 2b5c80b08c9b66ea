"""Every recipe is read, built and run for an update or two."""

import pytest
import torch

from elmore import recipes
from elmore.lm import config
from elmore.lm.config import PretrainConfig
from elmore.lm.language_model import LanguageModel
from elmore.lm.pretrain import pretrain
from elmore.model import softmax
from elmore.model.bilm import BiLM
from elmore.tasks import registry
from elmore.tasks.embedding.network import Widths
from elmore.tasks.registry import TASKS
from elmore.train import optimizers, schedule
from elmore.train.fit import Report
from elmore.weights.modules import on_meta_device
from tests.support import toy_corpus
from tests.support.cli_runner import run_elmore

NAMES = sorted(path.stem for path in (recipes.FOLDER / "bilm").glob("*.toml"))
NUM_WORDS = 200_000


def built(recipe: PretrainConfig, num_words: int = NUM_WORDS) -> LanguageModel:
    """The model of a recipe, without memory."""
    with on_meta_device():
        return LanguageModel(
            BiLM(recipe.model),
            softmax.build(recipe.softmax, num_words, recipe.model.lstm.output_dim),
        )


def num_parameters(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def test_the_recipes_are_those_the_documents_name():
    assert {"tiny", "small", "medium", "original"} <= set(NAMES)


def test_the_help_of_pretrain_lists_every_recipe_in_its_folder(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    result = run_elmore("pretrain", "--help")
    assert result.code == 0, result.err
    assert f"{', '.join(NAMES)}, or a .toml file" in result.out


@pytest.mark.parametrize(
    ("name", "count"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)]
)
def test_a_published_size_has_its_published_number_of_parameters(name, count):
    model = built(config.read_pretrain_recipe(name))
    assert num_parameters(model.bilm) == count
    width = model.bilm.config.lstm.output_dim
    assert num_parameters(model.softmax) == NUM_WORDS * (width + 1)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_can_be_optimised_and_ends(name):
    recipe = config.read_pretrain_recipe(name)
    assert optimizers.build_optimizer(built(recipe), recipe.train).param_groups
    total = recipe.train.num_steps(1000)
    assert 0 < schedule.lr_factor(recipe.train, total - 1, total) <= 1
    assert recipe.train.warmup_steps < total


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tiny"])
def test_every_recipe_takes_a_step_when_it_is_made_narrow(corpus, tmp_path, name):
    """All of it but the widths: layers, highways, softmax, optimiser, resets."""
    narrow = (
        "model.characters.filters=[[1, 4], [3, 4]]",
        "model.lstm.cell_dim=8",
        "model.lstm.output_dim=4",
        "softmax.num_samples=64",
        "softmax.cutoffs=[20]",
        "stream.batch_size=4",
        "stream.unroll_steps=5",
        "train.steps=2",
    )
    reports = ran(name, narrow, corpus, tmp_path / "run")
    assert [report.step for report in reports] == [2]
    assert reports[-1].scores["perplexity"] > 1


def test_the_tiny_recipe_trains_unchanged(tmp_path):
    text = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(120))
    (first,) = ran("tiny", ("train.steps=2",), text, tmp_path / "run")
    assert first.num_steps == 2
    assert first.metrics["count"] == 2 * 32 * 20


def ran(name: str, overrides: tuple[str, ...], corpus, out) -> list[Report]:
    recipe = config.read_pretrain_recipe(name, overrides)
    return list(pretrain(recipe, corpus.path, out, device="cpu"))


def test_the_original_is_trained_as_the_paper_has_it():
    recipe = config.read_pretrain_recipe("original")
    train = recipe.train
    assert (recipe.stream.batch_size, recipe.stream.unroll_steps) == (3 * 128, 20)
    assert recipe.stream.reset_probability == 0
    assert (recipe.softmax.kind, recipe.softmax.num_samples) == ("sampled", 8192)
    assert (train.epochs, train.optimizer, train.lr) == (10, "adagrad", 0.2)
    assert {schedule.lr_factor(train, step, 1000) for step in range(1000)} == {1.0}
    assert recipe.model.dropout == 0.1
    # of the loss itself, not of the loss times 20 steps
    assert train.max_grad_norm == 10 / 20
    assert train.adagrad_init == pytest.approx(1 / 20**2)


def test_fine_tuning_has_a_recipe_too():
    recipe = config.read_finetune_recipe()
    for train in (recipe.softmax_train, recipe.train):
        assert train.num_steps(1000) == 3000
    assert recipe.train.lr < recipe.softmax_train.lr
    assert recipe.stream.reset_probability == 1.0


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_recipes_that_are_read_whole_and_end(name):
    kind = registry.find_task(name)
    assert "recipe" in registry.list_recipes(kind)
    for recipe_name in registry.list_recipes(kind):
        recipe = registry.load_recipe(kind, recipe_name)
        with on_meta_device():
            assert kind(recipe).build_head(Widths(8, 4), ["O"])
        assert recipe.train.patience > 0  # the score decides when it is enough
        assert (recipe.train.evaluate_every, recipe.train.save_every) == (0, 0)  # once an epoch


@pytest.mark.parametrize("name", TASKS)
def test_no_recipe_drops_an_elmo_vector_almost_whole(name):
    """Dropout on ELMo comes before that on the whole input of the task model."""
    kind = registry.find_task(name)
    for recipe_name in registry.list_recipes(kind):
        recipe = registry.load_recipe(kind, recipe_name)
        rate = getattr(recipe.model, "input_dropout", recipe.model.dropout)
        assert (1 - recipe.elmo.dropout) * (1 - rate) > 0.39, recipe_name


GLOVE, ELMO = 300, 1024
"""Widths of the paper's vectors."""


def lstm(inputs: int, hidden: int, gates: int = 4) -> int:
    """Count the weights of one direction: gates of inputs and states, and two biases each."""
    return gates * hidden * (inputs + hidden + 2)


def linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def squad_size(inputs: int) -> int:
    hidden, width, attended = 90, 180, 180 + ELMO
    recurrent = [2 * lstm(size, hidden, gates=3) for size in (inputs, width, width, 2 * width)]
    trilinear = 3 * attended + 3 * width
    dense = linear(4 * attended, width) + linear(3 * width, width) + 2 * linear(width, 1)
    return sum(recurrent) + trilinear + dense


def sst_size(inputs: int) -> int:
    maxout = linear(4 * 600, 4 * 1200) + linear(1200, 4 * 600) + linear(600, 4 * 5)
    return linear(inputs, 300) + 2 * lstm(300, 300) + 2 * lstm(3 * 600, 300) + 600 + maxout


def snli_size(inputs: int) -> int:
    dense = linear(4 * (600 + ELMO), 300) + linear(4 * 600, 300) + linear(300, 3)
    return 2 * lstm(inputs, 300) + 2 * lstm(300, 300) + dense


def ner_size(inputs: int) -> int:
    return 2 * lstm(inputs, 200) + 2 * lstm(400, 200) + linear(400, 9) + (9 + 2) ** 2


def srl_size(inputs: int) -> int:
    """Count six matrices of inputs in each layer, five of states, and five biases."""
    layers = [6 * 300 * width + 5 * 300 * (300 + 1) for width in (inputs + 100, *[300] * 7)]
    finder = 2 * lstm(inputs, 100) + linear(200, 1)
    return sum(layers) + finder + 2 * 100 + linear(300, 5)


def coref_size(inputs: int) -> int:
    states, span = 400, 2 * 400 + inputs + 20
    score = linear(150, 150) + linear(150, 1)
    mention = linear(states, 1) + 10 * 20 + linear(span, 150) + score
    features = 20 * (9 + 3 + 1 + 7) + 3 * 20 * 150  # distances, speakers, unknown and seven genres
    return 2 * lstm(inputs, 200) + mention + (3 * span + 1) * 150 + features + score


@pytest.mark.parametrize(
    ("name", "characters", "labels", "size"),
    [
        ("ner", 128, "O B-PER I-PER B-LOC I-LOC B-ORG I-ORG B-MISC I-MISC", ner_size),
        ("sst", 0, "1 2 3 4 5", sst_size),
        ("snli", 0, "entailment neutral contradiction", snli_size),
        ("squad", 100, "start end", squad_size),
        ("coref", 150, "bc bn mz nw pt tc wb", coref_size),
        ("srl", 0, "O B-A0 I-A0 B-V I-V", srl_size),
    ],
)
def test_the_network_of_the_paper_has_as_many_weights_as_on_paper(name, characters, labels, size):
    kind = registry.find_task(name)
    recipe = registry.load_recipe(kind, "paper")
    sizes = recipe.characters
    assert characters == (sizes.num_filters * len(sizes.widths) if sizes else 0)
    inputs = GLOVE + characters + ELMO
    has_output = recipe.elmo.insert_at == "both"
    with on_meta_device():
        network = kind(recipe).build_head(Widths(inputs, ELMO * has_output), labels.split())
    assert num_parameters(network) == size(inputs)
